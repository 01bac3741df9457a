# SPDX-License-Identifier: Apache-2.0
"""Lists come a page at a time."""

from urllib.parse import parse_qs, urlsplit

import pytest

from cyborg import errors
from cyborg.api import app
from tests.unit.api.conftest import (
    Client,
    agent,
    arq,
    attribute,
    deployable,
    device,
    fault,
    profile,
    uuid,
)

COLLECTIONS = {
    '/v2/devices': ('devices', 'devices', device),
    '/v2/deployables': ('deployables', 'deployables', deployable),
    '/v2/attributes': ('attributes', 'attributes', attribute),
    '/v2/device_profiles': ('device_profiles', 'device_profiles', profile),
    '/v2/accelerator_requests': ('arqs', 'arqs', arq),
    '/v2/agents': ('agents', 'agents', agent),
}


@pytest.mark.parametrize('path', COLLECTIONS)
def test_following_the_links_shows_everything_once(admin, conductor, path):
    kind, key, make = COLLECTIONS[path]
    conductor.items[kind] = [make(number) for number in range(5)]
    seen, url = [], f'{path}?limit=2'
    while url:
        answer = admin.get(url, version='latest')
        assert answer.status_int == 200
        assert next(iter(answer.json)) == key  # clients take the first key for the collection
        seen.append([item['uuid'] for item in answer.json[key]])
        links = answer.json.get(f'{key}_links', [])
        url = links[0]['href'].removeprefix('http://localhost') if links else None
        assert all(link['rel'] == 'next' for link in links)
    assert seen == [[uuid(0), uuid(1)], [uuid(2), uuid(3)], [uuid(4)]]


def test_a_full_last_page_has_no_next(admin, conductor):
    conductor.items['devices'] = [device(1), device(2)]
    assert list(admin.get('/v2/devices?limit=2').json) == ['devices']


def test_the_next_link_keeps_the_rest_of_the_query(admin, conductor):
    conductor.items['devices'] = [device(1), device(2)]
    answer = admin.get('/v2/devices?limit=1&type=FPGA&sort_key=hostname&sort_dir=desc')
    [link] = answer.json['devices_links']
    assert parse_qs(urlsplit(link['href']).query) == {
        'limit': ['1'],
        'type': ['FPGA'],
        'sort_key': ['hostname'],
        'sort_dir': ['desc'],
        'marker': [uuid(1)],
    }


def test_the_conductor_is_asked_for_one_more_than_is_shown(admin, conductor):
    admin.get('/v2/devices?limit=2&sort_dir=desc')
    assert conductor.calls == [
        ('list_devices', {'filters': {}, 'page': {'limit': 3, 'sort_dir': 'desc'}})
    ]


@pytest.mark.parametrize('query', ['', '?limit=5000'])
def test_no_page_is_larger_than_the_operator_allows(conf, conductor, query):
    conf.set_override('max_limit', 3, 'api')
    conductor.items['devices'] = [device(number) for number in range(5)]
    answer = Client(app.make_app(conf, conductor)).get(f'/v2/devices{query}')
    assert len(answer.json['devices']) == 3
    assert 'devices_links' in answer.json


@pytest.mark.parametrize(
    'query, word',
    [
        ('limit=0', 'limit'),
        ('limit=-1', 'limit'),
        ('limit=many', 'limit'),
        ('limit=99999999999999', 'limit'),
        ('marker=first', 'marker'),
        ('sort_key=fault', 'sort_key'),
        ('sort_dir=up', 'sort_dir'),
    ],
)
def test_a_page_that_makes_no_sense_is_refused(admin, conductor, query, word):
    answer = admin.get(f'/v2/devices?{query}')
    assert answer.status_int == 400
    assert word in fault(answer)
    assert not conductor.calls


def test_a_marker_that_names_nothing_is_refused(admin, conductor):
    conductor.error = errors.MarkerNotFound(marker=uuid(9))
    answer = admin.get(f'/v2/devices?marker={uuid(9)}')
    assert answer.status_int == 400
    assert uuid(9) in fault(answer)
