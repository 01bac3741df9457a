# SPDX-License-Identifier: Apache-2.0
"""Cleaning between two tenants: the steps that drivers declare, and those of any PCI function."""

import dataclasses
from typing import TYPE_CHECKING

from cyborg import errors
from cyborg.accelerator import health, sysfs
from cyborg.objects import Cleaning, tasks

if TYPE_CHECKING:
    from cyborg.accelerator.pci import Function

PROBE = 'bus/pci/drivers_probe'
DRIVERS = 'bus/pci/drivers'
#: Drivers that only keep a function for a guest. They stay bound during a reset.
KEEPERS = frozenset({'vfio-pci', 'pci-stub'})
#: What every PCI driver writes below a function that it claims: see ``writes`` of driver.Driver.
WRITES = ('reset',)
ORDER = tuple(Cleaning)  #: from the lowest level to the highest
HEADER = 64  #: bytes of the configuration space that every user may read


@dataclasses.dataclass(frozen=True)
class Step:
    """An action by which a driver cleans a handle. It may be repeated."""

    name: str
    #: the lowest level at which it is done
    level: Cleaning
    #: what it needs, for the message if it fails
    needs: str

    def is_part_of(self, level: Cleaning) -> bool:
        return self.level != Cleaning.NONE and ORDER.index(self.level) <= ORDER.index(level)


RESET = Step(
    'reset',
    Cleaning.RESET,
    'a function that the kernel can reset on its own and that no program uses',
)
VERIFY = Step(
    'verify',
    Cleaning.RESET,
    'a function that answers and has had no PCI errors while it was cleaned',
)
REMOVE = Step('remove', Cleaning.RESET, 'a virtual device that no program uses')
FORMAT = Step(
    'format', Cleaning.FULL, 'nvme-cli on the host, and a disk that can be formatted or sanitized'
)
BLANK = Step(tasks.BLANK, Cleaning.FULL, 'a region that the driver can program')


def require_free(function: 'Function') -> None:
    """Raises DriverFailed if a function is not present, or if a guest or the host uses it."""
    if not function.exists():
        raise errors.DriverFailed(f'{function.address} is not present.')
    if parts := function.virtual_functions:
        raise errors.DriverFailed(
            f'{function.address} has {len(parts)} virtual functions, which would be reset with it.'
        )
    if program := user(function):
        raise errors.DriverFailed(f'{function.address} is still in use by {program}.')


def user(function: 'Function') -> str | None:
    """Returns the program that has a function open through VFIO, usually that of a guest; None if
    none has."""
    names = [f'vfio/devices/{node.name}' for node in function.children('vfio-dev/vfio*')]
    if group := function.iommu_group:
        names.append(f'vfio/{group}')
    return next(iter(function.host.opened(names).values()), None) if names else None


def reset(function: 'Function') -> None:
    """Reset a function. Its driver is unbound meanwhile, because not every driver survives a reset.

    If the function has no driver afterwards, the kernel is asked to bind one, as libvirt does
    when a guest ends. So a repetition completes a reset that was interrupted.
    """
    require_free(function)
    if not function.has('reset'):
        raise errors.DriverFailed(
            f'{function.address} cannot be reset on its own: the kernel has no reset for it.'
        )
    bound = function.driver
    if bound not in KEEPERS:
        unbind(function)
    try:
        function.write('reset', '1')
    except OSError as error:
        raise errors.DriverFailed(
            f'{function.address} was not reset: {error.strerror or error}.'
        ) from error
    finally:
        if function.driver is None:
            probe(function)
    if bound and function.driver != bound:
        raise errors.DriverFailed(
            f'The driver {bound} is not bound to {function.address} any more after the reset; '
            f'{function.driver or "none"} is.'
        )


def errors_counted(function: 'Function') -> dict[str, int]:
    """Returns the number of PCI errors that the kernel has counted, by severity."""
    return {severity: health.errors_counted(function, severity) for severity in health.COUNTERS}


def verify(function: 'Function', before: dict[str, int]) -> None:
    """Raises DriverFailed if a function does not answer or had more errors than before."""
    if not answers(function):
        raise errors.DriverFailed(
            f'{function.address} does not answer: its configuration space cannot be read.'
        )
    for severity, count in errors_counted(function).items():
        if count > before[severity]:
            raise errors.DriverFailed(
                f'{function.address} had {count - before[severity]} {severity} PCI errors while '
                'it was cleaned.'
            )


def answers(function: 'Function') -> bool:
    """Returns whether a function answers when its configuration space is read."""
    try:
        with open(function.path / 'config', 'rb') as config:
            header = config.read(HEADER)
    except OSError as error:
        sysfs.raise_own(error)
        return False
    # the ids of a virtual function are all ones, but its command and status registers are not
    register = header[4:8] if function.is_virtual else header[:4]
    return len(register) == len(health.SILENCE) and register != health.SILENCE


# -- drivers of functions ------------------------------------------------------------------------


def unbind(function: 'Function') -> None:
    """Unbind the driver of a function, if it has one."""
    if bound := function.driver:
        try:
            function.write('driver/unbind', function.address)
        except OSError as error:
            if function.driver:
                raise errors.DriverFailed(
                    f'The driver {bound} cannot be unbound from {function.address}: '
                    f'{error.strerror or error}.'
                ) from error


def probe(function: 'Function') -> None:
    """Ask the kernel to bind a driver. It may find none."""
    try:
        function.host.write(PROBE, function.address)
    except OSError as error:
        raise errors.DriverFailed(
            f'No driver can be bound to {function.address}: {error.strerror or error}.'
        ) from error


def bind(function: 'Function', name: str) -> None:
    """Bind a driver, by its name, to a function that has none."""
    try:
        function.host.write(f'{DRIVERS}/{name}/bind', function.address)
    except OSError as error:
        if function.driver != name:
            why = (
                'it is not loaded'
                if not (function.host / DRIVERS).has(name)
                else error.strerror or error
            )
            raise errors.DriverFailed(
                f'The driver {name} cannot be bound to {function.address}: {why}.'
            ) from error
