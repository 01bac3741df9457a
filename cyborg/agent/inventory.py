# SPDX-License-Identifier: Apache-2.0
"""The loop of the agent: discover devices, report them, publish them, resume open tasks."""

import hashlib
import json
import threading
import time
import uuid
from collections.abc import Collection, Sequence, Set

import oslo_messaging as messaging
from oslo_config import cfg
from oslo_log import log

from cyborg import backoff, context, errors, metrics, objects, release
from cyborg.accelerator import mdev, pci
from cyborg.accelerator.sysfs import Sysfs
from cyborg.agent import driver_guard, hotplug
from cyborg.agent.readiness import Readiness
from cyborg.agent.worker import Worker
from cyborg.clients.placement import Placement
from cyborg.conductor.rpcapi import ConductorAPI
from cyborg.objects import manifests

LOG = log.getLogger(__name__)

#: UUIDs of new providers derive from their names
NAMESPACE = uuid.UUID('6f1b3c1e-9d0a-5e0b-8a3a-3f6c2b6f7c11')
#: The least difference between the sequences of two reports. The generations of a handle count
#: up from the sequence of a report, and must not reach the next sequence.
STEP = 1_000_000
NOTHING_REPORTED = 'none'  #: used instead of a digest; differs from every digest
#: the longest time that a burst of events delays a round, in units of [agent] settle_time
MAX_QUIET_WAITS = 20
LONGEST_BOOT_ID = 64  #: characters that the conductor stores
LONGEST_PAUSE = 1024  #: seconds between two rounds while rounds fail


