# SPDX-License-Identifier: Apache-2.0
"""A unit of work collects changes, writes them at its end, and is then dispatched."""

import pytest
import sqlalchemy as sa

from cyborg import objects
from cyborg.conductor.engine.unit_of_work import transact
from cyborg.db.sqlalchemy import clock, models
from cyborg.db.sqlalchemy.history import Cause
from cyborg.objects.arq_states import Event, State

CAUSE = Cause('user alice', 'req-1')
REQUESTS = ['11111111-1111-4111-8111-111111111111', '22222222-2222-4222-8222-222222222222']
SERVER = '33333333-3333-4333-8333-333333333333'


def request(number=0):
    return models.ExtArq(
        uuid=REQUESTS[number], project_id='p', hostname='compute1', instance_uuid=SERVER
    )


def rows(db, *columns):
    with db.reader() as session:
        found = session.execute(sa.select(*columns).order_by(columns[0].class_.id))
        return [tuple(row) for row in found]


def announced(db):
    return rows(db, models.NovaEvent.arq_uuid, models.NovaEvent.status)


def announce(db, number=0, status='completed'):
    with transact(db, CAUSE) as unit:
        unit.announce([request(number)], status)


def test_steps_are_written_with_their_cause_in_their_order(db):
    arq = request()
    with transact(db, CAUSE) as unit:
        unit.step(arq, Event.BIND, State.INITIAL, State.BIND_STARTED)
        unit.step(arq, Event.FAILED, State.BIND_STARTED, State.BIND_FAILED, 'It burns.')
        assert rows(db, models.ArqTransition.event) == []
    step = models.ArqTransition
    assert rows(
        db, step.event, step.from_state, step.to_state, step.reason, step.actor, step.request_id
    ) == [
        ('bind', 'Initial', 'BindStarted', None, 'user alice', 'req-1'),
        ('failed', 'BindStarted', 'BindFailed', 'It burns.', 'user alice', 'req-1'),
    ]


def test_a_step_tells_where_the_request_was_at_that_moment(db):
    arq = request()
    with transact(db, CAUSE) as unit:
        unit.step(arq, Event.UNBIND, State.BOUND, State.UNBOUND)
        arq.hostname = arq.instance_uuid = None
    step = models.ArqTransition
    assert rows(db, step.arq_uuid, step.project_id, step.hostname, step.instance_uuid) == [
        (REQUESTS[0], 'p', 'compute1', SERVER)
    ]


def test_an_event_is_stored_with_the_change_and_given_to_the_sender(db):
    sent = []
    with transact(db, CAUSE, sent.append) as unit:
        unit.announce([request(0), request(1)], 'completed')
    assert announced(db) == [(uuid, 'completed') for uuid in REQUESTS]
    [unit] = sent
    assert [(event.arq_uuid, event.request_id) for event in unit.events] == [
        (uuid, 'req-1') for uuid in REQUESTS
    ]


def test_a_unit_is_dispatched_once_and_after_its_commit(db):
    seen = []

    def dispatch(unit):
        seen.append((unit.tasks, rows(db, models.ArqTransition.arq_uuid)))

    task = objects.Task(uuid=REQUESTS[1])
    with transact(db, CAUSE, dispatch) as unit:
        unit.step(request(), Event.CREATE, None, State.INITIAL)
        unit.assign('compute1', task)
        unit.assign('compute2', task)
        unit.assign('compute1', task)
        assert seen == []
    assert seen == [({'compute1': [task, task], 'compute2': [task]}, [(REQUESTS[0],)])]


def test_a_unit_that_fails_leaves_nothing_and_is_not_dispatched(db):
    seen = []
    with pytest.raises(LookupError), transact(db, CAUSE, seen.append) as unit:
        unit.step(request(), Event.CREATE, None, State.INITIAL)
        unit.announce([request()], 'failed')
        raise LookupError
    assert seen == []
    assert rows(db, models.ArqTransition.arq_uuid) == announced(db) == []
    assert rows(db, models.Receipt.id) == []


@pytest.mark.parametrize('state', [State.BOUND, State.BIND_FAILED])
def test_an_event_that_became_untrue_is_dropped(db, state):
    announce(db, 0)
    announce(db, 1)
    with transact(db, CAUSE) as unit:
        unit.step(request(), Event.UNBIND, state, State.UNBOUND)
    assert announced(db) == [(REQUESTS[1], 'completed')]


def test_an_event_stays_while_its_state_does(db):
    announce(db)
    with transact(db, CAUSE) as unit:
        unit.step(request(), Event.HANDED_BACK, State.BOUND, State.BOUND)
    assert announced(db) == [(REQUESTS[0], 'completed')]


def test_the_event_of_a_new_state_takes_the_place_of_the_old_one(db):
    announce(db, status='completed')
    with transact(db, CAUSE) as unit:
        unit.announce([request()], 'failed')
        unit.step(request(), Event.FAILED, State.BOUND, State.BIND_FAILED)
    assert announced(db) == [(REQUESTS[0], 'failed')]


def test_hosts_whose_providers_change_are_asked_for_a_report(db):
    with db.writer() as session:
        session.add_all(
            models.Agent(
                hostname=name,
                last_heartbeat=clock.now(),
                sequence=1,
                digest='known',
                is_ready=True,
                drivers=[],
                conflicts={},
            )
            for name in ('compute1', 'compute2')
        )
    with transact(db, CAUSE) as unit:
        unit.hosts_to_wake.add('compute1')
    assert rows(db, models.Agent.hostname, models.Agent.digest) == [
        ('compute1', ''),
        ('compute2', 'known'),
    ]


def test_only_what_has_no_other_proof_and_cannot_be_repeated_leaves_a_receipt(db):
    with transact(db, CAUSE) as with_steps:
        with_steps.step(request(), Event.CREATE, None, State.INITIAL)
    with transact(db, CAUSE, is_repeatable=True) as repeatable:
        pass
    assert rows(db, models.Receipt.id) == []
    assert with_steps.proof is not None
    assert repeatable.proof is None
    with transact(db, CAUSE) as plain:
        pass
    assert len(rows(db, models.Receipt.id)) == 1
    with db.reader() as session:
        assert session.scalar(plain.proof()) is not None
        assert session.scalar(with_steps.proof()) is not None
