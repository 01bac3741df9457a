# SPDX-License-Identifier: Apache-2.0
"""The agent's loop: see, report, publish, finish what was left undone."""

import hashlib
import json
import threading
import time
import uuid
from collections.abc import Collection, Sequence

import oslo_messaging as messaging
from oslo_config import cfg
from oslo_log import log

from cyborg import context, errors, objects
from cyborg.accelerator import mdev, pci
from cyborg.accelerator.sysfs import Sysfs
from cyborg.agent import drivers
from cyborg.agent.readiness import Readiness
from cyborg.agent.worker import Worker
from cyborg.clients.placement import Placement
from cyborg.conductor.rpcapi import ConductorAPI

LOG = log.getLogger(__name__)

#: the uuids of new providers derive from their names
NAMESPACE = uuid.UUID('6f1b3c1e-9d0a-5e0b-8a3a-3f6c2b6f7c11')
#: two sequences of reports differ by this at least, so that the generations of a handle,
#: which count from the sequence of a report, never reach the next one
STEP = 1_000_000
NOTHING_REPORTED = 'none'  #: in the place of a digest; equals none
#: the longest a burst of events can put off a look, in units of [agent] settle_time
MOST_SETTLING = 20


class Inventory:
    """One thread. Whatever happens only wakes it; each round looks at everything afresh."""

    def __init__(self, conf: cfg.ConfigOpts, hostname: str, guards: Sequence[drivers.Guard],
                 conductor: ConductorAPI, placement: Placement, worker: Worker,
                 sysfs: Sysfs) -> None:
        self._conf = conf.agent
        self._hostname = hostname
        self._guards = guards
        self._conductor = conductor
        self._placement = placement
        self._worker = worker
        self._sysfs = sysfs
        self._awake = threading.Event()
        self._stopping = threading.Event()
        self._must_report = False
        self._cause: str | None = None
        self._thread = threading.Thread(
            target=self._run, name=f'inventory-{hostname}', daemon=True)
        # what was last agreed on
        self._digest: str | None = None
        self._sequence = 0  # of the last report that was accepted; 0: not known
        self._planned: list[objects.Provider] = []
        self._unpublished: list[objects.Provider] | None = None
        self._compared_at = time.monotonic()
        self._adopted: dict[str, str] = {}
        self._conflicts: dict[str, str] = {}
        #: provider name -> why Placement refuses it
        self._refused: dict[str, str] = {}
        #: provider name -> its device's PCI addresses, kept while a driver fails
        self._addresses: dict[str, set[str]] = {}
        self._failures = 0
        #: provider name -> how many of its handles could not be had when it was last looked at
        self._reserved: dict[str, int] = {}
        #: all drivers were asked, and Placement has what they found
        self.is_ready = threading.Event()
        self.readiness = Readiness(guard.name for guard in guards)

    # -- the thread ------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Finish the round."""
        self._stopping.set()
        self._awake.set()
        if self._thread.is_alive():
            self._thread.join()

    def wake(self, must_report: bool = False, cause: str | None = None) -> None:
        """Look now; ``must_report``: and tell, even if nothing changed. ``cause``: the request
        because of which, which others should hear of."""
        if must_report:
            self._must_report = True
        self._cause = cause or self._cause
        self._awake.set()

    def beat(self) -> None:
        """Say that the host is as it was last reported. May be called from any thread."""
        self._conductor.heartbeat(
            context.internal(), self._hostname, self._digest or NOTHING_REPORTED)

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._awake.clear()
            obstacle = None
            try:
                self.sync()
                # a driver that never answered is asked again soon: nova-compute may wait for it
                self._failures = self._failures + 1 if self.readiness.is_waiting else 0
            except (errors.CyborgError, messaging.MessagingException) as error:
                self._failures += 1
                obstacle = getattr(error, 'faultstring', str(error))
            except Exception:
                self._failures += 1
                LOG.exception('This round failed; the next one tries again.')
            if obstacle:  # told up there, oslo.log would add the same sentence once more
                LOG.warning('This round did not end; the next one goes on: %s', obstacle)
            if self._awake.wait(self._pause()):
                self._settle()

    def _pause(self) -> float:
        """Until the next round: the usual interval, or less as long as something fails."""
        if not self._failures:
            return self._conf.resync_interval
        return min(2 ** min(self._failures - 1, 10), self._conf.resync_interval)

    def _settle(self) -> None:
        """Let a burst of events end, so that it makes one round."""
        for _ in range(MOST_SETTLING):
            if self._stopping.is_set():
                return
            self._awake.clear()
            if not self._awake.wait(self._conf.settle_time):
                return

    # -- a round ---------------------------------------------------------------------------

    def sync(self) -> None:
        """One round: see, report, publish, finish what was left undone."""
        with self.readiness.round():
            self._sync()

    def _sync(self) -> None:
        must_report, self._must_report = self._must_report, False
        cause, self._cause = self._cause, None
        asker = context.internal(cause)
        asker.update_store()  # Placement's client looks for it there
        try:
            report = self._look()
            if report.digest != self._digest or must_report:
                self._tell(asker, report)
            if must_report:  # somebody doubts what we published
                self._placement.forget()
        except Exception:
            self._must_report = must_report or self._must_report
            self._cause = self._cause or cause
            raise
        self._publish()

    def _look(self) -> objects.Report:
        """See what there is, and what is left of what was prepared."""
        done, prepared = self._worker.count, self._worker.prepared
        is_programming = self._worker.is_programming
        found, states = drivers.discover(self._guards)
        self.readiness.note(states)
        if is_programming:  # what was seen may be from before or after
            for deployable in (part for device in found for part in device.deployables):
                deployable.content = {}
        self._steady_reserved(found, self._worker.changing(done))
        mdevs = sorted(node.name for node in (self._sysfs / mdev.DEVICES).children())
        lost = self._worker.lost([
            state.name for state in states if state.status == objects.DriverStatus.OK])
        in_flux = self._worker.in_flux(done)
        return self._report(found, states, done, prepared=prepared, mdevs=mdevs,
                            in_flux=sorted(in_flux), lost={
                                handle: generation for handle, generation in lost.items()
                                if prepared.get(handle) == generation
                                and handle not in in_flux})

    def _steady_reserved(self, found: Sequence[objects.Device], changing: Collection[str]) -> None:
        """Keep the reserved count of deployables on which the worker is busy: their files were
        read one after another, and may not belong together."""
        for part in (part for device in found for part in device.deployables):
            name = f'{self._hostname}_{part.name}'
            if name in changing:
                part.reserved = self._reserved.get(name, part.reserved)
            self._reserved[name] = part.reserved

    def _tell(self, asker: context.RequestContext, report: objects.Report) -> None:
        asked_at = self._worker.count
        self._addresses |= {part.name: pci.addresses(self._sysfs, device)
                            for device in report.devices for part in device.deployables}
        plan = self._send(asker, report)
        LOG.info('Reported %s devices of %s.', len(report.devices), self._hostname)
        self._digest = report.digest
        self._planned = self._unpublished = plan.providers
        self._worker.perform(plan.tasks, asked_at)

    def _send(self, asker: context.RequestContext, report: objects.Report) -> objects.Plan:
        """Number a report, and hand it in. One that does not follow the last that was accepted
        is refused: our predecessor's, or one of ours whose answer was lost."""
        self._number(report)
        try:
            plan = self._conductor.report(asker, report)
        except errors.StaleReport as refusal:
            self._sequence = refusal.kwargs['known']
            self._number(report)
            plan = self._conductor.report(asker, report)
        self._sequence = report.sequence
        return plan

    def _number(self, report: objects.Report) -> None:
        """The clock only helps a host that was forgotten to begin where it was."""
        report.after = self._sequence
        report.sequence = max(self._sequence + STEP, time.time_ns() // 1000)

    def _publish(self) -> None:
        """Have Placement show what the conductor knows. What it answers may be news again."""
        if self._is_doubtful():
            self._placement.forget()
            self._unpublished = self._planned
        if self._unpublished is None:
            return
        published = self._placement.publish(
            self._hostname, self._unpublished, self._addresses)
        if published.is_settled:  # else a guest still holds what should go: once more next time
            self._unpublished = None
        news = (published.conflicts != self._conflicts or not self.is_ready.is_set()
                or published.refused != self._refused
                or published.adopted.items() - self._adopted.items())
        for name in published.conflicts.keys() - self._conflicts.keys():
            LOG.error('%s is not published: %s', name, published.conflicts[name])
        for name in self._conflicts.keys() - published.conflicts.keys():
            LOG.info('%s is not claimed by anybody else any more.', name)
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

    def _is_doubtful(self) -> bool:
        """May others have changed what we published? They tell nobody when they claim a device,
        nor when they let it go."""
        interval = self._conf.placement_interval
        if not self._conflicts and (
                not interval or time.monotonic() - self._compared_at < interval):
            return False
        self._compared_at = time.monotonic()
        return self._digest is not None

    def _report(self, found: list[objects.Device], states: list[objects.Driver], done: int,
                prepared: dict[str, int], **handles: object) -> objects.Report:
        for device in found:
            self._localise(device)
        picture = {
            'devices': found, 'drivers': states, **handles,
            'conflicts': self._conflicts, 'adopted': self._adopted,
            'is_ready': self.is_ready.is_set()}
        # What we did ourselves may have been undone by others: equal pictures before and after
        # are not the same news.
        digest = _digest(picture | {'done': done})
        return objects.Report(
            hostname=self._hostname, digest=digest, is_first=self._digest is None,
            prepared=prepared, **picture)

    def _localise(self, device: objects.Device) -> None:
        """Make names unique in the cloud, and providers known by them."""
        device.hostname = self._hostname
        for deployable in device.deployables:
            deployable.name = f'{self._hostname}_{deployable.name}'
            if deployable.parent_name is not None:
                deployable.parent_name = f'{self._hostname}_{deployable.parent_name}'
            if not deployable.given('driver_name'):
                deployable.driver_name = device.driver_name
            deployable.rp_uuid = str(uuid.uuid5(NAMESPACE, deployable.name))
            if deployable.name in self._refused and not device.fault:
                device.fault = ('Placement refuses what is said of it: '
                                f'{self._refused[deployable.name]}')


def _digest(picture: dict[str, object]) -> str:
    """Equal for equal pictures, whoever looked and when."""
    plain = objects.Serializer().serialize_entity(None, picture)
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()
