# SPDX-License-Identifier: Apache-2.0
"""The audit finds disagreements, names a remedy for each, and repairs them on demand."""

import dataclasses
import datetime
import uuid

import pytest
import sqlalchemy as sa
from oslo_db import exception as db_exc

from cyborg import errors
from cyborg.clients import keystone
from cyborg.clients.nova import Nova
from cyborg.clients.placement import Allocations, Placement
from cyborg.conductor import forget
from cyborg.conductor.audit import Audit
from cyborg.db.sqlalchemy import clock, models
from tests.fixtures.cloud import eventually

FPGA = {'resources:FPGA': '1', 'trait:CUSTOM_FAKE_DEVICE': 'required'}
NO_GRACE = datetime.timedelta(0)
VERSION = {'OpenStack-API-Version': 'placement 1.39'}
NOVAS_VERSION = {'OpenStack-API-Version': 'placement 1.36'}


@pytest.fixture
def bound(cloud):
    """A server with a bound request, and the allocation that Nova made for it before."""
    cloud.host()
    cloud.profile('one', FPGA)
    cloud.server = str(uuid.uuid4())
    allocate(cloud)
    assert cloud.bind(cloud.request('one'), instance=cloud.server).status_code == 202
    eventually(lambda: not outbox(cloud))
    return cloud


def outbox(cloud):
    with cloud.standalone.db.reader() as session:
        return session.scalars(sa.select(models.NovaEvent)).all()


def allocate(cloud, consumer=None):
    """As Nova does it, at a version that does not know types of consumers, or with a type."""
    body = {
        'allocations': {cloud.rp(): {'resources': {'FPGA': 1}}},
        'project_id': 'p',
        'user_id': 'u',
        'consumer_generation': None,
    }
    answer = cloud.standalone.placement.put(
        f'/allocations/{cloud.server}',
        json=body | ({'consumer_type': consumer} if consumer else {}),
        headers=VERSION if consumer else NOVAS_VERSION,
    )
    assert answer.status_code == 204


def deallocate(cloud):
    cloud.standalone.placement.delete(f'/allocations/{cloud.server}', headers=VERSION)


@pytest.fixture
def audit(cloud):
    nova = Nova(keystone.connect(cloud.standalone.conf, 'nova'))
    return Audit(cloud.standalone.db, Allocations(cloud.standalone.placement), nova, NO_GRACE)


def change(cloud, statement):
    with cloud.standalone.db.writer() as session:
        session.execute(statement)


def test_a_cloud_in_order_has_nothing_to_find(bound, audit):
    assert audit.look() == []
    assert Audit(bound.standalone.db).look() == []


def test_requests_of_a_server_that_nova_has_forgotten_are_found_and_deleted(bound, audit):
    bound.nova.unknown.add(bound.server)
    [finding] = audit.look()
    assert bound.server in finding.what and 'but Nova does not know it' in finding.what
    assert audit.mend([finding]) == 1
    assert bound.arqs() == []
    deallocate(bound)
    assert audit.look() == []


def test_a_server_that_goes_while_its_device_is_restored_is_found_as_well(bound, audit):
    """Its image cannot be loaded again after a power cycle: that is retried without limit."""
    change(bound, sa.update(models.ExtArq).values(state='Provisioning'))
    bound.nova.unknown.add(bound.server)
    [finding] = audit.look()
    assert bound.server in finding.what and 'but Nova does not know it' in finding.what
    assert audit.mend([finding]) == 1
    assert bound.arqs() == []


def test_a_deadlock_repeats_a_fix(bound, audit):
    bound.nova.unknown.add(bound.server)
    [finding] = audit.look()
    deadlocks = [db_exc.DBDeadlock()]

    def fix(unit):
        finding.fix(unit)
        if deadlocks:
            raise deadlocks.pop()

    assert audit.mend([dataclasses.replace(finding, fix=fix)]) == 1
    assert bound.arqs() == []


@pytest.mark.parametrize('task', [None, 'deleting'], ids=['at rest', 'being deleted'])
def test_a_server_whose_requests_are_lost_is_found_while_nova_leaves_it_alone(bound, audit, task):
    """A database from before its bind was restored."""
    [arq] = bound.arqs()
    bound.call('DELETE', f'/accelerator_requests?arqs={arq["uuid"]}')
    bound.nova.running[bound.server] = task
    found = [(finding.what, finding.remedy) for finding in audit.look()]
    if task:
        assert found == []
    else:
        [(what, remedy)] = found
        assert f'Server {bound.server} has an allocation on {bound.rp()} and no' in what
        assert remedy.startswith(f'openstack server shelve {bound.server}')


