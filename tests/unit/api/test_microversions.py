# SPDX-License-Identifier: Apache-2.0
"""Which version of the API a request gets."""

import pytest

from cyborg.api import microversions
from tests.unit.api.conftest import device, fault, uuid

HEADER = 'OpenStack-API-Version'
HIGHEST = str(microversions.HIGHEST)


@pytest.mark.parametrize(
    'asked, got',
    [
        ('accelerator 2.0', '2.0'),
        ('accelerator 2.1', '2.1'),
        ('accelerator 2.3', '2.3'),
        ('Accelerator 2.3', '2.3'),
        ('accelerator latest', HIGHEST),
        ('latest', HIGHEST),
        ('2.3', '2.3'),
        ('compute 2.90, accelerator 2.2', '2.2'),
        ('accelerator 2.2,compute 2.90', '2.2'),
        ('accelerator 2.1, accelerator 2.2', '2.2'),
        # by the guideline, what is said to other services is not said to us
        ('compute 2.90', '2.0'),
        ('compute latest, identity 3.0', '2.0'),
        ('', '2.0'),
    ],
)
def test_a_request_gets_the_version_it_asks_for(admin, asked, got):
    answer = admin.get('/v2', headers={HEADER: asked})
    assert answer.status_int == 200
    assert answer.headers[HEADER] == f'accelerator {got}'


def test_a_request_that_does_not_ask_gets_the_oldest(admin):
    assert admin.get('/v2/devices').headers[HEADER] == 'accelerator 2.0'


@pytest.mark.parametrize(
    'asked',
    [
        'accelerator 2.99',
        'accelerator 3.0',
        'accelerator 1.9',
        'accelerator foo',
        'accelerator 2',
        'accelerator 2.3.1',
        'accelerator -2.0',
        'garbage',
        '2.99',
        'compute 2.90, 7.0',
        'accelerator 02.03',
        'accelerator 2.+3',
        'accelerator 2. 3',
    ],
)
def test_a_version_that_does_not_exist_is_not_acceptable(admin, asked):
    answer = admin.get('/v2/devices', headers={HEADER: asked})
    assert answer.status_int == 406
    assert f'2.0 to {HIGHEST}' in fault(answer)
    assert answer.headers['OpenStack-API-Minimum-Version'] == '2.0'
    assert answer.headers['OpenStack-API-Maximum-Version'] == HIGHEST
    assert HEADER not in answer.headers


@pytest.mark.parametrize(
    'path', ['/v2', '/v2/devices', '/devices', '/v2/nothing', '/v2/devices?unknown=1']
)
def test_every_versioned_answer_says_what_there_is(admin, path):
    headers = admin.get(path, version='2.1').headers
    assert headers['Vary'] == HEADER
    assert headers['OpenStack-API-Minimum-Version'] == '2.0'
    assert headers['OpenStack-API-Maximum-Version'] == HIGHEST
    assert headers[HEADER] == 'accelerator 2.1'


def test_the_root_is_of_no_version(admin):
    headers = admin.get('/', headers={HEADER: 'accelerator 9.9'}).headers
    assert not [name for name in headers if name.lower().startswith('openstack-api')]


@pytest.mark.parametrize(
    'version, shows_status', [(None, False), ('2.0', False), ('2.2', False), ('2.3', True)]
)
def test_devices_show_their_status_since_2_3(admin, conductor, version, shows_status):
    conductor.items['devices'] = [device(1)]
    [listed] = admin.get('/v2/devices', version=version).json['devices']
    shown = admin.get(f'/v2/devices/{uuid(1)}', version=version).json
    assert ('status' in listed, 'status' in shown) == (shows_status, shows_status)
