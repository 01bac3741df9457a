# SPDX-License-Identifier: Apache-2.0
"""Validating and normalizing the groups of device profiles."""

import os_resource_classes
import os_traits
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cyborg.objects.profile_groups import MOST_UNITS, normalize

UUID = '9f1c8a52-7a0f-4d1b-8b53-8a0f5d0d6f21'


def stored(extra_keys=(), **group):
    """The one group as stored; keyword arguments cannot have colons, so __ stands for one."""
    [found] = normalize(
        [{key.replace('__', ':'): value for key, value in group.items()}], extra_keys
    )
    return found


def why(group, extra_keys=()):
    with pytest.raises(ValueError) as caught:
        normalize([group], extra_keys)
    return str(caught.value)


def test_what_is_spelled_as_placement_does_stays_as_it_is():
    group = {
        'resources:FPGA': '1',
        'trait:CUSTOM_FPGA_INTEL': 'required',
        'accel:function_id': UUID,
    }
    assert normalize([group]) == [group]


@pytest.mark.parametrize(
    'given_key, key',
    [
        ('resources:fpga', 'resources:FPGA'),
        ('resources:custom-accelerator-fpga', 'resources:CUSTOM_ACCELERATOR_FPGA'),
        ('resources: CUSTOM_QAT ', 'resources:CUSTOM_QAT'),
        ('resources:Vgpu', 'resources:VGPU'),
    ],
)
def test_class_names_are_translated(given_key, key):
    assert normalize([{given_key: '1'}]) == [{key: '1'}]


@pytest.mark.parametrize(
    'given_key, key',
    [
        ('trait:custom_fpga_intel', 'trait:CUSTOM_FPGA_INTEL'),
        ('trait:custom-fpga-intel-9f1c', 'trait:CUSTOM_FPGA_INTEL_9F1C'),
        ('trait: owner_cyborg ', 'trait:OWNER_CYBORG'),
        ('trait:hw-gpu-api-vulkan', 'trait:HW_GPU_API_VULKAN'),
    ],
)
def test_trait_names_are_translated(given_key, key):
    assert normalize([{'resources:FPGA': '1', given_key: 'forbidden'}]) == [
        {'resources:FPGA': '1', key: 'forbidden'}
    ]


@pytest.mark.parametrize(
    'amount, text',
    [(1, '1'), ('2', '2'), (' 3 ', '3'), ('004', '4'), (MOST_UNITS, str(MOST_UNITS))],
)
def test_amounts_come_back_as_strings(amount, text):
    assert stored(resources__FPGA=amount) == {'resources:FPGA': text}


@pytest.mark.parametrize(
    'amount', ['0', 0, -1, '-1', '1.5', 1.5, '', 'one', '1e3', '٣', '99999999999', True]
)
def test_an_amount_is_a_whole_number_of_at_least_one(amount):
    assert 'amount of resources:FPGA' in why({'resources:FPGA': amount})


@pytest.mark.parametrize(
    'name',
    [
        '',
        ' ',
        'GPU',
        'CUSTOM_',
        'NOT_CUSTOM_X',
        'CUSTOM_A B',
        'CUSTOM_A!',
        'CUSTOM_Ä',
        'CUSTOM_ß',
        'CUSTOM_' + 'X' * 249,
    ],
)
def test_a_class_is_standard_or_custom(name):
    assert 'resource class' in why({f'resources:{name}': '1'})


@pytest.mark.parametrize('name', ['', 'CUSTOM_', 'MY_TRAIT', 'CUSTOM_A.B', 'CUSTOM_' + 'X' * 249])
def test_a_trait_is_standard_or_custom(name):
    assert 'trait' in why({'resources:FPGA': '1', f'trait:{name}': 'required'})


def test_names_may_be_as_long_as_placement_allows():
    name = 'CUSTOM_' + 'X' * 248
    assert stored(**{f'resources__{name}': 1, f'trait__{name}': 'required'})


@pytest.mark.parametrize('value', ['', 'optional', 'Required', 1, 'required '])
def test_a_trait_is_required_or_forbidden(value):
    assert 'required or forbidden' in why({'resources:FPGA': '1', 'trait:CUSTOM_X': value})


@pytest.mark.parametrize(
    'key',
    [
        'group_policy',
        'resources1:FPGA',
        'resource:FPGA',
        'traits:X',
        'FPGA',
        '',
        ':FPGA',
        'Resources:FPGA',
        'in_tree:x',
    ],
)
def test_other_keys_are_refused(key):
    assert 'must start with' in why({'resources:FPGA': '1', key: 'isolate'})


def test_two_spellings_of_one_key_are_refused():
    assert 'resources:FPGA occurs twice' in why({'resources:FPGA': '1', 'resources:fpga': '2'})


@pytest.mark.parametrize('group', [{}, {'trait:CUSTOM_X': 'required'}, {'accel:function_id': 'A'}])
def test_a_group_asks_for_something(group):
    assert 'resources:<class>' in why(group)


def test_a_profile_has_a_group():
    with pytest.raises(ValueError, match='at least one group'):
        normalize([])


def test_the_group_that_is_wrong_is_named():
    with pytest.raises(ValueError, match='^group 1: '):
        normalize([{'resources:FPGA': '1'}, {'resources:FPGA': '0'}])


