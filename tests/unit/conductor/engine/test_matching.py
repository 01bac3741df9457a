# SPDX-License-Identifier: Apache-2.0
"""A bind gives a request what its group asks for, or is refused."""

import pytest

from cyborg import errors
from cyborg.conductor.engine import matching
from cyborg.db.sqlalchemy import models
from cyborg.db.sqlalchemy.attach_handles import Offer

REQUEST = '11111111-1111-4111-8111-111111111111'
PROVIDER = '22222222-2222-4222-8222-222222222222'


def offer(resource_class='FPGA', *traits, status='enabled'):
    return Offer('compute1', status, resource_class, traits, 'fake_driver')


def require_fit(group, offered):
    matching.require_fit(models.ExtArq(uuid=REQUEST, group=group), offered, PROVIDER)


@pytest.mark.parametrize(
    'group',
    [
        {},
        {'resources:FPGA': '1'},
        {'trait:CUSTOM_RED': 'required'},
        {'trait:CUSTOM_BLUE': 'forbidden'},
        {'trait:OWNER_CYBORG': 'required'},
        {'resources:FPGA': '1', 'trait:CUSTOM_RED': 'required', 'trait:CUSTOM_BLUE': 'forbidden'},
        {'resources:FPGA': '1', 'accel:bitstream_id': 'CUSTOM_BLUE'},
    ],
)
def test_a_provider_with_the_class_and_the_traits_of_a_group_fits(group):
    require_fit(group, offer('FPGA', 'CUSTOM_RED'))


@pytest.mark.parametrize(
    'group',
    [
        {'resources:PGPU': '1'},
        {'resources:FPGA': '1', 'resources:PGPU': '1'},
        {'resources:FPGA': '1', 'trait:CUSTOM_BLUE': 'required'},
        {'resources:FPGA': '1', 'trait:CUSTOM_RED': 'forbidden'},
        {'trait:CUSTOM_RED': 'required', 'trait:CUSTOM_BLUE': 'required'},
    ],
)
def test_a_provider_with_another_class_or_other_traits_does_not_fit(group):
    with pytest.raises(errors.ProviderMismatch):
        require_fit(group, offer('FPGA', 'CUSTOM_RED'))


def test_a_mismatch_names_the_request_its_wishes_and_what_is_there():
    group = {'resources:FPGA': '1', 'trait:CUSTOM_B': 'forbidden', 'trait:CUSTOM_A': 'required'}
    with pytest.raises(errors.ProviderMismatch) as raised:
        require_fit(group, offer(None, 'CUSTOM_B'))
    for said in (
        REQUEST,
        PROVIDER,
        'compute1',
        'Wanted: FPGA, CUSTOM_A required, CUSTOM_B forbidden;',
        'the provider has: no resource class, CUSTOM_B, OWNER_CYBORG.',
    ):
        assert said in str(raised.value)


def test_a_disabled_device_is_refused_even_if_it_fits():
    with pytest.raises(errors.DeviceDisabled, match='compute1'):
        require_fit({'resources:FPGA': '1'}, offer(status='maintaining'))


@pytest.mark.parametrize('key', sorted(matching.DONE))
def test_a_key_on_which_something_acts_is_honoured(key):
    matching.require_honoured('Group 0', {key: 'x'})


def test_classes_and_traits_ask_for_no_work():
    matching.require_honoured('Group 0', {'resources:FPGA': '1', 'trait:CUSTOM_A': 'required'})


@pytest.mark.parametrize('key', ['accel:colour', 'bitstream:id', 'function:name'])
def test_a_key_on_which_nothing_acts_is_refused(key):
    with pytest.raises(errors.GroupNotHonoured, match=f'^Group 7 asks for {key}=red, which'):
        matching.require_honoured('Group 7', {key: 'red', 'accel:cleaning': 'full'})


def test_all_keys_on_which_nothing_acts_are_named():
    with pytest.raises(errors.GroupNotHonoured, match='accel:a=1, function:b=2, which'):
        matching.require_honoured('Group 0', {'accel:a': '1', 'trait:C': '3', 'function:b': '2'})


def test_a_caller_can_honour_fewer_keys():
    with pytest.raises(errors.GroupNotHonoured, match='accel:cleaning=full'):
        matching.require_honoured('The flavor', {'accel:cleaning': 'full'}, done=())
