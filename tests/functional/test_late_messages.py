# SPDX-License-Identifier: Apache-2.0
"""Messages that come late or twice: a broker may keep one while the world moves on."""

import threading

import pytest

from cyborg import context, objects
from cyborg.conductor.rpcapi import ConductorAPI
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
    attacher, conductor = gpus.agent().attacher, gpus.agent().attacher._conductor
    do, finish, seen = attacher.do, conductor.finish_work, []

    def note_work(works):
        seen.extend(works)
        do(works)

    def note_outcomes(context, hostname, outcomes):
        seen.extend(outcomes)
        return finish(context, hostname, outcomes)
    monkeypatch.setattr(attacher, 'do', note_work)
    monkeypatch.setattr(conductor, 'finish_work', note_outcomes)
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
    late = of(told, objects.Work, 'detach')
    [arq] = gpus.request('vgpu')
    assert gpus.bind(arq).status_code == 202
    [bound] = [each for each in gpus.arqs() if each['state'] == 'Bound']
    assert bound['attach_handle_uuid'] == late.handle.uuid
    gpus.agent().attacher.do([late])
    eventually(lambda: gpus.agent().attacher.is_idle)
    assert gpus.gpu.mdevs() == {bound['attach_handle_uuid']}


def test_word_of_an_earlier_clean_up_does_not_count_for_a_later_one(gpus, told):
    bind_and_unbind(gpus)
    late = of(told, objects.Outcome, 'detach')
    [arq] = gpus.request('vgpu')
    assert gpus.bind(arq).status_code == 202
    gpus.standalone.remove_host('compute1')
    assert gpus.unbind(arq).status_code == 202
    conductor = ConductorAPI(gpus.standalone.transport)
    conductor.finish_work(context.internal(), 'compute1', [late])
    assert len(owed(gpus)) == 1 and len(gpus.gpu.mdevs()) == 1


def test_word_of_an_earlier_bind_does_not_count_for_a_later_one(gpus, told):
    arq = bind_and_unbind(gpus)
    late = of(told, objects.Outcome, 'attach')
    gpus.standalone.remove_host('compute1')
    conductor = ConductorAPI(gpus.standalone.transport)
    conductor.bind_arqs(context.internal(), [objects.Binding(
        arq_uuid=arq['uuid'], hostname='compute1', device_rp_uuid=gpus.rp(),
        instance_uuid=arq['uuid'], project_id=None)])
    conductor.finish_work(context.internal(), 'compute1', [late])
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
    eventually(lambda: not agent.inventory._awake.is_set() and agent.attacher.is_idle)
    steps = gpus.get(f'/accelerator_requests/{arq["uuid"]}/history')['history']
    assert [step['to_state'] for step in steps] == ['Initial', 'BindStarted', 'Bound']
    assert len(gpus.nova.wait_for_events(1)) == 1
