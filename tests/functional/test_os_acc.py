# SPDX-License-Identifier: Apache-2.0
"""Both doors lead to the same engine: what os_acc plugs, the REST API shows."""

import threading
import uuid
from concurrent import futures

import oslo_messaging as messaging
import pytest

import os_acc
from cyborg.accelerator.drivers import fake
from cyborg.conductor.rpcapi import ConductorAPI
from cyborg.sim import nova as sim_nova
from os_acc import libvirt
from tests.fixtures.cloud import Cloud, FakeHost, eventually
from tests.functional.test_server_actions import SETTINGS, Compute

FPGA = {'resources:FPGA': '2', 'trait:CUSTOM_FAKE_DEVICE': 'required'}


@pytest.fixture
def compute(cloud):
    """What nova-compute has: os_acc, initialised for its host."""
    cloud.host()
    os_acc.initialize(cloud.standalone.conf, host='compute1', transport=cloud.standalone.transport)
    return cloud


@pytest.fixture
def gpu_cloud(tmp_path):
    """A cloud whose host makes a mediated device for each vGPU."""
    made = Cloud(tmp_path, more=SETTINGS)
    made.start()
    made.host('compute1', Compute)
    initialize(made, 'compute1')
    yield made
    made.stop()


def initialize(cloud, host, timeout=60):
    os_acc.initialize(
        cloud.standalone.conf, host=host, transport=cloud.standalone.transport, timeout=timeout
    )


def server():
    return {
        'uuid': str(uuid.uuid4()),
        'name': 'vm',
        'project_id': 'p1',
        'image_uuid': str(uuid.uuid4()),
    }


def test_what_is_plugged_is_shown_and_what_is_unplugged_is_gone(compute):
    compute.profile('two', FPGA)
    instance = server()
    plugged = os_acc.plug(instance, {'uuid': compute.rp()}, {'accel:device_profile': 'two'})
    arqs = compute.arqs(instance=instance['uuid'])
    assert {each['arq_uuid'] for each in plugged} == {arq['uuid'] for arq in arqs}
    assert {arq['state'] for arq in arqs} == {'Bound'}
    assert {arq['project_id'] for arq in arqs} == {'p1'}
    assert all(each['pci_id'].startswith('0000:0c:') for each in plugged)
    # the fake driver's devices do not exist: neither Nova nor the library attaches them
    assert {each['attach_target'] for each in plugged} == {'none'}
    assert libvirt.hostdevs(plugged) == libvirt.hostdevs(arqs) == []
    assert os_acc.unplug(instance) == 2
    assert compute.arqs(instance=instance['uuid']) == []
    assert os_acc.unplug(instance) == 0


def test_unplugged_and_plugged_again_it_has_accelerators_again(compute):
    """A stop and a start, a delete and a restore."""
    compute.profile('two', FPGA)
    instance, specs = server(), {'accel:device_profile': 'two'}
    for _ in range(2):
        assert len(os_acc.plug(instance, {'uuid': compute.rp()}, specs)) == 2
        assert os_acc.unplug(instance) == 2
    assert compute.arqs() == []


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
    plugged = os_acc.plug(
        instance,
        {'uuid': compute.rp()},
        {'resources:FPGA': '1', 'resources:VCPU': '4', 'hw:cpu_policy': 'x'},
    )
    assert len(plugged) == 1


def test_traits_of_a_flavor_that_speak_of_the_host_are_not_asked_of_the_device(compute):
    plugged = os_acc.plug(
        server(),
        {'uuid': compute.rp()},
        {
            'resources:FPGA': '1',
            'trait:CUSTOM_FAKE_DEVICE': 'required',
            'trait:HW_CPU_X86_AVX2': 'required',
            'trait:COMPUTE_NODE': 'required',
        },
    )
    assert len(plugged) == 1


def test_novas_mapping_of_groups_to_providers_is_understood(compute):
    compute.profile('two', FPGA)
    plugged = os_acc.plug(
        server(), {'device_profile_0': [compute.rp()]}, {'accel:device_profile': 'two'}
    )
    assert len(plugged) == 2


