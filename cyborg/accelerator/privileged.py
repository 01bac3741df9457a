# SPDX-License-Identifier: Apache-2.0
"""What is done as root: a few attributes of sysfs are written, a few tools are run, open
devices are looked up.

This runs in oslo.privsep's daemon, which trusts its caller with nothing but these names.
"""

import os
from pathlib import Path

from oslo_privsep import capabilities, priv_context

from cyborg.accelerator import sysfs

context = priv_context.PrivContext(
    'cyborg', cfg_section='cyborg_sys_admin', pypath=f'{__name__}.context',
    capabilities=[capabilities.CAP_SYS_ADMIN, capabilities.CAP_DAC_OVERRIDE,
                  capabilities.CAP_SYS_PTRACE])  # to see what other processes have open

#: Attributes that a driver may write.
ATTRIBUTES = frozenset({
    'bind', 'cfg_services', 'create', 'current_vgpu_type', 'driver_override', 'drivers_probe',
    'gpu_instance_id', 'remove', 'sriov_drivers_autoprobe', 'sriov_numvfs', 'state', 'unbind',
})
#: Below these directories only: a ``state`` of the power management is none of our business.
PLACES = ('bus', 'class', 'devices')
#: Tools that a driver may run, wherever the system keeps them.
TOOLS = frozenset({'fpgaconf', 'mdevctl'})
TOOL_PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'


@context.entrypoint
def write(path: str, text: str) -> None:
    """Write an attribute of sysfs."""
    target = Path(os.path.realpath(path))
    if (target.name not in ATTRIBUTES
            or not any(target.is_relative_to(sysfs.ROOT / place) for place in PLACES)):
        raise PermissionError(1, 'this is not an attribute that Cyborg writes', str(target))
    sysfs.write(target, text)


@context.entrypoint
def run(command: list[str]) -> str:
    """Run a tool to its end and answer what it said."""
    if command[0] not in TOOLS:
        raise PermissionError(1, 'this is not a tool that Cyborg runs', command[0])
    return sysfs.run(command, path=TOOL_PATH)


@context.entrypoint
def opened(names: list[str]) -> dict[str, str]:
    """Which of these devices are open: name -> a program that has it."""
    return sysfs.opened(sysfs.PROC, names)
