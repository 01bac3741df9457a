# SPDX-License-Identifier: Apache-2.0
"""os_acc programs devices as the flavor, its profile or the server's image says."""

import uuid

import pytest

import os_acc
from cyborg.objects import manifests
from os_acc import libvirt
from tests.fixtures.cloud import Cloud, eventually
from tests.fixtures.fpga import ADDRESS, FIRST_FUNCTION, FUNCTION, REGION_TYPE, FpgaHost, gbs

FPGA = {'resources:FPGA': '1'}
PROJECT = 'p1'
OTHER_FUNCTION = '0c3fcc9a-5f04-4b5c-9c4f-2d8f25f3a5be'


@pytest.fixture(scope='module')
def cloud_of_many(tmp_path_factory):
    made = Cloud(tmp_path_factory.mktemp('cloud'))
    made.start()
    made.host(make=FpgaHost)
    yield made
    made.stop()


@pytest.fixture
def cloud(cloud_of_many):
    """With a region that does at first what it does from the factory, and an empty Glance."""
    cloud, host = cloud_of_many, cloud_of_many.hosts['compute1']
    os_acc.initialize(cloud.standalone.conf, host='compute1', transport=cloud.standalone.transport)
    cloud.profile('fpga', FPGA)
    yield cloud
    for arq in cloud.arqs():
        cloud.call('DELETE', f'/accelerator_requests?arqs={arq["uuid"]}')
    for profile in cloud.get('/device_profiles')['device_profiles']:
        cloud.call('DELETE', f'/device_profiles/{profile["uuid"]}')
    cloud.glance.images.clear()
    cloud.glance.refuses = None
    host.loaded.clear()
    host.program(ADDRESS, 0, FIRST_FUNCTION)
    cloud.agent().inventory.wake(must_report=True)
    eventually(lambda: FIRST_FUNCTION in region(cloud)['attributes_list'])
    eventually(lambda: region(cloud)['bitstream_id'] is None)


def region(cloud):
    [found] = cloud.get(f'/deployables?name=compute1_{ADDRESS}_region0')['deployables']
    return found


def add(cloud, function=FUNCTION, **facts):
    """An image that fits the region."""
    return cloud.glance.add(
        gbs(function),
        **{'visibility': 'public', 'region_uuid': REGION_TYPE, 'function_uuid': function} | facts,
    )


def vm_image(cloud, **properties):
    """The image of a server, which says what is to be loaded for it."""
    facts = {'visibility': 'public', 'disk_format': 'qcow2'}
    accel = {f'accel:{key}': value for key, value in properties.items()}
    return cloud.glance.add(b'a disk', **facts, **accel)


def server(image=None):
    return {'uuid': str(uuid.uuid4()), 'name': 'vm', 'project_id': PROJECT, 'image_uuid': image}


def plug(cloud, specs, instance=None):
    provider = cloud.rp(name='region0')
    return os_acc.plug(instance or server(), {'uuid': provider}, specs)


# -- what the flavor says ----------------------------------------------------------------------


@pytest.mark.parametrize(
    'key, value',
    [
        ('accel:bitstream_id', '{image}'),
        ('accel:bitstream_name', 'gzip.gbs'),
        ('accel:function_id', FUNCTION),
        ('accel:function_name', 'gzip'),
        ('bitstream:{image}', 'required'),
        (f'function:{FUNCTION}', 'required'),
        ('function:gzip', 'required'),
    ],
)
def test_a_flavor_names_an_image_by_its_id_its_name_or_what_it_does(cloud, key, value):
    image = add(cloud, name='gzip.gbs', function_name='gzip')
    [plugged] = plug(cloud, FPGA | {key.format(image=image): value.format(image=image)})
    assert plugged['pci_id'] == ADDRESS
    assert region(cloud)['bitstream_id'] == image
    assert len(cloud.hosts['compute1'].loaded) == 1


def test_the_image_of_a_function_is_chosen_by_the_type_of_the_region(cloud):
    add(cloud, function_name='gzip', region_uuid=str(uuid.uuid4()))
    fitting = add(cloud, function_name='gzip')
    plug(cloud, FPGA | {'accel:function_name': 'gzip'})
    assert region(cloud)['bitstream_id'] == fitting


