# SPDX-License-Identifier: Apache-2.0
"""Inspur FPGAs."""

import pytest

ADDRESS = '0000:5e:00.0'


@pytest.fixture
def discover(load):
    return lambda: list(load('inspur_fpga_driver').discover())


def test_a_card_holds_one_region(host, discover):
    host.plug_in('1bd4:0911', at=ADDRESS)
    [device] = discover()
    assert (device.type, device.model) == ('FPGA', 'Inspur F10A')
    card, region = device.deployables
    assert (card.name, card.resource_class) == (ADDRESS, None)
    assert (region.parent_name, region.resource_class) == (ADDRESS, 'FPGA')
    assert region.traits == ['CUSTOM_FPGA_INSPUR_F10A', 'CUSTOM_FPGA_PRODUCT_ID_0911',
                             'CUSTOM_FPGA_INSPUR']
    assert region.attach_handles[0].info['bus'] == '5e'


def test_other_ids_are_known_by_their_class(host, discover):
    host.plug_in('1bd4:a115', at=ADDRESS, **{'class': '120000'})
    host.plug_in('1bd4:1001', at='0000:60:00.0')  # a disk
    assert [device.model for device in discover()] == ['Inspur FPGA']
