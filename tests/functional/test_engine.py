# SPDX-License-Identifier: Apache-2.0
"""Failures elsewhere: races, dead services, lost messages, hosts that fail or hang."""

import datetime
import subprocess
import sys
import threading
import uuid

import pytest
import sqlalchemy as sa

from cyborg import context, errors, objects
from cyborg.accelerator import mdev
from cyborg.accelerator.driver import Driver
from cyborg.clients import keystone
from cyborg.clients.nova import Nova
from cyborg.conductor import outbox
from cyborg.conductor.rpcapi import ConductorAPI
from cyborg.db.sqlalchemy import attach_handles, clock, models, nova_events
from cyborg.sim import Host
from tests.fixtures.cloud import PATIENCE, Cloud, eventually
from tools.bench.operation_counts import BACKGROUND

FPGA = {'resources:FPGA': '1', 'trait:CUSTOM_FAKE_DEVICE': 'required'}
VGPU = {'resources:VGPU': '1'}
VGPU_SETTINGS = '[gpu_devices]\nenabled_vgpu_types = nvidia-231\n'


class GpuHost:
    """A host with one T4, sliced into eight virtual GPUs that the agent must make."""

    drivers = ('nvidia_gpu_driver',)

    def __init__(self, name, directory, cards=('0000:3b:00.0',)):
        self.name = name
        self.cards = Host(directory)
        for address in cards:
            self.cards.plug_in('10de:1eb8', at=address)
        self.sysfs, self.monitor = self.cards.sysfs, self.cards.monitor

    def mdevs(self):
        return {node.name for node in (self.sysfs / 'bus/mdev/devices').children()}


@pytest.fixture
def gpus(request, tmp_path):
    more = getattr(request, 'param', '')
    cloud = Cloud(tmp_path, more=f'{VGPU_SETTINGS}[conductor]\nsweep_interval = 1\n{more}')
    cloud.start()
    cloud.gpu = cloud.host('compute1', GpuHost)
    cloud.profile('vgpu', VGPU)
    yield cloud
    cloud.stop()


# -- races -----------------------------------------------------------------------------------


@pytest.fixture
def two_conductors(tmp_path):
    cloud = Cloud(tmp_path, conductors=2)
    cloud.start()
    cloud.host()
    yield cloud
    cloud.stop()


def in_parallel(functions):
    results = [None] * len(functions)

    def run(index):
        results[index] = functions[index]()

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_as_many_win_the_last_handles_as_there_are_handles(two_conductors):
    cloud = two_conductors
    cloud.profile('one', FPGA)
    cloud.profile('twelve', FPGA | {'resources:FPGA': '12'})
    rp = cloud.rp()
    assert cloud.bind(cloud.request('twelve'), rp=rp).status_code == 202
    arqs = [cloud.request('one')[0] for _ in range(12)]
    answers = in_parallel([lambda arq=arq: cloud.bind(arq, rp=rp) for arq in arqs])
    codes = sorted(answer.status_code for answer in answers)
    assert codes == [202] * 4 + [409] * 8
    losers = {answer.json()['error_message'] for answer in answers if answer.status_code == 409}
    assert all('has no free attach handle' in text for text in losers)
    bound = [arq for arq in cloud.arqs() if arq['state'] == 'Bound']
    assert len({arq['attach_handle_uuid'] for arq in bound}) == len(bound) == 16


def test_one_request_bound_twice_at_once_is_bound_once(two_conductors):
    cloud = two_conductors
    cloud.profile('one', FPGA)
    rp, instance = cloud.rp(), str(uuid.uuid4())
    [arq] = cloud.request('one')
    answers = in_parallel([lambda: cloud.bind(arq, rp=rp, instance=instance)] * 6)
    assert {answer.status_code for answer in answers} == {202}
    [bound] = cloud.arqs()
    assert bound['state'] == 'Bound'
    cloud.nova.wait_for_events(1)
    assert len(held_handles(cloud)) == 1


def held_handles(cloud):
    with cloud.standalone.db.reader() as session:
        return (
            session.connection()
            .exec_driver_sql('SELECT uuid FROM attach_handles WHERE arq_id IS NOT NULL')
            .all()
        )


