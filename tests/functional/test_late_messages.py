# SPDX-License-Identifier: Apache-2.0
"""Messages that come late or twice: a broker may keep one while the world moves on."""

import threading
import time

import pytest

from cyborg import context, errors, objects
from cyborg.conductor.rpcapi import ConductorAPI
from tests.fixtures.cleaning import CARDS, SETTINGS, CleanedHost
from tests.fixtures.cloud import PATIENCE, Cloud, eventually
from tests.functional.test_engine import VGPU, VGPU_SETTINGS, GpuHost, owed


@pytest.fixture
def gpus(tmp_path):
    cloud = Cloud(tmp_path, more=VGPU_SETTINGS)
    cloud.start()
    cloud.gpu = cloud.host('compute1', GpuHost)
    cloud.profile('vgpu', VGPU)
    yield cloud
    cloud.stop()


@pytest.fixture
def told(gpus, monkeypatch):
    """All that the host was told to do, and what it told of it."""
    worker, conductor = gpus.agent().worker, gpus.agent().worker._conductor
    perform, finish, seen = worker.perform, conductor.finish_tasks, []

    def note_tasks(tasks, *args):
        seen.extend(tasks)
        perform(tasks, *args)

    def note_results(context, hostname, results):
        seen.extend(results)
        return finish(context, hostname, results)

    monkeypatch.setattr(worker, 'perform', note_tasks)
    monkeypatch.setattr(conductor, 'finish_tasks', note_results)
    return seen


def of(seen, kind, what):
    return next(each for each in seen if isinstance(each, kind) and each.kind == what)


def bind_and_unbind(cloud):
    [arq] = cloud.request('vgpu')
    assert cloud.bind(arq).status_code == 202
    assert cloud.unbind(arq).status_code == 202
    eventually(lambda: not owed(cloud))
    return arq


def test_an_order_to_clean_that_comes_late_leaves_the_next_guest_alone(gpus, told):
    bind_and_unbind(gpus)
    late = of(told, objects.Task, 'release')
    [arq] = gpus.request('vgpu')
    assert gpus.bind(arq).status_code == 202
    [bound] = [each for each in gpus.arqs() if each['state'] == 'Bound']
    assert bound['attach_handle_uuid'] == late.handle.uuid
    gpus.agent().worker.perform([late])
    eventually(lambda: not gpus.agent().worker._queued)
    assert gpus.gpu.mdevs() == {bound['attach_handle_uuid']}


def test_a_host_is_told_in_its_plan_what_to_clean_and_never_by_a_message(tmp_path, monkeypatch):
    """A message may come when another request has the card, and after a restart of the agent."""
    cloud = Cloud(tmp_path, more=f'{SETTINGS}[cleaning]\nlevel = reset\n')
    cloud.start()
    cloud.host('compute1', CleanedHost)
    cloud.profile('card', {'resources:CUSTOM_PCI': '1'})
    worker, seen = cloud.agent().worker, []
    perform = worker.perform

    def note(tasks, asked_at=None):
        seen.extend((task.kind, asked_at is not None) for task in tasks)
        perform(tasks, asked_at)

    monkeypatch.setattr(worker, 'perform', note)
    [arq] = cloud.request('card')
    assert cloud.bind(arq, rp=cloud.rp(name=CARDS[0])).status_code == 202
    assert cloud.unbind(arq).status_code == 202
    eventually(lambda: seen and not owed(cloud))
    cloud.stop()
    assert set(seen) == {('clean', True)}


def test_word_of_an_earlier_clean_up_does_not_count_for_a_later_one(gpus, told):
    bind_and_unbind(gpus)
    late = of(told, objects.TaskResult, 'release')
    [arq] = gpus.request('vgpu')
    assert gpus.bind(arq).status_code == 202
    gpus.standalone.remove_host('compute1')
    assert gpus.unbind(arq).status_code == 202
    conductor = ConductorAPI(gpus.standalone.transport)
    conductor.finish_tasks(context.internal(), 'compute1', [late])
    assert len(owed(gpus)) == 1 and len(gpus.gpu.mdevs()) == 1


def test_word_of_an_earlier_bind_does_not_count_for_a_later_one(gpus, told):
    arq = bind_and_unbind(gpus)
    late = of(told, objects.TaskResult, 'prepare')
    gpus.standalone.remove_host('compute1')
    conductor = ConductorAPI(gpus.standalone.transport)
    conductor.bind_arqs(
        context.internal(),
        [
            objects.Binding(
                arq_uuid=arq['uuid'],
                hostname='compute1',
                device_rp_uuid=gpus.rp(),
                instance_uuid=arq['uuid'],
                project_id=None,
            )
        ],
    )
    conductor.finish_tasks(context.internal(), 'compute1', [late])
    assert [each['state'] for each in gpus.arqs()] == ['BindStarted']