@pytest.mark.parametrize(
    'specs, sentence',
    [
        ({'accel:device_profile': 'unknown'}, 'Device profile not found'),
        ({'resources:VGPU': '1'}, 'asks neither for a device profile'),
        ({'resources:FPGA': '17'}, 'no free attach handle'),
        ({'resources:FPGA': '1', 'trait:CUSTOM_NOT_THERE': 'required'}, 'does not fit'),
        ({'accel:device_profile': 'gzip'}, 'driver fake_driver cannot load images'),
        (
            {'accel:device_profile': 'two', 'accel:function_name': 'gzip'},
            'The flavor asks for accel:',
        ),
        ({'resources:FPGA': '1', 'accel:function_id': '3AFB'}, 'cannot load images into it'),
        ({'resources:FPGA': '1', 'accel:no_such_key': 'x'}, 'accel:no_such_key is not known'),
        ({'resources:FPGA': '1', 'accel:bitstream_id': 'none !'}, 'must be the uuid of an image'),
        ({'resources:FPGA': '1', 'trait:CUSTOM BLANK': 'required'}, 'is neither a standard trait'),
        (
            {'resources1:FPGA': '1', 'trait1:CUSTOM_X': 'wanted'},
            'group 1: the value of trait:CUSTOM',
        ),
        ({'resources:FPGA': '20000'}, 'at most 1024 are allowed'),
        (
            {'resources:FPGA': '1', f'bitstream:{uuid.UUID(int=1)}': 'required'},
            'driver fake_driver cannot load images',
        ),
    ],
)
def test_a_plug_that_cannot_be_done_says_why_and_leaves_nothing(compute, specs, sentence):
    compute.profile('two', FPGA)
    compute.profile('gzip', FPGA | {'accel:function_id': '3AFB'})
    with pytest.raises(os_acc.PlugFailed, match=sentence):
        os_acc.plug(server(), {'uuid': compute.rp()}, specs)
    assert compute.arqs() == []


def test_numbered_groups_are_served_by_the_providers_that_nova_chose(compute):
    plugged = os_acc.plug(
        server(),
        {'': [str(uuid.uuid4())], '1': [compute.rp()]},
        {'resources:VCPU': '4', 'resources1:FPGA': '2', 'trait1:CUSTOM_FAKE_DEVICE': 'required'},
    )
    assert len(plugged) == 2


@pytest.mark.parametrize('project, is_allowed', [('mine', True), ('p1', False)])
def test_a_private_profile_is_for_its_projects_only(compute, project, is_allowed):
    compute.call(
        'POST',
        '/device_profiles',
        json=[{'name': 'private', 'projects': ['mine'], 'groups': [FPGA]}],
    )
    instance = server() | {'project_id': project}
    specs = {'accel:device_profile': 'private'}
    if is_allowed:
        assert os_acc.plug(instance, {'uuid': compute.rp()}, specs)
        return
    with pytest.raises(os_acc.PlugFailed, match='Device profile not found: private'):
        os_acc.plug(instance, {'uuid': compute.rp()}, specs)


@pytest.mark.parametrize(
    'first, other',
    [
        ({'accel:device_profile': 'two'}, {'accel:device_profile': 'one'}),
        ({'accel:device_profile': 'two'}, {'resources:FPGA': '2'}),
        ({'resources:FPGA': '1'}, {'resources:FPGA': '2'}),
        ({'resources:FPGA': '1'}, {'resources:FPGA': '1', 'trait:CUSTOM_FAKE_DEVICE': 'required'}),
        ({'resources:FPGA': '1'}, {'resources:VGPU': '1'}),
    ],
)
def test_a_plug_that_asks_for_something_else_is_refused(compute, first, other):
    compute.profile('two', FPGA)
    compute.profile('one', {'resources:FPGA': '1'})
    instance = server()
    held = os_acc.plug(instance, {'uuid': compute.rp()}, first)
    with pytest.raises(os_acc.AlreadyPlugged, match='unplug it first'):
        os_acc.plug(instance, {'uuid': compute.rp()}, other)
    # what it holds stays
    assert os_acc.plug(instance, {'uuid': compute.rp()}, first) == held
    assert os_acc.unplug(instance) == len(held)


def test_a_profile_that_changes_does_not_touch_what_is_plugged(compute):
    profile = compute.profile('two', FPGA)
    instance, specs = server(), {'accel:device_profile': 'two'}
    held = os_acc.plug(instance, {'uuid': compute.rp()}, specs)
    compute.call(
        'PATCH', f'/device_profiles/{profile["uuid"]}', json={'groups': [{'resources:FPGA': '1'}]}
    )
    assert os_acc.plug(instance, {'uuid': compute.rp()}, specs) == held


def test_a_plug_on_another_host_releases_what_was_held_and_says_so(compute, caplog):
    compute.host('compute2')
    instance = server()
    [held] = os_acc.plug(instance, {'uuid': compute.rp()}, {'resources:FPGA': '1'})
    initialize(compute, 'compute2')
    [moved] = os_acc.plug(instance, {'uuid': compute.rp('compute2')}, {'resources:FPGA': '1'})
    # it has what it plugged last
    assert [(arq['uuid'], arq['hostname']) for arq in compute.arqs()] == [
        (moved['arq_uuid'], 'compute2')
    ]
    # the history of the old request and the log tell why it is gone
    steps = compute.get(f'/accelerator_requests/{held["arq_uuid"]}/history')['history']
    assert steps[-1]['reason'] == 'Its server was plugged on host compute2.'
    assert 'is plugged on compute2: its handles on compute1 are released' in caplog.text


# -- answers that get lost, hosts that fail ---------------------------------------------------


