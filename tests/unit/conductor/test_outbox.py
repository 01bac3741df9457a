# SPDX-License-Identifier: Apache-2.0
"""The outbox on a table of its own, with a Nova that can be told what to answer."""

import contextlib
import datetime
import logging
import time
import types
import uuid

import pytest
import sqlalchemy as sa
from oslo_db import exception

from cyborg import errors
from cyborg.conductor import outbox as outboxes
from cyborg.conductor.audit import Audit
from cyborg.conductor.engine.unit_of_work import UnitOfWork
from cyborg.conductor.outbox import Outbox
from cyborg.db.sqlalchemy import arqs, engine, history, migration, models, nova_events
from cyborg.db.sqlalchemy import clock as clocks
from cyborg.db.sqlalchemy.clock import now
from cyborg.db.sqlalchemy.engine import Database
from tests.fixtures.cloud import eventually

PATIENCE = datetime.timedelta(days=1)
TEN_MINUTES = datetime.timedelta(minutes=10)


class Nova:
    def __init__(self):
        self.posts, self.codes, self.is_down = [], {}, False
        self.statuses, self.asked, self.shows_all = {}, [], True

    def send_events(self, events, request_id=None):
        if self.is_down:
            raise errors.Unavailable('Nova is down.')
        self.posts.append(events)
        return [self.codes.get(arq, 200) for _, arq, _ in events]

    def status(self, server):
        if self.is_down:
            raise errors.Unavailable('Nova is down.')
        self.asked.append(server)
        return self.statuses.get(server)

    def sees_all(self):
        return self.shows_all


@pytest.fixture
def nova():
    return Nova()


@pytest.fixture
def db(tmp_path):
    database = Database(f'sqlite:///{tmp_path}/cyborg.db')
    migration.upgrade(database)
    yield database
    database.close()


@pytest.fixture
def outbox(db, nova):
    return Outbox(db, nova, interval=3600, patience=PATIENCE.total_seconds())


def tell(outbox, db, *arqs, status='completed', request_id=None):
    """Have Nova hear of these requests of one server; answers their events."""
    instance = str(uuid.uuid4())
    with db.writer() as session:
        events = nova_events.add(
            session,
            [(models.ExtArq(uuid=arq, instance_uuid=instance), status) for arq in arqs],
            request_id,
        )
    outbox.send(events)
    return events


def left(db):
    with db.reader() as session:
        return session.scalars(
            sa.select(models.NovaEvent.arq_uuid).order_by(models.NovaEvent.arq_uuid)
        ).all()


class Clock:
    """The present, which goes on when a test says so."""

    def __init__(self):
        self._now = datetime.datetime.now(datetime.UTC)

    def __call__(self):
        return self._now

    def monotonic(self):
        return self._now.timestamp()

    def go_on(self, time):
        self._now += time


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(clocks, 'local_now', made)
    monkeypatch.setattr(outboxes, 'time', made)
    return made


def test_what_nova_heard_of_many_servers_is_removed_in_one_statement(outbox, db, nova, monkeypatch):
    monkeypatch.setattr(outboxes, 'DELETED_TOGETHER', 3600)
    for server in range(5):
        tell(outbox, db, f'{server}a', f'{server}b')
    outbox.deliver()
    assert len(heard(nova)) == 10 and len(left(db)) == 10

    statements = []
    sa.event.listen(
        db.engine,
        'before_cursor_execute',
        lambda connection, cursor, statement, *rest: statements.append(statement),
    )
    outbox.delete_accepted()
    outbox.delete_accepted()
    assert [each.split()[0] for each in statements if not each.startswith('BEGIN')] == ['DELETE']
    assert left(db) == []


def test_what_nova_refused_stays_when_the_rest_is_removed(outbox, db, nova):
    nova.codes = {'refused': 400}
    tell(outbox, db, 'heard', 'refused')
    tell(outbox, db, 'other')
    outbox.deliver()
    outbox.delete_accepted()
    assert left(db) == ['refused']