def test_a_picture_from_before_a_bind_does_not_undo_it(gpus, monkeypatch):
    # given a report that is long under way
    agent, reports, gate = gpus.agent(), [], threading.Event()
    conductor = agent.inventory._conductor
    report = conductor.report

    def report_late(context, picture):
        reports.append(picture)
        assert gate.wait(PATIENCE)
        return report(context, picture)

    with monkeypatch.context() as patch:
        patch.setattr(conductor, 'report', report_late)
        agent.inventory.wake(must_report=True)
        eventually(lambda: reports)
        assert reports[0].mdevs == []
        # when a request is bound meanwhile
        [arq] = gpus.request('vgpu')
        assert gpus.bind(arq).status_code == 202
        gate.set()
        eventually(lambda: len(reports) > 1)
    # then it stays bound, and Nova hears of it once
    eventually(lambda: not agent.inventory._awake.is_set() and not agent.worker._queued)
    steps = gpus.get(f'/accelerator_requests/{arq["uuid"]}/history')['history']
    assert [step['to_state'] for step in steps] == ['Initial', 'BindStarted', 'Bound']
    assert len(gpus.nova.wait_for_events(1)) == 1


HOURS = 8 * 3600 * 10**9  # nanoseconds


@pytest.fixture
def clock(monkeypatch):
    """Sets the clock: by how much it is ahead."""
    real = time.time_ns

    def step(ahead):
        monkeypatch.setattr(time, 'time_ns', lambda: real() + ahead)

    return step


def test_a_host_is_heard_after_its_clock_was_set_back(cloud, clock):
    clock(HOURS)
    host = cloud.host()
    cloud.rest()
    # also when the agent is started anew, which knows of no earlier report
    cloud.standalone.remove_host('compute1')
    clock(0)
    cloud.standalone.add_host(host)
    # only an agent whose report was accepted becomes ready
    assert cloud.agent().inventory.is_ready.wait(PATIENCE)


def test_a_report_of_an_earlier_agent_is_late_whatever_the_clock_says(cloud, clock, monkeypatch):
    # given a report that a broker keeps while its agent is stopped
    host = cloud.host()
    cloud.rest()
    clock(HOURS)
    kept, inventory = [], cloud.agent().inventory

    def keep(context, report):
        kept.append(report)
        raise errors.Unavailable

    monkeypatch.setattr(inventory._conductor, 'report', keep)
    inventory.wake(must_report=True)
    eventually(lambda: kept)
    cloud.standalone.remove_host('compute1')
    # when the next agent, whose clock was set back, has reported
    clock(0)
    cloud.standalone.add_host(host)
    assert cloud.agent().inventory.is_ready.wait(PATIENCE)
    cloud.rest()
    # then the kept one comes too late
    with pytest.raises(errors.StaleReport):
        ConductorAPI(cloud.standalone.transport).report(context.internal(), kept[0])


def test_a_card_that_comes_back_after_a_clock_was_set_back_can_be_had(gpus, clock):
    bind_and_unbind(gpus)
    gpus.gpu.cards.pull_out('0000:3b:00.0')
    eventually(lambda: not gpus.get('/devices')['devices'])
    clock(-HOURS)
    gpus.gpu.cards.plug_in('10de:1eb8', at='0000:3b:00.0')
    eventually(lambda: gpus.get('/devices')['devices'])
    [arq] = gpus.request('vgpu')
    assert gpus.bind(arq).status_code == 202
    assert 'Bound' in {each['state'] for each in gpus.arqs()}


def test_a_wish_that_arrives_at_the_moment_in_which_a_round_begins_is_not_lost(gpus):
    inventory = gpus.agent().inventory
    inventory.stop()  # its rounds are those of this test
    messages = []

    class AtThatMoment(type(inventory)):
        """A message to wake arrives while the round reads whether it must report."""

        @property
        def _must_report(self):
            if not messages:
                messages.append(threading.Thread(target=self.wake, args=(True,)))
                messages[0].start()
                messages[0].join(0.2)  # unless it has to wait for the round
            return self.__dict__['must_report']

        @_must_report.setter
        def _must_report(self, value):
            self.__dict__['must_report'] = value

    inventory.__dict__['must_report'] = False
    inventory.__class__ = AtThatMoment
    inventory.sync()
    messages[0].join()
    assert inventory._must_report