def test_an_answer_of_the_conductor_that_is_lost_is_asked_for_again(compute, monkeypatch):
    ask, lost = ConductorAPI.plug_instance, []

    def late(*args, **kwargs):
        answer = ask(*args, **kwargs)
        if not lost:
            lost.append(answer)
            raise messaging.MessagingTimeout('No conductor answered in time')
        return answer

    monkeypatch.setattr(ConductorAPI, 'plug_instance', late)
    instance = server()
    plugged = os_acc.plug(instance, {'uuid': compute.rp()}, {'resources:FPGA': '1'})
    assert [each['arq_uuid'] for each in plugged] == [arq['uuid'] for arq in compute.arqs()]


def test_a_conductor_that_never_answers_leaves_the_outcome_open(compute, monkeypatch):
    ask = ConductorAPI.plug_instance

    def late(*args, **kwargs):
        ask(*args, **kwargs)
        raise messaging.MessagingTimeout('No conductor answered plug_instance in time')

    monkeypatch.setattr(ConductorAPI, 'plug_instance', late)
    monkeypatch.setattr(os_acc, '_link', os_acc._link._replace(call_timeout=1))
    instance = server()
    with pytest.raises(os_acc.CyborgAgentUnavailable, match='No conductor answered plug_instance'):
        os_acc.plug(instance, {'uuid': compute.rp()}, {'resources:FPGA': '1'})
    # it was done all the same, and unplug() undoes it
    assert os_acc.unplug(instance) == 1
    assert compute.arqs() == []


def test_a_host_that_cannot_prepare_the_device_fails_the_plug(gpu_cloud):
    cloud = gpu_cloud
    cloud.hosts['compute1'].is_broken = True
    instance, gpu = server(), {'uuid': cloud.rp(name='3b:00.0')}
    for _ in range(2):
        with pytest.raises(os_acc.PlugFailed, match='No power'):
            os_acc.plug(instance, gpu, {'resources:VGPU': '1'})
        assert cloud.arqs() == []
    assert os_acc.unplug(instance) == 0


def test_a_vgpu_is_bound_when_libvirt_has_noticed_it(gpu_cloud):
    cloud, may_show = gpu_cloud, threading.Event()
    host, parent = cloud.hosts['compute1'], '0000:3b:00.0'
    host.tools['virsh'] = lambda *words: '\n'.join(
        libvirt.node_device(each, parent) for each in host.mdevs() if may_show.is_set()
    )
    instance, gpu = server(), {'uuid': cloud.rp(name='3b:00.0')}
    with futures.ThreadPoolExecutor(max_workers=1) as executor:
        plugging = executor.submit(os_acc.plug, instance, gpu, {'resources:VGPU': '1'})
        # the mediated device is there, but libvirt does not show it
        eventually(host.mdevs)
        with pytest.raises(futures.TimeoutError):
            plugging.result(timeout=0.5)
        assert [arq['state'] for arq in cloud.arqs()] == ['BindStarted']
        may_show.set()
        [plugged] = plugging.result()
    assert list(host.mdevs()) == [plugged['mdev_uuid']]
    assert [arq['state'] for arq in cloud.arqs()] == ['Bound']


def test_a_failed_attempt_whose_caller_went_away_is_neither_counted_nor_in_the_way(gpu_cloud):
    cloud = gpu_cloud
    cloud.profile('vgpu', {'resources:VGPU': '1'})
    instance, gpu = server(), {'uuid': cloud.rp(name='3b:00.0')}
    cloud.hosts['compute1'].is_broken = True
    cloud.bind(cloud.request('vgpu'), 'compute1', instance['uuid'], gpu['uuid'])
    assert os_acc.unplug(instance) == 0
    cloud.bind(cloud.request('vgpu'), 'compute1', instance['uuid'], gpu['uuid'])
    cloud.hosts['compute1'].is_broken = False
    [plugged] = os_acc.plug(instance, gpu, {'resources:VGPU': '1'})
    assert [arq['uuid'] for arq in cloud.arqs()] == [plugged['arq_uuid']]
    assert os_acc.unplug(instance) == 1


def test_two_plugs_of_an_instance_at_once_are_one(compute):
    instance = server()
    with futures.ThreadPoolExecutor(max_workers=8) as executor:
        answers = list(
            executor.map(
                lambda _: os_acc.plug(instance, {'uuid': compute.rp()}, {'resources:FPGA': '1'}),
                range(8),
            )
        )
    assert answers == [answers[0]] * 8
    assert len(compute.arqs()) == 1


def test_many_instances_are_plugged_at_once(compute):
    """The way that nova-compute is meant to call the library."""
    instances = [server() for _ in range(8)]

    def live(instance):
        with futures.ThreadPoolExecutor(max_workers=1) as executor:
            future = executor.submit(
                os_acc.plug, instance, {'uuid': compute.rp()}, {'resources:FPGA': '1'}
            )
            [plugged] = future.result()
            return plugged['pci_id']

    with futures.ThreadPoolExecutor(max_workers=8) as executor:
        assert len(set(executor.map(live, instances))) == 8
        assert list(executor.map(os_acc.unplug, instances)) == [1] * 8
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
