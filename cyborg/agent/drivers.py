# SPDX-License-Identifier: Apache-2.0
"""Drivers at arm's length: one that raises or hangs hurts nobody but its own devices."""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from oslo_log import log

from cyborg import errors, objects
from cyborg.accelerator import pci, traits
from cyborg.accelerator.driver import Driver

LOG = log.getLogger(__name__)

#: threads that a driver may leave behind before it is no longer called
MOST_HANGING = 16


class Guard:
    """A driver whose calls end in time: with a result, or with DriverFailed."""

    def __init__(self, driver: Driver, timeout: float) -> None:
        self.name = driver.name
        self._driver = driver
        self._timeout = timeout
        self._looking = threading.Lock()
        self._hanging: list[threading.Thread] = []
        #: deployables into which an image is being loaded -> whether that was given up
        self._loading: dict[str, bool] = {}
        self._lock = threading.Lock()

    def discover(self) -> list[objects.Device]:
        """What the driver sees. While an earlier look hangs no other is begun."""
        if not self._looking.acquire(blocking=False):
            raise errors.DriverFailed(name=self.name, why='an earlier look still hangs.')

        def look() -> list[objects.Device]:
            try:
                return [self._judged(self._grouped(device))
                        for device in self._driver.discover()]
            finally:
                self._looking.release()
        return self._call('discover', look)

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
        """A card that a driver may still be programming is not to be given out, nor one that
        Placement has no words for."""
        for part in device.deployables:
            if self._loading.get(part.name) and not device.fault:
                device.fault = f'Programming {part.name} hangs.'
            try:
                _spell(part)
            except traits.NotAName as error:
                part.traits, part.resource_class = [], None
                device.fault = device.fault or str(error)
        return device

    def attach(self, work: objects.Work) -> None:
        """Prepare a handle."""
        self._call('attach', lambda: self._driver.attach(work.handle, work))

    def detach(self, work: objects.Work) -> None:
        """Have a handle back as it was."""
        def undo() -> None:
            self._driver.detach(work.handle)
            self._driver.clean(work.handle)
        self._call('detach', undo)

    def program(self, deployable: str, image: Path) -> None:
        """Load an image. While an earlier one hangs no other is begun."""
        if deployable in self._loading:
            raise errors.DriverFailed(
                name=self.name, why=f'an earlier programming of {deployable} still hangs.')

        def load() -> None:
            self._loading[deployable] = False
            try:
                self._driver.program(deployable, image)
            finally:
                with self._lock:
                    del self._loading[deployable]
        try:
            self._call('program', load)
        except errors.DriverFailed:
            with self._lock:  # it may end at this very moment
                if deployable in self._loading:
                    self._loading[deployable] = True
            raise

    def _call(self, verb: str, function: Callable[[], Any]) -> Any:
        """Run in a thread that is left behind if it does not come back."""
        self._hanging = [thread for thread in self._hanging if thread.is_alive()]
        if len(self._hanging) >= MOST_HANGING:
            raise errors.DriverFailed(
                name=self.name, why=f'{len(self._hanging)} earlier calls of it still hang.')
        outcome: dict[str, Any] = {}

        def run() -> None:
            try:
                outcome['result'] = function()
            except Exception as error:
                outcome['error'] = error
        thread = threading.Thread(target=run, name=f'{self.name}-{verb}', daemon=True)
        thread.start()
        thread.join(self._timeout)
        if thread.is_alive():
            self._hanging.append(thread)
            raise errors.DriverFailed(
                name=self.name, why=f'{verb} did not end within {self._timeout} seconds.')
        error = outcome.get('error')
        if error is None:
            return outcome['result']
        if isinstance(error, errors.CyborgError):
            raise error
        LOG.error('Driver %s failed to %s.', self.name, verb, exc_info=error)
        raise errors.DriverFailed(name=self.name, why=f'{verb}: {error!r}') from error


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
