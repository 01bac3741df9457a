# SPDX-License-Identifier: Apache-2.0
"""Making traits and resource classes from names."""

import pytest

from cyborg.accelerator import traits


@pytest.mark.parametrize(
    ('parts', 'name'),
    [
        (('FPGA', 'Intel PAC Arria10'), 'CUSTOM_FPGA_INTEL_PAC_ARRIA10'),
        (('T4-2B',), 'CUSTOM_T4_2B'),
        (('FPGA', '', '日本'), 'CUSTOM_FPGA'),
    ],
)
def test_parts_become_a_custom_name(parts, name):
    assert traits.custom(*parts) == name


@pytest.mark.parametrize('parts', [('日本',), ('',), ('__', '-'), ()])
def test_what_has_no_letter_and_no_digit_is_no_name(parts):
    with pytest.raises(traits.NotAName, match='neither a letter from A to Z nor a digit'):
        traits.custom(*parts)


@pytest.mark.parametrize('make', [traits.trait, traits.resource_class])
@pytest.mark.parametrize(
    ('said', 'name'),
    [
        ('fast card', 'CUSTOM_FAST_CARD'),
        ('custom_fast', 'CUSTOM_FAST'),
        ('CUSTOM_A__B', 'CUSTOM_A__B'),
        (' CUSTOM_A\n', 'CUSTOM_A'),
        ('CUSTOM_ä1', 'CUSTOM_1'),
    ],
)
def test_what_is_not_standard_becomes_custom(make, said, name):
    assert make(said) == name


@pytest.mark.parametrize('make', [traits.trait, traits.resource_class])
@pytest.mark.parametrize('said', ['', ' ', 'CUSTOM_', 'CUSTOM___', '日本', 'CUSTOM_日本'])
def test_what_cannot_become_custom_is_refused(make, said):
    with pytest.raises(traits.NotAName):
        make(said)


def test_standard_names_stay():
    assert traits.trait('HW_CPU_X86_AVX2') == 'HW_CPU_X86_AVX2'
    assert traits.resource_class('VGPU') == 'VGPU'
    # but not each for the other
    assert traits.trait('VGPU') == 'CUSTOM_VGPU'
    assert traits.resource_class('HW_CPU_X86_AVX2') == 'CUSTOM_HW_CPU_X86_AVX2'


@pytest.mark.parametrize('make', [traits.trait, traits.resource_class, traits.custom])
@pytest.mark.parametrize('prefix', ['', 'CUSTOM_', 'HW_'])
def test_long_names_are_cut_and_stay_different(make, prefix):
    names = {make(f'{prefix}{"A" * 300}{end}') for end in 'XY'}
    assert [len(each) for each in names] == [255, 255]
    assert all(each.startswith('CUSTOM_') for each in names)
