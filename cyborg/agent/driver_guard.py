# SPDX-License-Identifier: Apache-2.0
"""Guards around drivers: a driver that raises or hangs affects its own devices only."""

import dataclasses
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from oslo_log import log

from cyborg import errors, objects
from cyborg.accelerator import cleaning, pci, sysfs, traits
from cyborg.accelerator.driver import Driver

LOG = log.getLogger(__name__)
T = TypeVar('T')

#: Returns the level at which a handle is cleaned after each request. Its arguments are the name
#: of a driver and the steps that the driver has for the handle.
LevelOf = Callable[[str, Sequence[cleaning.Step]], objects.Cleaning]

ALL = ''  #: in place of the key of a card: all cards of a driver


def uncleaned(driver_name: str, steps: Sequence[cleaning.Step]) -> objects.Cleaning:
    """Returns the level of a host that cleans nothing."""
    return objects.Cleaning.NONE


@dataclasses.dataclass(frozen=True)
class Call:
    """A call of a driver's method, in a thread that may go on after its time limit."""

    what: str
    thread: threading.Thread


class Guard:
    """Calls the methods of a driver, each of which ends in time: it returns, or raises
    DriverFailed.

    A call that does not end in time goes on and may still have an effect. Until it ends, no other
    call begins on the same card. So a later call can undo its late effects, and no card has more
    than one thread that hangs. A tool that the call runs is killed at the time limit; a call whose
    tool is still there afterwards has not ended.
    """

    def __init__(
        self,
        driver: Driver,
        timeout: float,
        program_timeout: float | None = None,
        level_of: LevelOf = uncleaned,
    ) -> None:
        self.name = driver.name
        self._driver = driver
        self._timeout = timeout
        self._program_timeout = timeout if program_timeout is None else program_timeout
        self._level_of = level_of
        #: key of a card, or ALL -> the last call that did not end in time
        self._overdue: dict[str, Call] = {}

    def discover(self) -> list[objects.Device]:
        """Returns the devices that the driver reports."""
        return self._call(
            ALL,
            'discovery',
            lambda: [self._checked(self._grouped(device)) for device in self._driver.discover()],
        )

    def _grouped(self, device: objects.Device) -> objects.Device:
        """Add to each handle the functions of its IOMMU group, also those of other drivers."""
        for handle in [each for part in device.deployables for each in part.attach_handles]:
            address = pci.address_of(handle.info)
            if handle.type == objects.HandleType.PCI and address:
                function = pci.Function.at(self._driver.sysfs, address)
                handle.companions = [each.address for each in function.companions]
        return device

    def _checked(self, device: objects.Device) -> objects.Device:
        """Set the fault of a card on which a call hangs, or whose names Placement does not allow.
        Set the level at which each handle is cleaned."""
        if not device.fault and (hanging := self._hanging(device.key)):
            device.fault = f'{hanging.what.capitalize()} hangs.'
        for part in device.deployables:
            try:
                _normalise_names(part)
            except traits.NotAName as error:
                part.traits, part.resource_class = [], None
                device.fault = device.fault or str(error)
            for handle in part.attach_handles:
                handle.cleaning = self._level_of(self.name, self.steps_for(handle))
        return device

    def attach(self, task: objects.Task) -> None:
        """Prepare a handle."""
        self._call(
            task.device_key,
            f'preparing {task.handle.key}',
            lambda: self._driver.attach(task.handle, task),
        )

    def detach(self, task: objects.Task) -> None:
        """Undo the preparation of a handle."""
        self._call(
            task.device_key,
            f'releasing {task.handle.key}',
            lambda: self._driver.detach(task.handle),
        )

    def steps_for(self, handle: objects.AttachHandle) -> Sequence[cleaning.Step]:
        """Returns the steps by which the driver cleans a handle, in their order."""
        return self._driver.steps_for(handle)

    def clean(self, task: objects.Task, step: str, deployable: str, timeout: float) -> None:
        """Do one step of cleaning a handle. ``deployable`` is the name of its deployable."""
        self._call(
            task.device_key,
            f'cleaning {task.handle.key} ({step})',
            lambda: self._driver.clean(task.handle, step, deployable),
            timeout,
        )

    def run_script(
        self, task: objects.Task, name: str, script: Callable[[], None], timeout: float
    ) -> None:
        """Run a script of the operator that cleans a handle."""
        self._call(task.device_key, f'cleaning {task.handle.key} ({name})', script, timeout)

    def versions(self, task: objects.Task) -> dict[str, str]:
        """Returns the versions of firmware and kernel driver of a handle."""
        return self._call(
            task.device_key,
            f'reading the versions of {task.handle.key}',
            lambda: self._driver.versions(task.handle),
        )

    def lost(self, tasks: Sequence[objects.Task]) -> list[objects.Task]:
        """Returns the tasks whose handles are no longer as ``attach`` left them."""
        return self._call(
            ALL,
            'checking prepared handles',
            lambda: [task for task in tasks if not self._driver.is_attached(task.handle)],
        )

    @property
    def can_program(self) -> bool:
        """Whether the driver loads images at all."""
        return type(self._driver).program is not Driver.program

    def program(
        self, card: str, deployable: str, image: Path, properties: Mapping[str, str] | None = None
    ) -> None:
        """Load an image. ``properties`` are those of the image in Glance."""
        self._call(
            card,
            f'programming {deployable}',
            lambda: self._driver.program(deployable, image, properties or {}),
            self._program_timeout,
        )

    def is_hanging(self, card: str) -> bool:
        """Returns whether a call that did not end in time still runs on a card."""
        return self._hanging(card) is not None

    def _hanging(self, card: str) -> Call | None:
        call = self._overdue.get(card)
        return call if call and call.thread.is_alive() else None

    def _call(
        self, card: str, what: str, function: Callable[[], T], timeout: float | None = None
    ) -> T:
        """Run a function in a thread and return its result. Raises DriverFailed if it does not
        return within ``timeout`` seconds, by default ``[agent] driver_timeout``; the thread then
        goes on. Tools have the same limit."""
        timeout = self._timeout if timeout is None else timeout
        if hanging := self._hanging(card):
            raise errors.DriverFailed(name=self.name, why=f'{hanging.what} still hangs.')
        results: list[T] = []
        failures: list[BaseException] = []
        limit = sysfs.Limit(time.monotonic() + timeout)

        def run() -> None:
            try:
                with sysfs.limited(limit):
                    results.append(function())
            except BaseException as error:  # also SystemExit, which would end this thread only
                failures.append(error)

        thread = threading.Thread(target=run, name=f'{self.name}: {what}', daemon=True)
        try:
            thread.start()
        except RuntimeError as refusal:  # the process has as many threads as it may have
            raise errors.DriverFailed(name=self.name, why=f'{what}: {refusal}.') from refusal
        thread.join(timeout)
        if thread.is_alive() and limit.tool:
            # the tool is being killed; the driver then raises an error with its output
            thread.join(2 * sysfs.GRACE)
        tool = limit.tool
        if thread.is_alive():
            self._overdue[card] = Call(what, thread)
            raise errors.DriverFailed(
                name=self.name,
                why=f'{what} did not end within {timeout} seconds'
                + (f': {tool} was killed, but is still there.' if tool else '.'),
            )
        if not failures:
            return results[0]
        error = failures[0]
        if isinstance(error, errors.CyborgError):
            raise error
        LOG.error('%s failed in driver %s.', what.capitalize(), self.name, exc_info=error)
        raise errors.DriverFailed(name=self.name, why=f'{what}: {error!r}') from error