def owed(cloud):
    with cloud.standalone.db.reader() as session:
        return (
            session.connection()
            .exec_driver_sql('SELECT uuid FROM attach_handles WHERE withheld IS NOT NULL')
            .all()
        )


def test_binding_and_deleting_at_once_leaves_nothing_behind(two_conductors):
    cloud = two_conductors
    cloud.profile('one', FPGA)
    rp = cloud.rp()
    for _ in range(5):
        [arq] = cloud.request('one')
        in_parallel(
            [
                lambda arq=arq: cloud.bind(arq, rp=rp),
                lambda arq=arq: cloud.call('DELETE', f'/accelerator_requests/{arq["uuid"]}'),
            ]
        )
    for arq in cloud.arqs():
        cloud.call('DELETE', f'/accelerator_requests/{arq["uuid"]}')
    assert held_handles(cloud) == [] and cloud.arqs() == []


# -- the host --------------------------------------------------------------------------------


def test_an_mdev_is_there_before_bound_and_gone_after_unbind(gpus):
    [arq] = gpus.request('vgpu')
    assert gpus.bind(arq).status_code == 202
    [bound] = gpus.arqs()
    assert bound['state'] == 'Bound'
    assert gpus.gpu.mdevs() == {bound['attach_handle_uuid']}
    assert gpus.unbind(bound).status_code == 202
    eventually(lambda: not gpus.gpu.mdevs())
    eventually(lambda: not owed(gpus))


def test_deleting_does_not_need_a_living_agent(gpus):
    [arq] = gpus.request('vgpu')
    instance = str(uuid.uuid4())
    gpus.bind(arq, instance=instance)
    gpus.standalone.remove_host('compute1')
    assert gpus.call('DELETE', f'/accelerator_requests?instance={instance}').status_code == 204
    assert gpus.arqs() == []
    assert len(gpus.gpu.mdevs()) == 1 and len(owed(gpus)) == 1
    gpus.standalone.add_host(gpus.gpu)
    eventually(lambda: not gpus.gpu.mdevs())
    eventually(lambda: not owed(gpus))


def assert_refused_until_cleaned(gpus, rp, why):
    """Nothing of a provider can be had before its host, which is away, is back and has cleaned."""
    assert gpus.unbind(*gpus.arqs()).status_code == 202
    [arq] = gpus.request('vgpu')
    refused = gpus.bind(arq, rp=rp)
    assert refused.status_code == 409 and why in refused.text
    gpus.standalone.add_host(gpus.gpu)
    eventually(lambda: not owed(gpus))
    assert gpus.bind(arq, rp=rp).status_code == 202


@pytest.mark.parametrize('gpus', ['[api]\nbind_wait = 0\n'], indirect=True)
def test_a_handle_that_waits_for_its_clean_up_is_not_given_out(gpus):
    gpus.profile('all', {'resources:VGPU': '8'})
    rp = gpus.rp()
    arqs = gpus.request('all')
    assert gpus.bind(arqs, rp=rp).status_code == 202
    eventually(lambda: {arq['state'] for arq in gpus.arqs()} == {'Bound'})
    gpus.standalone.remove_host('compute1')
    assert_refused_until_cleaned(gpus, rp, 'is still cleaning')


@pytest.mark.parametrize('gpus', ['[api]\nbind_wait = 0\n'], indirect=True)
def test_what_is_cleaned_while_a_bind_looks_for_a_handle_can_be_had(gpus, monkeypatch):
    """On a database with several writers a clean-up may end between two statements of a bind."""
    gpus.profile('all', {'resources:VGPU': '8'})
    rp = gpus.rp()
    assert gpus.bind(gpus.request('all'), rp=rp).status_code == 202
    eventually(lambda: {arq['state'] for arq in gpus.arqs()} == {'Bound'})
    gpus.standalone.remove_host('compute1')
    assert gpus.unbind(*gpus.arqs()).status_code == 202
    look = attach_handles.wait_for

    def end_clean_ups_and_look(session, *args):
        session.execute(sa.update(models.AttachHandle).values(withheld=None))
        return look(session, *args)

    monkeypatch.setattr(attach_handles, 'wait_for', end_clean_ups_and_look)
    assert gpus.bind(gpus.request('all'), rp=rp).status_code == 202