class Inventory:
    """A thread that runs one round after another. Each round discovers all devices anew; an event
    only starts a round earlier."""

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        hostname: str,
        guards: Sequence[driver_guard.Guard],
        conductor: ConductorAPI,
        placement: Placement,
        worker: Worker,
        sysfs: Sysfs,
    ) -> None:
        self._conf = conf.agent
        self._hostname = hostname
        self._guards = guards
        self._conductor = conductor
        self._placement = placement
        self._worker = worker
        self._sysfs = sysfs
        self._awake = threading.Event()
        self._stopping = threading.Event()
        #: for what other threads set: the two attributes that follow, and _removed
        self._wish_lock = threading.Lock()
        self._must_report = False
        self._cause: str | None = None
        self._thread = threading.Thread(target=self._run, name=f'inventory-{hostname}', daemon=True)
        # what the conductor and Placement accepted last
        self._digest: str | None = None
        self._is_first = True  # no plan was received yet
        self._sequence = 0  # of the last accepted report; 0: unknown
        self._planned: list[objects.Provider] = []
        self._unpublished: list[objects.Provider] | None = None
        #: uuids of providers that were taken over from another service
        self._taken_over: list[str] = list(conf.agent.adopted_providers)
        self._compared_at = time.monotonic()
        self._adopted: dict[str, str] = {}
        self._conflicts: dict[str, str] = {}
        #: provider name -> why Placement refuses it
        self._refused: dict[str, str] = {}
        #: provider name -> PCI addresses of its device, kept while its driver fails
        self._addresses: dict[str, set[str]] = {}
        self._failures = 0
        #: addresses of PCI functions that were removed, and of which no report has told
        self._removed: set[str] = set()
        #: names of drivers that have failed since events were lost: any of their cards may have
        #: been removed
        self._unchecked: set[str] = set()
        #: key of a card that was found last -> the name of its driver
        self._cards: dict[str, str] = {}
        #: key of such a card -> the addresses of the functions that manage it
        self._managed_by: dict[str, set[str]] = {}
        #: provider name -> its reserved count in the last round
        self._reserved: dict[str, int] = {}
        #: set when a round has published what the drivers found
        self.is_ready = threading.Event()
        self.readiness = Readiness(guard.name for guard in guards)
        #: whether a driver of this host loads images
        self.can_program = any(guard.can_program for guard in guards)

    # -- the thread ------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Return when the current round has ended."""
        self._stopping.set()
        self._awake.set()
        if self._thread.is_alive():
            self._thread.join()

    def wake(self, must_report: bool = False, cause: str | None = None) -> None:
        """Start a round now.

        :param must_report: report even if nothing changed
        :param cause: the id of the request that caused this, which is passed on
        """
        with self._wish_lock:
            self._must_report = must_report or self._must_report
            self._cause = cause or self._cause
        self._awake.set()

    def note_removal(self, address: str) -> None:
        """Remember that a PCI function was removed, or that any may have been (hotplug.ANY). If it
        is back when the next round looks, its card may have been without power nevertheless. Any
        thread may call this.

        The worker knows of it at once: a task that ends before the next round must not rely on
        what was in the card."""
        with self._wish_lock:
            self._removed.add(address)
        self._note_removed({address})

    def beat(self) -> None:
        """Send a heartbeat with the digest of the last report. Any thread may call this."""
        self._conductor.heartbeat(
            context.internal(), self._hostname, self._digest or NOTHING_REPORTED
        )

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._awake.clear()
            obstacle = None
            try:
                self.sync()
                # retry soon if a driver has never returned: nova-compute may be waiting for it
                self._failures = self._failures + 1 if self.readiness.is_waiting else 0
            except (errors.CyborgError, messaging.MessagingException) as error:
                self._failures += 1
                obstacle = getattr(error, 'faultstring', str(error))
            except Exception:
                self._failures += 1
                LOG.exception('A round of the inventory failed; the next round tries again.')
            if obstacle:  # not inside "except": oslo.log would append the same error to the line
                LOG.warning('A round was not completed; the next round continues: %s', obstacle)
            if self._awake.wait(self._pause()):
                self._wait_for_quiet()

    def _pause(self) -> float:
        """Return the seconds until the next round: fewer than resync_interval after a failure."""
        usual: float = self._conf.resync_interval
        return backoff.pause(self._failures, min(usual, LONGEST_PAUSE)) if self._failures else usual

    def _wait_for_quiet(self) -> None:
        """Return when a burst of events has ended, so that it causes one round only."""
        for _ in range(MAX_QUIET_WAITS):
            if self._stopping.is_set():
                return
            self._awake.clear()
            if not self._awake.wait(self._conf.settle_time):
                return

    # -- a round ---------------------------------------------------------------------------

    def sync(self) -> None:
        """Run one round: discover, report, publish, resume open tasks."""
        with metrics.Timer(metrics.AGENT_ROUNDS), self.readiness.round():
            self._sync()

    def _sync(self) -> None:
        with self._wish_lock:
            must_report, self._must_report = self._must_report, False
            cause, self._cause = self._cause, None
            # what is noted from now on is for the next round, also if it is the same address
            removed, self._removed = self._removed, set()
        asker = context.internal(cause)
        asker.update_store()  # Placement's client reads it from there
        try:
            report = self._discover(removed)
            # before the report: its answer and later results must not rely on lost images
            self._worker.note_removed({*report.returned, *self._gone(report)})
            if report.digest != self._digest or must_report or report.returned:
                self._send_report(asker, report)
            removed = self._untold(removed, report)
            with self._wish_lock:
                since = set(self._removed)
            self._note_removed(since)  # also the tasks of the plan must not rely on lost images
            if must_report:  # Placement may differ from what we published
                self._placement.forget()
        except Exception:
            with self._wish_lock:
                self._must_report = must_report or self._must_report
                self._cause = self._cause or cause
            raise
        finally:
            with self._wish_lock:
                self._removed |= removed
        self._publish()

    def _discover(self, removed: Set[str]) -> objects.Report:
        """Discover the devices, and check the handles that were prepared.

        :param removed: addresses of PCI functions that were removed before
        """
        done, prepared = self._worker.count, self._worker.prepared
        programmed = self._worker.cards_being_programmed
        found, states = driver_guard.discover(self._guards)
        # a task may have begun since, such as the next attempt of one that failed
        programmed |= self._worker.cards_programmed(done)
        self.readiness.note(states)
        for state in states:
            if state.status != objects.DriverStatus.OK:
                metrics.DRIVER_FAILURES.labels(state.name).inc()
        for device in found:
            if device.key in programmed:
                # the content may have been read before or after the image was loaded
                for deployable in device.deployables:
                    deployable.content = {}
        self._steady_reserved(found, self._worker.changing(done))
        mdevs = sorted(node.name for node in (self._sysfs / mdev.DEVICES).children())
        lost = self._worker.lost(
            [state.name for state in states if state.status == objects.DriverStatus.OK]
        )
        in_flux = self._worker.in_flux(done)
        return self._report(
            found,
            states,
            done,
            prepared=prepared,
            returned=[
                device.key
                for device in found
                if hotplug.ANY in removed
                or device.driver_name in self._unchecked
                or _control_addresses(device) & removed
            ],
            mdevs=mdevs,
            in_flux=sorted(in_flux),
            lost={
                handle: generation
                for handle, generation in lost.items()
                if prepared.get(handle) == generation and handle not in in_flux
            },
        )

    def _gone(self, report: objects.Report) -> set[str]:
        """Returns the keys of the cards that were found before and are not there any more."""
        is_ok = {state.name: state.status == objects.DriverStatus.OK for state in report.drivers}
        present = {device.key: device.driver_name for device in report.devices}
        absent = {key: name for key, name in self._cards.items() if key not in present}
        # the cards of a driver that fails keep their last state
        self._cards = present | {key: name for key, name in absent.items() if not is_ok[name]}
        managed_by = {device.key: _control_addresses(device) for device in report.devices}
        self._managed_by = {
            key: managers
            for key, managers in (self._managed_by | managed_by).items()
            if key in self._cards
        }
        return absent.keys() - self._cards.keys()

    def _note_removed(self, addresses: Set[str]) -> None:
        """Tell the worker of the cards at these addresses."""
        if cards := {
            key
            for key, managers in self._managed_by.items()
            if hotplug.ANY in addresses or managers & addresses
        }:
            self._worker.note_removed(cards)

    def _untold(self, removed: set[str], report: objects.Report) -> set[str]:
        """Returns the removals of which the report has not told. They are kept while a driver
        fails: it may be the one that finds the card later. If any card may have been removed, that
        is kept for the drivers that fail, and not for all."""
        failed = {state.name for state in report.drivers if state.status != objects.DriverStatus.OK}
        self._unchecked = failed if hotplug.ANY in removed else self._unchecked & failed
        told = {address for device in report.devices for address in _control_addresses(device)}
        return removed - told - {hotplug.ANY} if failed else set()

    def _steady_reserved(self, found: Sequence[objects.Device], changing: Collection[str]) -> None:
        """Keep the last reserved count of deployables that the worker is changing.

        Their sysfs files were read one after another, so the values may not be consistent.
        """
        for part in (part for device in found for part in device.deployables):
            name = f'{self._hostname}_{part.name}'
            if name in changing:
                part.reserved = self._reserved.get(name, part.reserved)
            self._reserved[name] = part.reserved

    def _send_report(self, asker: context.RequestContext, report: objects.Report) -> None:
        asked_at = self._worker.count
        self._addresses |= {
            part.name: pci.addresses(self._sysfs, device)
            for device in report.devices
            for part in device.deployables
        }
        try:
            plan = self._call_conductor(asker, report)
        except Exception:
            # It may be stored nevertheless. The next round reports again, even if it finds what
            # was reported before this one.
            self._digest = None
            raise
        LOG.info('Reported %s devices of %s.', len(report.devices), self._hostname)
        self._digest = report.digest
        self._planned = self._unpublished = plan.providers
        self._taken_over = [*self._conf.adopted_providers, *plan.given('imported_providers', [])]
        self._worker.perform(plan.tasks, asked_at)

    def _call_conductor(
        self, asker: context.RequestContext, report: objects.Report
    ) -> objects.Plan:
        """Number a report and send it to the conductor.

        The conductor refuses a report that does not follow the last accepted one, which may be of
        an earlier process, or one whose answer was lost. The report is then numbered again.
        """
        self._number(report)
        try:
            plan = self._conductor.report(asker, report)
        except errors.StaleReport as refusal:
            self._sequence = refusal.kwargs['known']
            self._number(report)
            plan = self._conductor.report(asker, report)
        self._sequence, self._is_first = report.sequence, False
        return plan

    def _number(self, report: objects.Report) -> None:
        """Set the sequence of a report. It follows the clock, so that it also grows after the rows
        of the host were deleted."""
        report.after = self._sequence
        report.sequence = max(self._sequence + STEP, time.time_ns() // 1000)

    def _publish(self) -> None:
        """Publish the plan of the conductor. If the result differs from the last one, another
        round reports it."""
        if self._must_compare():
            self._placement.forget()
            self._unpublished = self._planned
        if self._unpublished is None:
            return
        published = self._placement.publish(
            self._hostname, self._unpublished, self._addresses, self._taken_over
        )
        if published.is_complete:  # else the next round tries again
            self._unpublished = None
        news = (
            published.conflicts != self._conflicts
            or not self.is_ready.is_set()
            or published.refused != self._refused
            or published.adopted.items() - self._adopted.items()
        )
        for name in published.conflicts.keys() - self._conflicts.keys():
            LOG.error('%s is not published: %s', name, published.conflicts[name])
        for name in self._conflicts.keys() - published.conflicts.keys():
            LOG.info('No other service claims %s any more.', name)
        for name in published.refused.keys() - self._refused.keys():
            LOG.error('Placement refuses %s: %s', name, published.refused[name])
        for name in self._refused.keys() - published.refused.keys():
            LOG.info('Placement does not refuse %s any more.', name)
        self._conflicts = dict(published.conflicts)
        self._refused = dict(published.refused)
        self._adopted.update(published.adopted)
        self.is_ready.set()
        if news:
            self.wake()

    def _must_compare(self) -> bool:
        """Return whether to compare with Placement now: other services may have claimed or
        released devices there without a message to us."""
        interval = self._conf.placement_interval
        if not self._conflicts and (
            not interval or time.monotonic() - self._compared_at < interval
        ):
            return False
        self._compared_at = time.monotonic()
        return self._digest is not None

    def _report(
        self,
        found: list[objects.Device],
        states: list[objects.Driver],
        done: int,
        prepared: dict[str, int],
        returned: list[str],
        **handles: object,
    ) -> objects.Report:
        for device in found:
            self._localise(device)
        picture = {
            'devices': found,
            'drivers': states,
            **handles,
            'conflicts': self._conflicts,
            'adopted': self._adopted,
            'is_ready': self.is_ready.is_set(),
        }
        # ``done`` is part of the digest, so that a report follows every task: something else may
        # have undone the task, and the devices would look unchanged.
        digest = _digest(picture | {'done': done})
        return objects.Report(
            hostname=self._hostname,
            digest=digest,
            is_first=self._is_first,
            prepared=prepared,
            returned=returned,
            rpc_version=manifests.NEWEST,
            release=release.number(),
            boot_id=(self._sysfs.proc / 'sys/kernel/random').read('boot_id', LONGEST_BOOT_ID),
            **picture,
        )

    def _localise(self, device: objects.Device) -> None:
        """Add the host to names, and derive the UUIDs of providers from the names."""
        device.hostname = self._hostname
        for deployable in device.deployables:
            deployable.name = f'{self._hostname}_{deployable.name}'
            if deployable.parent_name is not None:
                deployable.parent_name = f'{self._hostname}_{deployable.parent_name}'
            if not deployable.given('driver_name'):
                deployable.driver_name = device.driver_name
            deployable.rp_uuid = str(uuid.uuid5(NAMESPACE, deployable.name))
            if deployable.name in self._refused and not device.fault:
                device.fault = f'Placement refuses its provider: {self._refused[deployable.name]}'


def _control_addresses(device: objects.Device) -> set[str]:
    """Return the addresses of the PCI functions that manage a device."""
    found = (pci.address_of(path.info) for path in device.control_paths)
    return {address for address in found if address}


def _digest(picture: dict[str, object]) -> str:
    """Return a digest that is equal for equal content."""
    plain = objects.Serializer().serialize_entity(None, picture)
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()
