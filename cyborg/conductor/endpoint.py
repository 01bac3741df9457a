# SPDX-License-Identifier: Apache-2.0
"""What the conductor's endpoints share: collaborators, errors, and what follows a commit."""

import contextlib
import datetime
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import oslo_messaging as messaging
from oslo_config import cfg
from oslo_db import exception as db_exc
from oslo_log import log

from cyborg import errors, objects
from cyborg.agent import rpcapi as agent_rpcapi
from cyborg.clients.nova import Nova
from cyborg.conductor import notifications, outbox
from cyborg.context import RequestContext
from cyborg.db.sqlalchemy import arqs, engine, history, models
from cyborg.db.sqlalchemy.ledger import Ledger, transact

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
        except db_exc.DBConnectionError as error:
            LOG.error('The database is away: %s', error)
            raise errors.Unavailable('The database is away; try again later.') from error
    return answer  # type: ignore[return-value]


class Endpoint:
    """One topic of what a conductor is asked. It keeps nothing between two messages."""

    target = messaging.Target(version='1.1')

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

    def bind_deadline(self) -> datetime.datetime:
        """When a bind that starts now has failed."""
        return models.now() + datetime.timedelta(seconds=self.conf.conductor.bind_timeout)

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
    def change(self, context: RequestContext, actor: str | None = None) -> Iterator[Ledger]:
        """A transaction; once it is committed, hosts are set to work and others hear of it.

        What gets lost on the way to a host, the sweep finds.
        """
        cause = history.Cause(actor or f'user {context.user_id}',
                              context.global_request_id or context.request_id)
        with transact(self.db, cause) as ledger:
            yield ledger
        self.tell_hosts(context, ledger.work, ledger.stale_hosts)
        self.outbox.send(ledger.events)
        self.notifier.send(context, ledger.notices)

    def tell_hosts(self, context: RequestContext, work: dict[str, list[objects.Work]],
                   stale_hosts: Iterable[str]) -> None:
        """Have hosts do their work, and report anew."""
        try:
            for hostname, works in work.items():
                self.agents.do(context, hostname, works)
            for hostname in stale_hosts:
                self.agents.wake(context, hostname)
        except messaging.MessagingException as error:
            LOG.warning('An agent could not be told; its work waits for the next sweep: %s', error)
