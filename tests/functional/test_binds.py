# SPDX-License-Identifier: Apache-2.0
"""A bind gives a request what its group asks for, and takes nothing from others."""

import uuid

import pytest
import sqlalchemy as sa

from cyborg.db.sqlalchemy import models
from tests.fixtures.cloud import Cloud
from tests.fixtures.hosts import SimHost

INSTANCE = str(uuid.UUID(int=7))
GPU, QAT = '0000:3b:00.0', '0000:5e:00.0'
T4 = {'resources:VGPU': '1', 'trait:CUSTOM_NVIDIA_1EB8_T4_2Q': 'required'}
FPGA = {'resources:FPGA': '1', 'trait:CUSTOM_FAKE_DEVICE': 'required'}


def refusal(answer):
    assert answer.status_code == 409, answer.text
    return answer.json()['error_message']


# -- work that a profile asks for ------------------------------------------------------------


@pytest.mark.parametrize(
    'key, value',
    [
        ('bitstream_id', str(uuid.UUID(int=1))),
        ('bitstream_name', 'gzip.gbs'),
        ('function_id', '3AFB'),
        ('function_name', 'gzip'),
    ],
)
def test_an_image_for_a_device_that_takes_none_is_refused(cloud, key, value):
    cloud.host()
    cloud.profile('one', FPGA | {f'accel:{key}': value})
    assert 'driver fake_driver cannot load images into it' in refusal(
        cloud.bind(cloud.request('one'))
    )
    [left] = cloud.arqs()
    assert (left['state'], left['attach_handle_uuid']) == ('Initial', None)


@pytest.fixture
def colourful(tmp_path):
    made = Cloud(tmp_path, more='[api]\nextra_accel_keys = colour\n')
    made.start()
    yield made
    made.stop()


def test_what_a_profile_asks_for_and_nobody_does_is_refused(colourful):
    colourful.host()
    colourful.profile('one', FPGA | {'accel:colour': 'red'})
    [arq] = colourful.request('one')
    assert (
        f'Accelerator request {arq["uuid"]} asks for accel:colour=red, which Cyborg does not '
        'implement'
    ) in refusal(colourful.bind(arq))
    [left] = colourful.arqs()
    assert (left['state'], left['attach_handle_uuid']) == ('Initial', None)


def test_a_guest_as_the_target_is_what_every_bind_gives(cloud):
    cloud.host()
    cloud.profile('one', FPGA | {'accel:attach_target': 'VM'})
    assert cloud.bind(cloud.request('one')).status_code == 202


# -- what a provider gives -------------------------------------------------------------------


class TwoCards(SimHost):
    """A GPU that is given out in parts, and a QuickAssist engine."""

    def __init__(self, name, directory):
        super().__init__(
            name,
            directory,
            [{'model': '10de:1eb8', 'at': GPU}, {'model': '8086:37c8', 'at': QAT}],
            ('nvidia_gpu_driver', 'intel_qat_driver'),
        )


@pytest.fixture
def two_cards(tmp_path):
    made = Cloud(tmp_path, more='[gpu_devices]\nenabled_vgpu_types = nvidia-231\n')
    made.start()
    made.host(make=TwoCards)
    yield made
    made.stop()


def test_a_request_for_a_gpu_is_not_bound_to_another_card(two_cards):
    cloud = two_cards
    cloud.profile('t4', T4)
    [arq] = cloud.request('t4')
    qat = cloud.rp(name=QAT)
    said = refusal(cloud.bind(arq, rp=qat))
    assert f'provider {qat} on compute1 does not fit accelerator request {arq["uuid"]}' in said
    assert 'Wanted: VGPU, CUSTOM_NVIDIA_1EB8_T4_2Q required' in said
    assert (
        'the provider has: CUSTOM_QAT, CUSTOM_QAT_37C8, CUSTOM_QAT_INTEL_C62X, OWNER_CYBORG' in said
    )
    assert cloud.arqs()[0]['state'] == 'Initial'
    assert cloud.bind(arq, rp=cloud.rp(name=GPU)).status_code == 202


