# SPDX-License-Identifier: Apache-2.0
"""Intel GPUs."""

import pytest

ADDRESS = '0000:4d:00.0'


@pytest.fixture
def discover(load):
    return lambda: list(load('intel_gpu_driver').discover())


def test_virtual_functions_are_shared_gpus(host, discover):
    host.plug_in('8086:56c0', at=ADDRESS)
    [device] = discover()
    assert (device.type, device.model) == ('GPU', 'Intel Flex 170')
    [deployable] = device.deployables
    assert (deployable.resource_class, deployable.num_accelerators) == ('VGPU', 4)
    assert deployable.traits == ['CUSTOM_GPU_INTEL_FLEX_170', 'CUSTOM_INTEL_56C0']


def test_a_card_without_any_is_given_out_whole(host, discover):
    host.plug_in('8086:e211', at=ADDRESS)
    [deployable] = discover()[0].deployables
    assert (deployable.resource_class, deployable.num_accelerators) == ('PGPU', 1)


def test_other_things_of_the_vendor_are_not_taken_for_gpus(host, discover):
    host.plug_in('8086:4940', at=ADDRESS)
    host.plug_in('8086:56c0', at='0000:4f:00.0', **{'class': '088000'})
    assert discover() == []
