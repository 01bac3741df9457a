# SPDX-License-Identifier: Apache-2.0
"""The attributes of any PCI function, whichever driver is bound to it."""

import struct
from typing import Any

BRIDGE = '0604'
NO_RESOURCE = '0x0000000000000000 0x0000000000000000 0x0000000000000000'
RESOURCES = 13  #: the number of lines of the file


def attributes(facts: dict[str, Any]) -> dict[str, str]:
    """Return the names and texts of the attributes."""
    subsystem = _subsystem(facts)
    return {
        'vendor': f'0x{facts["vendor"]}',
        'device': f'0x{facts["device"]}',
        'subsystem_vendor': f'0x{subsystem[0]}',
        'subsystem_device': f'0x{subsystem[1]}',
        'class': f'0x{facts["class"]}',
        'revision': f'0x{facts.get("revision", "00")}',
        'numa_node': str(facts.get('numa_node', -1)),
        'local_cpulist': '0-1',
        'irq': '0',
        'enable': '1',
        'power_state': 'D0',
        'current_link_speed': '16.0 GT/s PCIe',
        'modalias': _modalias(facts),
        'resource': '\n'.join([NO_RESOURCE] * RESOURCES),
        'power/control': 'on',
    }


def uevent(address: str, facts: dict[str, Any]) -> list[str]:
    """Return the lines of the uevent file, without that of the driver."""
    return [
        f'PCI_CLASS={facts["class"].lstrip("0").upper()}',
        f'PCI_ID={facts["vendor"]}:{facts["device"]}'.upper(),
        f'PCI_SUBSYS_ID={":".join(_subsystem(facts))}'.upper(),
        f'PCI_SLOT_NAME={address}',
        f'MODALIAS={_modalias(facts)}',
    ]


def config(address: str, facts: dict[str, Any], is_virtual: bool = False) -> bytes:
    """Return the part of the configuration space that lspci and libvirt read."""
    is_bridge = facts['class'].startswith(BRIDGE)
    space = bytearray(256)
    struct.pack_into('<HH', space, 0, int(facts['vendor'], 16), int(facts['device'], 16))
    if is_virtual:  # both ids read as ffff: the physical function has them
        space[:4] = b'\xff' * 4
    space[8:12] = bytes.fromhex(facts.get('revision', '00')) + bytes.fromhex(facts['class'])[::-1]
    space[14] = int(is_bridge)
    if is_bridge:
        bus = int(address.split(':')[1], 16)
        space[24:27] = bytes([bus, bus + 1 & 0xFF, bus + 1 & 0xFF])
    else:
        struct.pack_into('<HH', space, 44, *(int(each, 16) for each in _subsystem(facts)))
    return bytes(space)


def _subsystem(facts: dict[str, Any]) -> list[str]:
    both: str = facts.get('subsystem', f'{facts["vendor"]}:0000')
    return both.split(':')


def _modalias(facts: dict[str, Any]) -> str:
    vendor, device, subvendor, subdevice, kind = (
        each.upper()
        for each in (facts['vendor'], facts['device'], *_subsystem(facts), facts['class'])
    )
    return (
        f'pci:v0000{vendor}d0000{device}sv0000{subvendor}sd0000{subdevice}'
        f'bc{kind[:2]}sc{kind[2:4]}i{kind[4:]}'
    )