def test_requests_of_one_server_are_all_bound_or_none(two_cards):
    cloud = two_cards
    cloud.profile('t4', T4)
    first, second = cloud.request('t4'), cloud.request('t4')
    body = {}
    for [arq], card in ((first, GPU), (second, QAT)):
        body[arq['uuid']] = [
            {'op': 'add', 'path': '/hostname', 'value': 'compute1'},
            {'op': 'add', 'path': '/device_rp_uuid', 'value': cloud.rp(name=card)},
            {'op': 'add', 'path': '/instance_uuid', 'value': INSTANCE},
        ]
    refusal(cloud.call('PATCH', '/accelerator_requests', json=body))
    assert {arq['state'] for arq in cloud.arqs()} == {'Initial'}


@pytest.mark.parametrize(
    'group',
    [
        {'trait:CUSTOM_NOT_THERE': 'required'},
        {'trait:CUSTOM_FAKE_DEVICE': 'forbidden'},
        {'trait:OWNER_CYBORG': 'forbidden'},
        {'trait:OWNER_NOVA': 'required'},
        {'resources:PGPU': '1'},
    ],
)
def test_a_provider_that_does_not_fit_the_group_is_refused(cloud, group):
    cloud.host()
    cloud.profile('one', FPGA | group)
    assert 'does not fit' in refusal(cloud.bind(cloud.request('one')[0]))


@pytest.mark.parametrize(
    'group',
    [
        {'trait:OWNER_CYBORG': 'required'},
        {'trait:OWNER_NOVA': 'forbidden'},
        {'resources:FPGA': '2', 'trait:CUSTOM_NOT_THERE': 'forbidden'},
    ],
)
def test_a_provider_that_fits_the_group_is_bound(cloud, group):
    cloud.host()
    cloud.profile('one', FPGA | group)
    assert cloud.bind(cloud.request('one')).status_code == 202


def test_an_attribute_of_an_administrator_is_no_trait(cloud):
    """Placement is not told of it either."""
    cloud.host()
    [part] = cloud.get('/deployables')['deployables']
    assert (
        cloud.call(
            'POST',
            '/attributes',
            json={
                'deployable_id': part['uuid'],
                'key': 'trait9',
                'value': 'CUSTOM_MINE',
            },
        ).status_code
        == 201
    )
    cloud.profile('one', FPGA | {'trait:CUSTOM_MINE': 'required'})
    assert 'Wanted: FPGA, CUSTOM_FAKE_DEVICE required, CUSTOM_MINE required' in refusal(
        cloud.bind(cloud.request('one'))
    )


def test_deleting_the_attributes_that_show_class_and_traits_takes_nothing_away(cloud):
    cloud.host()
    cloud.rest()  # another report would restore them
    for key in ('rc', 'trait0'):
        for attribute in cloud.get(f'/attributes?key={key}')['attributes']:
            assert cloud.call('DELETE', f'/attributes/{attribute["uuid"]}').status_code == 204
    cloud.profile('one', FPGA)
    assert cloud.bind(cloud.request('one')).status_code == 202


def test_what_is_bound_is_not_judged_again(cloud):
    cloud.host()
    cloud.rest()  # another report would mend what follows
    cloud.profile('one', FPGA)
    arqs = cloud.request('one')
    assert cloud.bind(arqs, instance=INSTANCE).status_code == 202
    with cloud.standalone.db.writer() as session:
        session.execute(sa.update(models.Deployable).values(resource_class=None, traits=[]))
    assert cloud.bind(arqs, instance=INSTANCE).status_code == 202
    assert 'the provider has: no resource class' in refusal(cloud.bind(cloud.request('one')))


def test_nothing_of_a_disabled_device_is_bound(cloud):
    cloud.host()
    cloud.profile('one', FPGA)
    before, after = cloud.request('one'), cloud.request('one')
    assert cloud.bind(before, instance=INSTANCE).status_code == 202
    [device] = cloud.get('/devices')['devices']
    assert cloud.call('POST', f'/devices/{device["uuid"]}/disable').status_code == 204
    assert 'on compute1 is disabled' in refusal(cloud.bind(after))
    assert cloud.bind(before, instance=INSTANCE).status_code == 202
    assert cloud.call('POST', f'/devices/{device["uuid"]}/enable').status_code == 204
    assert cloud.bind(after).status_code == 202
