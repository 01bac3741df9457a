# SPDX-License-Identifier: Apache-2.0
"""The usage that the database sums up is that of random histories, on every database at hand."""

import datetime
import random
import uuid
from collections import defaultdict
from dataclasses import dataclass, field

import pytest
import sqlalchemy as sa

from cyborg.db.sqlalchemy import history, migration, models, usage
from cyborg.objects.arq_states import IN_USE, TRANSITIONS, Event, State

pytestmark = pytest.mark.migrations
START = datetime.datetime(2026, 3, 1, 10, 0, 0, 250_000, tzinfo=datetime.UTC)
END = START + datetime.timedelta(hours=10)
NOW = START + datetime.timedelta(hours=14)
PROJECTS = ('one', 'two', None)
#: name of a profile and its class; os_acc needs no profile
KINDS = (('gzip', 'FPGA'), ('big', 'FPGA'), ('vgpu', 'VGPU'), (None, 'CUSTOM_PCI'))
Key = tuple[str | None, str | None, str | None]


@pytest.fixture
def db(database):
    migration.upgrade(database)
    return database


@dataclass
class Request:
    """A request and the periods in which a server had its unit."""

    profile: str | None
    resource_class: str
    project: str | None
    uuid: str = field(default_factory=lambda: str(uuid.uuid4()))
    state: str = State.INITIAL
    since: datetime.datetime | None = None
    #: begin, end and project of each period
    periods: list[tuple[datetime.datetime, datetime.datetime, str | None]] = field(
        default_factory=list
    )

    def move(self, after, at):
        if after in IN_USE and self.since is None:
            self.since = at
        elif after not in IN_USE and self.since is not None:
            self.periods.append((self.since, at, self.project))
            self.since = None
        self.state = after


class History:
    """Random lives of requests, as rows and as periods."""

    def __init__(self, seed, count=30):
        self.random = random.Random(seed)
        self.requests, self.steps = [], []
        for _ in range(count):
            self.live()

    def live(self):
        profile, resource_class = self.random.choice(KINDS)
        request = Request(profile, resource_class, self.random.choice(PROJECTS))
        self.requests.append(request)
        at = START - datetime.timedelta(hours=self.random.uniform(-16, 8))
        # one that was imported may be bound from the beginning
        self.step(request, Event.CREATE, self.random.choice([State.INITIAL, State.BOUND]), at)
        for _ in range(self.random.randrange(12)):
            at += datetime.timedelta(seconds=self.random.choice([0, 0.001, 1, 3600, 7200.5]))
            event = self.random.choice([each for each in Event if each != Event.CREATE])
            after = TRANSITIONS[event].get(State(request.state))
            if after is None:
                after = request.state  # a step that changes nothing
            elif event == Event.BIND:
                request.project = self.random.choice(PROJECTS)
                after = self.random.choice([State.BIND_STARTED, State.BOUND])
            if at > NOW:
                return
            self.step(request, event, after, at)
            if after == State.DELETING:
                return

    def step(self, request, event, after, at):
        before = None if event == Event.CREATE else request.state
        self.steps.append(
            {
                'arq_uuid': request.uuid,
                'project_id': request.project,
                'event': event,
                'from_state': before,
                'to_state': after,
                'actor': 'test',
                'device_profile_name': request.profile,
                'resource_class': request.resource_class,
                'created_at': at,
            }
        )
        request.move(after, at)

    def store(self, db):
        with db.writer() as session:
            session.execute(sa.insert(models.ArqTransition), self.steps)
            profiles = {
                name: models.DeviceProfile(name=name, groups=[]) for name, _ in KINDS if name
            }
            session.add_all(profiles.values())
            card = models.Device(
                **dict.fromkeys(('hostname', 'key', 'type', 'vendor', 'driver_name'), 'x'),
                std_board_info={},
                vendor_board_info={},
                status='enabled',
            )
            session.add(card)
            for request in self.requests:
                if request.state == State.DELETING:
                    continue
                arq = models.ExtArq(
                    uuid=request.uuid,
                    state=request.state,
                    device_profile=profiles.get(request.profile),
                    device_profile_name=request.profile,
                    device_profile_group_id=0,
                    group={f'resources:{request.resource_class}': '1'},
                    project_id=request.project,
                )
                session.add(arq)
                if request.state in IN_USE:
                    part = models.Deployable(
                        device=card,
                        name=request.uuid,
                        rp_uuid=request.uuid,
                        resource_class=request.resource_class,
                        driver_name='x',
                        num_accelerators=1,
                    )
                    session.add(
                        models.AttachHandle(deployable=part, key='k', type='PCI', info={}, arq=arq)
                    )

    def expected(self, start, end):
        """The usage, counted period by period."""
        seconds: dict[Key, float] = defaultdict(float)
        users: dict[Key, set[tuple[str, str | None]]] = defaultdict(set)
        for request in self.requests:
            periods = list(request.periods)
            if request.since is not None:
                periods.append((request.since, NOW, request.project))
            for begin, finish, project in periods:
                length = (min(finish, end) - max(begin, start)).total_seconds()
                if length > 0:
                    key = project, request.profile, request.resource_class
                    seconds[key] += length
                    users[key].add((request.uuid, project))
        return {key: (len(users[key]), total) for key, total in seconds.items()}