def test_the_units_of_all_groups_together_are_bounded():
    half = {'resources:FPGA': str(MOST_UNITS // 2)}
    assert len(normalize([half, half])) == 2
    with pytest.raises(ValueError, match='at most'):
        normalize([half, half, {'resources:FPGA': '1'}])


@pytest.mark.parametrize(
    'key, value',
    [
        ('bitstream_id', UUID),
        ('bitstream_id', UUID.upper()),
        ('bitstream_name', 'gzip-v2.gbs'),
        ('function_id', '3AFB'),
        ('function_id', UUID),
        ('function_name', 'gzip_v2'),
        ('attach_target', 'VM'),
        ('attach_target', 'host'),
        ('attach_target', 'none'),
        ('cleaning', 'none'),
        ('cleaning', 'reset'),
        ('cleaning', 'full'),
        ('cleaning_required', 'true'),
        ('cleaning_required', 'false'),
    ],
)
def test_accel_keys_say_what_only_cyborg_knows(key, value):
    assert stored(resources__FPGA=1, **{f'accel__{key}': value})[f'accel:{key}'] == value


@pytest.mark.parametrize(
    'key, value',
    [
        ('bitstream_id', 'gzip'),
        ('bitstream_id', ''),
        ('bitstream_name', 'a/b'),
        ('bitstream_name', ''),
        ('function_id', 'a b'),
        ('function_id', 'a.b'),
        ('function_name', '!@#'),
        ('attach_target', 'vm'),
        ('attach_target', 'moon'),
        ('cleaning', 'some'),
        ('cleaning', 'Full'),
        ('cleaning_required', 'yes'),
        ('function_name', 'x' * 256),
    ],
)
def test_accel_values_have_a_type(key, value):
    assert f'the value of accel:{key} must be' in why(
        {'resources:FPGA': '1', f'accel:{key}': value}
    )


@pytest.mark.parametrize('key', ['bitstream_name', 'function_id', 'function_name'])
def test_an_accel_value_that_is_too_long_is_told_the_limit(key):
    assert 'at most 255' in why({'resources:FPGA': '1', f'accel:{key}': 'x' * 256})


def test_an_accel_key_must_be_known():
    assert 'accel:video_ram is not known' in why({'resources:FPGA': '1', 'accel:video_ram': '2'})


def test_the_operator_may_make_keys_known():
    assert stored(['video_ram'], resources__PGPU=1, accel__video_ram='2GB') == {
        'resources:PGPU': '1',
        'accel:video_ram': '2GB',
    }
    assert 'accel:video_ram' in why(
        {'resources:PGPU': '1', 'accel:video_ram': '2 GB'}, ['video_ram']
    )


@pytest.mark.parametrize('other', ['bitstream_name', 'function_id', 'function_name'])
def test_a_group_names_one_thing_to_program(other):
    assert 'only one of' in why(
        {'resources:FPGA': '1', 'accel:bitstream_id': UUID, f'accel:{other}': 'gzip'}
    )


def test_groups_keep_their_order():
    groups = [{'resources:FPGA': str(amount)} for amount in (3, 1, 2)]
    assert normalize(groups) == groups


NAMES = st.sampled_from([*os_resource_classes.STANDARDS, 'CUSTOM_A_1'])
TRAITS = st.sampled_from([*os_traits.get_traits()[:50], 'CUSTOM_B_2'])


GROUPS = st.builds(
    lambda classes, traits: {
        **{f'resources:{name.lower()}': amount for name, amount in classes.items()},
        **{f'trait:{name.replace("_", "-")}': value for name, value in traits.items()},
    },
    st.dictionaries(NAMES, st.integers(1, 9), min_size=1, max_size=3),
    st.dictionaries(TRAITS, st.sampled_from(['required', 'forbidden']), max_size=3),
)


@given(st.lists(GROUPS, min_size=1, max_size=4))
def test_what_is_stored_is_a_fixed_point(groups):
    once = normalize(groups)
    assert normalize(once) == once
    assert len(once) == len(groups)


@given(
    st.dictionaries(
        st.text(max_size=20), st.one_of(st.text(max_size=20), st.integers()), max_size=4
    )
)
def test_nothing_but_a_value_error_comes_out_of_nonsense(group):
    try:
        normalize([group])
    except ValueError:
        pass


@pytest.mark.parametrize('level', ['none', 'reset', 'full'])
def test_a_group_may_say_how_its_devices_are_cleaned(level):
    assert stored(resources__FPGA=1, accel__cleaning=level, accel__cleaning_required='false') == {
        'resources:FPGA': '1',
        'accel:cleaning': level,
        'accel:cleaning_required': 'false',
    }


def test_cleaning_may_be_required_at_the_level_of_the_host():
    assert (
        stored(resources__FPGA=1, accel__cleaning_required='true')['accel:cleaning_required']
        == 'true'
    )


@pytest.mark.parametrize(
    'key, value, words',
    [
        ('accel:cleaning', 'thorough', 'none, reset or full'),
        ('accel:cleaning', '', 'none, reset or full'),
        ('accel:cleaning_required', 'yes', 'true or false'),
    ],
)
def test_another_level_of_cleaning_is_refused(key, value, words):
    assert f'the value of {key} must be {words}' in why({'resources:FPGA': '1', key: value})


def test_cleaning_that_is_none_cannot_be_required():
    assert 'cannot be true' in why(
        {'resources:FPGA': '1', 'accel:cleaning': 'none', 'accel:cleaning_required': 'true'}
    )
