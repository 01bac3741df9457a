# SPDX-License-Identifier: Apache-2.0
"""Listens for devices that are added or removed. An event wakes the agent, which then discovers all
devices of the host. It also tells of a card that is back by then, and has lost its power."""

import dataclasses
import threading
from collections.abc import Callable, Collection
from typing import Any, Protocol

import pyudev
from oslo_log import log as logging

from cyborg import backoff

LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class UdevEvent:
    """A device was added, removed or changed."""

    action: str
    subsystem: str
    device: str

    @property
    def removed(self) -> str | None:
        """The address of the PCI function that was removed; ANY if events were lost."""
        if self == LOST:
            return ANY
        return self.device if (self.action, self.subsystem) == ('remove', 'pci') else None


#: Stands for all devices.
ANY = 'any'
#: Stands for events that were lost.
LOST = UdevEvent('change', ANY, ANY)

#: the longest time between two attempts to listen again, in seconds
LONGEST_PAUSE = 60.0

OnEvent = Callable[[UdevEvent], None]


class Monitor(Protocol):
    """Calls a function for each event. A simulated host has its own monitor."""

    def start(self) -> None:
        """Call the function from now on, in a thread of its own."""

    def stop(self) -> None:
        """Stop calling the function."""


class UdevMonitor:
    """Listens to the kernel's own events: they need no udev daemon, and arrive a little earlier
    than those of the daemon."""

    def __init__(self, on_event: OnEvent, subsystems: Collection[str]) -> None:
        self._on_event = on_event
        self._subsystems = sorted(subsystems)
        self._observer: _Observer | None = None

    def start(self) -> None:
        """Listen to the subsystems. If that is impossible, log a warning: the regular rounds of
        the agent find everything later."""
        if not self._subsystems:
            return  # without a filter the kernel would send the events of all subsystems
        try:
            listener = _listen(self._subsystems)
        except (ImportError, OSError) as error:
            LOG.warning(
                'udev is not available (%s): changes of the hardware are found by the '
                'regular rounds only, see [agent] resync_interval.',
                error,
            )
            return
        self._observer = _Observer(listener, self._on_event, self._subsystems)
        self._observer.start()

    def stop(self) -> None:
        if self._observer is not None:
            self._observer.stop()
            self._observer = None


class _Observer(pyudev.MonitorObserver):
    """Listens in a thread that continues after the socket has overflowed. pyudev's own thread
    would end, and only the regular rounds would find changes."""

    def __init__(
        self, listener: pyudev.Monitor, on_event: OnEvent, subsystems: Collection[str]
    ) -> None:
        super().__init__(listener, callback=self._pass_on, name='udev')
        self._on_event = on_event
        self._subsystems = subsystems
        self._stopping = threading.Event()

    def run(self) -> None:
        while not self._stopping.is_set():
            try:
                super().run()
                return
            except OSError as error:
                # there were more events than the socket holds
                LOG.warning('Events of devices were lost (%s): discovering all devices.', error)
                self._notify(LOST)
            self._listen_again()

    def send_stop(self) -> None:
        self._stopping.set()
        super().send_stop()

    def _listen_again(self) -> None:
        """Open another socket. Events until then are lost, too, so that is told afterwards."""
        failures = 0
        while not self._stopping.wait(backoff.pause(failures, LONGEST_PAUSE)):
            try:
                self.monitor = _listen(self._subsystems)
            except (ImportError, OSError) as error:
                LOG.warning('Events of devices are not heard at present: %s', error)
                failures += 1
            else:
                self._notify(LOST)
                return

    def _pass_on(self, device: Any) -> None:
        self._notify(UdevEvent(device.action, device.subsystem, device.sys_name))

    def _notify(self, event: UdevEvent) -> None:
        try:
            self._on_event(event)
        except Exception:
            LOG.exception('The agent could not be woken for %s.', event)


def _listen(subsystems: Collection[str]) -> pyudev.Monitor:
    monitor = pyudev.Monitor.from_netlink(pyudev.Context(), source='kernel')
    for subsystem in subsystems:
        monitor.filter_by(subsystem)
    monitor.start()
    return monitor
