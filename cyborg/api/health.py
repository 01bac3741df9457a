# SPDX-License-Identifier: Apache-2.0
"""Backends of oslo.middleware's health check: the conductor, its database, its Placement.

Load balancers ask often, and each API process asks a conductor once in a few seconds.
"""

import threading
import time
from collections.abc import Mapping
from typing import Any

import oslo_messaging as messaging
from oslo_config import cfg
from oslo_log import log
from oslo_middleware.healthcheck import pluginbase

from cyborg import context, errors, rpc
from cyborg.conductor.rpcapi import ConductorAPI

LOG = log.getLogger(__name__)

#: the key of the filter's configuration under which ``app.load_app`` passes the conductor
CONDUCTOR = 'conductor'
#: the key under which the backends of a filter share their outcome
OUTCOME = 'cyborg_outcome'
#: what a conductor checks
PARTS = ('database', 'placement')
#: seconds for which an outcome is used again
LIFETIME = 5
NO_CONDUCTOR = 'No conductor answers.'


class Outcome:
    """The result of the last check. One request at a time checks; others get the last result."""

    def __init__(self, conductor: ConductorAPI) -> None:
        self._conductor = conductor
        self._names: set[str] = set()
        self._lock = threading.Lock()
        self._fresh_until = 0.0
        #: part -> what is wrong with it; None before the first check
        self._failures: Mapping[str, str | None] | None = None

    def watch(self, part: str) -> None:
        """Include a part of the conductor in the checks."""
        self._names.add(part)

    def failure(self, part: str) -> str | None:
        """Returns what is wrong with a part, or None. CONDUCTOR is a part, too."""
        if time.monotonic() >= self._fresh_until and self._lock.acquire(
            blocking=self._failures is None  # there is no result to use yet
        ):
            try:
                if time.monotonic() >= self._fresh_until:
                    self._failures = self._check()
                    self._fresh_until = time.monotonic() + LIFETIME
            finally:
                self._lock.release()
        return (self._failures or {}).get(part)

    def _check(self) -> Mapping[str, str | None]:
        try:
            return self._conductor.check_health(context.internal(), sorted(self._names & {*PARTS}))
        except errors.IncompatibleRelease:
            return {}  # a conductor of an earlier release has answered
        except (messaging.MessagingException, errors.Unavailable) as error:
            LOG.warning('Health check of the conductor: %s', str(error).partition('\n')[0])
            return dict.fromkeys((CONDUCTOR, *PARTS), NO_CONDUCTOR)


class Backend(pluginbase.HealthcheckBaseExtension):
    """A part that must answer."""

    part = CONDUCTOR

    def __init__(self, oslo_conf: cfg.ConfigOpts, conf: dict[str, Any]) -> None:
        super().__init__(oslo_conf, conf)
        self._outcome = outcome_of(conf)
        self._outcome.watch(self.part)

    def healthcheck(self, server_port: int) -> pluginbase.HealthcheckResult:
        failure = self._outcome.failure(self.part)
        return pluginbase.HealthcheckResult(available=failure is None, reason=failure or 'OK')


class Conductor(Backend):
    """A conductor must answer."""


class Database(Backend):
    """A conductor must answer that its database does."""

    part = 'database'


class Placement(Backend):
    """A conductor must answer that Placement does."""

    part = 'placement'


def outcome_of(conf: dict[str, Any]) -> Outcome:
    """Returns the outcome that the backends of one filter share.

    Backends of oslo.middleware's own application, which a paste file may name instead of our
    filter, have no conductor in their configuration, and use one of their own.
    """
    if OUTCOME not in conf:
        conductor = conf.get(CONDUCTOR) or ConductorAPI(
            rpc.transport(cfg.CONF), rpc.Limits.of_api(cfg.CONF)
        )
        conf[OUTCOME] = Outcome(conductor)
    outcome: Outcome = conf[OUTCOME]
    return outcome
