# SPDX-License-Identifier: Apache-2.0
"""The life of a virtual GPU: made at bind, there before Bound, made again, removed, never doubled.

Whatever way a card has to be shared: mediated devices on itself or on its virtual functions, or
virtual functions that take a type.
"""

import uuid

import oslo_messaging as messaging
import pytest

import os_acc
from cyborg import errors
from os_acc import libvirt
from tests.fixtures.cloud import PATIENCE, Cloud, eventually
from tests.fixtures.hosts import SimHost
from tests.functional.test_engine import owed

CARD = '0000:3b:00.0'
INSTANCE, OTHER = str(uuid.uuid4()), str(uuid.uuid4())
ALIEN = '91ac1606-427e-44bb-8233-f4ff4bf3d241'
#: Nothing here may wait for the timer.
SETTINGS = """
[agent]
resync_interval = 3600
[api]
bind_wait = 0
[conductor]
sweep_interval = 1
[gpu_devices]
enabled_vgpu_types = {kind}
offer_vendor_vfio = true
"""
#: way -> card, type, what a guest receives
WAYS = {
    'mediated, on the card': ('10de:1eb8', 'nvidia-223', 'MDEV'),
    'mediated, on its functions': ('10de:20b5', 'nvidia-468', 'MDEV'),
    'by the vendor': ('10de:26b9', '1150', 'PCI'),
}


class GpuHost(SimHost):
    """A host with one card, whose vGPUs can be looked at in whatever way it has them."""

    def __init__(self, name, directory, model):
        # where the operator has a rule that makes virtual functions when the host starts
        parts = {} if model == '10de:1eb8' else {'vfs': 16, 'vfs_by_rule': True}
        super().__init__(name, directory, [{'model': model, 'at': CARD} | parts])

    def vgpus(self):
        """What tells one from another -> its type."""
        functions = (self.sysfs / 'bus/pci/devices').children('0000:3b:*')
        kinds = {node.name: node.read('nvidia/current_vgpu_type') for node in functions}
        return self.mdevs() | {
            name: kind for name, kind in kinds.items() if kind not in (None, '0')
        }

    def take_away(self):
        """The host driver, and the virtual functions with it."""
        self.sysfs.write(f'bus/pci/devices/{CARD}/driver/unbind', CARD)

    def bring_back(self):
        self.sysfs.write('bus/pci/drivers/nvidia/bind', CARD)
        if self.sysfs.has(f'bus/pci/devices/{CARD}/sriov_numvfs'):
            self.sysfs.write(f'bus/pci/devices/{CARD}/sriov_numvfs', '16')

    def make_alien(self, kind):
        """What somebody else does by hand, on the last function."""
        path = f'bus/pci/devices/{CARD}/mdev_supported_types/{kind}/create'
        last = 'bus/pci/devices/0000:3b:02.3'
        if self.sysfs.has(path):
            self.sysfs.write(path, ALIEN)
        elif self.sysfs.has(f'{last}/mdev_supported_types/{kind}'):
            self.sysfs.write(f'{last}/mdev_supported_types/{kind}/create', ALIEN)
        else:
            self.sysfs.write(f'{last}/nvidia/current_vgpu_type', kind)
            return '0000:3b:02.3'
        return ALIEN


def expected(arq):
    """What a bound request should have on its host."""
    if arq['attach_handle_type'] == 'MDEV':
        return arq['attach_handle_uuid']
    return '{domain}:{bus}:{device}.{function}'.format(**arq['attach_handle_info'])


@pytest.fixture(params=WAYS)
def way(request):
    return WAYS[request.param]


@pytest.fixture
def kind(way):
    return way[1]


@pytest.fixture
def cloud(tmp_path, way):
    made = Cloud(tmp_path, more=SETTINGS.format(kind=way[1]))
    made.start()
    made.profile('one', {'resources:VGPU': '1'})
    made.profile('two', {'resources:VGPU': '2'})
    yield made
    made.stop()


@pytest.fixture
def host(cloud, way):
    return cloud.host(make=GpuHost, model=way[0])


@pytest.fixture
def restart(cloud, host):
    """The agent starts anew."""

    def restart():
        if 'compute1' in cloud.standalone.agents:
            cloud.standalone.remove_host('compute1')
        agent = cloud.standalone.add_host(host)
        assert agent.inventory.is_ready.wait(PATIENCE)

    return restart


def bind(cloud, profile='one', instance=INSTANCE):
    answer = cloud.bind(cloud.request(profile), instance=instance)
    assert answer.status_code == 202, answer.text
    return eventually(lambda: bound(cloud, instance))


def bound(cloud, instance=INSTANCE):
    arqs = cloud.arqs(instance=instance)
    return arqs if arqs and all(arq['state'] == 'Bound' for arq in arqs) else None


def missing(cloud):
    with cloud.standalone.db.reader() as session:
        return (
            session.connection()
            .exec_driver_sql('SELECT count(*) FROM attach_handles WHERE is_missing')
            .scalar()
        )