@pytest.mark.parametrize(
    'gpus',
    ['heartbeat_timeout = 3\n[agent]\nresync_interval = 1\n[api]\nbind_wait = 3600\n'],
    indirect=True,
)
def test_nobody_waits_for_a_clean_up_that_a_silent_agent_owes(gpus):
    gpus.profile('all', {'resources:VGPU': '8'})
    rp = gpus.rp()
    assert gpus.bind(gpus.request('all'), rp=rp).status_code == 202
    gpus.standalone.remove_host('compute1')
    eventually(lambda: {arq['state'] for arq in gpus.arqs()} == {'Unknown'})
    assert_refused_until_cleaned(gpus, rp, 'the agent of compute1 is down')


def test_after_a_restart_of_the_host_mdevs_are_made_again_and_nova_hears_it(gpus):
    [arq] = gpus.request('vgpu')
    gpus.bind(arq)
    gpus.nova.wait_for_events(1)
    gpus.standalone.remove_host('compute1')
    gpus.gpu.cards.reboot()
    assert not gpus.gpu.mdevs()
    gpus.standalone.add_host(gpus.gpu)
    first, again = gpus.nova.wait_for_events(2)
    assert first == again
    steps = gpus.get(f'/accelerator_requests/{arq["uuid"]}/history')['history']
    assert [step['to_state'] for step in steps[-3:]] == ['Bound', 'Provisioning', 'Bound']
    [bound] = gpus.arqs()
    assert bound['state'] == 'Bound' and gpus.gpu.mdevs() == {bound['attach_handle_uuid']}


def events_left(cloud):
    with cloud.standalone.db.reader() as session:
        return [
            (event.arq_uuid, event.status) for event in session.scalars(sa.select(models.NovaEvent))
        ]


def test_what_nova_does_not_take_does_not_pile_up_as_hosts_restart(gpus):
    [arq] = gpus.request('vgpu')
    gpus.nova.code = 400
    gpus.bind(arq)
    path = f'/accelerator_requests/{arq["uuid"]}/history'

    def times_bound():
        return [step['to_state'] for step in gpus.get(path)['history']].count('Bound')

    for restarts in (1, 2, 3):
        gpus.standalone.remove_host('compute1')
        gpus.standalone.add_host(gpus.gpu)
        eventually(lambda restarts=restarts: times_bound() == restarts + 1)
    assert events_left(gpus) == [(arq['uuid'], 'completed')]


def test_a_silent_agent_makes_its_requests_unknown_and_readable(tmp_path):
    cloud = Cloud(tmp_path, more=VGPU_SETTINGS)
    cloud.start()
    cloud.host('compute1', GpuHost)
    cloud.host('compute2')
    cloud.profile('vgpu', VGPU)
    cloud.profile('fpga', FPGA)
    [vgpu], [fpga] = cloud.request('vgpu'), cloud.request('fpga')
    assert cloud.bind(vgpu).status_code == 202
    assert cloud.bind(fpga, host='compute2').status_code == 202
    for name in ('compute1', 'compute2'):
        cloud.standalone.remove_host(name)
    cloud.standalone.conf.set_override('heartbeat_timeout', 1, 'conductor')

    def states():
        return {arq['device_profile_name']: arq['state'] for arq in cloud.arqs()}

    eventually(lambda: states() == {'vgpu': 'Unknown', 'fpga': 'Bound'})
    [unknown] = [arq for arq in cloud.arqs() if arq['state'] == 'Unknown']
    assert unknown['attach_handle_info']['asked_type'] == 'nvidia-231'
    cloud.stop()


