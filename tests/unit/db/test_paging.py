# SPDX-License-Identifier: Apache-2.0
"""Filters, order and pages, shown with the list of agents."""

import datetime

import pytest

from cyborg import errors
from cyborg.db.sqlalchemy import agents, clock, migration, models

SILENT_SINCE = datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)
#: host and whether it is ready, in the order of the rows
HOSTS = {'d': True, 'b': False, 'a': True, 'c': False, 'e': True}


@pytest.fixture
def db(database):
    migration.create_schema(database)
    for number, (hostname, is_ready) in enumerate(HOSTS.items()):
        with database.writer() as session:
            session.add(
                models.Agent(
                    uuid=uuid_of(hostname),
                    hostname=hostname,
                    last_heartbeat=clock.now(),
                    sequence=number,
                    digest='same',
                    is_ready=is_ready,
                    drivers=[],
                    conflicts={},
                )
            )
    return database


def uuid_of(hostname):
    return f'{ord(hostname):08x}-0000-4000-8000-000000000000'


def listed(db, filters=None, **page):
    """The names of the hosts of one page, in its order."""
    if 'marker' in page:
        page['marker'] = uuid_of(page['marker'])
    with db.reader() as session:
        found = agents.find(session, SILENT_SINCE, filters or {}, page)
    return ''.join(each.hostname for each in found)


def test_rows_come_in_the_order_in_which_they_were_made(db):
    assert listed(db) == 'dbace'
    assert listed(db, sort_dir='desc') == 'ecabd'


def test_rows_are_sorted_by_a_column_in_both_directions(db):
    assert listed(db, sort_key='hostname') == 'abcde'
    assert listed(db, sort_key='hostname', sort_dir='desc') == 'edcba'


def test_rows_that_are_equal_come_in_the_order_in_which_they_were_made(db):
    assert listed(db, sort_key='digest') == 'dbace'
    assert listed(db, sort_key='is_ready') == 'bcdae'
    assert listed(db, sort_key='is_ready', sort_dir='desc') == 'eadcb'


@pytest.mark.parametrize(
    'order',
    [
        {},
        {'sort_dir': 'desc'},
        {'sort_key': 'hostname'},
        {'sort_key': 'is_ready'},
        {'sort_key': 'is_ready', 'sort_dir': 'desc'},
    ],
)
def test_pages_have_every_row_once(db, order):
    pages, marker = [], {}
    while page := listed(db, limit=2, **order, **marker):
        pages.append(page)
        marker = {'marker': page[-1]}
    assert [len(page) for page in pages] == [2, 2, 1]
    assert ''.join(pages) == listed(db, **order)


def test_a_filter_has_one_value_or_several(db):
    assert listed(db, {'hostname': 'a'}) == 'a'
    assert listed(db, {'hostname': ['a', 'b', 'z']}) == 'ba'
    assert listed(db, {'hostname': []}) == ''
    assert listed(db, {'is_ready': False}) == 'bc'


def test_all_filters_must_match_and_one_without_a_value_is_none(db):
    assert listed(db, {'is_ready': True, 'hostname': ['a', 'b']}) == 'a'
    assert listed(db, {'is_ready': None, 'hostname': None}) == 'dbace'


def test_a_marker_need_not_match_the_filters(db):
    # b was ready when the client got the page that ends with it
    assert listed(db, {'is_ready': True}, marker='b') == 'ae'


def test_a_marker_that_does_not_exist_is_not_found(db):
    with pytest.raises(errors.MarkerNotFound):
        listed(db, marker='z')


def test_an_unknown_column_or_filter_is_a_mistake_of_the_caller(db):
    with pytest.raises(errors.BadRequest, match='Cannot sort by colour'):
        listed(db, sort_key='colour')
    with pytest.raises(errors.BadRequest, match='no filter colour'):
        listed(db, {'colour': 'red'})
