# SPDX-License-Identifier: Apache-2.0
"""Two transactions at the same moment, on servers that run both in parallel."""

import datetime
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor, wait

import pytest
import sqlalchemy as sa

from cyborg import errors, objects
from cyborg.conductor import forget
from cyborg.conductor.engine import arqs, inventory, lost_images, quarantine, tasks
from cyborg.conductor.engine.limits import UNLIMITED
from cyborg.conductor.engine.results import Results
from cyborg.conductor.engine.unit_of_work import UnitOfWork, transact
from cyborg.db.sqlalchemy import agents, clock, engine, migration, models
from cyborg.db.sqlalchemy import arqs as arqs_db
from cyborg.db.sqlalchemy.history import Cause
from cyborg.objects.arq_states import State
from tests.fixtures import reporting_host
from tests.fixtures.cloud import another_database
from tests.fixtures.reporting_host import Host, deployable, device, handle
from tools import services

EVERYBODY = arqs_db.Scope(project_id=None, silent_since=clock.now())
RP, SERVER = str(uuid.uuid4()), str(uuid.uuid4())


@pytest.fixture(scope='module', params=[services.mariadb, services.postgresql])
def server(request):
    with request.param() as server:
        yield server


@pytest.fixture
def db(server):
    database = engine.Database(another_database(server.url, f'cyborg_{uuid.uuid4().hex}'))
    migration.upgrade(database)
    yield database
    database.close()


@pytest.fixture
def card(db):
    """A card with two handles that its host prepares."""
    add_card(db, is_host_prepared=True)


@pytest.fixture
def plain_card(db):
    """A card with two handles that need no preparation."""
    add_card(db, is_host_prepared=False)


def add_card(db, is_host_prepared):
    with db.writer() as session:
        device = models.Device(
            hostname='host',
            key='card',
            type='GPU',
            vendor='10de',
            driver_name='driver',
            std_board_info={},
            vendor_board_info={},
        )
        part = models.Deployable(
            device=device,
            name='part',
            rp_uuid=RP,
            driver_name='driver',
            num_accelerators=2,
            resource_class='VGPU',
        )
        part.attach_handles = [
            models.AttachHandle(key=key, type='PCI', info={}, is_host_prepared=is_host_prepared)
            for key in 'ab'
        ]
        session.add(device)


def requested(db, count):
    with db.writer() as session, UnitOfWork(session, Cause('test')) as unit:
        return arqs.create(unit, [{'resources:VGPU': str(count)}], 'project', None, UNLIMITED)


def bind(db, made, deadline=None):
    with db.writer() as session, UnitOfWork(session, Cause('test')) as unit:
        start_bind(unit, made, deadline)


def unbind(db, made):
    """Returns the hosts that are woken."""
    with db.writer() as session, UnitOfWork(session, Cause('test')) as unit:
        arqs.unbind(unit, EVERYBODY, [arq.uuid for arq in made])
    return unit.hosts_to_wake


def report_no_card(db):
    with db.writer() as session, UnitOfWork(session, Cause('test')) as unit:
        inventory.reconcile(
            unit, objects.Report(hostname='host', sequence=1, digest='', drivers=[], devices=[])
        )


def start_bind(unit, made, deadline=None):
    deadline = deadline or clock.now()
    arqs.bind(
        unit,
        EVERYBODY,
        [
            objects.Binding(
                arq_uuid=arq.uuid,
                hostname='host',
                device_rp_uuid=RP,
                instance_uuid=SERVER,
                project_id='project',
            )
            for arq in made
        ],
        arqs.Deadlines(deadline, deadline),
    )


def meanwhile(db, is_it, happen):
    """Have something happen, once, just before a statement is sent."""
    todo = [happen]

    @sa.event.listens_for(db.engine, 'before_cursor_execute')
    def look(connection, cursor, statement, *facts):
        if todo and is_it(statement):
            todo.pop()()


def holders(db):
    with db.reader() as session:
        return session.scalars(sa.select(models.AttachHandle.arq_id)).all()


