# SPDX-License-Identifier: Apache-2.0
"""Records of hand-backs, and what operators decide about those that failed."""

import datetime

import pytest
import sqlalchemy as sa

from cyborg import errors
from cyborg.conductor.engine import quarantine, unit_of_work
from cyborg.db.sqlalchemy import clock, migration, models, tasks
from cyborg.db.sqlalchemy.history import Cause

ARQ = '11111111-1111-4111-8111-111111111111'
PROVIDER = '22222222-2222-4222-8222-222222222222'
DAY = datetime.timedelta(days=1)


@pytest.fixture
def db(database):
    migration.upgrade(database)
    return database


@pytest.fixture
def region(db):
    """A programmable region with three parts. The first one could not be cleaned; the others are
    withheld since then. Returns the uuids of the device and of the parts."""
    with db.writer() as session:
        device = models.Device(
            hostname='compute1',
            type='FPGA',
            vendor='8086',
            driver_name='intel_fpga_driver',
            key='k',
            std_board_info={},
            vendor_board_info={},
        )
        part = models.Deployable(
            device=device,
            name='region',
            num_accelerators=3,
            driver_name='d',
            rp_uuid=PROVIDER,
            is_programmable=True,
        )
        part.attach_handles = [
            models.AttachHandle(key=str(number), type='PCI', info={}, withheld=why)
            for number, why in enumerate(('quarantined', 'cleaning', 'cleaning'))
        ]
        session.add(device)
        session.flush()
        handles = [handle.uuid for handle in part.attach_handles]
        session.add(
            models.Task(
                kind='clean',
                state='quarantined',
                hostname='compute1',
                device_uuid=device.uuid,
                deployable_uuid=part.uuid,
                handle_uuid=handles[0],
                arq_uuid=ARQ,
                project_id='p',
                attempts=3,
                error='It burns.',
                finished_at=clock.now() - 2 * DAY,
            )
        )
        return device.uuid, handles


def act(db):
    return unit_of_work.transact(db, Cause('user alice', 'req-1'))


def withheld(db):
    with db.reader() as session:
        return session.scalars(
            sa.select(models.AttachHandle.withheld).order_by(models.AttachHandle.id)
        ).all()


def records(db, device):
    with db.reader() as session:
        return tasks.hand_backs(session, device, {}, {})


def test_a_part_that_is_released_lets_the_others_of_its_region_go(db, region):
    device, handles = region
    with act(db) as unit:
        quarantine.release(unit, handles[0], 'It looks clean.', device)
    assert withheld(db) == [None, None, None]
    [record] = records(db, device)
    assert (record.decided_by, record.decision_reason) == ('user alice', 'It looks clean.')
    with db.reader() as session:
        [step] = session.scalars(sa.select(models.ArqTransition)).all()
    assert (step.arq_uuid, step.event, step.actor) == (ARQ, 'handed back', 'user alice')


def test_a_released_part_waits_while_another_one_of_its_region_is_cleaned(db, region):
    device, handles = region
    with db.writer() as session:
        session.add(
            models.Task(
                kind='clean',
                hostname='compute1',
                device_uuid=device,
                deployable_uuid=records(db, device)[0].deployable_uuid,
                handle_uuid=handles[1],
            )
        )
    with act(db) as unit:
        quarantine.release(unit, handles[0], 'It looks clean.', device)
    assert withheld(db) == ['cleaning'] * 3


def test_a_part_that_is_cleaned_again_is_alone_if_nobody_holds_another(db, region):
    device, handles = region
    with act(db) as unit:
        uuid = quarantine.clean_again(unit, handles[0], device)
    assert withheld(db) == ['cleaning'] * 3
    with db.reader() as session:
        task = session.scalars(sa.select(models.Task).where(models.Task.uuid == uuid)).one()
    assert (task.is_alone, task.state, task.request_id) == (True, 'open', 'req-1')
    assert (task.arq_uuid, task.project_id, task.attempts) == (ARQ, 'p', 0)


def test_a_part_that_is_cleaned_again_is_not_alone_beside_one_that_is_held(db, region):
    device, handles = region
    with db.writer() as session:
        arq = models.ExtArq(device_profile_group_id=0, group={}, project_id='p')
        session.add(arq)
        session.flush()
        session.execute(
            sa.update(models.AttachHandle)
            .where(models.AttachHandle.uuid == handles[1])
            .values(arq_id=arq.id, withheld=None)
        )
        session.execute(
            sa.update(models.AttachHandle)
            .where(models.AttachHandle.uuid == handles[2])
            .values(withheld=None)
        )
    with act(db) as unit:
        uuid = quarantine.clean_again(unit, handles[0], device)
    assert withheld(db) == ['cleaning', None, None]
    with db.reader() as session:
        task = session.scalars(sa.select(models.Task).where(models.Task.uuid == uuid)).one()
    assert task.is_alone is False


def test_a_record_is_kept_as_long_after_its_decision_as_others_after_their_end(db, region):
    device, handles = region

    def prune(before):
        with db.writer() as session:
            tasks.prune(session, before)
        return len(records(db, device))

    # a quarantine is never forgotten
    assert prune(clock.now()) == 1
    with act(db) as unit:
        quarantine.release(unit, handles[0], 'It looks clean.', device)
    assert prune(clock.now() - DAY) == 1
    assert prune(clock.now() + DAY) == 0


def test_what_was_cleaned_after_an_undecided_clean_up_is_not_forgotten(db, region):
    device, _ = region
    with db.writer() as session:
        failed = session.scalars(sa.select(models.Task)).one()
        failed.is_alone, failed.finished_at = True, clock.now() - 2 * DAY
        session.add(
            models.Task(
                kind='clean',
                state='done',
                hostname='compute1',
                device_uuid=device,
                deployable_uuid=failed.deployable_uuid,
                is_alone=True,
                finished_at=clock.now() - DAY,
            )
        )
        region_id = session.scalars(sa.select(models.Deployable.id)).one()
        tasks.prune(session, clock.now())
        assert not tasks.is_clean_up_due(session, [region_id])


def test_records_outlive_their_device(db, region):
    device, handles = region
    with db.writer() as session:
        session.delete(session.scalars(sa.select(models.Device)).one())
    [record] = records(db, device)
    assert (record.handle_uuid, record.error) == (handles[0], 'It burns.')
    assert (record.driver_name, record.handle_type, record.handle_info) == (None, None, {})
    with act(db) as unit, pytest.raises(errors.DeviceNotFound):
        quarantine.clean_again(unit, handles[0], device)
    with db.writer() as session:
        session.execute(sa.delete(models.Task))
    with pytest.raises(errors.DeviceNotFound):
        records(db, device)
