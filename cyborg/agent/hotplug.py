# SPDX-License-Identifier: Apache-2.0
"""Hearing of devices that come and go. An event only wakes the agent, which then looks itself."""

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol

import pyudev
from oslo_log import log as logging

LOG = logging.getLogger(__name__)

#: Where devices that some driver cares about come and go.
SUBSYSTEMS = ('pci', 'mdev', 'ptp', 'timecard', 'fpga_region', 'fpga', 'nvme', 'dsa')


@dataclasses.dataclass(frozen=True)
class Event:
    """Something happened to a device; what, is for the log."""

    action: str
    subsystem: str
    device: str


#: Stands for all that was not heard.
LOST = Event('change', 'any', 'any')

OnEvent = Callable[[Event], None]


class Monitor(Protocol):
    """What a simulated host offers too."""

    def start(self) -> None:
        """Call back from now on, in a thread of its own."""

    def stop(self) -> None:
        """No call comes after this."""


class UdevMonitor:
    """The kernel's own events: they need no udev daemon, and come a little earlier."""

    def __init__(self, on_event: OnEvent) -> None:
        self._on_event = on_event
        self._observer: _Observer | None = None

    def start(self) -> None:
        """Listen; where that is impossible say so, once: the timer finds everything later."""
        try:
            listener = _listen()
        except (ImportError, OSError) as error:
            LOG.warning('udev is not available (%s): changes of the hardware are found by the '
                        'regular rounds only, see [agent] resync_interval.', error)
            return
        self._observer = _Observer(listener, self._on_event)
        self._observer.start()

    def stop(self) -> None:
        if self._observer is not None:
            self._observer.stop()
            self._observer = None


class _Observer(pyudev.MonitorObserver):
    """Listens in a thread that outlives a flood of events: a deaf agent would go unnoticed."""

    def __init__(self, listener: pyudev.Monitor, on_event: OnEvent) -> None:
        super().__init__(listener, callback=self._pass_on, name='udev')
        self._on_event = on_event

    def run(self) -> None:
        while True:
            try:
                super().run()
                return
            except OSError as error:
                # more events than the socket holds; what they were, a look at the host tells
                LOG.warning('Events of devices were lost (%s): looking at all of them.', error)
                self.monitor = _listen()
                self._tell(LOST)

    def _pass_on(self, device: Any) -> None:
        self._tell(Event(device.action, device.subsystem, device.sys_name))

    def _tell(self, event: Event) -> None:
        try:
            self._on_event(event)
        except Exception:
            LOG.exception('%s could not be passed on.', event)


def _listen() -> pyudev.Monitor:
    monitor = pyudev.Monitor.from_netlink(pyudev.Context(), source='kernel')
    for subsystem in SUBSYSTEMS:
        monitor.filter_by(subsystem)
    monitor.start()
    return monitor