def test_a_handle_that_is_taken_while_its_card_goes_stays(db, card):
    made = requested(db, 2)
    meanwhile(
        db,
        lambda statement: (
            'attach_handles' in statement
            and ('FOR UPDATE' in statement or statement.startswith('DELETE'))
        ),
        lambda: bind(db, made),
    )
    report_no_card(db)
    assert len(holders(db)) == 2 and None not in holders(db)


def updates_handles(statement):
    return statement.startswith('UPDATE attach_handles')


def test_a_host_whose_card_goes_while_it_is_released_is_woken(db, plain_card):
    made = requested(db, 2)
    bind(db, made)
    meanwhile(db, updates_handles, lambda: report_no_card(db))
    assert unbind(db, made) == {'host'}
    report_no_card(db)
    assert holders(db) == []


def test_a_card_that_is_released_while_it_goes_is_deleted(db, plain_card):
    made = requested(db, 2)
    bind(db, made)
    meanwhile(db, touches_handles, lambda: unbind(db, made))
    report_no_card(db)
    assert holders(db) == []


def test_a_bind_that_starts_again_is_not_failed_for_its_old_deadline(db, card):
    made = requested(db, 1)
    minute = datetime.timedelta(minutes=1)
    bind(db, made, clock.now() - minute)

    def bind_again():
        unbind(db, made)
        bind(db, made, clock.now() + minute)

    meanwhile(db, lambda statement: 'FOR UPDATE' in statement, bind_again)
    with db.writer() as session, UnitOfWork(session, Cause('test')) as unit:
        arqs.fail_overdue(unit)
    assert states(db) == [(State.BIND_STARTED, 'host')]


def test_two_ends_of_cleaning_at_once_free_the_whole_region(db, plain_card):
    # given a region with one quarantined handle, and one that is being cleaned
    with db.writer() as session:
        part = session.scalars(sa.select(models.Deployable)).one()
        part.is_programmable = True
        quarantined, cleaned = part.attach_handles
        quarantined.withheld, cleaned.withheld = 'quarantined', 'cleaning'
        facts = {
            'kind': 'clean',
            'hostname': 'host',
            'device_uuid': part.device.uuid,
            'deployable_uuid': part.uuid,
        }
        task = models.Task(handle_uuid=cleaned.uuid, **facts)
        session.add(task)
        session.add(models.Task(handle_uuid=quarantined.uuid, state='quarantined', **facts))
    result = objects.TaskResult(
        task_uuid=task.uuid,
        kind='clean',
        handle_uuid=cleaned.uuid,
        generation=task.generation,
        seconds=0.1,
    )

    @engine.retried
    def finish():
        with db.writer() as session, UnitOfWork(session, Cause('test')) as unit:
            Results(unit, 'host', [result], most_attempts=1).take()

    # when an operator releases the first while the host has cleaned the second
    comes_by = threading.Event()
    with ThreadPoolExecutor() as others:
        with db.writer() as session, UnitOfWork(session, Cause('test')) as unit:
            quarantine.release(unit, quarantined.uuid)
            meanwhile(db, waits_for_region, comes_by.set)
            finishing = others.submit(finish)
            finishing.add_done_callback(lambda _: comes_by.set())
            assert comes_by.wait(60)
        finishing.result(60)
    # then both can be taken
    with db.reader() as session:
        assert session.scalars(sa.select(models.AttachHandle.withheld)).all() == [None, None]


def waits_for_region(statement):
    """MariaDB has no FOR UPDATE OF, so there the query of the handles waits already."""
    return (
        'deployables' in statement
        and 'FOR UPDATE' in statement
        and 'FOR UPDATE OF' not in statement
    )


def delete_server(host):
    with transact(host.db, Cause('test')) as unit:
        arqs.delete_of_instance(unit, reporting_host.SERVER)


def program_region(host):
    region = host.all(models.Deployable.uuid)[1]
    with transact(host.db, Cause('test')) as unit:
        tasks.program_for_operator(unit, region, str(uuid.uuid4()))


