# SPDX-License-Identifier: Apache-2.0
"""NVMe disks."""

import pytest

from cyborg.accelerator import pci

ADDRESS = '0000:c5:00.0'


@pytest.fixture(params=['nvme_driver', 'inspur_nvme_ssd_driver'])
def name(request):
    return request.param


@pytest.fixture
def discover(load, name):
    return lambda: list(load(name).discover())


def test_a_disk_is_given_out_whole(host, discover, name):
    host.plug_in('1bd4:1001', at=ADDRESS)
    [device] = discover()
    assert (device.type, device.model, device.driver_name) == ('SSD', 'Inspur NVMe', name)
    assert device.vendor_board_info == {
        'model': 'INSPUR NS6500G2',
        'serial': 'SIM1BD41001',
        'firmware_rev': '1.0',
    }
    [deployable] = device.deployables
    assert (deployable.resource_class, deployable.num_accelerators) == ('CUSTOM_SSD', 1)
    assert deployable.traits == [
        'CUSTOM_SSD_INSPUR_NVME',
        'CUSTOM_SSD_INSPUR',
        'CUSTOM_SSD_PRODUCT_ID_1001',
    ]


@pytest.mark.parametrize(
    ('use', 'reason'),
    [
        ({'mounted': True}, 'nvme0n1 is mounted'),
        ({'partitions': 2, 'mounted': True}, 'nvme0n1p2 is mounted'),
        ({'partitions': 1, 'swap': True}, 'nvme0n1p1 is mounted or used for swap'),
        ({'holders': ['dm-0']}, 'nvme0n1 is part of a volume'),
        ({'partitions': 1, 'holders': ['md127']}, 'nvme0n1p1 is part of a volume'),
        ({'partitions': 1}, 'nvme0n1 has partitions'),
    ],
)
def test_one_that_the_host_uses_is_never_offered(host, discover, use, reason):
    host.plug_in('1bd4:1001', at=ADDRESS, nvme={'namespaces': [use]})
    [device] = discover()
    assert device.deployables == []
    assert f'is used by the host: {reason}' in device.fault


@pytest.mark.parametrize('use', [{'mounted': True}, {'partitions': 1}, {'holders': ['dm-0']}])
def test_virtual_functions_are_withheld_while_the_host_uses_the_disk(host, load, use):
    host.plug_in('1b36:0010', at=ADDRESS, vfs=2, nvme={'namespaces': [use]})
    [device] = load('nvme_driver').discover()
    assert device.deployables == []
    assert f'{ADDRESS} is used by the host: nvme0n1' in device.fault


def test_one_of_several_namespaces_in_use_is_enough(host, discover):
    host.plug_in('1bd4:1001', at=ADDRESS, nvme={'namespaces': [{}, {'mounted': True}]})
    assert 'nvme0n2 is mounted' in discover()[0].fault


def test_it_is_offered_while_a_guest_has_it(host, discover):
    host.plug_in('1bd4:1001', at=ADDRESS)
    [before] = discover()
    disk = pci.Function.at(host.sysfs, ADDRESS)
    disk.write('driver_override', 'vfio-pci')
    (disk / 'driver').write('unbind', ADDRESS)
    host.sysfs.write('bus/pci/drivers_probe', ADDRESS)
    [after] = discover()
    assert not disk.has('nvme')
    assert [each.obj_to_primitive() for each in after.deployables] == [
        each.obj_to_primitive() for each in before.deployables
    ]


def test_what_the_operator_keeps_for_the_host_is_not_offered(host, conf, discover, name):
    conf.set_override('host_addresses', [ADDRESS], group=name)
    host.plug_in('1bd4:1001', at=ADDRESS)
    assert f'kept for the host by [{name}] host_addresses' in discover()[0].fault


def test_a_dead_one_says_so_and_keeps_its_place(host, discover):
    host.plug_in('1bd4:1001', at=ADDRESS, nvme={'state': 'dead'})
    [device] = discover()
    assert 'is dead' in device.fault
    assert len(device.deployables) == 1


def test_disks_of_others_are_for_the_general_driver(host, load):
    host.plug_in('144d:a80a', at=ADDRESS)
    host.plug_in('1b36:0010', at='0000:c7:00.0')
    host.plug_in('1bd4:0911', at='0000:c9:00.0')  # an FPGA
    assert list(load('inspur_nvme_ssd_driver').discover()) == []
    traits = [device.deployables[0].traits for device in load('nvme_driver').discover()]
    assert traits == [
        ['CUSTOM_SSD_SAMSUNG_NVME', 'CUSTOM_SSD_SAMSUNG', 'CUSTOM_SSD_PRODUCT_ID_A80A'],
        ['CUSTOM_SSD_NVME', 'CUSTOM_SSD_1B36', 'CUSTOM_SSD_PRODUCT_ID_0010'],
    ]