def test_requests_without_an_allocation_are_found_and_deleted(bound, audit):
    deallocate(bound)
    [finding] = audit.look()
    assert bound.rp() in finding.what
    audit.mend([finding])
    assert bound.arqs() == [] and audit.look() == []


@pytest.mark.parametrize('consumer', [None, 'INSTANCE'])
def test_an_allocation_of_a_server_that_is_no_more_is_told(bound, audit, consumer):
    assert (
        bound.call(
            'DELETE',
            f'/accelerator_requests?instance={bound.server}',
        ).status_code
        == 204
    )
    deallocate(bound)
    allocate(bound, consumer)
    assert audit.look() == []  # Nova may be about to ask for another request
    bound.nova.unknown.add(bound.server)
    [finding] = audit.look()
    assert bound.server in finding.what and bound.rp() in finding.what
    assert f'allocation delete {bound.server}' in finding.remedy and finding.fix is None
    deallocate(bound)
    assert audit.look() == []


def test_what_a_migration_holds_is_left_alone(bound, audit):
    assert (
        bound.call(
            'DELETE',
            f'/accelerator_requests?instance={bound.server}',
        ).status_code
        == 204
    )
    deallocate(bound)
    allocate(bound, 'MIGRATION')
    bound.nova.unknown.add(bound.server)
    assert audit.look() == []


def test_what_a_server_was_given_since_the_audit_looked_stays(bound, audit):
    bound.nova.unknown.add(bound.server)
    [finding] = audit.look()
    [new] = bound.request('one')
    assert bound.bind(new, instance=bound.server).status_code == 202
    audit.mend([finding])
    assert [(arq['uuid'], arq['state']) for arq in bound.arqs()] == [(new['uuid'], 'Bound')]


def test_only_what_has_lost_its_allocation_goes(bound, audit):
    bound.host('compute2')
    other = bound.request('one')
    change(
        bound,
        sa.update(models.ExtArq)
        .where(models.ExtArq.uuid == other[0]['uuid'])
        .values(
            state='Bound',
            instance_uuid=bound.server,
            hostname='compute2',
            device_rp_uuid=bound.rp('compute2'),
        ),
    )
    with bound.standalone.db.writer() as session:
        handle = session.scalars(
            sa.select(models.AttachHandle)
            .join(models.AttachHandle.deployable)
            .where(models.Deployable.rp_uuid == bound.rp('compute2'))
        ).first()
        handle.arq_id = session.scalar(
            sa.select(models.ExtArq.id).where(models.ExtArq.uuid == other[0]['uuid'])
        )
    [finding] = audit.look()
    assert bound.rp('compute2') in finding.what and bound.rp() not in finding.what
    audit.mend([finding])
    assert [arq['hostname'] for arq in bound.arqs()] == ['compute1']
    assert audit.look() == []


@pytest.mark.parametrize('away', ['nova', 'placement'])
def test_a_neighbour_that_is_away_is_said_and_the_rest_is_told(bound, away):
    class Away:
        def exists(self, server):
            raise errors.Unavailable('Nova answered 503.')

        def providers_of(self, server):
            raise errors.PlacementUnavailable(why='nobody is there')

    audit = Audit(
        bound.standalone.db,
        Away() if away == 'placement' else None,
        Away() if away == 'nova' else None,
        NO_GRACE,
    )
    [finding] = audit.look()
    assert 'The comparison is not complete' in finding.what and finding.fix is None
    change(bound, sa.update(models.AttachHandle).values(arq_id=None))
    assert 'without a handle' in audit.look()[0].what


def test_a_young_request_is_given_time(bound):
    deallocate(bound)
    nova = Nova(keystone.connect(bound.standalone.conf, 'nova'))
    assert Audit(bound.standalone.db, Allocations(bound.standalone.placement), nova).look() == []


def test_a_handle_held_by_a_request_that_is_not_bound_is_found_and_freed(bound, audit):
    change(bound, sa.update(models.ExtArq).values(state='BindFailed'))
    [finding] = Audit(bound.standalone.db).look()
    assert 'which is BindFailed' in finding.what
    audit.mend([finding])
    assert Audit(bound.standalone.db).look() == []


def test_a_bound_request_without_a_handle_is_found_and_unbound(bound, audit):
    change(bound, sa.update(models.AttachHandle).values(arq_id=None))
    [finding] = Audit(bound.standalone.db).look()
    assert 'without a handle' in finding.what
    audit.mend([finding])
    assert [arq['state'] for arq in bound.arqs()] == ['Unbound']
    assert Audit(bound.standalone.db).look() == []


