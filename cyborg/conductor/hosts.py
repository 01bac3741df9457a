# SPDX-License-Identifier: Apache-2.0
"""What agents say: reports, heartbeats, how work ended."""

from oslo_log import log

from cyborg import errors, objects
from cyborg.conductor.endpoint import Endpoint, exposed
from cyborg.context import RequestContext
from cyborg.db.sqlalchemy import agents, attach_handles, binding, inventory, programming
from cyborg.db.sqlalchemy.ledger import Ledger
from cyborg.db.sqlalchemy.models import AttachHandle as Handle

LOG = log.getLogger(__name__)


class Hosts(Endpoint):

    @exposed
    def report(self, context: RequestContext, report: objects.Report) -> objects.Plan:
        """Take in the picture of a host; answer what to publish and what is still to do."""
        try:
            return self._take_in(context, report)
        except (errors.CyborgError, *inventory.TRANSIENT):
            raise
        except Exception:
            LOG.exception('The report of %s cannot be stored as a whole; each of its devices is '
                          'stored apart.', report.hostname)
            return self._take_in(context, report, is_apart=True)

    def _take_in(self, context: RequestContext, report: objects.Report, *,
                 is_apart: bool = False) -> objects.Plan:
        with self.change(context, f'agent {report.hostname}') as ledger:
            agents.accept(ledger.session, report)
            if report.is_first:
                binding.provision(ledger, report.hostname)
            gone = attach_handles.gone(ledger.session, report.hostname)
            devices = inventory.reconcile(ledger, report, is_apart=is_apart)
            if gone:
                binding.provision(ledger, report.hostname, Handle.id.in_(gone),
                                  Handle.is_missing.is_(False))
            if lost := inventory.gone(devices) - set(gone):
                binding.lose(ledger, lost)
            binding.compare(ledger, report)
            return objects.Plan(
                providers=inventory.providers(devices),
                pending=attach_handles.pending(ledger.session, report.hostname),
                programmings=programming.pending(ledger.session, report.hostname))

    @exposed
    def finish_work(self, context: RequestContext, hostname: str,
                    outcomes: list[objects.Outcome]) -> list[objects.Work]:
        """Note how work ended; answer what is to be done again, or to be undone since nobody
        wants it any more."""
        with self.change(context, f'agent {hostname}') as ledger:
            return [*self._attached(ledger, outcomes), *self._cleaned(ledger, outcomes)]

    @exposed
    def finish_programming(self, context: RequestContext, hostname: str,
                           outcome: objects.Programmed) -> None:
        """Note how loading an image ended; the host is then asked what it has now."""
        with self.change(context, f'agent {hostname}') as ledger:
            programming.finish(ledger, hostname, outcome)

    def _attached(self, ledger: Ledger, outcomes: list[objects.Outcome]) -> list[objects.Work]:
        attached = [each for each in outcomes if each.kind == objects.WorkKind.ATTACH]
        done = {each.arq_uuid: each for each in attached if each.error is None}
        again: list[objects.Work] = []
        if done:
            wanted = binding.attached(ledger, done)
            attach_handles.mark_prepared(
                ledger.session, [done[arq].handle_uuid for arq in wanted])
            unwanted = [each.handle_uuid for arq, each in done.items() if arq not in wanted]
            if unwanted:
                again += attach_handles.unwanted(ledger.session, unwanted)
        for each in attached:
            if each.error is not None:
                work = binding.failed(ledger, each, self.conf.conductor.attach_attempts)
                again += [work] if work else []
        return again

    def _cleaned(self, ledger: Ledger, outcomes: list[objects.Outcome]) -> list[objects.Work]:
        cleaned = [each for each in outcomes if each.kind == objects.WorkKind.DETACH]
        done = [each for each in cleaned if each.error is None]
        if done:
            ledger.stale_hosts.update(attach_handles.mark_clean(ledger.session, done))
        again = []
        for each in cleaned:
            if each.error is None:
                continue
            handle = attach_handles.unclean(ledger.session, each)
            if handle is not None:
                again.append(attach_handles.work(handle, objects.WorkKind.DETACH))
                if handle.work_attempts == 1:  # from now on Placement should not offer it
                    ledger.stale_hosts.add(handle.deployable.device.hostname)
        return again


class Heartbeats(Endpoint):
    """Has a topic of its own. Agents of earlier releases send theirs among all else."""

    @exposed
    def heartbeat(self, context: RequestContext, hostname: str, digest: str) -> None:
        """The host is as it was; if that is not what we have, it should tell us."""
        with self.db.writer() as session:
            is_known = agents.beat(session, hostname, digest)
        if not is_known:
            self.tell_hosts(context, {}, [hostname])