def test_a_device_pulled_out_while_in_use_stays_reserved_until_it_is_free(gpus):
    [arq] = gpus.request('vgpu')
    gpus.bind(arq)
    gpus.gpu.cards.pull_out('0000:3b:00.0')

    def is_reserved():
        found = gpus.providers().get('compute1_0000:3b:00.0', {'inventories': {}})
        offered = found['inventories'].get('VGPU')
        return offered and offered['reserved'] == offered['total']

    eventually(is_reserved)
    # an agent that looks while the card goes may have tried to make its device again
    assert gpus.arqs()[0]['state'] in ('Bound', 'Provisioning')
    assert gpus.arqs()[0]['attach_handle_uuid']
    gpus.unbind(*gpus.arqs())
    eventually(lambda: 'compute1_0000:3b:00.0' not in gpus.providers())
    assert gpus.get('/devices')['devices'] == []


# -- messages that get lost ------------------------------------------------------------------


def test_a_lost_cast_is_made_up_for_by_the_sweep(gpus, monkeypatch):
    agents = gpus.standalone.conductors[0].sweep.agents
    monkeypatch.setattr(agents, 'perform', lambda *args: None)
    [arq] = gpus.request('vgpu')
    instance = str(uuid.uuid4())
    binding = {
        arq['uuid']: [
            {'op': 'add', 'path': '/hostname', 'value': 'compute1'},
            {'op': 'add', 'path': '/device_rp_uuid', 'value': gpus.rp()},
            {'op': 'add', 'path': '/instance_uuid', 'value': instance},
        ]
    }
    assert gpus.call('PATCH', '/accelerator_requests', json=binding).status_code == 202
    assert gpus.arqs()[0]['state'] == 'Bound'


def test_an_answer_that_comes_too_late_is_undone(gpus):
    [arq] = gpus.request('vgpu')
    assert gpus.bind(arq).status_code == 202
    [bound] = gpus.arqs()
    handle = bound['attach_handle_uuid']
    gpus.call('DELETE', f'/accelerator_requests/{arq["uuid"]}')
    eventually(lambda: not gpus.gpu.mdevs() and not owed(gpus))
    gpus.standalone.remove_host('compute1')  # it would do at once what it is told
    # its word of having attached the handle arrives only now
    conductor = ConductorAPI(gpus.standalone.transport)
    undo = conductor.finish_tasks(
        context.internal(),
        'compute1',
        [
            objects.TaskResult(
                task_uuid=str(uuid.uuid4()), kind='prepare', handle_uuid=handle, generation=1
            )
        ],
    )
    assert [(task.kind, task.handle.uuid) for task in undo] == [('release', handle)]
    assert len(owed(gpus)) == 1
    conductor.finish_tasks(
        context.internal(),
        'compute1',
        [
            objects.TaskResult(
                task_uuid=undo[0].uuid,
                kind='release',
                handle_uuid=handle,
                generation=undo[0].generation,
            )
        ],
    )
    assert owed(gpus) == []


# -- hosts that fail -------------------------------------------------------------------------


class Stubborn(Driver):
    """A driver that does what a test says."""

    name, type = 'nvidia_gpu_driver', 'GPU'
    calls: list[str] = []
    failures = 0
    gate: threading.Event | None = None

    def __init__(self, real):
        self._real = real

    def discover(self):
        return self._real.discover()

    def attach(self, handle, work):
        type(self).calls.append('attach')
        if self.gate is not None:
            self.gate.wait(600)
        if type(self).failures:
            type(self).failures -= 1
            raise errors.DriverFailed(name=self.name, why='the card is busy.')
        self._real.attach(handle, work)

    def is_attached(self, handle):
        return self._real.is_attached(handle)

    def detach(self, handle):
        type(self).calls.append('detach')
        if type(self).failures:
            type(self).failures -= 1
            raise errors.DriverFailed(name=self.name, why='the card is busy.')
        self._real.detach(handle)


@pytest.fixture
def stubborn(gpus):
    """The host's driver, made to fail or hang as often as a test asks."""
    Stubborn.calls, Stubborn.failures, Stubborn.gate = [], 0, None
    [guard] = gpus.agent().worker._guards.values()
    guard._driver = Stubborn(guard._driver)
    return Stubborn


def test_a_bind_that_fails_once_succeeds_at_the_second_try(gpus, stubborn):
    stubborn.failures = 1
    [arq] = gpus.request('vgpu')
    assert gpus.bind(arq).status_code == 202
    assert gpus.arqs()[0]['state'] == 'Bound'
    # a reminder that was under way meanwhile has it done once more, which does no harm
    assert stubborn.calls[:2] == ['attach', 'attach']