def test_it_is_made_at_bind_and_removed_at_unbind(cloud, host, way):
    arqs = bind(cloud, 'two')
    assert {arq['attach_handle_type'] for arq in arqs} == {way[2]}
    assert host.vgpus() == {expected(arq): way[1] for arq in arqs}
    assert cloud.unbind(arqs[0]).status_code == 202
    eventually(lambda: host.vgpus() == {expected(arqs[1]): way[1]})
    assert cloud.call('DELETE', f'/accelerator_requests?instance={INSTANCE}').status_code == 204
    eventually(lambda: not host.vgpus() and not owed(cloud))


def test_it_is_there_before_it_is_said_to_be(cloud, host, monkeypatch):
    conductor, seen = cloud.agent().worker._conductor, []
    tell = conductor.finish_tasks
    monkeypatch.setattr(
        conductor, 'finish_tasks', lambda *args: (seen.append(host.vgpus()), tell(*args))[1]
    )
    [arq] = bind(cloud)
    assert expected(arq) in seen[0]


def test_after_a_reboot_it_is_made_again_and_nova_hears_of_it(cloud, host, restart):
    [arq] = bind(cloud)
    cloud.nova.wait_for_events(1)
    before = host.vgpus()
    cloud.standalone.remove_host('compute1')
    host.reboot()
    assert host.vgpus() == {}
    restart()
    events = cloud.nova.wait_for_events(2)
    assert [(event['tag'], event['status']) for event in events] == [(arq['uuid'], 'completed')] * 2
    assert host.vgpus() == before
    assert bound(cloud)


def test_after_a_reboot_it_waits_for_who_makes_its_function(cloud, host, restart):
    bind(cloud)
    before = host.vgpus()
    cloud.standalone.remove_host('compute1')
    host.reboot()
    host.take_away()  # as if whoever loads the driver and makes functions came after the agent
    restart()
    eventually(lambda: missing(cloud) == 1)
    host.bring_back()
    eventually(lambda: host.vgpus() == before and bound(cloud))


def test_what_went_with_its_function_is_made_again_when_that_is_back(cloud, host):
    bind(cloud, 'two')
    before = host.vgpus()
    host.take_away()
    assert host.vgpus() == {}
    eventually(lambda: missing(cloud) == 2)
    host.bring_back()
    eventually(lambda: host.vgpus() == before and bound(cloud))


def test_what_is_left_of_requests_that_are_gone_is_removed(cloud, host, restart):
    bind(cloud, 'two')
    kept = bind(cloud, instance=OTHER)
    cloud.standalone.remove_host('compute1')
    assert cloud.call('DELETE', f'/accelerator_requests?instance={INSTANCE}').status_code == 204
    assert len(host.vgpus()) == 3
    restart()
    eventually(lambda: host.vgpus().keys() == {expected(arq) for arq in kept})
    eventually(lambda: bound(cloud, OTHER))


def test_what_others_made_is_left_alone_and_never_given_out(cloud, host, restart, kind):
    alien = host.make_alien(kind)
    cloud.agent().inventory.wake()
    arqs = bind(cloud, 'two')
    assert host.vgpus().keys() == {alien, *(expected(arq) for arq in arqs)}
    restart()
    eventually(lambda: bound(cloud))
    assert host.vgpus().keys() == {alien, *(expected(arq) for arq in arqs)}
    assert cloud.call('DELETE', f'/accelerator_requests?instance={INSTANCE}').status_code == 204
    eventually(lambda: not owed(cloud))
    restart()
    eventually(lambda: host.vgpus() == {alien: kind})


def test_what_others_made_on_a_card_is_not_offered_again(cloud, host, way):
    def offered():
        [provider] = cloud.providers().values()
        [inventory] = provider['inventories'].values()
        return inventory['total'] - inventory['reserved']

    eventually(offered)
    at_first = offered()
    host.make_alien(way[1])
    cloud.agent().inventory.wake()
    eventually(lambda: offered() == at_first - 1)
    bind(cloud, 'two')  # what is ours does not count twice
    cloud.agent().inventory.wake(must_report=True)
    cloud.rest()
    assert offered() == at_first - 1


def test_what_is_plugged_and_what_is_bound_make_the_same_xml(cloud, host, way):
    os_acc.initialize(cloud.standalone.conf, host='compute1', transport=cloud.standalone.transport)
    plugged = os_acc.plug(
        {'uuid': INSTANCE, 'name': 'vm', 'project_id': 'p1'},
        {'uuid': cloud.rp()},
        {'accel:device_profile': 'one'},
    )
    [device] = libvirt.hostdevs(plugged)
    assert [device] == libvirt.hostdevs(cloud.arqs(instance=INSTANCE))
    assert (device.mdev_uuid is not None, device.is_managed) == (way[2] == 'MDEV', False)