def test_a_request_that_nobody_bound_for_days_is_found_and_deleted(bound, audit):
    [young], [old] = bound.request('one'), bound.request('one')
    assert audit.look() == []
    change(
        bound,
        sa.update(models.ExtArq)
        .where(models.ExtArq.uuid == old['uuid'])
        .values(created_at=clock.now() - datetime.timedelta(days=3)),
    )
    change(
        bound,
        sa.update(models.ExtArq).where(models.ExtArq.uuid == old['uuid']).values(updated_at=None),
    )
    [finding] = audit.look()
    assert f'Request {old["uuid"]} has no server and is Initial since ' in finding.what
    audit.mend([finding])
    left = {arq['uuid']: arq['state'] for arq in bound.arqs()}
    assert left.pop(young['uuid']) == 'Initial' and set(left.values()) == {'Bound'}
    assert audit.look() == []


def test_a_request_that_is_unbound_for_days_is_found_and_deleted(bound, audit):
    # given a host that was forgotten just now
    bound.standalone.remove_host('compute1')
    forget.forget(bound.standalone.db, 'compute1')
    deallocate(bound)
    [arq] = bound.arqs()
    assert (arq['state'], audit.look()) == ('Unbound', [])
    # when nobody has bound its requests for long
    change(
        bound, sa.update(models.ExtArq).values(updated_at=clock.now() - datetime.timedelta(days=3))
    )
    # then the audit finds them
    [finding] = audit.look()
    assert f'Request {arq["uuid"]} has no server and is Unbound since ' in finding.what
    audit.mend([finding])
    assert (bound.arqs(), audit.look()) == ([], [])


def test_a_finding_that_is_no_longer_true_is_not_mended(bound, audit):
    change(bound, sa.update(models.AttachHandle).values(arq_id=None))
    [finding] = Audit(bound.standalone.db).look()
    change(
        bound,
        sa.update(models.AttachHandle)
        .where(models.AttachHandle.key == '0')
        .values(arq_id=sa.select(models.ExtArq.id).scalar_subquery()),
    )
    audit.mend([finding])
    assert [arq['state'] for arq in bound.arqs()] == ['Bound']


NOWHERE = str(uuid.uuid4())


def test_an_old_clean_up_and_an_old_event_are_told(bound, audit):
    long_ago = clock.now() - datetime.timedelta(days=1)
    change(
        bound,
        sa.insert(models.Task).values(
            kind='release',
            hostname='compute1',
            device_uuid=NOWHERE,
            deployable_uuid=NOWHERE,
            handle_uuid=NOWHERE,
            created_at=long_ago,
            attempts=3,
            error='busy',
        ),
    )
    change(
        bound,
        sa.insert(models.NovaEvent).values(
            instance_uuid=bound.server,
            arq_uuid=str(uuid.uuid4()),
            status='completed',
            due_at=clock.now() + datetime.timedelta(days=1),
            created_at=long_ago,
        ),
    )
    told = [finding.what for finding in Audit(bound.standalone.db).look()]
    assert any('failed 3 times: busy' in what for what in told)
    assert any('1 events have not been accepted' in what for what in told)


def test_a_host_that_lives_is_not_forgotten(bound):
    silent = clock.now() - datetime.timedelta(minutes=3)
    with pytest.raises(errors.Conflict, match='stop it first'):
        forget.require_gone(bound.standalone.db, 'compute1', silent)
    with pytest.raises(errors.NotFound, match='no host nowhere'):
        forget.require_gone(bound.standalone.db, 'nowhere', silent)


def test_nothing_of_a_forgotten_host_is_left(bound):
    bound.standalone.remove_host('compute1')
    forget.require_gone(
        bound.standalone.db, 'compute1', clock.now() + datetime.timedelta(seconds=1)
    )
    assert forget.forget(bound.standalone.db, 'compute1') == {
        'requests unbound': 1,
        'devices forgotten': 1,
    }
    deallocate(bound)
    assert Placement(bound.standalone.placement).publish('compute1', []).is_complete
    assert [arq['state'] for arq in bound.arqs()] == ['Unbound']
    assert bound.get('/devices')['devices'] == [] and bound.providers() == {}
    assert Audit(bound.standalone.db).look() == []
    # it may come back as a new host
    bound.standalone.add_host(bound.hosts['compute1'])
    eventually(lambda: 'compute1_FakeDevice' in bound.providers())