def test_a_bind_that_goes_on_failing_is_rolled_back_and_can_be_repeated(gpus, stubborn):
    gpus.profile('two', {'resources:VGPU': '2'})
    stubborn.failures = 100
    arqs = gpus.request('two')
    instance = str(uuid.uuid4())
    answer = gpus.bind(arqs, instance=instance)
    assert answer.status_code == 409 and 'the card is busy' in answer.text
    assert {arq['state'] for arq in gpus.arqs()} == {'BindFailed'}
    assert held_handles(gpus) == []
    assert {event['status'] for event in gpus.nova.wait_for_events(2)} == {'failed'}
    stubborn.failures = 0
    eventually(lambda: not owed(gpus))
    assert gpus.bind(arqs, instance=instance).status_code == 202
    assert {arq['state'] for arq in gpus.arqs()} == {'Bound'}


def test_nova_is_not_told_of_a_failure_that_a_new_bind_has_mended(gpus, stubborn):
    gpus.nova.code = 400
    stubborn.failures = 3
    [arq] = gpus.request('vgpu')
    assert gpus.bind(arq).status_code == 409
    assert events_left(gpus) == [(arq['uuid'], 'failed')]
    eventually(lambda: not owed(gpus))
    assert gpus.bind(arq).status_code == 202
    assert events_left(gpus) == [(arq['uuid'], 'completed')]


@pytest.fixture
def prepared(stubborn, monkeypatch):
    """The handles that the driver prepares: the first that it is asked for, and no other."""
    attach, prepared = stubborn.attach, []

    def attach_one(self, handle, work):
        if not prepared or prepared == [handle.uuid]:
            prepared[:] = [handle.uuid]
            attach(self, handle, work)
        else:
            raise errors.DriverFailed(name=self.name, why='the card is full.')

    monkeypatch.setattr(stubborn, 'attach', attach_one)
    return prepared


def test_what_was_prepared_beside_a_part_that_fails_is_cleaned_too(gpus, prepared, monkeypatch):
    """All parts of a server are had, or none."""
    gpus.profile('two', {'resources:VGPU': '2'})
    arqs = gpus.request('two')
    answer = gpus.bind(arqs)
    assert answer.status_code == 409 and 'the card is full' in answer.text
    assert {arq['state'] for arq in gpus.arqs()} == {'BindFailed'}
    assert prepared and held_handles(gpus) == []
    eventually(lambda: not owed(gpus) and not gpus.gpu.mdevs())
    steps = gpus.get(f'/accelerator_requests/{arqs[0]["uuid"]}/history')['history']
    assert 'the card is full' in steps[-1]['reason']
    # and once the card is well, the same requests can be bound
    monkeypatch.undo()
    assert gpus.bind(arqs).status_code == 202
    eventually(lambda: {arq['state'] for arq in gpus.arqs()} == {'Bound'})
    assert len(gpus.gpu.mdevs()) == 2


@pytest.mark.parametrize('gpus', ['attach_attempts = 1000\n[api]\nbind_wait = 0\n'], indirect=True)
@pytest.mark.parametrize('loss', ['reboot', 'card'])
def test_what_was_prepared_for_a_bind_under_way_is_made_again_when_it_is_lost(
    gpus, prepared, monkeypatch, loss
):
    # given a server with two virtual GPUs, of which the host could make only one so far
    gpus.profile('two', {'resources:VGPU': '2'})
    assert gpus.bind(gpus.request('two')).status_code == 202
    eventually(lambda: gpus.gpu.mdevs() and is_prepared(gpus))
    # when that one is lost, and the card is well again
    if loss == 'reboot':
        gpus.standalone.remove_host('compute1')
        gpus.gpu.cards.reboot()
        monkeypatch.undo()
        gpus.standalone.add_host(gpus.gpu)
    else:
        gpus.gpu.cards.pull_out('0000:3b:00.0')
        eventually(lambda: gpus.get('/devices')['devices'][0]['is_missing'])
        monkeypatch.undo()
        gpus.gpu.cards.plug_in('10de:1eb8', at='0000:3b:00.0')
    # then the server gets both
    eventually(lambda: {arq['state'] for arq in gpus.arqs()} == {'Bound'})
    assert {arq['attach_handle_uuid'] for arq in gpus.arqs()} == gpus.gpu.mdevs()


