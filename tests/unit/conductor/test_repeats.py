# SPDX-License-Identifier: Apache-2.0
"""A request that creates or deletes device profiles is repeated with its idempotency key."""

import contextlib

import oslo_messaging as messaging
import pytest
import sqlalchemy as sa

from cyborg import context, errors, objects, rpc
from cyborg.agent.rpcapi import AgentAPI
from cyborg.conductor.device_profiles import DeviceProfiles
from cyborg.conductor.notifications import Notifier
from cyborg.conductor.outbox import Outbox
from cyborg.db.sqlalchemy import models


@pytest.fixture
def endpoint(db, configured):
    conf = configured()
    transport = rpc.transport(conf)
    notifier = Notifier(conf, 'conductor1', db)
    # nothing here is told to Nova, and so there is none
    outbox = Outbox(db, None, interval=3600, patience=3600)
    yield DeviceProfiles(conf, db, AgentAPI(transport), outbox, notifier, None)
    notifier.stop()
    transport.cleanup()


def create(endpoint, name='one', key='key', user='alice', project='p', resources='1'):
    """Create a profile; returns its uuid."""
    profile = objects.DeviceProfile(name=name, groups=[{'resources:FPGA': resources}])
    with refusals():
        [made] = endpoint.create_device_profiles(caller(key, user, project), [profile])
    return made.uuid


def delete(endpoint, *names, key):
    with refusals():
        endpoint.delete_device_profiles(caller(key), list(names))


def caller(key, user='alice', project='p'):
    return context.RequestContext(
        is_admin=True, user_id=user, project_id=project, idempotency_key=key, overwrite=False
    )


@contextlib.contextmanager
def refusals():
    """Raises the errors that an endpoint raises, as its caller gets them."""
    try:
        yield
    except messaging.ExpectedException as expected:
        raise expected.exc_info[1] from None


def names(db):
    with db.reader() as session:
        return list(session.scalars(sa.select(models.DeviceProfile.name)))


def test_a_repeated_request_returns_what_the_first_one_has_created(db, endpoint):
    made = create(endpoint)
    assert create(endpoint) == made
    assert names(db) == ['one']


def test_without_a_key_a_repeated_request_is_a_request_of_its_own(endpoint):
    create(endpoint, key=None)
    with pytest.raises(errors.Conflict):
        create(endpoint, key=None)


def test_a_key_of_another_request_is_refused(db, endpoint):
    create(endpoint)
    with pytest.raises(errors.IdempotencyKeyReused):
        create(endpoint, name='two')
    with pytest.raises(errors.IdempotencyKeyReused):
        create(endpoint, resources='2')
    assert names(db) == ['one']


@pytest.mark.parametrize('whose', [{'user': 'bob'}, {'project': 'q'}])
def test_two_users_or_projects_may_have_the_same_key(endpoint, whose):
    made = create(endpoint)
    assert create(endpoint, name='two', **whose) != made


def test_another_request_for_the_same_name_is_refused_with_its_own_reason(endpoint):
    create(endpoint)
    with pytest.raises(errors.DuplicateProfile):
        create(endpoint, key='another')


def test_a_request_that_failed_may_be_repeated_with_its_key(db, endpoint):
    create(endpoint, key='first')
    with pytest.raises(errors.Conflict):
        create(endpoint, key='second')
    # when the name is free, the same request succeeds
    with db.writer() as session:
        session.execute(sa.delete(models.DeviceProfile))
    create(endpoint, key='second')
    assert names(db) == ['one']


def test_the_key_of_a_request_whose_objects_were_deleted_is_spent(db, endpoint):
    create(endpoint)
    with db.writer() as session:
        session.execute(sa.delete(models.DeviceProfile))
    with pytest.raises(errors.IdempotencyKeySpent):
        create(endpoint)
    assert names(db) == []


def test_a_repeated_deletion_succeeds_if_the_first_one_did(db, endpoint):
    create(endpoint)
    delete(endpoint, 'one', key='deletion')
    delete(endpoint, 'one', key='deletion')
    # whereas another one finds nothing
    with pytest.raises(errors.ProfileNotFound):
        delete(endpoint, 'one', key='another')
    with pytest.raises(errors.ProfileNotFound):
        delete(endpoint, 'one', key=None)


def test_a_repeated_deletion_that_names_an_unknown_profile_is_refused_again(db, endpoint):
    create(endpoint)
    for _ in range(2):
        with pytest.raises(errors.ProfileNotFound, match='mistyped'):
            delete(endpoint, 'one', 'mistyped', key='deletion')
    assert names(db) == ['one']


def test_a_repeated_deletion_leaves_what_was_created_since(db, endpoint):
    create(endpoint, key='first')
    delete(endpoint, 'one', key='deletion')
    create(endpoint, key='second')
    delete(endpoint, 'one', key='deletion')
    assert names(db) == ['one']
