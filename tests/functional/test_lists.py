# SPDX-License-Identifier: Apache-2.0
"""Lists: what is asked for, all of it, a page at a time."""

import pytest

from tests.fixtures.cloud import Cloud

GROUP = {'resources:FPGA': '1'}


@pytest.fixture(scope='module')
def cloud(tmp_path_factory):
    """Two hosts, three profiles, six requests of which one is bound; tests only read them."""
    made = Cloud(tmp_path_factory.mktemp('cloud'))
    made.start()
    for name in ('compute1', 'compute2'):
        made.host(name)
    for name in ('a', 'b', 'c'):
        made.profile(name, GROUP, GROUP)
        made.request(name)
    made.bound = made.arqs()[2]
    assert made.bind(made.bound, host='compute2').status_code == 202
    yield made
    made.stop()


COLLECTIONS = {
    '/device_profiles': 'device_profiles',
    '/accelerator_requests': 'arqs',
    '/devices': 'devices',
    '/deployables': 'deployables',
    '/attributes': 'attributes',
    '/agents': 'agents',
}


def walk(cloud, path, key, **query):
    """All pages, by their links."""
    pages, url = [], f'{path}?' + '&'.join(f'{name}={value}' for name, value in query.items())
    while url:
        page = cloud.get(url)
        pages.append([each['uuid'] for each in page[key]])
        links = page.get(f'{key}_links')
        url = links[0]['href'].partition('/v2')[2] if links else None
    return pages


@pytest.mark.parametrize('path', COLLECTIONS)
@pytest.mark.parametrize(
    'order',
    [
        {},
        {'sort_dir': 'desc'},
        {'sort_key': 'created_at'},
        {'sort_key': 'uuid', 'sort_dir': 'desc'},
    ],
)
def test_pages_show_everything_once_in_order(cloud, path, order):
    key = COLLECTIONS[path]
    whole = walk(cloud, path, key, **order)[0]
    assert len(whole) >= 2
    assert len(set(whole)) == len(whole)
    assert walk(cloud, path, key, limit=1, **order) == [[each] for each in whole]
    if order.get('sort_key') == 'uuid':
        assert whole == sorted(whole, reverse=True)


def test_equal_keys_are_told_apart(cloud):
    arqs = [each['uuid'] for each in cloud.arqs()]
    assert sum(walk(cloud, '/accelerator_requests', 'arqs', limit=2, sort_key='state'), []) == [
        cloud.bound['uuid'],
        *(each for each in arqs if each != cloud.bound['uuid']),
    ]


@pytest.mark.parametrize(
    'path, fields',
    [
        ('/devices', ['type', 'vendor', 'model', 'hostname', 'status', 'is_missing']),
        ('/deployables', ['name', 'device_id', 'device_uuid', 'rp_uuid', 'driver_name']),
        ('/attributes', ['key', 'value', 'deployable_id', 'deployable_uuid']),
        ('/agents', ['hostname', 'alive', 'ready']),
        ('/device_profiles', ['name', 'enabled']),
        (
            '/accelerator_requests',
            ['state', 'hostname', 'device_rp_uuid', 'project_id', 'device_profile_name'],
        ),
    ],
)
def test_a_filter_keeps_what_equals_it(cloud, path, fields):
    everything = cloud.get(path)[COLLECTIONS[path]]
    for field in fields:
        for value in {each[field] for each in everything} - {None}:
            text = str(value).lower() if isinstance(value, bool) else value
            found = cloud.get(path, params={field: text})[COLLECTIONS[path]]
            assert found == [each for each in everything if each[field] == value]


@pytest.mark.parametrize(
    'path, query',
    [
        ('/devices', 'type=%F0%9F%92%A9'),
        ('/devices', "vendor=' OR 1=1 --"),
        ('/deployables', 'name=%25'),
        ('/deployables', 'root_id=2147483647'),
        ('/deployables', 'parent_uuid=6b1f0c1e-0000-4000-8000-000000000000'),
        ('/attributes', 'value=_'),
        ('/agents', 'hostname='),
        ('/device_profiles', 'name=d,e'),
        ('/accelerator_requests', 'state=Deleting'),
        ('/accelerator_requests', 'state=Unknown'),
        ('/accelerator_requests', 'state=Initial&bind_state=resolved'),
    ],
)
def test_what_nothing_equals_is_an_empty_list(cloud, path, query):
    assert cloud.get(f'{path}?{query}') == {COLLECTIONS[path]: []}


def test_filters_are_combined(cloud):
    found = cloud.arqs(device_profile_name='b', state='Bound')
    assert [each['uuid'] for each in found] == [cloud.bound['uuid']]
    assert cloud.arqs(device_profile_name='a', state='Bound') == []
    assert [each['uuid'] for each in cloud.arqs(bind_state='resolved')] == [cloud.bound['uuid']]
