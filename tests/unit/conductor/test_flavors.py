# SPDX-License-Identifier: Apache-2.0
"""Accelerators that a flavor without a device profile asks for."""

import pytest

from cyborg import errors
from cyborg.conductor.flavors import WantedGroup, wanted

CARD, OTHER, NODE = 'card-rp', 'other-rp', 'node-rp'
CLASSES = {CARD: 'FPGA', OTHER: 'VGPU'}
ONE = {CARD: 'FPGA'}
FPGA = {'resources:FPGA': '1'}


def why(specs, providers=None, classes=ONE):
    with pytest.raises(errors.CyborgError) as caught:
        wanted(specs, providers or {'uuid': CARD}, classes)
    return str(caught.value)


def test_other_resources_and_the_traits_of_the_node_are_left_to_nova():
    specs = {
        'resources:fpga': '1',
        'resources:VCPU': '0',
        'hw:cpu_policy': 'dedicated',
        'trait:CUSTOM_X': 'required',
        'trait:HW_CPU_X86_AVX2': 'required',
    }
    assert wanted(specs, {'uuid': CARD}, ONE) == [
        WantedGroup({'resources:FPGA': '1', 'trait:CUSTOM_X': 'required'}, CARD)
    ]


def test_the_providers_of_the_unnumbered_group_serve_each_their_class():
    specs = {'resources:FPGA': '2', 'resources:VGPU': '1', 'resources:VCPU': '4'}
    assert wanted(specs, {'': [NODE, CARD, OTHER]}, CLASSES) == [
        WantedGroup({'resources:FPGA': '2'}, CARD),
        WantedGroup({'resources:VGPU': '1'}, OTHER),
    ]


def test_a_numbered_group_is_served_by_its_provider():
    specs = {
        'resources1:FPGA': '1',
        'trait1:CUSTOM_A': 'required',
        'resources2:VGPU': '1',
        'trait2:CUSTOM_B': 'forbidden',
        'resources_NET:SRIOV_NET_VF': '1',
    }
    assert wanted(specs, {'': [NODE], '1': [CARD], '2': [OTHER], '_NET': ['x']}, CLASSES) == [
        WantedGroup({'resources:FPGA': '1', 'trait:CUSTOM_A': 'required'}, CARD),
        WantedGroup({'resources:VGPU': '1', 'trait:CUSTOM_B': 'forbidden'}, OTHER),
    ]


def test_one_provider_for_all_serves_the_groups_that_ask_for_its_class():
    specs = {'resources1:FPGA': '1', 'resources2:FPGA': '3', 'resources3:VGPU': '1'}
    assert wanted(specs, {'uuid': CARD}, ONE) == [
        WantedGroup({'resources:FPGA': '1'}, CARD),
        WantedGroup({'resources:FPGA': '3'}, CARD),
    ]


def test_an_accel_key_belongs_to_every_group():
    specs = {'resources1:FPGA': '1', 'resources2:FPGA': '1', 'accel:attach_target': 'VM'}
    assert [each.group['accel:attach_target'] for each in wanted(specs, {'uuid': CARD}, ONE)] == [
        'VM',
        'VM',
    ]


IMAGE = '5a0c2a3e-7d6c-4ad8-9d3d-0f4d8b0d6c11'


@pytest.mark.parametrize(
    'key, meaning',
    [
        (f'bitstream:{IMAGE}', {'accel:bitstream_id': IMAGE}),
        (f'function:{IMAGE}', {'accel:function_id': IMAGE}),
        ('function:gzip', {'accel:function_name': 'gzip'}),
    ],
)
def test_an_image_can_be_named_in_a_shorter_way(key, meaning):
    assert wanted(FPGA | {key: 'required'}, {'uuid': CARD}, ONE) == [
        WantedGroup(FPGA | meaning, CARD)
    ]


@pytest.mark.parametrize(
    'specs, sentence',
    [
        (FPGA | {'bitstream:': 'required'}, 'is not bitstream: and the uuid of an image'),
        (FPGA | {'function:': 'required'}, 'the value of accel:function_name must be letters'),
        (FPGA | {'function:gzip': 'forbidden'}, 'the value of function:gzip must be required'),
        (
            FPGA | {'trait:CUSTOM BLANK': 'required'},
            "The flavor is not valid: 'CUSTOM BLANK' is neither a standard trait",
        ),
        (
            {'resources1:FPGA': '1', 'trait1:CUSTOM_X': 'wanted'},
            'group 1: the value of trait:CUSTOM_X must be required or forbidden',
        ),
        ({'resources:FPGA': '20000'}, 'it asks for 20000 units; at most 1024'),
        ({'resources1:FPGA': '1000', 'resources2:FPGA': '1000'}, 'it asks for 2000 units'),
        ({'resources:FPGA': 'many'}, 'the amount of resources:FPGA must be a whole number'),
        (FPGA | {'accel:bitstream_id': 'none at all'}, 'must be the uuid of an image'),
        (FPGA | {'accel:no_such_key': 'x'}, 'accel:no_such_key is not known'),
        ({'resources:VGPU': '1'}, 'asks neither for a device profile nor for resources:FPGA'),
        ({'resources:FPGA': '0'}, 'asks neither for a device profile nor for resources:FPGA'),
    ],
)
def test_the_rules_are_those_of_device_profiles(specs, sentence):
    assert sentence in why(specs)


def test_a_mapping_without_a_provider_of_an_accelerator_says_so():
    assert 'selected_rp must name a resource provider' in why(FPGA, {'': [NODE]}, {})


def test_a_group_for_which_no_provider_was_chosen_is_not_ours():
    assert 'asks neither' in why({'resources1:FPGA': '1'}, {'2': [CARD]})