def counted(db, start=START, end=END, project=None):
    with db.reader() as session:
        return {
            (each.project_id, each.device_profile_name, each.resource_class): (
                each.requests,
                pytest.approx(each.hours * 3600, abs=0.05),
            )
            for each in usage.by_project(session, start, end, project)
        }


INTERVALS = {
    'some hours': (START, END),
    'up to now': (START, NOW),
    'everything': (START - datetime.timedelta(hours=20), NOW),
    'a second': (END, END + datetime.timedelta(seconds=1)),
    'no time': (END, END),
}


@pytest.mark.parametrize('seed', range(3))
def test_usage_is_what_counting_each_period_gives(db, seed):
    lives = History(seed)
    lives.store(db)
    for start, end in INTERVALS.values():
        assert lives.expected(start, end) == counted(db, start, end)
    whole = lives.expected(START, END)
    assert whole and {key[0] for key in whole} == set(PROJECTS)
    for project in ('one', 'two'):
        assert counted(db, project=project) == {
            key: value for key, value in whole.items() if key[0] == project
        }
    assert counted(db, project='three') == {}


def test_steps_that_were_deleted_do_not_change_what_came_later(db):
    lives = History(7)
    lives.store(db)
    with db.writer() as session:
        assert history.prune(session, START)
    assert lives.expected(START, END) == counted(db)
    assert lives.expected(END, NOW) == counted(db, END, NOW)


def test_what_an_earlier_release_did_not_record_is_told_by_what_is_there(db):
    """Its steps have no profile and no class; requests in use still tell both."""
    lives = History(3)
    lives.store(db)
    with db.writer() as session:
        session.execute(
            sa.update(models.ArqTransition).values(device_profile_name=None, resource_class=None)
        )
        session.execute(sa.update(models.ExtArq).values(device_profile_name=None))
    shown = counted(db)
    in_use = {
        (each.project, each.profile, each.resource_class)
        for each in lives.requests
        if each.since is not None and each.since < END
    }
    assert in_use and in_use <= shown.keys()
    assert {key[1:] for key in shown.keys() - in_use} <= {(None, None)}
    whole = lives.expected(START, END)
    assert sum(hours for _, hours in whole.values()) == pytest.approx(
        sum(hours.expected for _, hours in shown.values()), abs=0.5
    )


def test_one_statement_counts_everything(db):
    History(1).store(db)
    statements = []
    sa.event.listen(
        db.engine, 'before_cursor_execute', lambda *args: statements.append(args[2]), named=False
    )
    with db.reader() as session:
        assert usage.by_project(session, START, END)
    assert len([each for each in statements if 'arq_transitions' in each]) == 1
    assert len([each for each in statements if each.lstrip().startswith('SELECT')]) == 1
