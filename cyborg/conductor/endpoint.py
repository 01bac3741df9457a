# SPDX-License-Identifier: Apache-2.0
"""The base of the conductor's endpoints: collaborators, errors, dispatch after a commit."""

import contextlib
import datetime
import functools
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

import oslo_messaging as messaging
from oslo_config import cfg
from oslo_log import log

from cyborg import errors, metrics, rpc, tracing
from cyborg.agent import rpcapi as agent_rpcapi
from cyborg.clients.nova import Nova
from cyborg.conductor import notifications, outbox
from cyborg.conductor.engine.arqs import Deadlines
from cyborg.conductor.engine.limits import UNLIMITED, Allowance, RequestLimits
from cyborg.conductor.engine.unit_of_work import UnitOfWork, transact
from cyborg.context import RequestContext
from cyborg.db.sqlalchemy import arqs, clock, engine, history
from cyborg.objects import manifests

LOG = log.getLogger(__name__)
P = ParamSpec('P')
R = TypeVar('R')


def exposed(method: Callable[P, R]) -> Callable[P, R]:
    """Make an RPC method: it is retried after a deadlock, and passes our errors to the caller."""
    retried = engine.retried(method)

    @rpc.expecting_errors
    @functools.wraps(method)
    def answer(*args: P.args, **kwargs: P.kwargs) -> R:
        with (
            tracing.span('conductor_rpc', method.__name__),
            metrics.Timer(metrics.RPC_SERVED, method.__name__) as timer,
        ):
            try:
                return retried(*args, **kwargs)
            except engine.ConnectionLost as error:
                LOG.error('The database is not available: %s', error)
                raise errors.Unavailable(
                    'The database is not available; try again later.'
                ) from error
            except errors.CyborgError as error:
                timer.result = 'refused'
                known = rpc.as_known(error, _reader(args))
                if known is error:
                    raise
                raise known from error

    return answer


def _reader(arguments: tuple[object, ...]) -> str | None:
    """Returns the RPC version that the caller of a method reads."""
    return next((each.reads for each in arguments if isinstance(each, RequestContext)), None)


class Endpoint:
    """A group of RPC methods. It keeps no state between two messages."""

    target = messaging.Target(version=manifests.NEWEST)

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        db: engine.Database,
        agents: agent_rpcapi.AgentAPI,
        outbox: outbox.Outbox,
        notifier: notifications.Notifier,
        nova: Nova,
        limits: RequestLimits | None = None,
    ) -> None:
        self.conf = conf
        self.db = db
        self.agents = agents
        self.outbox = outbox
        self.notifier = notifier
        self.nova = nova
        self.limits = limits

    def silent_since(self) -> datetime.datetime:
        """Returns the time since which an agent must have sent a heartbeat to count as alive."""
        return clock.now() - datetime.timedelta(seconds=self.conf.conductor.heartbeat_timeout)

    def history_since(self) -> datetime.datetime:
        """Returns the time before which steps of requests are deleted."""
        return clock.now() - datetime.timedelta(days=self.conf.conductor.history_days)

    def deadlines(self) -> Deadlines:
        """Returns when a bind that starts now counts as failed."""
        conf, now = self.conf.conductor, clock.now()
        return Deadlines(
            prepare=now + datetime.timedelta(seconds=conf.bind_timeout),
            program=now + datetime.timedelta(seconds=conf.bind_timeout + conf.program_timeout),
        )

    def scope(self, context: RequestContext) -> arqs.Scope:
        """Returns whose requests the caller may see; a caller without a project sees none."""
        project = None if context.sees_all_projects else context.project_id or ''
        return arqs.Scope(project_id=project, silent_since=self.silent_since())

    def allowance(self, project_id: str | None) -> Allowance:
        """Returns how many requests a project may have. Call it before a transaction: it asks
        Keystone."""
        if self.limits is None:
            return UNLIMITED
        try:
            return Allowance(self.limits.of(project_id))
        except errors.LimitUnavailable as error:
            return Allowance(error=error)

    def audience(self, context: RequestContext) -> str | None:
        """Returns the project whose device profiles the caller may see; None: those of all.

        A service sees the profiles of the user for whom it acts, because tenants use profiles
        through Nova.
        """
        return None if context.is_admin else context.project_id or ''

    @contextlib.contextmanager
    def unit_of_work(
        self, context: RequestContext, actor: str | None = None, *, is_repeatable: bool = False
    ) -> Iterator[UnitOfWork]:
        """Open a transaction. The tasks, events and notifications that it collects are dispatched
        after its commit."""
        cause = history.Cause(
            actor or f'user {context.user_id}', context.global_request_id or context.request_id
        )
        with transact(
            self.db, cause, functools.partial(self._dispatch, context), is_repeatable=is_repeatable
        ) as unit:
            yield unit

    def _dispatch(self, context: RequestContext, unit: UnitOfWork) -> None:
        """Send tasks to hosts, wake hosts, send events to Nova and notifications. The sweep repeats
        lost messages to hosts."""
        try:
            for hostname, tasks in unit.tasks.items():
                self.agents.perform(context, hostname, tasks)
            for hostname in sorted(unit.hosts_to_wake | unit.hosts_to_remind):
                self.agents.wake(context, hostname)
        except messaging.MessagingException as error:
            LOG.warning('Could not reach an agent; the next sweep sends its tasks: %s', error)
        self.outbox.send(unit.events)
        self.notifier.send(context, unit.changes)
