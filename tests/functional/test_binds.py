# SPDX-License-Identifier: Apache-2.0
"""What a bind gives is what was asked for, and is taken from nobody."""

import uuid

import pytest

FPGA = {'resources:FPGA': '1', 'trait:CUSTOM_FAKE_DEVICE': 'required'}


def refusal(answer):
    assert answer.status_code == 409, answer.text
    return answer.json()['error_message']


# -- work that a profile asks for ------------------------------------------------------------


@pytest.mark.parametrize('key, value', [
    ('bitstream_id', str(uuid.UUID(int=1))), ('bitstream_name', 'gzip.gbs'),
    ('function_id', '3AFB'), ('function_name', 'gzip'), ('attach_target', 'host'),
    ('attach_target', 'none')])
def test_what_a_profile_asks_for_and_nobody_does_is_refused(cloud, key, value):
    cloud.host()
    cloud.profile('one', FPGA | {f'accel:{key}': value})
    [arq] = cloud.request('one')
    assert (f'Accelerator request {arq["uuid"]} asks for accel:{key}={value}, which this release '
            'does not do when it binds') in refusal(cloud.bind(arq))
    [left] = cloud.arqs()
    assert (left['state'], left['attach_handle_uuid']) == ('Initial', None)


def test_a_guest_as_the_target_is_what_every_bind_gives(cloud):
    cloud.host()
    cloud.profile('one', FPGA | {'accel:attach_target': 'VM'})
    assert cloud.bind(cloud.request('one')).status_code == 202
