# SPDX-License-Identifier: Apache-2.0
"""vGPUs on hosts without mediated devices: a virtual function that is given a type is a vGPU.

The host's driver itself gives such a function to a guest (vendor-specific VFIO). vfio-pci cannot
be bound to it.
"""

import re
from collections.abc import Mapping

from cyborg import errors
from cyborg.accelerator import pci, sharing

CURRENT = 'nvidia/current_vgpu_type'
CREATABLE = 'nvidia/creatable_vgpu_types'
GPU_INSTANCE = 'nvidia/gpu_instance_id'
NONE = '0'
WRITES = (CURRENT, GPU_INSTANCE)


def parents(gpu: pci.Function) -> dict[int, pci.Function]:
    """Returns the virtual functions that can become a vGPU, by number."""
    return {number: vf for number, vf in gpu.virtual_functions.items() if vf.has(CURRENT)}


def titles(parent: pci.Function) -> dict[str, str]:
    """Returns the names of the types that can be made here now, by number. A type that does not
    fit now is left out."""
    lines = (parent.read(CREATABLE) or '').splitlines()
    found = (re.fullmatch(r'\s*(\d{1,9})\s*:\s*(\S.*?)\s*', line) for line in lines)
    return {line[1]: line[2] for line in found if line}


def holds(parent: pci.Function) -> str | None:
    """Returns the number of the type of a function; NONE if it has no type; None if that cannot be
    read."""
    number = parent.number(CURRENT)
    return None if number is None else str(number)


def room(
    within: Mapping[int, pci.Function], kind: str, ceiling: int | None
) -> sharing.Room[pci.Function]:
    """Returns the room for vGPUs of a type."""
    occupants: dict[int, str] = {}
    free: list[int] = []
    full: list[int] = []
    for number, parent in within.items():
        present = holds(parent)
        if present == kind:
            occupants[number] = f'vGPU of type {kind}'
        elif present == NONE:
            (free if kind in titles(parent) else full).append(number)
    return sharing.on_many(within, occupants, free, full, ceiling)


def create(parent: pci.Function, kind: str, gpu_instance: str | None) -> None:
    """Make a vGPU of a virtual function. If it is one of that type already, do nothing."""
    present = holds(parent)
    if present == kind:
        return
    if present is None:
        raise errors.DriverFailed(f'{parent.address} is not a function that could be a vGPU.')
    if present != NONE:
        raise errors.DriverFailed(
            f'{parent.address} is a vGPU of type {present} already; it is wanted of type {kind}.'
        )
    try:
        if gpu_instance is not None:
            parent.write(GPU_INSTANCE, gpu_instance)
        parent.write(CURRENT, kind)
    except OSError as error:
        if holds(parent) == kind:
            return
        why = error.strerror if kind in titles(parent) else 'its card has no room for one'
        raise errors.DriverFailed(
            f'{parent.address} did not become a vGPU of type {kind}: {why or error}.'
        ) from error
    if holds(parent) != kind:
        raise errors.DriverFailed(f'{parent.address} did not become a vGPU of type {kind}.')


def remove(parent: pci.Function, kind: str) -> None:
    """Take the type away. If the function has another type, do nothing: another program set it.
    Raises DriverFailed unless the function is known to have lost the type, or is absent."""
    if _known(parent) != kind:
        return
    failure: OSError | None = None
    try:
        parent.write(CURRENT, NONE)
    except OSError as error:
        failure = error
    if _known(parent) == kind:
        why = f': {failure.strerror or failure}' if failure else ''
        raise errors.DriverFailed(f'{parent.address} remains a vGPU{why}.') from failure


def _known(parent: pci.Function) -> str:
    """Returns the same as ``holds``, and NONE for a function that is absent or cannot be a vGPU.
    Raises DriverFailed if the type exists but cannot be read."""
    present = holds(parent)
    if present is None and parent.has(CURRENT):
        raise errors.DriverFailed(
            f'{parent.address} may still be a vGPU: its {CURRENT} cannot be read. See the log of '
            'the kernel.'
        )
    return present or NONE
