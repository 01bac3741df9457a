# SPDX-License-Identifier: Apache-2.0
"""What the conductor's endpoints share: collaborators, errors, and what follows a commit."""

import contextlib
import datetime
import functools
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import oslo_messaging as messaging
from oslo_config import cfg
from oslo_log import log

from cyborg import errors
from cyborg.agent import rpcapi as agent_rpcapi
from cyborg.clients.nova import Nova
from cyborg.conductor import notifications, outbox
from cyborg.conductor.engine.arqs import Deadlines
from cyborg.conductor.engine.unit_of_work import UnitOfWork, transact
from cyborg.context import RequestContext
from cyborg.db.sqlalchemy import arqs, engine, history, models

LOG = log.getLogger(__name__)
F = TypeVar('F', bound=Callable[..., Any])


def exposed(method: F) -> F:
    """An RPC method: runs again after a deadlock, and answers our errors as what they are."""
    retried = engine.retried(method)

    @messaging.expected_exceptions(errors.CyborgError)
    @functools.wraps(method)
    def answer(*args: Any, **kwargs: Any) -> Any:
        try:
            return retried(*args, **kwargs)
        except engine.ConnectionLost as error:
            LOG.error('The database is away: %s', error)
            raise errors.Unavailable('The database is away; try again later.') from error
    return answer  # type: ignore[return-value]


class Endpoint:
    """One topic of what a conductor is asked. It keeps nothing between two messages."""

    target = messaging.Target(version='2.0')

    def __init__(self, conf: cfg.ConfigOpts, db: engine.Database,
                 agents: agent_rpcapi.AgentAPI, outbox: outbox.Outbox,
                 notifier: notifications.Notifier, nova: Nova) -> None:
        self.conf = conf
        self.db = db
        self.agents = agents
        self.outbox = outbox
        self.notifier = notifier
        self.nova = nova

    def silent_since(self) -> datetime.datetime:
        """Agents not heard of since then count as down."""
        return models.now() - datetime.timedelta(seconds=self.conf.conductor.heartbeat_timeout)

    def deadlines(self) -> Deadlines:
        """When a bind that starts now has failed."""
        conf, now = self.conf.conductor, models.now()
        return Deadlines(
            prepare=now + datetime.timedelta(seconds=conf.bind_timeout),
            program=now + datetime.timedelta(seconds=conf.bind_timeout + conf.program_timeout))

    def scope(self, context: RequestContext) -> arqs.Scope:
        """Whose requests this caller may see; one without a project sees none."""
        project = None if context.sees_all_projects else context.project_id or ''
        return arqs.Scope(project_id=project, silent_since=self.silent_since())

    def audience(self, context: RequestContext) -> str | None:
        """The project whose device profiles this caller may see; None: all of them.

        A service sees what the user sees for whom it acts: it is through Nova that tenants use
        profiles.
        """
        return None if context.is_admin else context.project_id or ''

    @contextlib.contextmanager
    def unit_of_work(self, context: RequestContext, actor: str | None = None, *,
                     is_repeatable: bool = False) -> Iterator[UnitOfWork]:
        """A transaction; what it collected is dispatched once it is committed."""
        cause = history.Cause(actor or f'user {context.user_id}',
                              context.global_request_id or context.request_id)
        with transact(self.db, cause, functools.partial(self._dispatch, context),
                      is_repeatable=is_repeatable) as unit:
            yield unit

    def _dispatch(self, context: RequestContext, unit: UnitOfWork) -> None:
        """Give hosts their tasks, wake hosts, tell Nova and operators. A message to a host that
        gets lost is made up for by the sweep."""
        try:
            for hostname, tasks in unit.tasks.items():
                self.agents.perform(context, hostname, tasks)
            for hostname in sorted(unit.hosts_to_wake | unit.hosts_to_remind):
                self.agents.wake(context, hostname)
        except messaging.MessagingException as error:
            LOG.warning('An agent could not be told; its tasks wait for the next sweep: %s',
                        error)
        self.outbox.send(unit.events)
        self.notifier.send(context, unit.notices)