def test_what_is_removed_late_is_not_sent_again(outbox, db, nova):
    tell(outbox, db, 'heard')
    outbox.deliver()
    outbox.deliver()
    outbox.wake()
    outbox.deliver()
    assert len(nova.posts) == 1


def test_an_older_event_of_a_request_waits_while_a_newer_one_was_heard(outbox, db, nova):
    nova.is_down = True
    tell(outbox, db, 'twice')
    outbox.deliver()
    nova.is_down = False
    outbox._circuit.note(is_up=True)
    tell(outbox, db, 'twice')
    outbox.deliver()
    outbox.delete_accepted()
    assert left(db) == ['twice'] and len(nova.posts) == 1


def test_events_that_wait_when_the_conductor_stops_are_given_back(outbox, db, nova):
    tell(outbox, db, 'sent')
    outbox.deliver()
    outbox._stopping.set()
    tell(outbox, db, 'late')
    outbox._run()
    assert left(db) == ['late'] and len(nova.posts) == 1
    with db.reader() as session:
        assert session.scalar(sa.select(models.NovaEvent.claim)) is None


def test_a_database_that_fails_is_left_alone_for_a_while(outbox, db):
    with db.writer() as session:
        session.execute(sa.text('DROP TABLE nova_events'))
    tries = []
    sa.event.listen(db.engine, 'begin', tries.append)
    outbox.start()
    try:
        eventually(lambda: tries)
        time.sleep(0.3)
        assert len(tries) == 1
    finally:
        outbox.stop()


# -- a Nova that is slow ---------------------------------------------------------------------


POST = datetime.timedelta(seconds=5)
MANY = [f'{number:02}' for number in range(60)]


@pytest.fixture
def slow(nova, db, clock):
    """Each POST takes its time; ``during`` happens meanwhile."""
    answer = nova.send_events
    nova.during, nova.waiting = (lambda: None), []

    def send_events(events, request_id=None):
        assert len(nova.posts) < 1000, 'it never ends'
        nova.waiting.append(left(db))
        nova.during()
        clock.go_on(POST)
        return answer(events, request_id)

    nova.send_events = send_events
    return nova


def wait_in_table(db, *arqs):
    """Have events of a server each wait for whoever claims them."""
    with db.writer() as session:
        session.add_all(
            models.NovaEvent(
                instance_uuid=str(uuid.uuid4()),
                arq_uuid=arq,
                status='completed',
                attempts=1,
                due_at=now(),
            )
            for arq in arqs
        )


def heard(nova):
    return [arq for events in nova.posts for _, arq, _ in events]


@pytest.mark.parametrize('wait', ['in the table', 'in memory'])
def test_a_slow_nova_hears_each_event_once(outbox, db, slow, wait):
    if wait == 'in memory':
        for name in MANY:
            tell(outbox, db, name)
    else:
        wait_in_table(db, *MANY)
    outbox.deliver()
    outbox.delete_accepted()
    assert heard(slow) == MANY and left(db) == []


@pytest.fixture
def one_by_one(monkeypatch):
    """A call has the events of one server."""
    monkeypatch.setattr(outboxes, 'MOST_SERVERS', 1)


@pytest.mark.usefixtures('one_by_one')
def test_what_a_slow_nova_has_heard_is_removed_before_the_next_call(outbox, db, slow):
    wait_in_table(db, 'a', 'b', 'c')
    outbox.deliver()
    assert slow.waiting == [['a', 'b', 'c'], ['b', 'c'], ['c']]


def test_no_conductor_sends_what_another_is_sending(outbox, db, slow):
    other = Outbox(db, Nova(), interval=3600, patience=PATIENCE.total_seconds())
    wait_in_table(db, *MANY)

    def take_part():
        slow.during = lambda: None
        other.deliver()
        other.delete_accepted()

    slow.during = take_part
    outbox.deliver()
    assert sorted(heard(slow) + heard(other._nova)) == MANY and heard(other._nova)


