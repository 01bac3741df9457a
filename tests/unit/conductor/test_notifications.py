# SPDX-License-Identifier: Apache-2.0
"""Which changes become notifications, and what these say. oslo.messaging writes them to the log."""

import json
import logging

import pytest

from cyborg import context, objects
from cyborg.conductor.engine.changes import Change
from cyborg.conductor.notifications import Notifier
from cyborg.db.sqlalchemy import device_profiles, engine, models

LOGGER = 'oslo.messaging.notification'
UUID = '11111111-1111-4111-8111-111111111111'


@pytest.fixture
def notify(db, configured, caplog):
    """Sends changes; returns the level and the document of each notification."""

    def send(*changes, driver='log', database=db):
        conf = configured(f'[oslo_messaging_notifications]\ndriver = {driver}')
        logging.getLogger().addHandler(caplog.handler)  # oslo.log has removed it
        notifier = Notifier(conf, 'conductor1', database)
        for each in changes:
            notifier.send(context.internal(), [each])
        notifier.stop()
        return [
            (record.levelname, json.loads(record.getMessage()))
            for record in caplog.records
            if record.name.startswith(LOGGER)
        ]

    return send


def test_changes_are_sent_in_their_order_and_by_a_name_without_spaces(notify):
    sent = notify(Change('device.disabled', UUID), Change('arq.handed back', UUID))
    assert [each['event_type'] for _, each in sent] == ['device.disabled', 'arq.handed_back']
    assert {each['publisher_id'] for _, each in sent} == {'conductor.conductor1'}


def test_a_notification_has_the_facts_of_its_change_a_version_and_a_time(notify):
    [(_, sent)] = notify(Change('device.disabled', UUID, {'hostname': 'compute1'}))
    at = sent['payload'].pop('at')
    assert sent['payload'] == {'version': '1.0', 'uuid': UUID, 'hostname': 'compute1'}
    assert at.startswith('20') and at.endswith('+00:00')


@pytest.mark.parametrize(
    ('event', 'level'),
    [
        ('device.failed', 'ERROR'),
        ('arq.failed', 'ERROR'),
        ('agent.down', 'ERROR'),
        ('agent.up', 'INFO'),
        ('device_profile.created', 'INFO'),
    ],
)
def test_what_an_operator_must_mend_is_an_error(notify, event, level):
    [(found, _)] = notify(Change(event, UUID))
    assert found == level


def test_tasks_are_internal_and_not_sent(notify):
    assert notify(Change('task.created', UUID)) == []


@pytest.fixture
def profile(db):
    profile = objects.DeviceProfile(name='one-fpga', groups=[{'resources:FPGA': '1'}])
    with db.writer() as session:
        [made] = device_profiles.create(session, [profile])
    with db.reader() as session:
        row = session.query(models.DeviceProfile).one()
        return made.uuid, row.id


def test_a_request_is_sent_with_the_name_of_its_profile(notify, profile):
    uuid, row = profile
    [(_, sent)] = notify(Change('arq.bind', UUID, device_profile_id=row))
    assert sent['payload']['device_profile_uuid'] == uuid
    assert sent['payload']['device_profile_name'] == 'one-fpga'


def test_a_request_without_a_profile_or_with_a_deleted_one_is_sent_without_a_name(notify, profile):
    _, row = profile
    sent = notify(
        Change('arq.bind', UUID),
        Change('arq.bind', UUID, device_profile_id=row + 1),
    )
    assert [each['payload']['device_profile_name'] for _, each in sent] == [None, None]


def test_without_a_driver_nothing_is_sent(notify):
    assert notify(Change('device.disabled', UUID), driver='noop') == []


def test_notifications_that_cannot_be_sent_are_logged_and_the_next_are_sent(
    notify, tmp_path, caplog
):
    # given a database without tables, in which no profile can be looked up
    empty = engine.Database(f'sqlite:///{tmp_path}/empty.db')
    sent = notify(
        Change('arq.bind', UUID, device_profile_id=1),
        Change('device.disabled', UUID),
        database=empty,
    )
    empty.close()
    assert [each['event_type'] for _, each in sent] == ['device.disabled']
    assert 'Notifications could not be sent.' in caplog.text
