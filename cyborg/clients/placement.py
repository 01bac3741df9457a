# SPDX-License-Identifier: Apache-2.0
"""Publishes our providers below a compute node, and reads allocations."""

import contextlib
import random
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from enum import StrEnum

import os_traits
from keystoneauth1.adapter import Adapter

from cyborg import backoff, errors, objects
from cyborg.clients.placement_api import (
    InUse,
    Inventories,
    PlacementApi,
    Refused,
    Rejection,
    Stale,
)
from cyborg.clients.publication import Publication, Published, Subtree, WantedProvider

__all__ = ['Obstacle', 'Placement', 'Published']


class Obstacle(StrEnum):
    """Why a provider of ours is not deleted."""

    ALLOCATIONS = 'allocations'
    INVENTORY = 'inventory'
    PROVIDERS_BELOW = 'providers below'


@dataclass(frozen=True)
class SeenInventories:
    """The inventories of a provider, and its generation when they were read."""

    generation: int
    inventories: Inventories
    #: what the provider offers; another class stays fully reserved until the last server that
    #: uses it is gone
    resource_class: str | None

    def lacks(self, amount: int) -> bool:
        """Returns whether less than this amount is reserved."""
        return any(
            each['reserved'] < min(amount, each['total'])
            for name, each in self.inventories.items()
            if name == self.resource_class
        )


#: attempts to publish; more than one is needed only if others write at the same moment
ATTEMPTS = 7
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.6  #: upper bounds, in seconds, of the pauses between them
#: Consumer types that may be servers. Nova sets no consumer type. Consumers of its migrations have
#: no accelerators, because it does not migrate servers that have some.
SERVERS = frozenset({'INSTANCE', 'unknown'})
#: no compute node has this name
NOWHERE = 'cyborg-health-check'


class Placement:
    """The publisher of an agent, for one thread at a time. Keep the object: it remembers what it
    has read from Placement, so that most rounds need one call."""

    def __init__(self, service: Adapter) -> None:
        self._api = PlacementApi(service)
        self._subtrees: dict[str, Subtree] = {}
        #: root name -> the last wanted providers, those taken over, and the result
        self._done: dict[str, tuple[frozenset[WantedProvider], frozenset[str], Published]] = {}

    def publish(
        self,
        root_name: str,
        providers: Iterable[objects.Provider],
        addresses: Mapping[str, Set[str]] | None = None,
        taken_over: Iterable[str] = (),
    ) -> Published:
        """Make our providers below a compute node equal to these. Other providers do not change.

        ``addresses`` are those of the functions of each provider's device, by provider name: a
        provider of another service with one of them is a conflict. ``taken_over`` are uuids of
        providers that are ours without the trait of the owner. A repeated call with the same
        arguments makes no request. Our providers that are not listed are emptied and kept;
        inventories that guests still use are reserved. Providers that Placement refuses are
        returned. Both are tried again in each call.
        """
        known = addresses or {}
        wanted = frozenset(WantedProvider.of(each, known.get(each.name, ())) for each in providers)
        uuids = frozenset(taken_over)
        if root_name in self._done and self._done[root_name][:2] == (wanted, uuids):
            return self._done[root_name][2]
        self._done.pop(root_name, None)
        published = _publish(self._subtree(root_name), wanted, uuids)
        if published.is_complete:
            self._done[root_name] = wanted, uuids, published
        return published

    def forget(self) -> None:
        """Make the next publication read Placement, even if nothing has changed here."""
        self._done.clear()

    def owned(self, root_name: str, taken_over: Collection[str] = ()) -> dict[str, str]:
        """Returns our providers below a compute node, leaves first: uuid -> name. ``taken_over``
        are those of ours that may lack the trait of the owner."""
        with understood():
            subtree = self._subtree(root_name)
            rows = subtree.read()
            adopted = subtree.adoptable(taken_over)
            return {
                uuid: row['name']
                for uuid, row in reversed(rows.items())
                if subtree.seen[uuid].is_ours or uuid in adopted
            }

    def obstacles(self, root_name: str, uuids: Iterable[str]) -> dict[str, Obstacle]:
        """Returns what ``delete_empty`` would return for these providers below a compute node,
        leaves first, and deletes nothing."""
        with understood():
            rows = self._subtree(root_name).read().values()
        kept = {}
        deleted: set[str] = set()
        for uuid in uuids:
            below = {row['uuid'] for row in rows if row['parent_provider_uuid'] == uuid}
            if obstacle := self._obstacle(uuid):
                kept[uuid] = obstacle
            elif below - deleted:
                kept[uuid] = Obstacle.PROVIDERS_BELOW
            else:
                deleted.add(uuid)
        return kept

    def delete_empty(self, uuids: Iterable[str]) -> dict[str, Obstacle]:
        """Delete the providers that have no inventory, leaves first; returns the others, and those
        with providers below them."""
        kept = {}
        for uuid in uuids:
            obstacle = self._obstacle(uuid)  # just before: Placement deletes an inventory, too
            if obstacle is None and self.delete([uuid]):
                obstacle = self._obstacle(uuid) or Obstacle.PROVIDERS_BELOW
            if obstacle is not None:
                kept[uuid] = obstacle
        return kept

    def delete(self, uuids: Iterable[str]) -> set[str]:
        """Delete providers, leaves first; returns those that cannot be deleted because they have
        allocations or children."""
        self.forget()
        stay = set()
        for uuid in uuids:
            with understood():
                try:
                    self._api.delete(uuid)
                except InUse:
                    stay.add(uuid)
                except Stale:
                    pass  # it is deleted already
        return stay

    def _obstacle(self, uuid: str) -> Obstacle | None:
        """Returns why a provider is not empty, or None if it is empty or deleted already."""
        with understood():
            try:
                _, inventories = self._api.inventories(uuid)
            except Stale:
                return None
            if not inventories:
                return None
            return Obstacle.ALLOCATIONS if self._api.consumers(uuid) else Obstacle.INVENTORY

    def _subtree(self, root_name: str) -> Subtree:
        if root_name not in self._subtrees:
            self._subtrees[root_name] = Subtree(self._api, root_name)
        return self._subtrees[root_name]


