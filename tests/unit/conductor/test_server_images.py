# SPDX-License-Identifier: Apache-2.0
"""Bitstreams that the image of a server asks for, besides those of its flavor."""

import pytest

from cyborg import errors
from cyborg.conductor.flavors import WantedGroup
from cyborg.conductor.server_images import followed

FPGA, GPU = (
    WantedGroup({'resources:FPGA': '1'}, 'fpga-rp'),
    WantedGroup({'resources:PGPU': '1'}, 'gpu-rp'),
)
GZIP = WantedGroup(FPGA.group | {'accel:function_name': 'gzip'}, 'other-rp')
PROGRAMMABLE = {'fpga-rp', 'other-rp'}


def test_only_what_can_be_programmed_and_names_no_image_is_loaded_with_it():
    wanted = [FPGA, GPU, GZIP]
    assert followed(wanted, {'function_name': 'gzip'}, PROGRAMMABLE, 'i') == [
        WantedGroup(GZIP.group, 'fpga-rp'),
        GPU,
        GZIP,
    ]


def test_an_image_that_asks_for_nothing_changes_nothing():
    assert followed([FPGA, GPU, GZIP], {}, PROGRAMMABLE, 'i') == [FPGA, GPU, GZIP]


@pytest.mark.parametrize(
    'asked, sentence',
    [
        ({'function_name': 'Gzip'}, 'asks for function_name Gzip, but the flavor'),
        ({'bitstream_name': 'gzip'}, 'asks for bitstream_name gzip, but the flavor'),
    ],
)
def test_another_image_than_the_flavors_is_refused(asked, sentence):
    with pytest.raises(errors.ServerImageRefused, match=sentence):
        followed([GZIP], asked, PROGRAMMABLE, 'i')


def test_a_value_follows_the_rules_of_device_profiles():
    with pytest.raises(errors.ServerImageRefused, match='must be letters, digits'):
        followed([FPGA], {'function_name': 'two words'}, PROGRAMMABLE, 'i')
