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
    'nvme list-ns /dev/nvme*',
    'nvme list-ns /dev/nvme* --all',
)
#: A line of nvme list-ns: ``[   0]:0x1``, in new versions a row of a table. Older versions have no
#: JSON here.
NAMESPACE = re.compile(r'^\s*\[?\s*\d+\]?[\s:|]+(0x[0-9a-f]+)\s*$', re.MULTILINE)
#: How nvme-cli reports that a controller does not support a command, by version.
UNSUPPORTED = re.compile('invalid[ _](field|opcode|command opcode)', re.IGNORECASE)
#: Bit of the OACS field of a controller: namespaces can be created, deleted and attached.
MANAGES_NAMESPACES = 0b1000
#: Bits of the FNA field of a controller: a format, or an erase, affects all namespaces.
FORMATS_ALL = 0b11
#: States of a sanitize operation.
DONE, RUNNING, FAILED, DONE_WITHOUT_DEALLOCATION = 1, 2, 3, 4
#: Seconds within which a controller must be live after it was bound, and then its namespaces found.
PATIENCE = 60.0
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


def wait_for_namespaces(disk: Function, method: str) -> None:
    """Wait until the kernel has found all namespaces, if the method erases one at a time.

    The kernel looks for them after the controller is live. Raises DriverFailed if a namespace
    cannot be reached: a guest that had the whole disk may have detached one, and the next guest
    could attach it.
    """
    if method not in FORMATS:
        return
    [controller, *_] = controllers(disk)
    active = _listed(disk, controller.name)
    if detached := sorted(_allocated(disk, controller.name, active) - active):
        raise errors.DriverFailed(
            f'{disk.address} has namespaces that are not attached, so they cannot be formatted: '
            f'{_numbers(detached)}. Attach them (nvme attach-ns) or delete them (nvme delete-ns), '
            'or set [cleaning] nvme_erase to sanitize-block.'
        )
    deadline = time.monotonic() + PATIENCE
    while True:
        numbers = (node.number('nsid') for node in host_usage.disks(disk))
        found = {number for number in numbers if number is not None}
        if strangers := sorted(found - active):  # the list is not what we take it for
            raise errors.DriverFailed(
                f'nvme list-ns of {disk.address} does not list namespaces of the kernel: '
                f'{_numbers(strangers)}.'
            )
        if not (missing := sorted(active - found)):
            return
        if time.monotonic() > deadline:
            raise errors.DriverFailed(
                f'{disk.address} has namespaces without a block device, so they cannot be '
                f'formatted: {_numbers(missing)}. See the log of the kernel, or set [cleaning] '
                'nvme_erase to sanitize-block.'
            )
        time.sleep(PAUSE)
        active = _listed(disk, controller.name)


def _allocated(disk: Function, controller: str, active: set[int]) -> set[int]:
    """Returns all namespaces of a disk, also those that are not attached. A controller that
    cannot manage namespaces has only active ones."""
    if disk.is_virtual or not _identify(disk, controller, 'oacs') & MANAGES_NAMESPACES:
        return active
    try:
        allocated = _listed(disk, controller, '--all')
    except errors.DriverFailed as error:
        if UNSUPPORTED.search(error.faultstring):
            return active
        raise
    if not active <= allocated:
        raise errors.DriverFailed(
            f'nvme list-ns --all of {disk.address} does not list the attached namespaces: '
            f'{_numbers(sorted(active - allocated))}.'
        )
    return allocated


def _listed(disk: Function, controller: str, *options: str) -> set[int]:
    said = _run(disk, 'list-ns', controller, *options)
    return {int(number, 16) for number in NAMESPACE.findall(said)}


def _numbers(namespaces: list[int]) -> str:
    return ', '.join(map(str, namespaces))


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
    if disk.is_virtual and _identify(disk, controller.name, 'fna') & FORMATS_ALL:
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


def _identify(disk: Function, controller: str, field: str) -> int:
    """Returns a field of bits that a controller reports about itself."""
    bits = _answer(disk, 'id-ctrl', controller).get(field)
    if not isinstance(bits, int):
        raise errors.DriverFailed(f'{disk.address} does not report {field} in nvme id-ctrl.')
    return bits


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
