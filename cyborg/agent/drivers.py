# SPDX-License-Identifier: Apache-2.0
"""Drivers at arm's length: one that raises or hangs hurts nobody but its own devices."""

import dataclasses
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from oslo_log import log

from cyborg import errors, objects
from cyborg.accelerator import cleaning, pci, sysfs, traits
from cyborg.accelerator.driver import Driver

LOG = log.getLogger(__name__)

#: How handles are cleaned after each request: by the name of a driver and the steps that it has
#: for a handle.
LevelOf = Callable[[str, Sequence[cleaning.Step]], objects.Cleaning]

ALL = ''  #: in the place of a card: all that a driver has


def uncleaned(driver_name: str, steps: Sequence[cleaning.Step]) -> objects.Cleaning:
    """The level of hosts that clean nothing."""
    return objects.Cleaning.NONE


@dataclasses.dataclass(frozen=True)
class Call:
    """A call into a driver, in a thread that may be left behind."""

    what: str
    thread: threading.Thread


class Guard:
    """A driver whose calls end in time: with a result, or with DriverFailed.

    A call that did not end in time goes on, and may still have its effect: until it ends no
    other is begun on the same card. So what it does late is undone by a later call, and no card
    ever has more than one thread that hangs. A tool that the call runs is killed in time.
    """

    def __init__(self, driver: Driver, timeout: float, program_timeout: float | None = None,
                 level_of: LevelOf = uncleaned) -> None:
        self.name = driver.name
        self._driver = driver
        self._timeout = timeout
        self._program_timeout = timeout if program_timeout is None else program_timeout
        self._level_of = level_of
        #: by card, or ALL for a look at all of them, the last call that did not end in time
        self._overdue: dict[str, Call] = {}

    def discover(self) -> list[objects.Device]:
        """What the driver sees."""
        return self._call(ALL, 'looking', lambda: [
            self._judged(self._grouped(device)) for device in self._driver.discover()])

    def _grouped(self, device: objects.Device) -> objects.Device:
        """Name the functions that share an IOMMU group with what goes to guests, whatever driver
        they belong to."""
        for handle in [each for part in device.deployables for each in part.attach_handles]:
            address = pci.address_of(handle.info)
            if handle.type == objects.HandleType.PCI and address:
                function = pci.Function.at(self._driver.sysfs, address)
                handle.companions = [each.address for each in function.companions]
        return device

    def _judged(self, device: objects.Device) -> objects.Device:
        """A card on which a call hangs is not to be given out, nor one that Placement has no
        words for."""
        if not device.fault and (hanging := self._hanging(device.key)):
            device.fault = f'{hanging.what.capitalize()} hangs.'
        for part in device.deployables:
            try:
                _spell(part)
            except traits.NotAName as error:
                part.traits, part.resource_class = [], None
                device.fault = device.fault or str(error)
            for handle in part.attach_handles:
                handle.cleaning = self._level_of(self.name, self.steps_for(handle))
        return device

    def attach(self, task: objects.Task) -> None:
        """Prepare a handle."""
        self._call(task.device_key, f'preparing {task.handle.key}',
                   lambda: self._driver.attach(task.handle, task))

    def detach(self, task: objects.Task) -> None:
        """Undo what was prepared of a handle."""
        self._call(task.device_key, f'releasing {task.handle.key}',
                   lambda: self._driver.detach(task.handle))

    def steps_for(self, handle: objects.AttachHandle) -> Sequence[cleaning.Step]:
        """How the driver cleans a handle, in the order in which that is done."""
        return self._driver.steps_for(handle)

    def clean(self, task: objects.Task, step: str, deployable: str, timeout: float) -> None:
        """Do one step of cleaning a handle of a deployable, by its name on the host."""
        self._call(task.device_key, f'cleaning {task.handle.key} ({step})',
                   lambda: self._driver.clean(task.handle, step, deployable), timeout)

    def versions(self, task: objects.Task) -> dict[str, str]:
        """What ran on a handle, for the record."""
        found: dict[str, str] = self._call(
            task.device_key, f'looking at {task.handle.key}',
            lambda: self._driver.versions(task.handle))
        return found

    def lost(self, tasks: Sequence[objects.Task]) -> list[objects.Task]:
        """Those whose handles are no longer as ``attach`` left them."""
        return self._call(ALL, 'looking', lambda: [
            task for task in tasks if not self._driver.is_attached(task.handle)])

    def program(self, card: str, deployable: str, image: Path,
                properties: Mapping[str, str] | None = None) -> None:
        """Load an image, of which Glance knows these properties."""
        self._call(card, f'programming {deployable}',
                   lambda: self._driver.program(deployable, image, properties or {}),
                   self._program_timeout)

    def _hanging(self, card: str) -> Call | None:
        call = self._overdue.get(card)
        return call if call and call.thread.is_alive() else None

    def _call(self, card: str, what: str, function: Callable[[], Any],
              timeout: float | None = None) -> Any:
        """Run in a thread that is left behind if it does not come back within ``timeout`` seconds,
        by default those of ``[agent] driver_timeout``. Tools have the same limit."""
        timeout = self._timeout if timeout is None else timeout
        if hanging := self._hanging(card):
            raise errors.DriverFailed(name=self.name, why=f'{hanging.what} still hangs.')
        outcome: dict[str, Any] = {}
        limit = sysfs.Limit(time.monotonic() + timeout)

        def run() -> None:
            try:
                with sysfs.limited(limit):
                    outcome['result'] = function()
            except Exception as error:
                outcome['error'] = error
        thread = threading.Thread(target=run, name=f'{self.name}: {what}', daemon=True)
        thread.start()
        thread.join(timeout)
        if thread.is_alive() and limit.runs_tool:
            thread.join(2 * sysfs.GRACE)  # the tool is being killed; the driver says what it said
        if thread.is_alive():
            self._overdue[card] = Call(what, thread)
            raise errors.DriverFailed(
                name=self.name, why=f'{what} did not end within {timeout} seconds.')
        error = outcome.get('error')
        if error is None:
            return outcome['result']
        if isinstance(error, errors.CyborgError):
            raise error
        LOG.error('%s failed in driver %s.', what.capitalize(), self.name, exc_info=error)
        raise errors.DriverFailed(name=self.name, why=f'{what}: {error!r}') from error


