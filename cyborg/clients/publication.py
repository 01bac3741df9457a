# SPDX-License-Identifier: Apache-2.0
"""How what Placement has below a compute node becomes what is wanted."""

import contextlib
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Self

from oslo_log import log as logging

from cyborg import objects
from cyborg.clients.placement_api import (
    Forbidden,
    InUse,
    Inventories,
    Refused,
    Stale,
    Taken,
)
from cyborg.clients.provider_tree import OWNER, Seen, Subtree

LOG = logging.getLogger(__name__)

#: A PCI address at the end of a name, as sysfs spells it (Nova: in capitals) or as libvirt does.
ADDRESS = re.compile(r'([0-9a-f]{4,8})[:_]([0-9a-f]{2})[:_]([0-9a-f]{2})[._]([0-7])$', re.I)


@dataclass(frozen=True)
class Published:
    """What differs from what was wanted; all else is in Placement as it should be."""

    #: provider name -> the uuid under which it existed already, to be used from now on
    adopted: dict[str, str]
    #: provider name -> who claims it; such a provider is not published
    conflicts: dict[str, str]
    #: False: guests hold something that should go, which is reserved, or something is refused;
    #: to be tried again
    is_settled: bool
    #: provider name -> why Placement refuses what it should be; such a provider offers nothing
    refused: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Wanted:
    """A provider of ours as it should be."""

    uuid: str
    name: str
    parent_uuid: str | None
    traits: frozenset[str]
    resource_class: str | None
    total: int
    reserved: int
    #: PCI addresses of all functions of its device: who claims one claims the device
    addresses: frozenset[str] = frozenset()

    @classmethod
    def of(cls, provider: objects.Provider, addresses: Iterable[str] = ()) -> Self:
        return cls(provider.uuid, provider.name, provider.parent_uuid,
                   frozenset((*provider.traits, OWNER)),
                   provider.resource_class, provider.total, provider.reserved,
                   frozenset(addresses))

    @property
    def identities(self) -> set[str]:
        return _identities(self.name).union(*map(_identities, self.addresses))

    @property
    def inventories(self) -> Inventories:
        if self.resource_class is None or not self.total:
            return {}
        return {self.resource_class: {
            'total': self.total, 'reserved': self.reserved, 'min_unit': 1,
            'max_unit': self.total, 'step_size': 1, 'allocation_ratio': 1.0}}


