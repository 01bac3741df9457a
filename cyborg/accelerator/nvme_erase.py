# SPDX-License-Identifier: Apache-2.0
"""Erases NVMe disks with nvme-cli. The kernel's nvme driver is bound to the disk meanwhile."""

import contextlib
import json
import re
import time
from collections.abc import Iterator
from typing import Any

from oslo_config import cfg

from cyborg import errors
from cyborg.accelerator import cleaning, host_usage
from cyborg.accelerator.pci import Function
from cyborg.accelerator.sysfs import Node

DRIVER = 'nvme'
KEEPER = 'vfio-pci'
NO_OVERRIDE = ('', '(null)')
#: Method of erasing -> the argument of nvme format or of nvme sanitize.
FORMATS = {'format': '--ses=1', 'format-crypto': '--ses=2'}
SANITIZES = {
    'sanitize-block': '--sanact=2',
    'sanitize-overwrite': '--sanact=3',
    'sanitize-crypto': '--sanact=4',
}
OPTION = cfg.StrOpt(
    'nvme_erase',
    default='format',
    choices=[
        ('format', 'Erase the user data (nvme format --ses=1).'),
        ('format-crypto', 'Change the key of the disk (nvme format --ses=2).'),
        ('sanitize-block', 'Erase all blocks, also spare ones.'),
        ('sanitize-overwrite', 'Overwrite all blocks. This is slow.'),
        ('sanitize-crypto', 'Change all keys of the disk.'),
    ],
    help='How NVMe disks are erased at the level full. A disk that is given out by its virtual '
    'functions can only be formatted, because sanitize erases the whole disk.',
)
JSON = '--output-format=json'
#: The commands of this module, for ``runs`` of a driver that uses it.
RUNS = (
    f'nvme id-ctrl /dev/nvme* {JSON}',
    'nvme format /dev/nvme*n* --ses=[12] --force --timeout=*',
    'nvme sanitize /dev/nvme* --sanact=[234]',
    f'nvme sanitize-log /dev/nvme* {JSON}',
)
#: Bits of the FNA field of a controller: a format, or an erase, affects all namespaces.
FORMATS_ALL = 0b11
#: States of a sanitize operation.
DONE, RUNNING, FAILED, DONE_WITHOUT_DEALLOCATION = 1, 2, 3, 4
PATIENCE = 60.0  #: seconds within which a controller must be live after it was bound
PAUSE = 0.1
SANITIZE_PAUSE = 2.0


@contextlib.contextmanager
def bound_to_nvme(disk: Function) -> Iterator[None]:
    """Bind the kernel's nvme driver to a disk, and afterwards the driver that was bound before.

    If ``driver_override`` was vfio-pci, it is nvme while this runs. So a retry after an
    interruption knows which driver was bound before.
    """
    override = disk.read('driver_override') or ''
    if override not in (*NO_OVERRIDE, DRIVER, KEEPER):
        raise errors.DriverFailed(
            f'{disk.address} cannot be bound to {DRIVER}: its driver_override is {override}. '
            'Write an empty line to it.'
        )
    was_kept = override in (DRIVER, KEEPER)
    bound = KEEPER if was_kept else disk.driver
    try:
        if disk.driver != DRIVER:
            cleaning.unbind(disk)
            if was_kept:
                _override(disk, DRIVER)
            cleaning.bind(disk, DRIVER)
        _wait_until_live(disk)
        yield
    finally:
        if bound != DRIVER:
            cleaning.unbind(disk)
        if was_kept:
            _override(disk, KEEPER)
        if bound and bound != disk.driver:
            cleaning.bind(disk, bound)


def _override(disk: Function, name: str) -> None:
    try:
        disk.write('driver_override', name)
    except OSError as error:
        raise errors.DriverFailed(
            f'The driver_override of {disk.address} cannot be changed: {error.strerror or error}.'
        ) from error


