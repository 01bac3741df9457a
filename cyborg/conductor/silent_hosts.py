# SPDX-License-Identifier: Apache-2.0
"""Reserves, in Placement, the devices of silent agents that only the agent can prepare.

Otherwise Nova would schedule servers to these devices, and each would fail after minutes. The row
of the agent has a mark while its devices are reserved, or about to be. A reservation ends with the
next heartbeat of an agent that was only disconnected: nothing has changed on its host, and a
conductor writes the inventory of the agent's plan. An agent that was restarted sends heartbeats
before it has looked at its host, where cards may have been removed. So its devices stay reserved
until its first report, after which it publishes its whole inventory.

Two conductors, or a conductor and an agent that returns, may work on one host at the same time.
A reservation reads the generations of the providers, then sets the mark if the agent is still
silent, then writes Placement with these generations. The end of a reservation writes all
providers, so their generations grow, and clears the mark after that. So Placement refuses a
reservation that is late. For one that Placement accepts just before, the mark is set, and the next
round ends it.

What must be reserved can change while the agent is silent: a server is deleted, and its device
waits to be cleaned. The agent itself may be cut off from the message broker only, and write its
inventory again. So some of the hosts that are reserved are compared with Placement in each round.
"""

import datetime
import random

from oslo_log import log

from cyborg import errors, objects
from cyborg.clients.placement import Reservations
from cyborg.conductor.engine import providers
from cyborg.db.sqlalchemy import agents, clock, devices
from cyborg.db.sqlalchemy.engine import Database, Session

LOG = log.getLogger(__name__)

#: with this many agents or more nothing is reserved if most of them are silent: then the network
#: or the broker is at fault rather than the agents
FEWEST = 3
#: agents whose devices are reserved, and that have been silent for so much longer than the limit,
#: do not count: their hosts may be retired. Those that fell silent lately do: if a broker fails,
#: agents fall silent one after the other.
FOR_GOOD = datetime.timedelta(hours=1)
#: hosts per round, so that a round is over within its lease
AT_A_TIME = 20
#: hosts per round that are compared with Placement because they are reserved already
COMPARED = 5


class SilentHosts:
    """Reserves devices and ends reservations. One conductor at a time calls it."""

    def __init__(self, db: Database, placement: Reservations, timeout: float) -> None:
        self._db, self._placement = db, placement
        self._timeout = datetime.timedelta(seconds=timeout)

    def round(self) -> None:
        """Reserve the devices of silent agents, and end the reservations of other agents."""
        since = clock.now() - self._timeout
        with self._db.reader() as session:
            silent, returned = agents.unreserved(session, since), agents.returned(session, since)
            reserved = agents.reserved(session, since)
            if silent and self._is_common_fault(session, since):
                silent = []
        try:
            for hostname in returned[:AT_A_TIME]:
                self._give_back(hostname, since)
            for hostname in silent[:AT_A_TIME]:
                self._reserve(hostname, since)
            for hostname in random.sample(reserved, min(len(reserved), COMPARED)):
                self._reserve(hostname, since, is_reserved=True)
        except errors.PlacementUnavailable as error:
            LOG.warning('Devices of silent agents are neither reserved nor released: %s', error)

    def _is_common_fault(self, session: Session, since: datetime.datetime) -> bool:
        silent, counted, total = agents.silence(session, since, since - FOR_GOOD)
        if total < FEWEST or silent * 2 <= counted:
            return False
        LOG.error(
            '%d of %d agents are silent. Their devices are not reserved: check the message broker.',
            silent,
            counted,
        )
        return True

    def _reserve(
        self, hostname: str, since: datetime.datetime, *, is_reserved: bool = False
    ) -> None:
        """Reserve what Placement offers of a host and the agent must prepare. If it ``is_reserved``
        already, there is seldom something left to do."""
        wanted = self._wanted(hostname)
        seen = {
            uuid: each
            for uuid, each in self._placement.read(wanted).items()
            if each.lacks(wanted[uuid].reserved)
        }
        if is_reserved and not seen or not self._withdraw(hostname, since, agents.RESERVING):
            return
        if all(self._placement.reserve(uuid, seen[uuid], wanted[uuid].reserved) for uuid in seen):
            self._withdraw(hostname, since, agents.RESERVED)
            LOG.warning(
                'The agent of %s is silent: devices of %d resource providers of its host are '
                'reserved.',
                hostname,
                len(wanted),
            )

    def _withdraw(self, hostname: str, since: datetime.datetime, state: str) -> bool:
        with self._db.writer() as session:
            return agents.withdraw(session, hostname, since, state)

    def _give_back(self, hostname: str, since: datetime.datetime) -> None:
        seen = self._placement.read(self._providers(hostname))
        # read after the generations: if the agent publishes a newer plan meanwhile, Placement
        # refuses this one
        planned = self._providers(hostname)
        if not all(
            self._placement.reserve(uuid, seen[uuid], each.reserved)
            for uuid, each in planned.items()
            if uuid in seen
        ):
            return
        with self._db.writer() as session:
            is_over = agents.give_back(session, hostname, since)
        if is_over:
            LOG.info('The agent of %s is alive again: its devices are not reserved.', hostname)

    def _wanted(self, hostname: str) -> dict[str, objects.Provider]:
        """Returns the providers of which something is reserved while the agent is silent."""
        found = self._providers(hostname, is_silent=True)
        return {uuid: each for uuid, each in found.items() if each.reserved}

    def _providers(self, hostname: str, *, is_silent: bool = False) -> dict[str, objects.Provider]:
        with self._db.reader() as session:
            rows = devices.load(session, hostname)
            found = providers.tree(
                session,
                hostname,
                rows,
                is_silent=is_silent,
                is_disabled=agents.is_disabled(session, hostname),
            )
        return {each.uuid: each for each in found if each.total and each.resource_class}