class Publication:
    """One attempt: read, decide, write the differences. A race (Stale) calls for a new one."""

    def __init__(self, subtree: Subtree, wanted: Iterable[Wanted]) -> None:
        self.api = subtree.api
        self.wanted = _top_down(wanted)
        self.rows = subtree.read()
        self.seen = subtree.seen
        self.tree_uuid = subtree.tree_uuid
        self.adopted: dict[str, str] = {}
        self.conflicts: dict[str, str] = {}
        #: wanted uuid -> the uuid it really has, of those that are in place
        self.placed: dict[str | None, str] = {None: subtree.root_uuid}
        #: wanted uuid -> who claims it
        self.claims: dict[str | None, str] = {}
        self.is_settled = True
        self.refused: dict[str, str] = {}
        #: uuid of a provider that exists -> the name under which it is wanted
        self.names: dict[str, str] = {}

    def run(self) -> Published:
        existing = self._match()
        self.names = {existing[provider.uuid]: provider.name for provider in self.wanted
                      if provider.uuid in existing}
        kept = set(existing.values())
        # what must go goes first, so that nothing is on offer twice
        self._empty([uuid for uuid in self.rows if self.seen[uuid].is_ours and uuid not in kept])
        self.api.learn_traits(trait for provider in self.wanted for trait in provider.traits)
        for provider in self.wanted:
            with self._apart(provider.name):
                self._place(provider, existing.get(provider.uuid))
        self._offer({self.placed[provider.uuid]: provider.inventories
                     for provider in self.wanted if provider.uuid in self.placed})
        self._empty([uuid for uuid, name in self.names.items() if name in self.refused])
        return Published(self.adopted, self.conflicts, self.is_settled and not self.refused,
                         self.refused)

    def _match(self) -> dict[str, str]:
        """Wanted uuid -> uuid of the provider of that name; those that others claim are noted."""
        for provider in self.wanted:
            row = self.rows.get(provider.uuid)
            if row and row['name'] == provider.name:
                # also without the trait: we died, or were cut off, right after creating it
                self.seen[provider.uuid].is_ours = True
        foreign = {key: row for uuid, row in self.rows.items() if not self.seen[uuid].is_ours
                   for key in _identities(row['name'])}
        ours = {row['name'].casefold(): uuid for uuid, row in self.rows.items()
                if self.seen[uuid].is_ours}
        existing = {}
        for provider in self.wanted:
            for row in filter(None, map(foreign.get, sorted(provider.identities))):
                self._claim(provider, f'{row["name"]} ({row["uuid"]}) is the same device, and '
                                      f'does not carry {OWNER}')
            if provider.parent_uuid in self.claims:
                self._claim(provider, self.claims[provider.parent_uuid])
            elif provider.uuid not in self.claims and provider.name.casefold() in ours:
                existing[provider.uuid] = ours[provider.name.casefold()]
        return existing

    def _claim(self, provider: Wanted, owner: str) -> None:
        self.claims[provider.uuid] = self.conflicts[provider.name] = owner

    def _place(self, provider: Wanted, uuid: str | None) -> None:
        """Bring one provider about, with its traits: what it offers comes after them, so that
        nobody gets it untagged."""
        if provider.parent_uuid in self.claims:
            self._claim(provider, self.claims[provider.parent_uuid])
        if provider.uuid in self.claims:
            return
        if provider.parent_uuid not in self.placed:
            raise Refused('what it is a part of is refused')
        parent_uuid = self.placed[provider.parent_uuid]
        if uuid is None:
            try:
                uuid = self._create(provider, parent_uuid)
            except Taken:
                self._claim(provider, self._holder(provider))
                return
        elif self.rows[uuid]['parent_provider_uuid'] != parent_uuid:
            self.rows[uuid] = self.api.move(uuid, self.rows[uuid]['name'], parent_uuid)
        if uuid != provider.uuid:
            self.adopted[provider.name] = uuid
        self._set_traits(uuid, provider.traits)
        self.placed[provider.uuid] = uuid

    def _create(self, provider: Wanted, parent_uuid: str) -> str:
        try:
            row = self.api.create(provider.uuid, provider.name, parent_uuid)
        except Refused:
            if not self.api.find(uuid=parent_uuid):
                raise Stale(f'{parent_uuid} vanished') from None
            raise
        LOG.info('Created resource provider %s (%s)', provider.name, provider.uuid)
        self.rows[provider.uuid], self.names[provider.uuid] = row, provider.name
        self.seen[provider.uuid] = Seen(row['generation'], is_ours=True,
                                        traits=frozenset(), inventories={})
        return provider.uuid

    def _holder(self, provider: Wanted) -> str:
        """Who has the name or the uuid that we wanted to create."""
        for row in (*self.api.find(name=provider.name), *self.api.find(uuid=provider.uuid)):
            if row['name'] != provider.name:
                return f'{row["name"]} has its uuid {provider.uuid}'
            if row['root_provider_uuid'] != self.tree_uuid:
                return f'{row["uuid"]} has its name, below {row["root_provider_uuid"]}'
        raise Stale(f'{provider.name} was created, or deleted, meanwhile')

    def _set_traits(self, uuid: str, traits: frozenset[str]) -> None:
        seen = self.seen[uuid]
        if seen.traits != traits:
            seen.generation = self.api.set_traits(uuid, seen.generation, traits)
            seen.traits = traits

    def _offer(self, wanted: dict[str, Inventories]) -> None:
        """Write what differs: all at once if we may and nothing is in the way."""
        changes = {uuid: inventories for uuid, inventories in wanted.items()
                   if self._inventories(uuid) != inventories}
        if len(changes) > 1 and self._reshape(changes):
            return
        for uuid, inventories in changes.items():
            with self._apart(self.names.get(uuid, self.rows[uuid]['name'])):
                self._set_inventories(uuid, inventories)

    def _reshape(self, changes: dict[str, Inventories]) -> bool:
        try:
            generations = self.api.reshape({
                uuid: (self.seen[uuid].generation, inventories)
                for uuid, inventories in changes.items()})
        except (Forbidden, InUse, Refused) as obstacle:
            LOG.debug('Writing inventories one by one: %s', obstacle)
            return False
        for uuid, generation in generations.items():
            self.seen[uuid].generation = generation
            self.seen[uuid].inventories = changes[uuid]
        return True

    @contextlib.contextmanager
    def _apart(self, name: str) -> Iterator[None]:
        """What Placement refuses of a provider is noted; the others are published."""
        try:
            yield
        except Refused as refusal:
            self.refused.setdefault(name, str(refusal))

    def _set_inventories(self, uuid: str, inventories: Inventories) -> None:
        present = self._inventories(uuid)
        try:
            self._write_inventories(uuid, inventories)
        except InUse:
            # a class that guests still hold stays, with nothing left to take
            self.is_settled = False
            self._write_inventories(uuid, _reserved(present) | inventories)

    def _inventories(self, uuid: str) -> Inventories:
        seen = self.seen[uuid]
        if seen.inventories is None:
            generation, inventories = self.api.inventories(uuid)
            if generation != seen.generation:
                raise Stale(f'resource provider {uuid} changed while it was read')
            seen.inventories = inventories
        return seen.inventories

    def _write_inventories(self, uuid: str, inventories: Inventories) -> None:
        seen = self.seen[uuid]
        if seen.inventories != inventories:
            seen.generation = self.api.set_inventories(uuid, seen.generation, inventories)
            seen.inventories = inventories

    def _empty(self, unwanted: Collection[str]) -> None:
        """Take inventories and traits away, and keep the providers: nova-compute remembers them,
        and builds nothing while one that it remembers is missing."""
        self._offer(dict.fromkeys(unwanted, {}))
        for uuid in unwanted:
            if not self.seen[uuid].inventories:  # what a guest holds keeps its traits
                self._set_traits(uuid, frozenset({OWNER}))


def _reserved(inventories: Inventories) -> Inventories:
    """The same, with nothing left to take."""
    return {name: inventory | {'reserved': inventory['total']}
            for name, inventory in inventories.items()}


def _identities(name: str) -> set[str]:
    """What two providers of one device have in common: a name in any case, an address."""
    address = ADDRESS.search(name)
    return {name.casefold()} | ({':'.join(address.groups()).lower()} if address else set())


def _top_down(wanted: Iterable[Wanted]) -> list[Wanted]:
    """Each after its parent."""
    children = defaultdict(list)
    for provider in sorted(wanted, key=lambda provider: provider.name):
        children[provider.parent_uuid].append(provider)
    ordered = children[None]
    for provider in ordered:
        ordered += children.pop(provider.uuid, [])
    if children.keys() != {None}:
        raise ValueError(f'Providers are wanted below {[*children]}, which are not.')
    return ordered