def _wait_until_live(disk: Function) -> None:
    deadline = time.monotonic() + PATIENCE
    while not (found := controllers(disk)) or found[0].read('state') != 'live':
        if time.monotonic() > deadline or disk.driver != DRIVER:
            state = found[0].read('state') if found else 'missing'
            raise errors.DriverFailed(
                f'The controller of {disk.address} is {state}, so the disk cannot be erased.'
            )
        time.sleep(PAUSE)


def controllers(disk: Function) -> list[Node]:
    """Returns the controller behind a function; nothing if the nvme driver is not bound."""
    return disk.children('nvme/nvme*')


def erase(disk: Function, method: str, seconds: int) -> None:
    """Erase everything that a guest could write: the namespaces that its controller reaches."""
    [controller, *_] = controllers(disk)
    if method in SANITIZES:
        _sanitize(disk, controller.name, SANITIZES[method])
        return
    namespaces = [node.name for node in host_usage.disks(disk)]
    if not namespaces:
        raise errors.DriverFailed(
            f'{disk.address} has no namespace any more: create one with nvme create-ns.'
        )
    if disk.is_virtual and _identify(disk, controller.name) & FORMATS_ALL:
        raise errors.DriverFailed(
            f'{disk.address} cannot be formatted: its controller would format the namespaces of '
            'other virtual functions, too.'
        )
    for name in namespaces:
        _run(disk, 'format', name, FORMATS[method], '--force', f'--timeout={seconds * 1000}')


def _sanitize(disk: Function, controller: str, action: str) -> None:
    """Sanitize the whole disk and wait for the end. If a sanitize operation runs already, only
    wait."""
    if disk.is_virtual:
        raise errors.DriverFailed(
            f'{disk.address} is a virtual function: to sanitize it would erase the whole disk. '
            'Set [cleaning] nvme_erase to format.'
        )
    if _sanitize_state(disk, controller) != RUNNING:
        _run(disk, 'sanitize', controller, action)
    while (state := _sanitize_state(disk, controller)) == RUNNING:
        time.sleep(SANITIZE_PAUSE)
    if state not in (DONE, DONE_WITHOUT_DEALLOCATION):
        raise errors.DriverFailed(
            f'{disk.address} was not sanitized: see nvme sanitize-log /dev/{controller}.'
        )


def _sanitize_state(disk: Function, controller: str) -> int:
    """Returns the state of the sanitize operation. In the log it is a register, or a text that
    begins with the state in parentheses."""
    log = _answer(disk, 'sanitize-log', controller)
    status = log.get(controller, log).get('sstat')
    if isinstance(status, int):
        return status & 0b111
    texts = status.values() if isinstance(status, dict) else ()
    states = [found for text in texts if (found := re.match(r'\((\d)\)', str(text)))]
    if not states:
        raise errors.DriverFailed(
            f'{disk.address} does not report the state of sanitize: {str(log)[:200]}'
        )
    return int(states[0][1])


def _identify(disk: Function, controller: str) -> int:
    """Returns the FNA field of a controller."""
    fna = _answer(disk, 'id-ctrl', controller).get('fna')
    if not isinstance(fna, int):
        raise errors.DriverFailed(
            f'{disk.address} does not report whether a format affects all namespaces.'
        )
    return fna


def _answer(disk: Function, verb: str, controller: str) -> dict[str, Any]:
    said = _run(disk, verb, controller, JSON)
    with contextlib.suppress(ValueError):
        if isinstance(answer := json.loads(said), dict):
            return answer
    raise errors.DriverFailed(
        f'nvme {verb} of {disk.address} returned no JSON object: {said[:200]}'
    )


def _run(disk: Function, verb: str, device: str, *options: str) -> str:
    try:
        return disk.host.run('nvme', verb, f'/dev/{device}', *options)
    except OSError as error:
        raise errors.DriverFailed(
            f'nvme {verb} failed on /dev/{device}, at {disk.address}: {error}'
        ) from error
