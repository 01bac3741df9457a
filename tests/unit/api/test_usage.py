# SPDX-License-Identifier: Apache-2.0
"""GET /v2/usage: what is asked of the conductor, for whom, and what is refused."""

import pytest

from tests.unit.api.conftest import Client, fault

PATH = '/v2/usage'


@pytest.fixture
def reader(application):
    return Client(application, roles=['reader'])


def asked(conductor):
    [(method, arguments)] = conductor.calls
    assert method == 'get_usage'
    return arguments


def test_usage_is_shown_with_the_time_that_it_counts(admin):
    answer = admin.get(PATH, version='latest').json
    now = '2026-03-01T10:00:00+00:00'
    assert answer == {
        'usage': [
            {
                'project_id': 'mine',
                'device_profile_name': 'x',
                'resource_class': 'FPGA',
                'requests': 2,
                'hours': 1.5,
            }
        ],
        'start': now,
        'end': now,
        'complete_since': now,
    }


def test_a_reader_gets_the_usage_of_its_own_project(reader, conductor):
    assert reader.get(PATH, version='latest').status_int == 200
    assert asked(conductor) == {'project_id': 'mine'}


def test_an_administrator_gets_the_usage_of_all_projects(admin, conductor):
    assert admin.get(PATH, version='latest').status_int == 200
    assert asked(conductor) == {}


def test_the_usage_of_another_project_is_for_administrators(reader, admin, conductor):
    refused = reader.get(f'{PATH}?project_id=theirs', version='latest')
    assert refused.status_int == 403
    assert 'cyborg:usage:get_all_projects' in fault(refused)
    assert not conductor.calls
    assert admin.get(f'{PATH}?project_id=theirs', version='latest').status_int == 200
    assert asked(conductor) == {'project_id': 'theirs'}


@pytest.mark.parametrize(
    ('given', 'meant'),
    [
        ('2026-03-01', '2026-03-01T00:00:00+00:00'),
        ('2026-03-01T10:00:00', '2026-03-01T10:00:00+00:00'),
        ('2026-03-01T10:00:00Z', '2026-03-01T10:00:00+00:00'),
        ('2026-03-01T10:00:00.25%2B02:00', '2026-03-01T08:00:00.250000+00:00'),
        ('2026-03-01 10:00', '2026-03-01T10:00:00+00:00'),
    ],
)
def test_times_are_read_as_utc_unless_they_have_an_offset(admin, conductor, given, meant):
    assert admin.get(f'{PATH}?start={given}', version='latest').status_int == 200
    assert asked(conductor) == {'start': meant}


@pytest.mark.parametrize('name', ['start', 'end'])
@pytest.mark.parametrize(
    'given', ['yesterday', '', '2026-02-30', '1', '0001-01-01T00:00:00%2B14:00', '2026' * 20]
)
def test_what_is_no_time_is_refused_with_what_would_be_one(admin, conductor, name, given):
    refused = admin.get(f'{PATH}?{name}={given}', version='latest')
    assert refused.status_int == 400
    assert name in fault(refused)
    assert not conductor.calls


def test_a_plus_sign_that_became_a_space_is_explained(admin):
    refused = admin.get(f'{PATH}?start=2026-03-01T10:00:00+02:00', version='latest')
    assert refused.status_int == 400
    assert '%2B' in fault(refused)


def test_usage_came_with_a_version(admin, conductor):
    refused = admin.get(PATH, version='2.11')
    assert refused.status_int == 404
    assert 'Version 2.12' in fault(refused)
