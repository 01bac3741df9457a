# SPDX-License-Identifier: Apache-2.0
"""Pages of other web sites, such as a dashboard, call the API from a browser."""

import pytest

from tests.fixtures.cloud import Cloud

pytestmark = pytest.mark.any_database
ORIGIN = 'https://dashboard.example'


@pytest.fixture(scope='module')
def cloud(tmp_path_factory):
    made = Cloud(tmp_path_factory.mktemp('cloud'), more=f'[cors]\nallowed_origin = {ORIGIN}\n')
    made.start()
    yield made
    made.stop()


def words(answer, header):
    return {word.strip().lower() for word in answer.headers[header].split(',')}


@pytest.mark.parametrize('method', ['GET', 'POST', 'PATCH', 'DELETE'])
def test_a_browser_may_ask_what_it_may_do(cloud, method):
    answer = cloud.call(
        'OPTIONS',
        '/device_profiles',
        headers={
            'Origin': ORIGIN,
            'Access-Control-Request-Method': method,
            'Access-Control-Request-Headers': 'X-Auth-Token, OpenStack-API-Version, Content-Type',
        },
    )
    assert answer.status_code == 200
    assert answer.headers['Access-Control-Allow-Origin'] == ORIGIN
    assert method.lower() in words(answer, 'Access-Control-Allow-Methods')
    assert words(answer, 'Access-Control-Allow-Headers') >= {
        'x-auth-token',
        'openstack-api-version',
        'content-type',
    }


@pytest.mark.parametrize(
    'path, status', [('/devices', 200), ('/nothing', 404), ('/devices?colour=red', 400)]
)
def test_a_page_reads_answers_and_errors_and_their_headers(cloud, path, status):
    answer = cloud.call('GET', path, headers={'Origin': ORIGIN})
    assert (answer.status_code, answer.headers['Access-Control-Allow-Origin']) == (status, ORIGIN)
    assert words(answer, 'Access-Control-Expose-Headers') >= {
        'openstack-api-version',
        'openstack-api-minimum-version',
        'openstack-api-maximum-version',
        'x-openstack-request-id',
    }


def test_what_differs_by_origin_is_not_cached_for_others(cloud):
    answer = cloud.call('GET', '/devices', headers={'Origin': ORIGIN})
    assert words(answer, 'Vary') >= {'origin', 'openstack-api-version'}


def test_other_sites_are_told_nothing(cloud):
    answer = cloud.call('GET', '/devices', headers={'Origin': 'https://elsewhere.example'})
    assert 'Access-Control-Allow-Origin' not in answer.headers