def _spell(part: objects.Deployable) -> None:
    """Make names of it, as its driver or an option has them, what Placement takes."""
    part.traits = list(dict.fromkeys(map(traits.trait, part.traits)))
    if part.resource_class is not None:
        part.resource_class = traits.resource_class(part.resource_class)


def discover(guards: Sequence[Guard]) -> tuple[list[objects.Device], list[objects.Driver]]:
    """Ask all drivers, side by side; a device that two of them know belongs to the first."""
    found: dict[str, list[objects.Device]] = {}
    states: dict[str, objects.Driver] = {}

    def ask(guard: Guard) -> None:
        status, error = objects.DriverStatus.OK, None
        try:
            found[guard.name] = guard.discover()
        except errors.CyborgError as failure:
            LOG.warning('%s Its devices stay as they were.', failure.faultstring)
            status, error = objects.DriverStatus.FAILED, failure.faultstring
        states[guard.name] = objects.Driver(name=guard.name, status=status, error=error)

    threads = [threading.Thread(target=ask, args=(guard,), daemon=True) for guard in guards]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    devices: dict[str, objects.Device] = {}
    for guard in guards:
        for device in found.get(guard.name, []):
            device.driver_name = guard.name
            if devices.setdefault(device.key, device) is not device:
                LOG.warning('Device %s is claimed by the drivers %s and %s; the first has it.',
                            device.key, devices[device.key].driver_name, guard.name)
    return list(devices.values()), [states[guard.name] for guard in guards]