@pytest.mark.usefixtures('one_by_one')
def test_new_events_and_a_backlog_take_turns(outbox, db, slow):
    wait_in_table(db, *'abcd')

    def bind():
        slow.during = lambda: None
        for name in ('new', 'newer'):
            tell(outbox, db, name)

    slow.during = bind
    outbox.deliver()
    assert heard(slow) == ['a', 'new', 'b', 'newer', 'c', 'd']


def test_what_waits_for_several_servers_is_one_call(outbox, db, slow):
    tell(outbox, db, 'first', request_id='req-1')
    ids, send_events = [], slow.send_events

    def send(events, request_id):
        ids.append(request_id)
        return send_events(events, request_id)

    slow.send_events = send
    slow.during = lambda: (
        setattr(slow, 'during', lambda: None),
        tell(outbox, db, 'a', 'b', request_id='req-2'),
        tell(outbox, db, 'c', request_id='req-3'),
    )
    outbox.deliver()
    assert [[arq for _, arq, _ in events] for events in slow.posts] == [['first'], ['a', 'b', 'c']]
    assert ids == ['req-1', None]


def test_a_server_that_nova_cannot_handle_does_not_hold_up_others(outbox, db, nova):
    """Nova answers 500 to a call with a server whose cell is down."""
    answer = nova.send_events

    def send_events(events, request_id=None):
        codes = answer(events, request_id)
        return [500] * len(codes) if 'ill' in [arq for _, arq, _ in events] else codes

    nova.send_events = send_events
    for arq in ('a', 'ill', 'b'):
        tell(outbox, db, arq)
    outbox.deliver()
    outbox.delete_accepted()
    assert left(db) == ['ill']
    assert [len(events) for events in nova.posts] == [3, 1, 1, 1]


def test_a_nova_that_fails_between_two_calls_is_left_alone(outbox, db, nova):
    def send_events(events, request_id=None):
        nova.posts.append(events)
        if len(events) > 1:
            return [500] * len(events)
        raise errors.Unavailable('Nova is down.')

    nova.send_events = send_events
    for arq in ('a', 'b', 'c'):
        tell(outbox, db, arq)
    outbox.deliver()
    assert [len(events) for events in nova.posts] == [3, 1] and left(db) == ['a', 'b', 'c']
    with db.reader() as session:
        assert set(session.scalars(sa.select(models.NovaEvent.claim))) == {None}


def test_the_events_of_a_server_are_one_call_however_few_are_claimed(outbox, db, nova, monkeypatch):
    monkeypatch.setattr(outboxes, 'BATCH', 1)
    server = str(uuid.uuid4())
    with db.writer() as session:
        session.add_all(
            models.NovaEvent(
                instance_uuid=server,
                arq_uuid=arq,
                status='completed',
                attempts=1,
                due_at=now(),
            )
            for arq in 'abc'
        )
    outbox.deliver()
    assert [len(events) for events in nova.posts] == [3]


def test_a_claim_whose_commit_was_not_answered_is_found_again(outbox, db, nova, monkeypatch):
    wait_in_table(db, 'arq')
    writer, lost = db.writer, ['answer']

    @contextlib.contextmanager
    def cut():
        with writer() as session:
            yield session
        if lost:
            lost.pop()
            raise exception.DBConnectionError

    monkeypatch.setattr(db, 'writer', cut)
    outbox.deliver()
    assert heard(nova) == ['arq'] and not lost


# -- what is no longer true ------------------------------------------------------------------


def step(db, arq, event, before, after):
    with db.writer() as session, UnitOfWork(session, history.Cause('test')) as unit:
        unit.step(models.ExtArq(uuid=arq), event, before, after)


LEAVING = [
    ('provision', 'Bound', 'Provisioning'),
    ('unbind', 'Bound', 'Unbound'),
    ('delete', 'Bound', 'Deleting'),
    ('bind', 'BindFailed', 'BindStarted'),
    ('bind', 'BindFailed', 'Bound'),
]