def test_what_a_vanished_card_held_stays_reserved_until_it_is_freed(cloud, host):
    bind(cloud)
    host.pull_out(CARD)
    name = f'compute1_{CARD}'

    def left():
        found = cloud.providers().get(name)
        return found and {
            each['total'] - each['reserved'] for each in found['inventories'].values()
        }

    eventually(lambda: left() == {0})
    [arq] = cloud.arqs()
    assert arq['attach_handle_uuid']
    assert cloud.unbind(arq).status_code == 202
    eventually(lambda: name not in cloud.providers())


@pytest.mark.parametrize('way', [WAYS['mediated, on the card']], ids=['mediated'])
def test_what_is_held_stays_reserved_while_its_card_is_seen_half_gone(cloud, host, kind):
    [arq] = bind(cloud)
    offered = host.tree.real(f'bus/pci/devices/{CARD}') + f'/mdev_supported_types/{kind}'
    with host.tree.change():
        for name in ('available_instances', 'description', 'devices', 'name'):
            host.tree.remove(f'{offered}/{name}')
    cloud.agent().inventory.wake()

    def left():
        return [
            (each['total'], each['reserved'])
            for each in cloud.providers()[f'compute1_{CARD}']['inventories'].values()
        ]

    eventually(lambda: left() == [(1, 1)])
    assert cloud.arqs()[0]['attach_handle_uuid'] == arq['attach_handle_uuid']


# -- an agent that dies ----------------------------------------------------------------------


class Death:
    """What an agent still does before it dies, in the middle of some work; nobody hears of it."""

    def __init__(self, cloud):
        agent = cloud.agent()
        self._worker = agent.worker
        self._worker._pause = lambda attempt: None
        [self._guard] = agent.worker._guards.values()
        self.has_come = False

    def before(self, verb):
        """It dies before the driver did anything."""
        setattr(self._guard._driver, verb, self._fail)
        self._silence()

    def after(self, verb):
        """The driver did all of it."""
        do = getattr(self._guard._driver, verb)

        def act(*args):
            do(*args)
            self._fail()

        setattr(self._guard._driver, verb, act)
        self._silence()

    def before_telling(self, verb):
        """All is done, but not told."""
        self._silence()

    def after_telling(self, verb):
        """It is told, but the answer does not arrive."""
        conductor = self._worker._conductor
        tell = conductor.finish_tasks
        conductor.finish_tasks = lambda *args: (tell(*args), self._lose())

    def _fail(self, *args):
        raise errors.DriverFailed(name='nvidia_gpu_driver', why='the process ends here.')

    def _silence(self):
        self._worker._conductor.finish_tasks = self._lose

    def _lose(self, *args):
        self.has_come = True
        raise messaging.MessagingTimeout('nobody is there any more')


STEPS = ['before', 'after', 'before_telling', 'after_telling']


@pytest.mark.parametrize('step', STEPS)
def test_an_agent_that_dies_while_it_attaches_loses_and_doubles_nothing(
    cloud, host, restart, kind, step
):
    death = Death(cloud)
    getattr(death, step)('attach')
    assert cloud.bind(cloud.request('two'), instance=INSTANCE).status_code == 202
    eventually(lambda: death.has_come)
    restart()
    arqs = eventually(lambda: bound(cloud))
    assert host.vgpus() == {expected(arq): kind for arq in arqs}
    assert len(host.vgpus()) == 2
    assert cloud.call('DELETE', f'/accelerator_requests?instance={INSTANCE}').status_code == 204
    eventually(lambda: not host.vgpus() and not owed(cloud))


@pytest.mark.parametrize('step', STEPS)
def test_an_agent_that_dies_while_it_detaches_loses_and_doubles_nothing(
    cloud, host, restart, kind, step
):
    kept = bind(cloud, instance=OTHER)
    bind(cloud, 'two')
    death = Death(cloud)
    getattr(death, step)('detach')
    assert cloud.call('DELETE', f'/accelerator_requests?instance={INSTANCE}').status_code == 204
    eventually(lambda: death.has_come)
    restart()
    eventually(lambda: host.vgpus() == {expected(arq): kind for arq in kept})
    eventually(lambda: not owed(cloud))
    again = bind(cloud, 'two')
    assert host.vgpus() == {expected(arq): kind for arq in [*kept, *again]}


@pytest.mark.parametrize('way', [WAYS['mediated, on the card']])  # it holds one type at a time
def test_the_operators_other_choice_waits_until_the_old_one_is_gone(cloud, host, restart):
    bind(cloud)
    cloud.standalone.conf.set_override('enabled_vgpu_types', ['nvidia-222'], group='gpu_devices')
    restart()
    name = f'compute1_{CARD}'

    def left():
        return {
            each['total'] - each['reserved']
            for each in cloud.providers()[name]['inventories'].values()
        }

    assert left() == {0}
    assert cloud.call('DELETE', f'/accelerator_requests?instance={INSTANCE}').status_code == 204
    eventually(lambda: not host.vgpus())
    eventually(lambda: left() == {16})
    [arq] = bind(cloud)
    assert host.vgpus() == {expected(arq): 'nvidia-222'}
