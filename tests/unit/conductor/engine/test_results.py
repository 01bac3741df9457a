# SPDX-License-Identifier: Apache-2.0
"""Requests and handles after hosts have reported the results of their tasks."""

import pytest
import sqlalchemy as sa

from cyborg import objects
from cyborg.conductor.engine.results import Results
from cyborg.conductor.engine.unit_of_work import transact
from cyborg.db.sqlalchemy import models
from cyborg.db.sqlalchemy.history import Cause

PROVIDER = '11111111-1111-4111-8111-111111111111'
SERVER = '22222222-2222-4222-8222-222222222222'
REQUEST = '33333333-3333-4333-8333-333333333333'
HANDLE = '44444444-4444-4444-8444-444444444444'
OTHER_HANDLE = '44444444-4444-4444-8444-444444444445'
TASK = '55555555-5555-4555-8555-555555555555'
MOST_ATTEMPTS = 3


def make(db, kind, state=None, attempts=0, **facts):
    """A handle, the request that holds it, and a task. Without state no request holds it."""
    with db.writer() as session:
        device = models.Device(
            hostname='compute1',
            key='card-1',
            type='GPU',
            vendor='10de',
            driver_name='nvidia_gpu_driver',
            std_board_info={},
            vendor_board_info={},
        )
        arq = None
        if state is not None:
            arq = models.ExtArq(
                uuid=REQUEST,
                state=state,
                device_profile_group_id=0,
                group={},
                project_id='p',
                hostname='compute1',
                device_rp_uuid=PROVIDER,
                instance_uuid=SERVER,
            )
        handle = models.AttachHandle(
            uuid=HANDLE,
            key='h',
            type='PCI',
            info={},
            is_host_prepared=True,
            generation=5,
            arq=arq,
            **facts,
        )
        part = models.Deployable(
            device=device,
            name='part',
            rp_uuid=PROVIDER,
            driver_name='d',
            num_accelerators=1,
            attach_handles=[handle],
        )
        session.add(device)
        session.flush()
        session.add(
            models.Task(
                uuid=TASK,
                kind=kind,
                hostname='compute1',
                device_uuid=device.uuid,
                deployable_uuid=part.uuid,
                handle_uuid=HANDLE,
                generation=5,
                arq_uuid=REQUEST,
                instance_uuid=SERVER,
                project_id='p',
                attempts=attempts,
            )
        )


def take(db, kind, error=None, host='compute1', **facts):
    """Apply one result; returns its unit of work and the kinds of the tasks that come next."""
    result = objects.TaskResult(
        task_uuid=TASK, kind=kind, handle_uuid=HANDLE, generation=5, error=error, **facts
    )
    with transact(db, Cause(host)) as unit:
        following = Results(unit, host, [result], MOST_ATTEMPTS).take()
    return unit, [task.kind for task in following]


def one(db, column):
    with db.reader() as session:
        return session.scalars(sa.select(column)).one_or_none()


def test_a_request_is_bound_when_its_handle_is_prepared(db):
    make(db, 'prepare', 'BindStarted')
    unit, following = take(db, 'prepare')
    assert one(db, models.ExtArq.state) == 'Bound'
    assert [(event.arq_uuid, event.status) for event in unit.events] == [(REQUEST, 'completed')]
    assert following == []
    assert one(db, models.Task.id) is None


def test_a_preparation_that_failed_is_tried_again(db):
    make(db, 'prepare', 'BindStarted')
    unit, following = take(db, 'prepare', 'It burns.')
    assert following == ['prepare']
    assert one(db, models.ExtArq.state) == 'BindStarted'
    assert (one(db, models.Task.attempts), one(db, models.Task.error)) == (1, 'It burns.')
    assert unit.events == []


@pytest.mark.parametrize(
    ('attempts', 'can_retry'), [(MOST_ATTEMPTS - 1, True), (0, False)], ids=['last', 'hopeless']
)
def test_a_bind_fails_with_its_last_attempt_or_when_another_cannot_help(db, attempts, can_retry):
    make(db, 'prepare', 'BindStarted', attempts)
    unit, following = take(db, 'prepare', 'It burns.', can_retry=can_retry)
    assert 'prepare' not in following
    assert one(db, models.ExtArq.state) == 'BindFailed'
    assert 'It burns.' in one(db, models.ExtArq.reason)
    assert [event.status for event in unit.events] == ['failed']


def test_a_preparation_for_a_running_server_is_tried_without_limit(db):
    make(db, 'prepare', 'Provisioning', attempts=MOST_ATTEMPTS * 10)
    assert take(db, 'prepare', 'It burns.', can_retry=False)[1] == ['prepare']
    assert one(db, models.ExtArq.state) == 'Provisioning'


def test_what_was_prepared_for_a_request_that_is_gone_is_released(db):
    make(db, 'prepare')
    assert take(db, 'prepare')[1] == ['release']
    assert one(db, models.AttachHandle.withheld) == 'cleaning'


def test_a_result_of_an_earlier_generation_binds_nothing(db):
    make(db, 'prepare', 'BindStarted')
    with db.writer() as session:
        session.execute(sa.update(models.AttachHandle).values(generation=6))
    assert take(db, 'prepare')[1] == []
    assert one(db, models.ExtArq.state) == 'BindStarted'


