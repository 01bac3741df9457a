# SPDX-License-Identifier: Apache-2.0
"""Huawei Ascend."""

import pytest


@pytest.fixture
def discover(load):
    return lambda: list(load('huawei_ascend_driver').discover())


def test_a_processor_is_given_out_whole(host, discover):
    host.plug_in('19e5:d802', at='0000:81:00.0')
    [device] = discover()
    assert (device.type, device.model) == ('AICHIP', 'Huawei Ascend 910B')
    [deployable] = device.deployables
    assert (deployable.resource_class, deployable.num_accelerators) == ('CUSTOM_NPU', 1)
    assert deployable.traits == ['CUSTOM_AICHIP_HUAWEI_ASCEND_910B', 'CUSTOM_ASCEND_D802']


def test_a_card_of_two_processors_is_two_devices(host, discover):
    for function in (0, 1):
        host.plug_in('19e5:d500', at=f'0000:81:00.{function}')
    assert [device.key for device in discover()] == ['0000:81:00.0', '0000:81:00.1']


def test_network_cards_of_the_same_maker_are_none(host, discover):
    host.plug_in('19e5:0222', at='0000:81:00.0', **{'class': '020000'})
    host.plug_in('19e5:d802', at='0000:83:00.0', **{'class': '020000'})
    assert discover() == []