@pytest.mark.parametrize(
    'more, sentence',
    [
        ({'accel:function_name': 'gzip'}, '2 images match: '),
        ({'accel:function_name': 'zstd'}, 'Glance has no active image whose function_name'),
        ({f'bitstream:{uuid.UUID(int=1)}': 'required'}, 'Glance does not have it'),
        ({'bitstream:gzip.gbs': 'required'}, 'asked for by its name with accel:bitstream_name'),
        ({f'bitstream:{uuid.UUID(int=1)}': 'yes'}, 'must be required'),
        ({'function:not a word': 'required'}, 'accel:function_name must be letters, digits'),
        (
            {f'bitstream:{uuid.UUID(int=1)}': 'required', 'function:gzip': 'required'},
            'only one of accel:bitstream_id, accel:function_name can be given',
        ),
        (
            {'accel:function_name': 'zstd', 'function:gzip': 'required'},
            'function:gzip contradicts accel:function_name=zstd',
        ),
    ],
)
def test_an_image_that_is_not_to_be_had_is_said_and_nothing_is_held(cloud, more, sentence):
    for _ in range(2):
        add(cloud, function_name='gzip')
    with pytest.raises(os_acc.PlugFailed, match=sentence):
        plug(cloud, FPGA | more)
    assert cloud.arqs() == []
    assert cloud.hosts['compute1'].loaded == []


def test_a_flavor_with_a_profile_leaves_programming_to_the_profile(cloud):
    image = add(cloud)
    cloud.profile('programmed', FPGA | {'accel:bitstream_id': image})
    with pytest.raises(os_acc.PlugFailed, match='The flavor asks for bitstream:'):
        plug(cloud, {'accel:device_profile': 'programmed', f'bitstream:{image}': 'required'})
    plug(cloud, {'accel:device_profile': 'programmed'})
    assert region(cloud)['bitstream_id'] == image


@pytest.mark.parametrize('target, is_attached', [('VM', True), ('host', False), ('none', False)])
def test_what_is_not_for_the_guest_is_programmed_but_not_attached(cloud, target, is_attached):
    image = add(cloud)
    [plugged] = plug(
        cloud, FPGA | {'accel:attach_target': target, f'bitstream:{image}': 'required'}
    )
    assert region(cloud)['bitstream_id'] == image
    assert plugged['pci_id'] == ADDRESS
    assert plugged.get('attach_target') == (None if is_attached else target)
    assert bool(libvirt.hostdevs([plugged])) is is_attached


# -- what the image of the server says ---------------------------------------------------------


@pytest.mark.parametrize(
    'specs', [FPGA, {'accel:device_profile': 'fpga'}], ids=['plain', 'profile']
)
@pytest.mark.parametrize(
    'key, value',
    [
        ('bitstream_id', '{image}'),
        ('bitstream_name', 'gzip.gbs'),
        ('function_id', FUNCTION),
        ('function_name', 'gzip'),
    ],
)
def test_the_image_of_a_server_names_what_is_loaded_for_it(cloud, specs, key, value):
    image = add(cloud, name='gzip.gbs', function_name='gzip')
    instance = server(vm_image(cloud, **{key: value.format(image=image)}))
    plugged = plug(cloud, specs, instance)
    assert region(cloud)['bitstream_id'] == image
    # repeated, it is the same, also after the server's image was deleted
    cloud.glance.images.pop(instance['image_uuid'])
    assert plug(cloud, specs, instance) == plugged
    assert os_acc.unplug(instance) == 1


def test_a_server_whose_image_says_nothing_or_is_gone_gets_the_region_as_it_is(cloud):
    for image in (vm_image(cloud), str(uuid.uuid4()), None):
        instance = server(image)
        assert plug(cloud, FPGA, instance)
        assert os_acc.unplug(instance) == 1
    assert cloud.hosts['compute1'].loaded == []


@pytest.mark.parametrize('is_spelled_otherwise', [False, True])
def test_a_flavor_and_an_image_may_say_the_same(cloud, is_spelled_otherwise):
    image = add(cloud)
    wish = FUNCTION.upper().replace('-', '') if is_spelled_otherwise else FUNCTION
    plug(cloud, FPGA | {'accel:function_id': FUNCTION}, server(vm_image(cloud, function_id=wish)))
    assert region(cloud)['bitstream_id'] == image


