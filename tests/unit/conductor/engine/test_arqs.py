# SPDX-License-Identifier: Apache-2.0
"""Requests take handles, all of them or none."""

import pytest
import sqlalchemy as sa

from cyborg import errors
from cyborg.conductor.engine import arqs
from cyborg.conductor.engine.unit_of_work import transact
from cyborg.db.sqlalchemy import attach_handles, models
from cyborg.db.sqlalchemy.arqs import Scope
from cyborg.objects import Withheld
from tests.fixtures.reporting_host import CAUSE, SERVER, SILENT_SINCE, deployable, device, handle

OTHER_SERVER = '33333333-3333-4333-8333-333333333333'


@pytest.fixture
def card(host):
    """Two handles that no host has to prepare."""
    host.report(device('card', deployable('part', 'a', 'b')))


def test_a_bind_to_a_card_with_a_fault_is_refused_with_the_fault(host):
    host.report(device('card', deployable('part', 'a'), fault='It burns.'))
    with pytest.raises(errors.DeviceDisabled, match='whose device has a fault: It burns'):
        host.bind(host.request())


def test_a_request_without_tasks_is_bound_at_once_and_nova_hears_of_it(host, card):
    request = host.request()
    unit = host.bind(request)
    assert host.states() == ['Bound']
    assert [(each.arq_uuid, each.status) for each in unit.events] == [(request, 'completed')]
    assert unit.tasks == {}


def test_a_handle_that_its_host_prepares_makes_the_request_wait(host):
    host.report(device('card', deployable('part', handle('a', is_host_prepared=True))))
    unit = host.bind(host.request())
    assert host.states() == ['BindStarted']
    assert unit.events == []
    assert [task.kind for task in unit.tasks['compute1']] == ['prepare']


def test_requests_of_one_bind_get_different_handles(host, card):
    host.bind(host.request(), host.request())
    assert sorted(host.all(models.AttachHandle.arq_id)) == [1, 2]


def test_a_bind_that_asks_for_too_much_takes_nothing(host, card):
    with pytest.raises(errors.NoFreeHandle):
        host.bind(host.request(), host.request(), host.request())
    assert host.states() == ['Initial'] * 3
    assert host.all(models.AttachHandle.arq_id) == [None, None]


def test_a_repeated_bind_changes_nothing(host, card):
    request = host.request()
    host.bind(request)
    unit = host.bind(request)
    assert (host.states(), unit.events) == (['Bound'], [])


def test_a_request_cannot_be_bound_twice(host, card):
    request = host.request()
    host.bind(request)
    with pytest.raises(errors.ArqBoundElsewhere, match=SERVER):
        host.bind(request, server=OTHER_SERVER)


def test_a_provider_of_another_host_is_not_found(host, card):
    with pytest.raises(errors.ProviderNotFound):
        host.bind(host.request(), hostname='compute2')


def test_a_provider_without_the_class_of_the_group_is_refused(host, card):
    with pytest.raises(errors.ProviderMismatch, match='Wanted: PGPU; the provider has: FPGA'):
        host.bind(host.request({'resources:PGPU': '1'}))


@pytest.mark.parametrize(('use', 'trait'), [('required', 'BLUE'), ('forbidden', 'RED')])
def test_a_provider_whose_traits_do_not_match_the_group_is_refused(host, card, use, trait):
    with pytest.raises(errors.ProviderMismatch):
        host.bind(host.request({'resources:FPGA': '1', f'trait:CUSTOM_{trait}': use}))


def test_a_function_that_a_clean_up_ends_while_a_bind_looks_for_a_handle_is_not_given(
    host, monkeypatch
):
    """On a database with several writers it may end between two statements of a bind."""
    host.report(device('fpga', deployable('part', 'a', traits=['CUSTOM_FUNCTION'])))
    wanted = host.request({'resources:FPGA': '1', 'trait:CUSTOM_FUNCTION': 'required'})
    with host.db.writer() as session:
        session.execute(sa.update(models.AttachHandle).values(withheld=Withheld.CLEANING))
    look = attach_handles.wait_for

    def end_clean_ups_and_look(session, *args):
        session.execute(sa.update(models.AttachHandle).values(withheld=None))
        session.execute(sa.update(models.Deployable).values(traits=[]))
        return look(session, *args)

    monkeypatch.setattr(attach_handles, 'wait_for', end_clean_ups_and_look)
    with pytest.raises(errors.ProviderMismatch):
        host.bind(wanted)


def test_a_request_of_another_project_is_not_found(host, card):
    with pytest.raises(errors.ArqNotFound):
        host.bind(host.request(), project_id='another')


def test_whether_a_server_runs_must_be_known_before_its_other_requests_are_touched(host, card):
    left = host.request()
    host.bind(left)
    with pytest.raises(arqs.ServersHold) as caught:
        host.bind(host.request())
    assert caught.value.servers == [SERVER]


def test_what_a_server_that_runs_nowhere_holds_is_deleted(host, card):
    left, again = host.request(), host.request()
    host.bind(left)
    host.bind(again, idle=[SERVER])
    assert host.all(models.ExtArq.uuid) == [again]
    assert host.states() == ['Bound']


def test_what_a_server_that_may_run_holds_stays(host, card):
    left, again = host.request(), host.request()
    host.bind(left)
    host.bind(again, idle=[])
    assert host.states() == ['Bound', 'Bound']


def test_each_step_of_a_request_is_in_its_history(host, card):
    host.bind(host.request())
    assert host.all(models.ArqTransition.to_state) == ['Initial', 'Bound']
    assert host.all(models.ArqTransition.request_id) == ['req-1', 'req-1']


def delete(unit, uuid):
    arqs.delete(unit, Scope(None, SILENT_SINCE), [uuid], even_bound=True)


def unbind(unit, uuid):
    arqs.unbind(unit, Scope(None, SILENT_SINCE), [uuid])


def fail_overdue(unit, uuid):
    unit.session.execute(
        sa.update(models.ExtArq)
        .where(models.ExtArq.uuid == uuid)
        .values(bind_deadline=SILENT_SINCE)
    )
    arqs.fail_overdue(unit)


@pytest.mark.parametrize(
    ('end', 'states'),
    [
        (delete, ['Bound']),
        (unbind, ['Bound', 'Unbound']),
        (fail_overdue, ['Bound', 'BindFailed']),
    ],
)
def test_a_request_does_not_wait_for_another_of_its_server_that_has_ended(host, end, states):
    # given two requests of a server, one of which is prepared
    keys = [handle(key, is_host_prepared=True) for key in 'ab']
    host.report(device('card', deployable('part', *keys)))
    one, two = host.request(), host.request()
    [first] = host.bind(one).tasks['compute1']
    host.bind(two, idle=())
    host.finish(first)
    assert host.states() == ['BindStarted', 'BindStarted']
    # when the other ends
    with transact(host.db, CAUSE) as unit:
        end(unit, two)
    assert host.states() == states
