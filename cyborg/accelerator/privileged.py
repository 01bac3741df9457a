# SPDX-License-Identifier: Apache-2.0
"""The functions that run as root: they write attributes of sysfs, run tools and look up which
devices are open.

They run in oslo.privsep's daemon. The daemon does for its caller only what the enabled drivers
declare, on devices that they claim. It reads the names of the enabled drivers from its own
configuration files, not from its caller.
"""

import errno
import functools
import os
import sys
import threading
from pathlib import Path

from oslo_config import cfg

from cyborg import conf
from cyborg.accelerator import driver, sysfs

try:
    from oslo_privsep import capabilities, daemon, priv_context
except ModuleNotFoundError:
    # The version in OpenStack 2026.1 requires eventlet, which cyborg/__init__.py keeps out.
    sys.modules.pop('eventlet', None)
    from oslo_privsep import capabilities, daemon, priv_context

context = priv_context.PrivContext(
    'cyborg',
    cfg_section='cyborg_sys_admin',
    pypath=f'{__name__}.context',
    capabilities=[
        capabilities.CAP_SYS_ADMIN,
        capabilities.CAP_DAC_OVERRIDE,
        capabilities.CAP_SYS_PTRACE,  # to see which files other processes have open
    ],
)

#: raised in the agent if the daemon does not start
NotStarted: type[Exception] = daemon.FailedToDropPrivileges

#: Threads of the daemon: one for each card, on which at most one call hangs. oslo.privsep has one
#: for each CPU, so that a few hanging calls would stop those of all cards.
THREADS = 512
cfg.CONF.set_default('thread_pool_size', THREADS, context.cfg_section)

#: The directories in which tools are looked for. The PATH of the caller does not count.
TOOL_PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'
LOADING = threading.Lock()


@context.entrypoint
def write(path: str, text: str) -> None:
    """Write an attribute of sysfs."""
    target, enabled = Path(os.path.realpath(path)), _enabled()
    if not target.is_relative_to(sysfs.ROOT) or not any(
        each.may_write(target, text) for each in enabled
    ):
        raise PermissionError(errno.EPERM, _refusal(enabled, f'writes {target}'))
    sysfs.write(target, text)


@context.entrypoint
def run(command: list[str], timeout: float | None = None) -> str:
    """Run a tool and return its output. It is killed here, by root, after ``timeout``
    seconds."""
    enabled = _enabled()
    if not any(each.may_run(command) for each in enabled):
        raise sysfs.NotAllowed(_refusal(enabled, f'runs {" ".join(command)}'))
    return sysfs.run(command, timeout, path=TOOL_PATH)


@context.entrypoint
def opened(names: list[str]) -> dict[str, str]:
    """Returns those of the devices that are open: name -> a program that has it open."""
    return sysfs.opened(sysfs.PROC, names)


def _enabled() -> list[driver.Driver]:
    with LOADING:  # several threads call this
        return _load()


@functools.cache
def _load() -> list[driver.Driver]:
    conf.register(cfg.CONF)
    return driver.load(cfg.CONF.agent.enabled_drivers, cfg.CONF, sysfs.Sysfs(sysfs.ROOT))


def _refusal(enabled: list[driver.Driver], action: str) -> str:
    names = ', '.join(each.name for each in enabled) or 'none'
    return (
        f'no driver that the privileged helper finds enabled ({names}) {action}; if one is missing '
        'there, name the file that enables it in [cyborg_sys_admin] helper_command'
    )
