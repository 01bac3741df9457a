# SPDX-License-Identifier: Apache-2.0
"""The RPC version that all agents understand."""

import datetime

from oslo_log import log

from cyborg.db.sqlalchemy import agents, clock, engine
from cyborg.objects import manifests

LOG = log.getLogger(__name__)


class LowestVersion:
    """The oldest RPC version that an agent which is alive has reported.

    It is read with each sweep. An agent of an earlier release that starts in between may miss a
    cast; the next sweep wakes it, and it gets its tasks with the plan.
    """

    def __init__(self, db: engine.Database, heartbeat_timeout: float) -> None:
        self._db, self._heartbeat_timeout = db, heartbeat_timeout
        self._version = manifests.OLDEST

    def __call__(self) -> str:
        return self._version

    def read(self) -> None:
        """Read the versions of agents from the database."""
        since = clock.now() - datetime.timedelta(seconds=self._heartbeat_timeout)
        with self._db.reader() as session:
            found = agents.rpc_versions(session, since)
        version = min(
            (manifests.known(version) for version, _ in found),
            key=manifests.parsed,
            default=manifests.NEWEST,
        )
        if version != self._version:
            LOG.info('Messages to agents have RPC version %s from now on.', version)
        self._version = version