def region_of_functions(*keys):
    handles = [handle(key, cleaning='full') for key in keys]
    return device(
        'fpga',
        deployable('card'),
        deployable('region', parent_name='card', is_programmable=True, resource_class=None),
        deployable('function', *handles, parent_name='region'),
    )


@pytest.mark.parametrize(
    ('happen', 'withheld'), [(delete_server, 'cleaning'), (program_region, 'programming')]
)
def test_a_function_that_is_reported_while_its_region_is_withheld_is_withheld_as_well(
    db, happen, withheld
):
    # given a region with one function
    host = Host(db)
    host.report(region_of_functions('a'))
    if happen is delete_server:
        host.bind(host.request(), provider='function')
    # when a report adds another one while the region is to be blanked, or another image loaded
    with ThreadPoolExecutor() as others:
        reporting = []

        def report():
            retried = engine.retried(host.report)
            reporting.append(others.submit(retried, region_of_functions('a', 'b')))
            wait(reporting, timeout=2)  # it may wait for the transaction that is still open

        meanwhile(db, lambda statement: statement.startswith('UPDATE agents'), report)
        happen(host)
        reporting[0].result(60)
    # then nobody can take either
    assert host.all(models.AttachHandle.withheld) == [withheld, withheld]


def test_two_servers_of_a_region_can_be_deleted_at_once(db):
    # given two servers with a function each of one region
    host, other = Host(db), str(uuid.uuid4())
    host.report(region_of_functions('a', 'b'))
    for server in reporting_host.SERVER, other:
        host.bind(host.request(), provider='function', server=server)

    def delete_other():
        with transact(db, Cause('test')) as unit:
            arqs.delete_of_instance(unit, other)

    # when one is deleted just before the deletion of the other one locks all of the region
    with ThreadPoolExecutor() as others:
        deleting = []

        def begin():
            deleting.append(others.submit(delete_other))
            wait(deleting, timeout=1)  # it waits for the transaction that is still open

        meanwhile(db, lambda statement: statement.startswith('SELECT attach_handles.arq_id'), begin)
        delete_server(host)
        deleting[0].result(60)
    # then neither had to be repeated because of a deadlock
    assert host.all(models.AttachHandle.withheld) == ['cleaning', 'cleaning']


@pytest.mark.parametrize('loaded', [{'function': 'x'}, {}], ids=['shown', 'never shown'])
def test_an_image_that_is_lost_while_a_bind_finds_it_is_loaded_again(db, monkeypatch, loaded):
    def region(content):
        part = deployable('part', 'a', parent_name='card', is_programmable=True, content=content)
        return device('fpga', deployable('card'), part)

    image = str(uuid.uuid4())
    group = {'resources:FPGA': '1', 'accel:bitstream_id': image}
    host = Host(db)
    host.report(region({}), boot_id='first')
    host.bind(host.request(group))
    [program] = host.report(region({}), boot_id='first').tasks
    host.finish(program, image_uuid=image, content=loaded, image_facts={'visibility': 'public'})
    host.report(region(loaded), boot_id='first')
    with db.writer() as session, UnitOfWork(session, Cause('test')) as unit:
        arqs.delete_of_instance(unit, reporting_host.SERVER)
    # given a report that shows the loss and has read its rows, when another conductor binds
    suspect = lost_images.LostImages.suspect

    def bind_first(*arguments):
        with ThreadPoolExecutor(1) as pool:
            pool.submit(host.bind, host.request(group)).result(20)
        suspect(*arguments)

    monkeypatch.setattr(lost_images.LostImages, 'suspect', bind_first)
    plan = host.report(region({'function': 'y'} if loaded else {}), boot_id='second', is_first=True)
    assert [task.kind for task in plan.tasks] == ['program']
    assert host.states() == ['Provisioning']


