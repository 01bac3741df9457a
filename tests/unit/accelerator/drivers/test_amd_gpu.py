# SPDX-License-Identifier: Apache-2.0
"""AMD GPUs."""

import pytest

ADDRESS = '0000:c1:00.0'


@pytest.fixture
def discover(load):
    return lambda: list(load('amd_gpu_driver').discover())


def test_virtual_functions_are_shared_gpus_with_ids_of_their_own(host, discover):
    host.plug_in('1002:74a1', at=ADDRESS)
    [device] = discover()
    assert (device.type, device.vendor, device.model) == ('GPU', '1002', 'AMD Instinct MI300X')
    [deployable] = device.deployables
    assert (deployable.resource_class, deployable.num_accelerators) == ('VGPU', 8)
    assert deployable.traits == [
        'CUSTOM_GPU_AMD_INSTINCT_MI300X',
        'CUSTOM_AMD_74A1',
        'CUSTOM_AMD_74B5',
    ]
    assert {handle.type for handle in deployable.attach_handles} == {'PCI'}


def test_the_only_virtual_function_is_the_whole_card(host, discover):
    host.plug_in('1002:74a1', at=ADDRESS, vfs=1)
    [deployable] = discover()[0].deployables
    assert (deployable.resource_class, deployable.num_accelerators) == ('PGPU', 1)
    assert deployable.attach_handles[0].key == 'vf0'


def test_a_card_without_any_is_given_out_whole(host, discover):
    host.plug_in('1002:74a0', at=ADDRESS)
    [device] = discover()
    [deployable] = device.deployables
    assert (deployable.resource_class, deployable.attach_handles[0].key) == ('PGPU', 'pf')
    assert device.vendor_board_info == {'compute_partition': 'SPX', 'memory_partition': 'NPS1'}


@pytest.mark.parametrize('model', ['1002:74a0', '1002:74a1'], ids=['whole', 'virtual functions'])
def test_the_firmware_is_in_the_record_of_a_hand_back(host, load, stored, discover, model):
    host.plug_in(model, at=ADDRESS)
    driver = load('amd_gpu_driver')
    handle = stored(discover()[0].deployables[0].attach_handles[0])
    assert 'firmware' not in driver.versions(handle)
    host.tree.file(f'bus/pci/devices/{ADDRESS}/vbios_version', '113-M3000100-102')
    assert driver.versions(handle)['firmware'] == '113-M3000100-102'


def test_resource_classes_are_the_operators(host, conf, discover):
    conf.set_override('virtual_resource_class', 'CUSTOM_AMD_VF', group='amd_gpu_driver')
    conf.set_override('resource_class', 'CUSTOM_AMD_GPU', group='amd_gpu_driver')
    host.plug_in('1002:7460', at=ADDRESS)
    host.plug_in('1002:740f', at='0000:c3:00.0')
    assert [device.deployables[0].resource_class for device in discover()] == [
        'CUSTOM_AMD_VF',
        'CUSTOM_AMD_GPU',
    ]
