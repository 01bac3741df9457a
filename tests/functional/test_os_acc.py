# SPDX-License-Identifier: Apache-2.0
"""Both doors lead to the same engine: what os_acc plugs, the REST API shows."""

import threading
import uuid
from concurrent import futures

import pytest

import os_acc
from cyborg.accelerator.drivers import fake
from cyborg.sim import nova as sim_nova
from tests.fixtures.cloud import FakeHost, eventually

FPGA = {'resources:FPGA': '2', 'trait:CUSTOM_FAKE_DEVICE': 'required'}


@pytest.fixture
def compute(cloud):
    """What nova-compute has: os_acc, initialised for its host."""
    cloud.host()
    os_acc.initialize(cloud.standalone.conf, host='compute1',
                      transport=cloud.standalone.transport)
    return cloud


def initialize(cloud, host, timeout=60):
    os_acc.initialize(cloud.standalone.conf, host=host, transport=cloud.standalone.transport,
                      timeout=timeout)


def server():
    return {'uuid': str(uuid.uuid4()), 'name': 'vm', 'project_id': 'p1',
            'image_uuid': str(uuid.uuid4())}


def test_what_is_plugged_is_shown_and_what_is_unplugged_is_gone(compute):
    compute.profile('two', FPGA)
    instance = server()
    plugged = os_acc.plug(instance, {'uuid': compute.rp()}, {'accel:device_profile': 'two'})
    arqs = compute.arqs(instance=instance['uuid'])
    assert {each['arq_uuid'] for each in plugged} == {arq['uuid'] for arq in arqs}
    assert {arq['state'] for arq in arqs} == {'Bound'}
    assert {arq['project_id'] for arq in arqs} == {'p1'}
    assert all(each['pci_id'].startswith('0000:0c:') for each in plugged)
    assert os_acc.unplug(instance) == 2
    assert compute.arqs(instance=instance['uuid']) == []
    assert os_acc.unplug(instance) == 0


def test_a_repeated_plug_answers_the_same_devices(compute):
    compute.profile('two', FPGA)
    instance = server()
    specs = {'accel:device_profile': 'two'}
    first = os_acc.plug(instance, {'uuid': compute.rp()}, specs)
    assert os_acc.plug(instance, {'uuid': compute.rp()}, specs) == first
    assert len(compute.arqs()) == 2


def test_what_rest_bound_can_be_unplugged(compute):
    compute.profile('two', FPGA)
    instance = server()
    compute.bind(compute.request('two'), instance=instance['uuid'])
    assert os_acc.unplug(instance) == 2


def test_a_flavor_without_a_profile_says_itself_what_it_wants(compute):
    instance = server()
    plugged = os_acc.plug(instance, {'uuid': compute.rp()},
                          {'resources:FPGA': '1', 'resources:VCPU': '4', 'hw:cpu_policy': 'x'})
    assert len(plugged) == 1


def test_traits_of_a_flavor_that_speak_of_the_host_are_not_asked_of_the_device(compute):
    plugged = os_acc.plug(server(), {'uuid': compute.rp()}, {
        'resources:FPGA': '1', 'trait:CUSTOM_FAKE_DEVICE': 'required',
        'trait:HW_CPU_X86_AVX2': 'required', 'trait:COMPUTE_NODE': 'required'})
    assert len(plugged) == 1


def test_novas_mapping_of_groups_to_providers_is_understood(compute):
    compute.profile('two', FPGA)
    plugged = os_acc.plug(server(), {'device_profile_0': [compute.rp()]},
                          {'accel:device_profile': 'two'})
    assert len(plugged) == 2


@pytest.mark.parametrize('specs, sentence', [
    ({'accel:device_profile': 'unknown'}, 'Device profile not found'),
    ({'resources:VGPU': '1'}, 'asks neither for a device profile'),
    ({'resources:FPGA': '17'}, 'no free attach handle'),
    ({'resources:FPGA': '1', 'trait:CUSTOM_NOT_THERE': 'required'}, 'does not fit'),
    ({'accel:device_profile': 'gzip'}, 'asks for accel:function_id=3AFB, which this release does'),
    ({'accel:device_profile': 'two', 'accel:function_name': 'gzip'}, 'The flavor asks for accel:'),
    ({'resources:FPGA': '1', 'accel:function_id': '3AFB'}, 'The flavor asks for accel:function'),
    ({'resources:FPGA': '1', 'accel:no_such_key': 'x'}, 'The flavor asks for accel:no_such_key=x'),
    ({'resources:FPGA': '1', f'bitstream:{uuid.UUID(int=1)}': 'required'},
     'The flavor asks for bitstream:00000000'),
])
def test_a_plug_that_cannot_be_done_says_why_and_leaves_nothing(compute, specs, sentence):
    compute.profile('two', FPGA)
    compute.profile('gzip', FPGA | {'accel:function_id': '3AFB'})
    with pytest.raises(os_acc.PlugFailed, match=sentence):
        os_acc.plug(server(), {'uuid': compute.rp()}, specs)
    assert compute.arqs() == []


# -- initialize() ----------------------------------------------------------------------------


def test_a_new_compute_host_is_ready_before_nova_has_created_its_compute_node(cloud):
    host = cloud.hosts['new1'] = FakeHost('new1', cloud.directory / 'new1')
    cloud.standalone.add_host(host)
    # initialize() returns though there is no compute node
    initialize(cloud, 'new1')
    assert not cloud.agent('new1').inventory.is_ready.is_set()
    # nova-compute creates it afterwards, and the agent publishes its devices
    sim_nova.make_compute_node(cloud.standalone.placement, 'new1')
    cloud.agent('new1').inventory.wake()
    eventually(cloud.agent('new1').inventory.is_ready.is_set)
    assert os_acc.plug(server(), {'uuid': cloud.rp('new1')}, {'resources:FPGA': '1'})


def test_a_driver_whose_first_look_fails_is_waited_for(cloud, monkeypatch):
    is_mended, look = threading.Event(), fake.FakeDriver.discover

    def discover(self):
        if not is_mended.is_set():
            raise RuntimeError('the bus hangs')
        return look(self)
    monkeypatch.setattr(fake.FakeDriver, 'discover', discover)
    cloud.host('bad1')
    with pytest.raises(os_acc.CyborgAgentUnavailable, match='Driver fake_driver has not answered'):
        initialize(cloud, 'bad1', timeout=1)
    is_mended.set()
    # it is asked again without being told
    initialize(cloud, 'bad1')


def test_a_look_that_is_under_way_is_waited_for(compute, monkeypatch):
    has_begun, may_end, look = threading.Event(), threading.Event(), fake.FakeDriver.discover

    def discover(self):
        has_begun.set()
        may_end.wait()
        return look(self)
    monkeypatch.setattr(fake.FakeDriver, 'discover', discover)
    compute.agent().inventory.wake()
    assert has_begun.wait(60)
    with futures.ThreadPoolExecutor(max_workers=1) as executor:
        waiting = executor.submit(initialize, compute, 'compute1')
        with pytest.raises(futures.TimeoutError):
            waiting.result(timeout=1)
        may_end.set()
        assert waiting.result() is None