@pytest.mark.parametrize('leaving', LEAVING)
def test_nova_does_not_hear_of_a_state_that_a_request_has_left(outbox, db, nova, clock, leaving):
    tell(outbox, db, 'changed')
    tell(outbox, db, 'other')
    step(db, 'changed', *leaving)
    clock.go_on(outboxes.TRUSTED_FOR)
    outbox.deliver()
    assert heard(nova) == ['other']


def test_nova_never_hears_of_a_failure_that_is_mended(outbox, db, nova):
    tell(outbox, db, 'changed', status='failed')
    tell(outbox, db, 'other', status='failed')
    step(db, 'changed', 'bind', 'BindFailed', 'Bound')
    outbox.deliver()
    assert heard(nova) == ['other']


def test_a_new_event_of_success_is_sent_without_a_query(outbox, db, nova):
    outbox.deliver()
    tell(outbox, db, 'arq')
    queries = []
    sa.event.listen(db.engine, 'before_cursor_execute', lambda *about: queries.append(about[2]))
    outbox.deliver()
    assert heard(nova) == ['arq'] and queries == []


@pytest.mark.usefixtures('one_by_one')
def test_what_is_claimed_and_becomes_untrue_meanwhile_is_not_sent(outbox, db, slow):
    wait_in_table(db, 'first', 'changed', 'last')
    slow.during = lambda: step(db, 'changed', *LEAVING[0])
    outbox.deliver()
    assert heard(slow) == ['first', 'last']


def test_that_nova_does_not_want_an_event_does_not_make_it_untrue(outbox, db, nova):
    tell(outbox, db, 'arq')
    step(db, 'arq', 'unheard', 'Bound', 'Bound')
    outbox.deliver()
    assert heard(nova) == ['arq']


# -- a Nova that refuses ---------------------------------------------------------------------