def _publish(
    subtree: Subtree, wanted: Iterable[WantedProvider], taken_over: Collection[str]
) -> Published:
    for attempt in range(ATTEMPTS):
        # a random part of the pause, so that two writers do not meet again
        time.sleep(random.uniform(0, backoff.pause(attempt, LONGEST_PAUSE, FIRST_PAUSE)))
        try:
            published = Publication(subtree, wanted, taken_over).run()
        except Stale as race:
            reason = race
        except Rejection as rejection:
            raise errors.PlacementUnavailable(why=str(rejection)) from rejection
        else:
            # a remembered trait or class may have been deleted; the next attempt creates it
            if not published.refused or attempt:
                return published
    raise errors.PlacementUnavailable(
        why=f'other services keep changing providers below {subtree.root_name}; last: {reason}'
    )


class Reservations:
    """Reads and writes the reserved amounts of our inventories, for one thread at a time."""

    def __init__(self, service: Adapter) -> None:
        self._api = PlacementApi(service)

    def read(self, providers: Mapping[str, objects.Provider]) -> dict[str, SeenInventories]:
        """Returns the inventories of those providers, by uuid, that exist."""
        seen = {}
        for uuid, provider in providers.items():
            with understood(), contextlib.suppress(Stale):
                seen[uuid] = SeenInventories(*self._api.inventories(uuid), provider.resource_class)
        return seen

    def reserve(self, uuid: str, seen: SeenInventories, amount: int) -> bool:
        """Reserve this amount of what it offers; returns False if the provider was changed since it
        was read. The generation grows even if the reserved amount does not change."""
        inventories = {
            name: inventory | {'reserved': min(amount, inventory['total'])}
            if name == seen.resource_class
            else inventory
            for name, inventory in seen.inventories.items()
        }
        with understood():
            try:
                self._api.set_inventories(uuid, seen.generation, inventories)
            except Stale:
                return False
        return True


class Allocations:
    """Reads which servers hold which providers, for audits."""

    def __init__(self, service: Adapter) -> None:
        self._api = PlacementApi(service)

    def providers_of(self, consumer: str) -> set[str]:
        """Returns the providers of which a server has allocations."""
        with understood():
            return self._api.allocations(consumer)

    def other_servers_on(self, provider: str, servers: set[str]) -> set[str]:
        """Returns the consumers of a provider other than these servers, without those whose type
        is not that of a server."""
        with understood():
            return {
                consumer
                for consumer in self._api.consumers(provider) - servers
                if self._api.consumer_type(consumer) in SERVERS
            }


class Offers:
    """Finds providers of the cloud by free amounts and traits. Each method makes one call."""

    def __init__(self, service: Adapter | None) -> None:
        """``service`` is None if [placement] is not configured."""
        self._service = service

    @property
    def _api(self) -> PlacementApi:
        if self._service is None:
            raise errors.PlacementUnavailable(
                why='[placement] auth_type is not set in the configuration of the conductor.'
            )
        return PlacementApi(self._service)

    def check(self) -> None:
        """Raise PlacementUnavailable unless Placement answers and accepts our credentials."""
        self.root(NOWHERE)

    def offering(
        self,
        amounts: Iterable[tuple[str, int]] = (),
        required: Collection[str] = (),
        forbidden: Collection[str] = (),
        tree: str | None = None,
    ) -> set[str]:
        """Returns the uuids of the providers with room for amounts by class, and with traits;
        those of one tree, or of all."""
        traits = [*sorted(required), *(f'!{name}' for name in sorted(forbidden))]
        criteria = {
            'resources': ','.join(f'{name}:{amount}' for name, amount in amounts),
            'required': ','.join(traits),
            'in_tree': tree or '',
        }
        with understood():
            try:
                return self._api.find_values(
                    'uuid', **{key: text for key, text in criteria.items() if text}
                )
            except Refused:  # Placement does not know a class or a trait, so nothing has it
                return set()

    def disabled_hosts(self) -> set[str]:
        """Returns the names of the compute nodes whose service is disabled."""
        with understood():
            return self._api.find_values('name', required=os_traits.COMPUTE_STATUS_DISABLED)

    def root(self, hostname: str) -> str | None:
        """Returns the uuid of a compute node, or None if there is none of this name."""
        with understood():
            return next((row['uuid'] for row in self._api.find(name=hostname)), None)


@contextlib.contextmanager
def understood() -> Iterator[None]:
    """Raises PlacementUnavailable if the endpoint rejects a plain read: it is not Placement, or it
    does not serve us."""
    try:
        yield
    except Rejection as rejection:
        raise errors.PlacementUnavailable(why=str(rejection)) from rejection