def test_a_result_of_another_host_changes_nothing(db):
    make(db, 'prepare', 'BindStarted')
    take(db, 'prepare', host='compute2')
    assert one(db, models.ExtArq.state) == 'BindStarted'
    assert one(db, models.Task.state) == 'open'


@pytest.mark.parametrize('kind', ['release', 'clean'])
def test_a_handle_can_be_taken_when_its_last_task_is_done(db, kind):
    make(db, kind, withheld='cleaning')
    unit, following = take(db, kind)
    assert following == []
    assert one(db, models.AttachHandle.withheld) is None
    assert one(db, models.Task.state) == 'done'
    assert unit.hosts_to_wake == set()


def test_a_late_result_does_not_free_a_handle(db):
    make(db, 'clean', withheld='cleaning')
    with db.writer() as session:
        session.execute(sa.update(models.AttachHandle).values(generation=6))
    take(db, 'clean')
    assert one(db, models.AttachHandle.withheld) == 'cleaning'


@pytest.mark.parametrize('kind', ['release', 'clean'])
def test_a_hand_back_that_failed_is_tried_again_and_placement_is_told_once(db, kind):
    make(db, kind, withheld='cleaning')
    unit, following = take(db, kind, 'It burns.')
    assert (following, unit.hosts_to_wake) == ([kind], {'compute1'})
    unit, following = take(db, kind, 'It burns.')
    assert (following, unit.hosts_to_wake) == ([kind], set())
    assert one(db, models.AttachHandle.withheld) == 'cleaning'


def test_a_handle_that_is_clean_after_a_failure_is_offered_to_placement_again(db):
    make(db, 'clean', attempts=1, withheld='cleaning')
    assert take(db, 'clean')[0].hosts_to_wake == {'compute1'}


def test_a_handle_that_cannot_be_cleaned_is_quarantined(db):
    make(db, 'clean', attempts=MOST_ATTEMPTS - 1, withheld='cleaning')
    unit, following = take(
        db, 'clean', 'It burns.', steps=[objects.Step(name='reset', seconds=1.0, error='Hot.')]
    )
    assert following == []
    assert one(db, models.AttachHandle.withheld) == 'quarantined'
    assert one(db, models.Task.state) == 'quarantined'
    assert one(db, models.Task.attempts) == MOST_ATTEMPTS
    assert 'could not be cleaned in 0.0 s: reset (Hot.).' in one(db, models.ArqTransition.reason)
    assert unit.hosts_to_wake == {'compute1'}


def test_a_release_is_never_given_up(db):
    make(db, 'release', attempts=MOST_ATTEMPTS * 10, withheld='cleaning')
    assert take(db, 'release', 'It burns.')[1] == ['release']


class TestOfARegion:
    """Two handles in one region of an FPGA. The tasks of the first one end here."""

    @pytest.fixture
    def region(self, db):
        make(db, 'clean', withheld='cleaning')
        with db.writer() as session:
            part = session.scalars(sa.select(models.Deployable)).one()
            part.is_programmable = True
            part.attach_handles.append(
                models.AttachHandle(
                    uuid=OTHER_HANDLE,
                    key='i',
                    type='PCI',
                    info={},
                    generation=5,
                    withheld='cleaning',
                )
            )
        return part.uuid

    @staticmethod
    def add_task(db, region, kind, **facts):
        with db.writer() as session:
            [device] = session.scalars(sa.select(models.Device))
            session.add(
                models.Task(
                    kind=kind,
                    hostname='compute1',
                    device_uuid=device.uuid,
                    deployable_uuid=region,
                    **facts,
                )
            )

    @staticmethod
    def withheld(db):
        with db.reader() as session:
            rows = session.execute(
                sa.select(models.AttachHandle.uuid, models.AttachHandle.withheld)
            )
            return dict(iter(rows))

    def test_its_handles_can_be_taken_when_it_is_clean(self, db, region):
        take(db, 'clean')
        assert self.withheld(db) == {HANDLE: None, OTHER_HANDLE: None}

    def test_a_clean_handle_waits_for_the_image_that_is_being_loaded(self, db, region):
        self.add_task(db, region, 'program')
        take(db, 'clean')
        assert self.withheld(db) == {HANDLE: 'programming', OTHER_HANDLE: 'programming'}

    def test_a_clean_handle_waits_for_the_other_clean_ups(self, db, region):
        self.add_task(db, region, 'clean', handle_uuid=OTHER_HANDLE, generation=5, is_alone=True)
        take(db, 'clean')
        assert self.withheld(db) == {HANDLE: 'cleaning', OTHER_HANDLE: 'cleaning'}

    @pytest.mark.parametrize(
        ('is_alone', 'other'), [(False, None), (True, 'cleaning')], ids=['shared', 'alone']
    )
    def test_a_quarantined_handle_keeps_others_only_if_the_region_was_its_own(
        self, db, region, is_alone, other
    ):
        with db.writer() as session:
            session.execute(
                sa.update(models.Task).values(attempts=MOST_ATTEMPTS - 1, is_alone=is_alone)
            )
        take(db, 'clean', 'It burns.')
        assert self.withheld(db) == {HANDLE: 'quarantined', OTHER_HANDLE: other}