def try_for(outbox, clock, time):
    """Send what is due every ten minutes, for such a time."""
    for _ in range(time // TEN_MINUTES):
        clock.go_on(TEN_MINUTES)
        outbox._circuit.note(is_up=True)
        outbox.wake()
        outbox.deliver()
    outbox.delete_accepted()


@pytest.fixture
def refused(outbox, db, nova, clock):
    """A request of which Nova does not want to hear, for a while already."""
    uuids = {'uuid': str(uuid.uuid4()), 'instance_uuid': str(uuid.uuid4())}
    with db.writer() as session:
        session.add(
            models.ExtArq(
                state='Bound', device_profile_group_id=0, group={}, project_id='project', **uuids
            )
        )
    nova.codes = {uuids['uuid']: 400}
    with db.writer() as session:
        outbox.send(nova_events.add(session, [(models.ExtArq(**uuids), 'completed')]))
    outbox.deliver()
    try_for(outbox, clock, PATIENCE / 2)
    assert left(db) == [uuids['uuid']] and len(nova.posts) > 10
    return uuids['uuid']


def steps(db, arq):
    with db.reader() as session:
        return history.of(session, arq, 'project')


def test_what_nova_refuses_for_a_while_it_hears_in_the_end(outbox, db, nova, clock, refused):
    nova.codes = {}
    try_for(outbox, clock, TEN_MINUTES)
    assert left(db) == [] and steps(db, refused) == []


def test_what_nova_refuses_for_too_long_is_given_up_and_told(
    outbox, db, nova, clock, refused, caplog
):
    caplog.set_level(logging.ERROR)
    try_for(outbox, clock, PATIENCE)
    tries = len(nova.posts)
    try_for(outbox, clock, PATIENCE)
    assert len(nova.posts) == tries and left(db) == [refused]
    [line] = caplog.messages
    assert refused in line and 'audit --fix' in line
    [step] = steps(db, refused)
    assert (step.event, step.from_state, step.to_state, step.actor) == (
        'unheard',
        'Bound',
        'Bound',
        'conductor',
    )
    assert 'Nova has refused' in step.reason


def test_what_becomes_untrue_as_it_is_given_up_is_not_told_of(
    outbox, db, nova, clock, refused, caplog
):
    def forget(events, request_id):
        with db.writer() as session:
            nova_events.forget(session, [refused])
        return [400]

    clock.go_on(PATIENCE)
    nova.send_events = forget
    caplog.set_level(logging.ERROR)
    outbox.wake()
    outbox.deliver()
    assert left(db) == [] and steps(db, refused) == [] and caplog.messages == []


def test_that_nova_did_not_hear_of_a_state_does_not_end_it(outbox, db, clock, refused):
    """Given what is bound for half of the patience, then given up, then unbound."""

    def step(event, before, after):
        with db.writer() as session, UnitOfWork(session, history.Cause('test')) as unit:
            [row] = arqs.locked(session, models.ExtArq.uuid == refused)
            unit.step(row, event, before, after)

    step('bind', 'Initial', 'Bound')
    try_for(outbox, clock, PATIENCE / 2)
    clock.go_on(PATIENCE)
    step('unbind', 'Bound', 'Unbound')
    assert [each.seconds_in_state for each in steps(db, refused)] == [
        None,
        None,
        PATIENCE.total_seconds() * 1.5,
    ]


def test_what_was_given_up_is_sent_again_when_an_operator_wants_it(
    outbox, db, nova, clock, refused
):
    try_for(outbox, clock, PATIENCE)
    nova.codes = {}
    findings = Audit(db).look()
    assert ['1 events were given up' in each.what for each in findings] == [False, True]
    Audit(db).mend(findings)
    try_for(outbox, clock, TEN_MINUTES)
    assert left(db) == [] and not any('events' in each.what for each in Audit(db).look())


def test_a_nova_that_was_away_for_long_may_refuse_for_as_long_as_any(outbox, db, nova, clock):
    nova.is_down = True
    tell(outbox, db, 'arq')
    outbox.deliver()
    try_for(outbox, clock, PATIENCE * 3)
    nova.is_down, nova.codes = False, {'arq': 400}
    try_for(outbox, clock, PATIENCE / 2)
    nova.codes = {}
    try_for(outbox, clock, TEN_MINUTES)
    assert left(db) == []


def test_one_event_that_is_given_up_leaves_the_others_of_its_server(outbox, db, nova, clock):
    nova.codes = {'never': 400, 'late': 500}
    tell(outbox, db, 'late', 'never')
    outbox.deliver()
    try_for(outbox, clock, PATIENCE / 2)
    nova.codes = {'never': 400}
    try_for(outbox, clock, PATIENCE)
    assert left(db) == ['never'] and len(Audit(db).look()) == 1


# -- servers that are deleted while they are built ---------------------------------------------


LATER = datetime.timedelta(seconds=30)
#: when a conductor has looked at all servers of those that were stopped
LATER_FOR_ALL = LATER + datetime.timedelta(seconds=outboxes.SPREAD)


@pytest.fixture
def building(db, nova):
    """A server without a host, and its requests."""
    server, uuids = str(uuid.uuid4()), [str(uuid.uuid4()) for _ in range(2)]
    with db.writer() as session:
        session.add_all(
            models.ExtArq(
                uuid=each,
                instance_uuid=server,
                state='Bound',
                device_profile_group_id=0,
                group={},
                project_id='project',
                updated_at=now(),
            )
            for each in uuids
        )
    nova.codes = dict.fromkeys(uuids, 422)
    nova.statuses[server] = 'BUILD'
    return server, uuids


@pytest.fixture
def checking(db, nova):
    """An outbox that looks at such servers later."""
    return another(db, nova)


def another(db, nova):
    return Outbox(
        db,
        nova,
        interval=3600,
        patience=PATIENCE.total_seconds(),
        unknown_server_timeout=LATER.total_seconds(),
    )


def bind(outbox, db, building):
    server, uuids = building
    with db.writer() as session:
        told = [(models.ExtArq(uuid=each, instance_uuid=server), 'completed') for each in uuids]
        events = nova_events.add(session, told)
    outbox.send(events)  # after the commit: an event that is not in the table is not sent


def announce(outbox, db, building):
    bind(outbox, db, building)
    outbox.deliver()
    outbox.delete_accepted()
    assert left(db) == []


def present(db):
    with db.reader() as session:
        return set(session.scalars(sa.select(models.ExtArq.uuid)))


def check(outbox, clock, time=LATER):
    clock.go_on(time)
    outbox.check_servers()


@pytest.mark.parametrize('code', [404, 422])
def test_requests_of_a_server_that_is_deleted_before_it_has_a_host_are_deleted(
    checking, db, nova, clock, building, code
):
    server, uuids = building
    nova.codes = dict.fromkeys(uuids, code)
    announce(checking, db, building)
    del nova.statuses[server]
    check(checking, clock, LATER / 2)
    assert present(db) == set(uuids)
    check(checking, clock)
    assert present(db) == set()
    for each in uuids:
        [step] = steps(db, each)
        assert step.event == 'delete'
        assert step.reason == 'Nova no longer has its server.'


def test_a_server_is_looked_at_until_it_is_built(checking, db, nova, clock, building):
    server, uuids = building
    announce(checking, db, building)
    for _ in range(3):
        check(checking, clock)
    nova.statuses[server] = 'ACTIVE'
    check(checking, clock)
    assert nova.asked == [server] * 4
    check(checking, clock)
    assert nova.asked == [server] * 4 and present(db) == set(uuids)


def test_a_server_is_looked_at_again_when_nova_cannot_tell(checking, db, nova, clock, building):
    server, _ = building
    announce(checking, db, building)
    del nova.statuses[server]
    nova.is_down = True
    check(checking, clock)
    assert present(db)
    nova.is_down = False
    check(checking, clock)
    assert not present(db)


def test_a_server_is_looked_at_again_when_the_database_has_failed(
    checking, db, nova, clock, building, monkeypatch, caplog
):
    server, uuids = building
    announce(checking, db, building)
    del nova.statuses[server]
    caplog.set_level(logging.ERROR)

    def fail():
        raise exception.DBConnectionError

    with monkeypatch.context() as patched:
        patched.setattr(db, 'writer', fail)
        patched.setattr(engine.oslo_db_api, 'time', types.SimpleNamespace(sleep=lambda _: None))
        check(checking, clock)
    assert present(db) == set(uuids)
    assert f'The check of server {server} failed; it is made again later.' in caplog.messages
    check(checking, clock)
    assert not present(db)


def test_no_request_is_deleted_if_nova_shows_us_not_all_servers(
    checking, db, nova, clock, building
):
    server, uuids = building
    announce(checking, db, building)
    del nova.statuses[server]
    nova.shows_all = False
    check(checking, clock)
    assert present(db) == set(uuids)


def test_a_request_that_another_server_has_now_is_not_deleted(checking, db, nova, clock, building):
    server, uuids = building
    announce(checking, db, building)
    del nova.statuses[server]
    with db.writer() as session:
        session.execute(
            sa.update(models.ExtArq)
            .where(models.ExtArq.uuid == uuids[0])
            .values(instance_uuid=str(uuid.uuid4()))
        )
    check(checking, clock)
    assert present(db) == {uuids[0]}


@pytest.mark.parametrize('status', ['BUILD', 'ACTIVE'])
def test_a_conductor_that_starts_looks_at_the_servers_of_one_that_was_stopped(
    checking, db, nova, clock, building, status
):
    # given a conductor that bound the requests of a server without a host, and was killed
    server, uuids = building
    announce(checking, db, building)
    after_restart = another(db, nova)
    # when the server is deleted, while it is built or after that
    nova.statuses[server] = status
    after_restart.take_over()
    del nova.statuses[server]
    # then the next conductor deletes its requests
    check(after_restart, clock, LATER_FOR_ALL)
    assert not present(db)
    for each in uuids:
        [step] = steps(db, each)
        assert step.reason == 'Nova no longer has its server.'


def test_a_conductor_that_starts_does_not_look_at_servers_that_were_built_long_ago(
    db, nova, clock, building
):
    clock.go_on(outboxes.BOUND_RECENTLY + LATER + LATER)
    checking = another(db, nova)
    checking.take_over()
    check(checking, clock, LATER_FOR_ALL)
    assert nova.asked == []


@pytest.fixture
def many_checks(checking, db, nova, clock):
    """A conductor that has just started and looks at 300 servers; Nova takes half a second to show
    one of them."""
    servers = [str(uuid.uuid4()) for _ in range(300)]
    nova.statuses = dict.fromkeys(servers, 'ACTIVE')
    with db.writer() as session:
        session.add_all(
            models.ExtArq(
                uuid=str(uuid.uuid4()),
                instance_uuid=server,
                state='Bound',
                device_profile_group_id=0,
                group={},
                project_id='project',
                updated_at=now(),
            )
            for server in servers
        )
    status = nova.status

    def slow(server):
        clock.go_on(datetime.timedelta(seconds=0.5))
        return status(server)

    nova.status = slow
    checking.take_over()
    return checking


def test_events_do_not_wait_for_the_servers_that_a_conductor_looks_at_when_it_starts(
    many_checks, db, nova, clock
):
    clock.go_on(LATER_FOR_ALL)
    other = another(db, nova)
    tell(many_checks, db, 'first')
    many_checks.deliver()
    for turn in range(1, 151):
        many_checks.check_servers()
        assert len(nova.asked) == 2 * turn
        # what becomes due meanwhile is sent in the next turn, and by one conductor only
        wait_in_table(db, f'{turn}')
        many_checks.wake()
        for outbox in (many_checks, other):
            outbox.deliver()
            outbox._delete_accepted_in_time()
        assert heard(nova)[-1] == f'{turn}' and len(nova.posts) == 1 + turn
    many_checks.check_servers()
    assert set(nova.asked) == set(nova.statuses) and len(nova.asked) == 300


def test_conductors_that_start_together_do_not_ask_nova_all_at_once(many_checks, nova, clock):
    clock.go_on(LATER)
    many_checks.check_servers()
    assert nova.asked == []
    assert len({check.at for check in many_checks._checks}) > 200


def test_a_server_that_nova_does_not_show_delays_other_servers_and_no_event(
    many_checks, db, nova, clock
):
    clock.go_on(LATER_FOR_ALL)
    many_checks.deliver()
    # given one server whose cell is down
    status, failed = nova.status, many_checks._checks[0].server

    def fail(server):
        nova.status = status
        raise errors.Unavailable('Its cell is down.')

    nova.status = fail
    many_checks.check_servers()
    many_checks.check_servers()
    assert nova.asked == [] and many_checks._next_at() > outboxes.time.monotonic()
    tell(many_checks, db, 'event')
    many_checks.deliver()
    assert heard(nova) == ['event']
    # when the pause is over, the others are looked at, and this one later
    clock.go_on(datetime.timedelta(seconds=1))
    many_checks.check_servers()
    assert len(nova.asked) == 2 and failed not in nova.asked
    check(many_checks, clock)
    for _ in range(150):
        many_checks.check_servers()
    assert len(nova.asked) == 300 and failed in nova.asked


def test_servers_are_not_looked_at_if_the_operator_does_not_want_it(
    outbox, db, nova, clock, building
):
    announce(outbox, db, building)
    check(outbox, clock)
    assert nova.asked == []


def test_the_outbox_looks_at_servers_by_itself(db, nova, building):
    server, _ = building
    outbox = Outbox(db, nova, 3600, PATIENCE.total_seconds(), unknown_server_timeout=0.1)
    outbox.start()
    try:
        del nova.statuses[server]
        bind(outbox, db, building)
        eventually(lambda: not present(db))
    finally:
        outbox.stop()