def is_prepared(cloud):
    """Has the host told that it prepared a part?"""
    with cloud.standalone.db.reader() as session:
        return (
            session.scalar(sa.select(models.Task.id).where(models.Task.kind == 'prepare'))
            is not None
            and session.scalar(
                sa.select(sa.func.count(models.Task.id)).where(models.Task.kind == 'prepare')
            )
            < 2
        )


def test_a_clean_up_that_fails_takes_its_handle_out_of_placement_until_it_succeeds(gpus, stubborn):
    [arq] = gpus.request('vgpu')
    gpus.bind(arq)
    stubborn.failures = 1000

    def reserved():
        return gpus.providers()['compute1_0000:3b:00.0']['inventories']['VGPU']['reserved']

    gpus.unbind(*gpus.arqs())
    eventually(lambda: reserved() == 1)
    stubborn.failures = 0
    eventually(lambda: not owed(gpus))
    eventually(lambda: reserved() == 0)
    assert not gpus.gpu.mdevs()


def test_a_bind_that_never_ends_fails_by_its_deadline(tmp_path):
    cloud = Cloud(
        tmp_path,
        more=VGPU_SETTINGS
        + ('[conductor]\nsweep_interval = 1\nbind_timeout = 1\n[api]\nbind_wait = 0\n'),
    )
    cloud.start()
    cloud.host('compute1', GpuHost)
    cloud.profile('vgpu', VGPU)
    [guard] = cloud.agent().worker._guards.values()
    guard._driver, Stubborn.gate = Stubborn(guard._driver), threading.Event()
    [arq] = cloud.request('vgpu')
    assert cloud.bind(arq).status_code == 202
    eventually(lambda: cloud.arqs()[0]['state'] == 'BindFailed')
    steps = cloud.get(f'/accelerator_requests/{arq["uuid"]}/history')['history']
    assert [step['to_state'] for step in steps] == ['Initial', 'BindStarted', 'BindFailed']
    assert cloud.nova.wait_for_events(1)[0]['status'] == 'failed'
    Stubborn.gate.set()  # the host is ready at last: what it made is cleaned again
    host = cloud.hosts['compute1']
    eventually(lambda: not host.mdevs() and not owed(cloud))
    Stubborn.gate = None
    cloud.stop()


# -- neighbours that are away ----------------------------------------------------------------


def test_waiting_binds_do_not_hold_up_anything_else(gpus, stubborn):
    gpus.host('compute2')
    gpus.profile('fpga', FPGA)
    stubborn.gate = threading.Event()
    gpus.profile('eight', {'resources:VGPU': '8'})
    waiting = [threading.Thread(target=gpus.bind, args=([arq],)) for arq in gpus.request('eight')]
    for thread in waiting:
        thread.start()
    eventually(lambda: stubborn.calls)
    [arq] = gpus.request('fpga')
    assert gpus.bind(arq, host='compute2').status_code == 202
    assert [each['state'] for each in gpus.arqs() if each['uuid'] == arq['uuid']] == ['Bound']
    gpus.agent('compute2').inventory.wake(must_report=True)
    stubborn.gate.set()
    for thread in waiting:
        thread.join()
    eventually(lambda: {arq['state'] for arq in gpus.arqs()} == {'Bound'})


def test_a_dead_nova_costs_one_try_and_catches_up_by_itself(two_conductors):
    cloud = two_conductors
    cloud.profile('one', FPGA)
    cloud.nova.code = 503
    rp = cloud.rp()
    for _ in range(6):
        assert cloud.bind(cloud.request('one'), rp=rp).status_code == 202
    eventually(lambda: cloud.nova.requests)
    cloud.nova.code = 200
    assert len(cloud.nova.wait_for_events(6)) == 6
    assert len({event['tag'] for event in cloud.nova.events()}) == 6