@pytest.mark.parametrize('has_profile', [False, True])
def test_a_flavor_and_an_image_that_contradict_each_other_are_refused(cloud, has_profile):
    add(cloud)
    other = add(cloud, OTHER_FUNCTION)
    own = {'accel:function_id': FUNCTION}
    cloud.profile('programmed', FPGA | own)
    specs = {'accel:device_profile': 'programmed'} if has_profile else FPGA | own
    with pytest.raises(os_acc.PlugFailed) as caught:
        plug(cloud, specs, server(vm_image(cloud, bitstream_id=other)))
    assert caught.value.kind == 'ServerImageRefused'
    assert f'it asks for bitstream_id {other}, but the flavor or its device profile for' in str(
        caught.value
    )
    assert cloud.arqs() == []
    assert cloud.hosts['compute1'].loaded == []


@pytest.mark.parametrize(
    'properties, sentence',
    [
        ({'bitstream_id': 'none !'}, 'accel:bitstream_id must be the uuid of an image'),
        ({'function_name': 'gzip', 'function_id': FUNCTION}, 'only one of them is allowed'),
        (
            {'attach_target': 'none'},
            'the properties accel:attach_target of that image are not known',
        ),
        ({'function_name': 'zstd'}, 'Glance has no active image whose function_name'),
    ],
)
def test_an_image_whose_wish_cannot_be_followed_fails_the_plug(cloud, properties, sentence):
    add(cloud)
    with pytest.raises(os_acc.PlugFailed, match=sentence):
        plug(cloud, FPGA, server(vm_image(cloud, **properties)))
    assert cloud.arqs() == []


def test_an_image_that_the_project_does_not_see_fails_the_plug(cloud):
    image = cloud.glance.add(b'a disk', owner='others')
    with pytest.raises(os_acc.PlugFailed, match=f'project {PROJECT} cannot see it'):
        plug(cloud, FPGA, server(image))


def test_while_glance_is_away_the_outcome_is_open_and_nothing_is_held(cloud, monkeypatch):
    monkeypatch.setattr(os_acc, '_link', os_acc._link._replace(call_timeout=1))
    instance = server(vm_image(cloud, function_id=FUNCTION))
    cloud.glance.refuses = 503
    with pytest.raises(os_acc.CyborgAgentUnavailable, match='Glance'):
        plug(cloud, FPGA, instance)
    assert cloud.arqs() == []


def call_conductors_as_older(agent, monkeypatch):
    """It then calls them as if they were of the previous release."""
    choice = agent.worker._conductor._client._choice
    monkeypatch.setattr(choice, '_newest', lambda: manifests.OLDEST)


@pytest.fixture
def older(cloud, monkeypatch):
    call_conductors_as_older(cloud.agent(), monkeypatch)


def test_an_older_conductor_plugs_servers_whose_image_asks_for_nothing(cloud, older):
    for image in (vm_image(cloud), str(uuid.uuid4()), None):
        instance = server(image)
        assert plug(cloud, FPGA, instance)
        assert os_acc.unplug(instance) == 1


def test_an_older_conductor_does_not_ignore_what_an_image_asks_for(cloud, older, monkeypatch):
    monkeypatch.setattr(os_acc, '_link', os_acc._link._replace(call_timeout=1))
    instance = server(vm_image(cloud, bitstream_id=add(cloud)))
    with pytest.raises(os_acc.CyborgAgentUnavailable, match='when all are upgraded'):
        plug(cloud, FPGA, instance)
    assert cloud.arqs() == []


@pytest.fixture(scope='module')
def plain_host(cloud_of_many):
    """A host with no driver that loads images."""
    return cloud_of_many.host('compute2')


def test_a_host_that_programs_nothing_needs_no_glance_beside_an_older_conductor(
    cloud, plain_host, monkeypatch
):
    """Else it would read each server's image until all conductors are upgraded."""
    call_conductors_as_older(cloud.agent('compute2'), monkeypatch)
    os_acc.initialize(cloud.standalone.conf, host='compute2', transport=cloud.standalone.transport)
    monkeypatch.setattr(os_acc, '_link', os_acc._link._replace(call_timeout=1))
    image, provider = vm_image(cloud), cloud.rp('compute2')
    cloud.glance.refuses = 503
    assert os_acc.plug(server(image), {'uuid': provider}, FPGA)


def test_a_host_without_glance_does_not_read_images(cloud, monkeypatch):
    monkeypatch.setattr(cloud.agent().worker._bitstreams, '_glance', None)
    asked = len(cloud.glance.requests)
    assert plug(cloud, FPGA, server(vm_image(cloud, function_id=FUNCTION)))
    assert len(cloud.glance.requests) == asked
    assert cloud.hosts['compute1'].loaded == []