def _normalise_names(part: objects.Deployable) -> None:
    """Turn the names that a driver or an option gives into names that Placement allows."""
    part.traits = list(dict.fromkeys(map(traits.trait, part.traits)))
    if part.resource_class is not None:
        part.resource_class = traits.resource_class(part.resource_class)


def discover(guards: Sequence[Guard]) -> tuple[list[objects.Device], list[objects.Driver]]:
    """Call all drivers in parallel, and return their devices and states. A device that two drivers
    report belongs to the first of them."""
    found: dict[str, list[objects.Device]] = {}
    states: dict[str, objects.Driver] = {}

    def ask(guard: Guard) -> None:
        status, error = objects.DriverStatus.OK, None
        try:
            found[guard.name] = guard.discover()
        except errors.CyborgError as failure:
            LOG.warning('%s Its devices keep their last state.', failure.faultstring)
            status, error = objects.DriverStatus.FAILED, failure.faultstring
        states[guard.name] = objects.Driver(name=guard.name, status=status, error=error)

    threads = []
    for guard in guards:
        thread = threading.Thread(target=ask, args=(guard,), daemon=True)
        try:
            thread.start()
        except RuntimeError:
            ask(guard)  # the guard has a time limit of its own
        else:
            threads.append(thread)
    for thread in threads:
        thread.join()
    devices: dict[str, objects.Device] = {}
    for guard in guards:
        for device in found.get(guard.name, []):
            device.driver_name = guard.name
            if devices.setdefault(device.key, device) is not device:
                LOG.warning(
                    'Device %s is reported by the drivers %s and %s; it belongs to the first.',
                    device.key,
                    devices[device.key].driver_name,
                    guard.name,
                )
    return list(devices.values()), [states[guard.name] for guard in guards]