def test_a_failure_of_a_request_that_goes_meanwhile_is_no_failure(db, card):
    gone, stays = made = requested(db, 2)
    bind(db, made)
    with db.reader() as session:
        task = session.scalars(
            sa.select(models.Task).where(models.Task.arq_uuid == gone.uuid)
        ).one()

    def delete():
        with db.writer() as session, UnitOfWork(session, Cause('test')) as unit:
            arqs.delete(unit, EVERYBODY, [gone.uuid], even_bound=True)

    meanwhile(db, lambda statement: 'FOR UPDATE' in statement, delete)
    with db.writer() as session, UnitOfWork(session, Cause('test')) as unit:
        assert (
            Results(
                unit,
                'host',
                [
                    objects.TaskResult(
                        task_uuid=task.uuid,
                        kind='prepare',
                        handle_uuid=task.handle_uuid,
                        generation=task.generation,
                        error='No.',
                    )
                ],
                most_attempts=1,
            ).take()
            == []
        )
    with db.reader() as session:
        assert arqs_db.get(session, EVERYBODY, stays.uuid).state == State.BIND_STARTED


def touches_handles(statement):
    return 'attach_handles' in statement and (
        'FOR UPDATE' in statement or statement.startswith(('DELETE', 'UPDATE'))
    )


def states(db):
    with db.reader() as session:
        return [(arq.state, arq.hostname) for arq in session.scalars(sa.select(models.ExtArq))]


def test_what_is_bound_while_its_host_is_forgotten_is_unbound(db, card):
    made = requested(db, 2)
    meanwhile(db, touches_handles, lambda: bind(db, made))
    assert forget.forget(db, 'host') == {'requests unbound': 2, 'devices forgotten': 1}
    assert states(db) == [(State.UNBOUND, None)] * 2 and holders(db) == []


def test_a_host_is_forgotten_after_a_bind_that_has_taken_of_it(db, card):
    made = requested(db, 2)
    comes_by = threading.Event()
    with ThreadPoolExecutor() as others:
        with db.writer() as session, UnitOfWork(session, Cause('test')) as unit:
            start_bind(unit, made)
            meanwhile(db, lambda statement: 'FOR UPDATE' in statement, comes_by.set)
            forgetting = others.submit(forget.forget, db, 'host')
            assert comes_by.wait(60)
        assert forgetting.result(60) == {'requests unbound': 2, 'devices forgotten': 1}
    assert states(db) == [(State.UNBOUND, None)] * 2 and holders(db) == []


def test_a_bind_to_a_host_that_is_forgotten_meanwhile_is_refused(db, card):
    made = requested(db, 2)
    meanwhile(db, touches_handles, lambda: forget.forget(db, 'host'))
    with pytest.raises(errors.Conflict):
        bind(db, made)
    assert states(db) == [(State.INITIAL, None)] * 2 and holders(db) == []


def test_a_report_of_a_host_that_is_being_forgotten_comes_after_it(db, card):
    report = objects.Report(
        hostname='host',
        sequence=2,
        digest='',
        is_ready=True,
        conflicts={},
        drivers=[],
        devices=[
            objects.Device(
                hostname='host',
                key='card',
                type='GPU',
                vendor='10de',
                driver_name='driver',
                std_board_info={},
                vendor_board_info={},
                control_paths=[],
                deployables=[
                    objects.Deployable(
                        name='part',
                        rp_uuid=RP,
                        driver_name='driver',
                        resource_class='VGPU',
                        traits=[],
                        attach_handles=[
                            objects.AttachHandle(
                                key=key, type='PCI', info={}, is_host_prepared=True
                            )
                            for key in 'abc'
                        ],
                    )
                ],
            )
        ],
    )

    @engine.retried
    def tell():
        with db.writer() as session, UnitOfWork(session, Cause('test')) as unit:
            agents.accept(session, report)
            inventory.reconcile(unit, report)

    report.sequence = 1
    tell()
    report.sequence = 2
    told = []
    with ThreadPoolExecutor() as others:
        meanwhile(
            db,
            lambda statement: statement.startswith('DELETE FROM attach_handles'),
            lambda: told.append(others.submit(tell)),
        )
        assert forget.forget(db, 'host') == {'requests unbound': 0, 'devices forgotten': 1}
        told[0].result(60)
    assert holders(db) == [None] * 3