@pytest.mark.parametrize('gpus', ['attach_attempts = 1\n'], indirect=True)
def test_nova_does_not_hear_of_a_failure_that_was_mended_before_it_was_told(gpus, monkeypatch):
    # given a Nova that takes its time over one event, and a request whose bind has failed
    is_asked, may_answer, tell = threading.Event(), threading.Event(), Nova.send_events

    def take_time(nova, events, request_id=None):
        is_asked.set()
        may_answer.wait(PATIENCE)
        return tell(nova, events, request_id)

    monkeypatch.setattr(Nova, 'send_events', take_time)
    gpus.bind(gpus.request('vgpu'))
    is_asked.wait(PATIENCE)
    [arq], instance = gpus.request('vgpu'), str(uuid.uuid4())
    with monkeypatch.context() as patch:
        patch.setattr(mdev, 'create', refuse)
        assert gpus.bind(arq, instance=instance).status_code == 409
    # when it is bound after all
    assert gpus.bind(arq, instance=instance).status_code == 202
    may_answer.set()
    # then Nova hears that, and nothing else of it
    gpus.nova.wait_for_events(2)
    assert [event['status'] for event in gpus.nova.events() if event['tag'] == arq['uuid']] == [
        'completed'
    ]


def refuse(*facts):
    raise errors.DriverFailed('The card does not answer.')


