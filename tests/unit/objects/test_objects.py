# SPDX-License-Identifier: Apache-2.0
"""Objects sent by RPC do not change without a new version."""

import datetime
import json

import pytest
from oslo_versionedobjects import base, fixture

from cyborg import errors, objects

MOMENT = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)

#: class: version-hash of its fields. Change a field: raise VERSION, say why beside it, name the
#: new fields in ``added``, enter the version in cyborg/objects/manifests.py, and put the new value
#: here.
FINGERPRINTS = {
    'Agent': '1.0-663ed6bfd194dcea75869f8b3b237113',
    'Arq': '1.0-5d8132ba2236be5f8d3977d725b13243',
    'AttachHandle': '1.2-b771225e40fc152f1f5c9c9763d74e8f',
    'Attribute': '1.0-20981dba2a4492ea70c79e6ce923af1d',
    'Availability': '1.0-7b7b2a242a8662fec1dbed9db00165bb',
    'Binding': '1.0-521e536e43341e64b7b2ec85729e40b8',
    'ControlPath': '1.0-622e5cd6501cf09e4f114200add598ef',
    'Deployable': '1.5-b5ad16c312cc1f0e0d8627f59f173d83',
    'DeployableUnits': '1.0-7c4e6e6cd5cdd3f6dc5ef47e18567ecc',
    'Device': '1.2-b5ea17f69690767b94e31d358061b041',
    'DeviceProfile': '1.1-392b9fca4fbe33a2a2ecbca2888f20b9',
    'DeviceUnits': '1.0-2e550963d52ca24ec22aaac92d2c954f',
    'Driver': '1.0-cda7f95c2eff3fb16779e5c15cc4ef25',
    'GroupAvailability': '1.0-541be01e9e2fbe9a58723837478714df',
    'HandBack': '1.1-d5e97da6c982a5eabba99b2166e622fb',
    'HostAvailability': '1.0-b73f0940267f3f236551cc44d972b6d7',
    'HostUnits': '1.0-8d527c751dffe4b21147e2817058942d',
    'ModelCapacity': '1.0-95437c955d2302e1895ab6e57fbd59e4',
    'Plan': '2.1-b8cf41486372da0c9f2cd55cf4b3a1c2',
    'ProjectUsage': '1.0-bde1e49a71c4754210b15e83bc511f59',
    'Provider': '1.0-bb052c05bbc37c0cbfba7521db04c92f',
    'Report': '1.6-5986ffec91713c36623ca8cb8f5301e9',
    'Step': '1.0-1379cce3ba35195642ecbfcaed6b06f2',
    'Task': '1.0-d523ca9c490e4b6b75956e2bf008227f',
    'TaskResult': '1.0-3d290aa4431859f68ebb5c7cc999c8c3',
    'Transition': '1.0-aff5758f2a1b7fc1477fa86d712ef690',
    'Unit': '1.0-665c4b146d66b3b85389d50c83821186',
    'Usage': '1.0-b57ea4cadb9957810d9050c5f2cb09ca',
}


def ours():
    return {
        name: classes
        for name, classes in base.VersionedObjectRegistry.obj_classes().items()
        if classes[0].OBJ_PROJECT_NAMESPACE == 'cyborg'
    }


def test_no_object_changes_without_a_version():
    checker = fixture.ObjectVersionChecker(ours())
    expected, actual = checker.test_hashes(FINGERPRINTS)
    assert actual == expected


def test_an_object_survives_the_wire():
    handle = objects.AttachHandle(key='k', type='PCI', info={'bus': '3b'})
    part = objects.Deployable(name='n', attach_handles=[handle], traits=['CUSTOM_A'])
    device = objects.Device(key='d', type='GPU', vendor='10de', driver_name='x', deployables=[part])
    serializer = objects.Serializer()
    wire = json.loads(json.dumps(serializer.serialize_entity(None, device)))
    back = serializer.deserialize_entity(None, wire)
    assert back == device
    assert back.deployables[0].attach_handles[0].is_host_prepared is False


@pytest.mark.parametrize(
    'odd',
    [
        pytest.param([], id='alike'),
        pytest.param([objects.AttachHandle(key='odd', type='PCI', info={})], id='not all alike'),
        pytest.param([objects.ControlPath(type='PCI', info={})], id='of another kind'),
    ],
)
def test_many_objects_survive_the_wire(odd):
    handles = [
        objects.AttachHandle(
            uuid=f'1b0ba0f3-4b5c-4b55-8a5c-8a5b7b0d1c0{n}',
            key=f'k{n}',
            type='PCI',
            info={'n': str(n)},
            created_at=MOMENT,
        )
        for n in range(3)
    ]
    sent = [*handles, *odd]
    serializer = objects.Serializer()
    wire = json.loads(json.dumps(serializer.serialize_entity(None, sent)))
    assert serializer.deserialize_entity(None, wire) == sent
    part = objects.Deployable(name='n', attach_handles=handles)
    wire = json.loads(json.dumps(serializer.serialize_entity(None, {'a': [part, part]})))
    assert serializer.deserialize_entity(None, wire) == {'a': [part, part]}


def test_many_objects_of_a_version_that_is_not_known_are_refused():
    serializer = objects.Serializer()
    wire = serializer.serialize_entity(None, [objects.Deployable(name=name) for name in 'ab'])
    wire['cyborg_object.version'] = '9.0'
    with pytest.raises(errors.IncompatibleRelease, match='Deployable 9.0.*reads Deployable'):
        serializer.deserialize_entity(None, wire)


def test_defaults_are_there_without_asking_and_are_not_shared():
    make = objects.Deployable
    for one, other in ((make(name='a'), make(name='b')), (make.of({}), make.of({}))):
        one.traits.append('CUSTOM_A')
        assert other.traits == []
    assert other.resource_class is None


def test_what_the_builder_left_out_has_no_value():
    device = objects.Device(key='d', type='GPU', vendor='10de', driver_name='x')
    assert device.given('uuid') is None
    assert device.given('uuid', 'none') == 'none'
    with pytest.raises(AttributeError):
        _ = device.uuid
