# SPDX-License-Identifier: Apache-2.0
"""Simulated cards show what kernels and vendors document about each family."""

import re

import pytest

from cyborg.accelerator import pci
from cyborg.sim import catalogue

CARD = '0000:6b:00.0'
NUMBER = '[0-9]+'
HEX = '0x[0-9a-f]+'
UUID = '[0-9a-f]{32}'
VGPU = f'({NUMBER} : NVIDIA .+\n?)+'
DESCRIPTION = (
    f'num_heads={NUMBER}, frl_config={NUMBER}, framebuffer={NUMBER}M, '
    f'max_resolution={NUMBER}x{NUMBER}, max_instance={NUMBER}'
)
CLOCK = {
    f'ptp/ptp0/{name}': NUMBER
    for name in (
        'max_adjustment',
        'max_vclocks',
        'n_vclocks',
        'n_alarms',
        'n_external_timestamps',
        'n_periodic_outputs',
        'n_programmable_pins',
        'pps_available',
    )
}
#: below a function, by model: what each file looks like; virtfn0/ leads to the first part
FILES = {
    '10de:1eb8': {
        'class': '0x030[02]00',
        'mdev_supported_types/nvidia-222/name': 'GRID T4-1B',
        'mdev_supported_types/nvidia-222/device_api': 'vfio-pci',
        'mdev_supported_types/nvidia-222/available_instances': '16',
        'mdev_supported_types/nvidia-222/description': DESCRIPTION,
    },
    '10de:20b5': {
        'sriov_totalvfs': '16',
        'virtfn0/device': '0x20b5',
        'virtfn0/mdev_supported_types/nvidia-468/available_instances': '1',
    },
    '10de:2335': {
        'virtfn0/nvidia/creatable_vgpu_types': VGPU,
        'virtfn0/nvidia/current_vgpu_type': '0',
        'virtfn0/nvidia/gpu_instance_id': NUMBER,
        'virtfn0/nvidia/placement_id': NUMBER,
    },
    '10de:26b9': {'virtfn0/nvidia/creatable_vgpu_types': f'ID : vGPU Name\n{VGPU}'},
    '1002:74a1': {'class': '0x(0380|1200)00', 'virtfn0/device': '0x74b5'},
    '1002:74a0': {
        'available_compute_partition': '[A-Z]+(, [A-Z]+)+',
        'current_compute_partition': '[A-Z]+',
        'current_memory_partition': 'NPS[0-9]',
    },
    '1002:7460': {'class': '0x030000', 'virtfn0/device': '0x7461'},
    '8086:56c0': {'class': '0x038000', 'sriov_totalvfs': '31', 'virtfn0/device': '0x56c0'},
    '8086:37c8': {'class': '0x0b4000', 'sriov_totalvfs': '16', 'virtfn0/device': '0x37c9'},
    '8086:4940': {
        'class': '0x0b4000',
        'qat/state': 'up',
        'qat/cfg_services': 'sym;asym',
        'qat/num_rps': '64',
        'qat/pm_idle_enabled': '1',
        'qat/auto_reset': '0',
        'virtfn0/device': '0x4941',
    },
    '8086:09c4': {
        'class': '0x120000',
        'fpga_region/region0/dfl-fme.0/bitstream_id': HEX,
        'fpga_region/region0/dfl-fme.0/ports_num': '1',
        'fpga_region/region0/dfl-fme.0/dfl-fme-region.1/fpga_region/region1/compat_id': UUID,
        'fpga_region/region0/dfl-fme.0/dfl-fme-br.1/fpga_bridge/br0/state': 'enabled',
        'fpga_region/region0/dfl-fme.0/dfl-fme-mgr.0/fpga_manager/fpga0/state': 'unknown',
        'fpga_region/region0/dfl-port.0/id': '0',
        'fpga_region/region0/dfl-port.0/afu_id': UUID,
    },
    '8086:bcce': {
        'subsystem_device': '0x1771',
        'virtfn0/device': '0xbccf',
        'virtfn1/fpga_region/region*/dfl-port.1/id': '1',
    },
    '8086:0b2b': {
        'sriov_totalvfs': '1',
        'virtfn0/device': '0x0b2c',
        'fpga/intel-fpga-dev.0/device/class': '0x120000',
        'fpga/intel-fpga-dev.0/intel-fpga-fme.0/pr/interface_id': UUID,
        'fpga/intel-fpga-dev.0/intel-fpga-fme.0/bitstream_id': HEX,
        'virtfn0/fpga/intel-fpga-dev.1/intel-fpga-port.0/afu_id': UUID,
    },
    '10ee:5000': {'class': '0x120000', 'interface_uuids': UUID},
    '10ee:5001': {'class': '0x120000', 'xclbinuuid': '[0-9a-f-]{36}'},
    '1bd4:0911': {'class': '0x120000'},
    '19e5:d802': {'class': '0x120000', 'revision': '0x20'},
    '19e5:d500': {'class': '0x120000', 'revision': '0x71'},
    '8086:1572': {
        'class': '0x020000',
        'net/*/address': '[0-9a-f:]{17}',
        'net/*/operstate': 'down',
        'virtfn0/device': '0x154c',
    },
    '8086:1592': {'class': '0x020000', 'virtfn0/device': '0x1889'},
    '144d:a80a': {
        'class': '0x010802',
        'nvme/nvme0/state': 'live',
        'nvme/nvme0/transport': 'pcie',
        'nvme/nvme0/address': CARD,
        'nvme/nvme0/cntlid': NUMBER,
    },
    '1d9b:0400': CLOCK
    | {
        'ptp/ptp0/clock_name': '.+',
        'ptp/ptp0/dev': f'{NUMBER}:0',
        'timecard/ocp0/serialnum': '.+',
        'timecard/ocp0/gnss_sync': 'SYNC|LOST @ .*',
        'timecard/ocp0/clock_source': 'PPS',
        'timecard/ocp0/available_clock_sources': 'NONE TOD IRIG PPS .*DCF REGS EXT',
        'timecard/ocp0/ptp/n_vclocks': '0',
    },
    '8086:0b25': {
        'class': '0x088000',
        'dsa0/version': '0x100',
        'dsa0/state': 'disabled',
        'dsa0/max_transfer_size': NUMBER,
        'dsa0/wq0.0/mode': 'dedicated',
        'dsa0/wq0.0/type': 'none',
        'dsa0/wq0.0/threshold': NUMBER,
        'dsa0/engine0.0/group_id': '-1',
        'dsa0/group0.3/engines': '',
    },
    '8086:0cfe': {'class': '0x088000', 'iax0/wq0.7/state': 'disabled'},
}


@pytest.mark.parametrize('model', FILES)
def test_the_files_of_its_driver_are_there_and_look_right(host, model):
    host.plug_in(model, at=CARD)
    function = pci.Function.at(host.sysfs, CARD)
    for name, pattern in FILES[model].items():
        [node] = function.children(name)
        assert re.fullmatch(pattern, node.read()), (name, node.read())


@pytest.mark.parametrize('model', catalogue.models())
def test_parts_and_whole_cards_show_what_every_kernel_does(host, model):
    host.plug_in(model, at=CARD)
    function = pci.Function.at(host.sysfs, CARD)
    has_parts = function.has('sriov_totalvfs')
    for name in (
        'sriov_numvfs',
        'sriov_offset',
        'sriov_stride',
        'sriov_vf_device',
        'sriov_drivers_autoprobe',
        'sriov_vf_total_msix',
    ):
        assert function.has(name) is has_parts
    for part in function.virtual_functions.values():
        assert part.link('physfn').name == CARD
        assert part.has('sriov_vf_msix_count') and not part.has('sriov_totalvfs')