def test_what_a_killed_conductor_was_sending_is_sent_when_one_starts_there(cloud):
    cloud.host()
    cloud.profile('one', FPGA)
    killed = subprocess.run(
        [
            sys.executable,
            '-c',
            'from cyborg.db.sqlalchemy import nova_events\nprint(nova_events.mark())',
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    later = clock.now() + datetime.timedelta(hours=1)
    theirs, others, mine = (
        {
            'instance_uuid': str(uuid.uuid4()),
            'arq_uuid': str(uuid.uuid4()),
            'status': 'completed',
            'attempts': 1,
            'created_at': clock.now(),
            'due_at': later,
            'claim': claim,
        }
        for claim in (killed.stdout.strip(), '00000000-1-beef-00000000000000', nova_events.mark())
    )
    with cloud.standalone.db.writer() as session:
        session.execute(sa.insert(models.NovaEvent), [theirs, others, mine])
    another = outbox.Outbox(
        cloud.standalone.db,
        Nova(keystone.connect(cloud.standalone.conf, 'nova')),
        interval=1,
        patience=60,
    )
    another.start()
    [event] = cloud.nova.wait_for_events(1)
    assert event['tag'] == theirs['arq_uuid']
    another.wake()
    another.stop()
    # nobody takes from one who lives, or whose host is another
    assert len(cloud.nova.events()) == 1


def test_a_dead_placement_delays_publishing_and_nothing_else(cloud, monkeypatch):
    placement = cloud.standalone.placement
    cloud.host()
    cloud.profile('one', FPGA)
    rp = cloud.rp()

    def refuse(*args, **kwargs):
        raise ConnectionError('nobody is there')

    with monkeypatch.context() as patch:
        patch.setattr(placement.session.session, 'send', refuse)
        assert cloud.bind(cloud.request('one'), rp=rp).status_code == 202
        [device] = cloud.get('/devices')['devices']
        assert cloud.call('POST', f'/devices/{device["uuid"]}/disable').status_code == 204
        eventually(lambda: cloud.agent().inventory._failures)
    eventually(
        lambda: cloud.providers()['compute1_FakeDevice']['inventories']['FPGA']['reserved'] == 16
    )


def test_the_history_tells_who_did_what(gpus):
    [arq] = gpus.request('vgpu')
    gpus.bind(arq)
    gpus.unbind(arq)
    gpus.call('DELETE', f'/accelerator_requests/{arq["uuid"]}')
    steps = gpus.get(f'/accelerator_requests/{arq["uuid"]}/history')['history']
    assert [(step['event'], step['from_state'], step['to_state']) for step in steps] == [
        ('create', None, 'Initial'),
        ('bind', 'Initial', 'BindStarted'),
        ('attached', 'BindStarted', 'Bound'),
        ('unbind', 'Bound', 'Unbound'),
        ('delete', 'Unbound', 'Deleting'),
    ]
    assert steps[2]['actor'] == 'agent compute1'
    assert steps[1]['actor'].startswith('user ') and steps[1]['request_id'].startswith('req-')
    assert [step['hostname'] for step in steps] == [None, 'compute1', 'compute1', 'compute1', None]
    assert steps[1]['instance_uuid'] == steps[3]['instance_uuid'] is not None
    assert steps[0]['seconds_in_state'] is None and steps[1]['seconds_in_state'] >= 0
    old = gpus.call('GET', f'/accelerator_requests/{arq["uuid"]}/history', version='2.5')
    assert old.status_code == 404
    unknown = gpus.call('GET', f'/accelerator_requests/{uuid.uuid4()}/history')
    assert unknown.status_code == 404


def test_a_bind_without_host_side_work_is_one_call_and_one_transaction(cloud, monkeypatch):
    cloud.host()
    cloud.profile('three', FPGA | {'resources:FPGA': '3'})
    arqs, rp = cloud.request('three'), cloud.rp()
    cloud.agent().inventory.stop()
    conductor = cloud.standalone.conductors[0]
    messages, transactions = [], []
    for name in ('perform', 'wake'):
        monkeypatch.setattr(
            conductor.sweep.agents, name, lambda *args, name=name: messages.append(name)
        )
    writer = cloud.standalone.db.writer
    monkeypatch.setattr(
        cloud.standalone.db,
        'writer',
        lambda: transactions.append(threading.current_thread().name) or writer(),
    )
    monkeypatch.setattr(conductor.outbox, 'send', lambda events: None)
    with cloud.statements() as statements:
        assert cloud.bind(arqs, rp=rp).status_code == 202
    assert messages == [] and len([each for each in transactions if each not in BACKGROUND]) == 1
    assert len(statements) <= 6 + 2 * 3


@pytest.mark.embedded
def test_hundreds_of_waiting_binds_hold_up_nothing(tmp_path):
    """200 virtual GPUs of a host that hangs; an instant bind elsewhere, a read and a report."""
    # nothing but its answer may keep a request from waiting on, however long all of them take
    cloud = Cloud(
        tmp_path,
        more=VGPU_SETTINGS + '[api]\nbind_wait = 3\n'
        '[agent]\ndriver_timeout = 600\n[conductor]\nbind_timeout = 1200\n',
    )
    cloud.start()
    slots = [f'0000:{bus:02x}:00.0' for bus in range(1, 26)]
    host = cloud.host('compute1', GpuHost, cards=slots)
    cloud.host('compute2')
    cloud.profile('vgpu', VGPU)
    cloud.profile('fpga', FPGA)
    [guard] = cloud.agent().worker._guards.values()
    Stubborn.gate, Stubborn.calls, Stubborn.failures = threading.Event(), [], 0
    guard._driver = Stubborn(guard._driver)
    rps = [
        each['rp_uuid']
        for each in cloud.get('/deployables?limit=1000')['deployables']
        if each['name'].startswith('compute1_')
    ]
    places = [rp for rp in rps for _ in range(8)]
    instant = cloud.rp('compute2')

    arqs = [cloud.request('vgpu') for _ in places]
    waiting = [
        threading.Thread(target=cloud.bind, args=(arq,), kwargs={'rp': rp})
        for arq, rp in zip(arqs, places, strict=True)
    ]
    for thread in waiting:
        thread.start()
    eventually(lambda: Stubborn.calls)
    assert cloud.bind(cloud.request('fpga'), host='compute2', rp=instant).status_code == 202
    for thread in waiting:
        thread.join()
    pending = cloud.arqs(limit=1000)
    assert sum(arq['state'] == 'BindStarted' for arq in pending) == 200
    assert cloud.bind(cloud.request('fpga'), host='compute2', rp=instant).status_code == 202
    cloud.agent('compute2').inventory.wake(must_report=True)
    Stubborn.gate.set()
    cloud.nova.wait_for_events(202, timeout=600)
    eventually(lambda: sum(arq['state'] == 'Bound' for arq in cloud.arqs(limit=1000)) == 202)
    assert len(host.mdevs()) == 200
    Stubborn.gate = None
    cloud.stop()
