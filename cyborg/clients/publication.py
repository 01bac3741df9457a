# SPDX-License-Identifier: Apache-2.0
"""Publishes our providers below a compute node.

A ``Subtree`` reads the providers in Placement and remembers them. A ``Publication`` compares them
with the wanted providers and writes the differences.
"""

import contextlib
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Self

import os_traits
from oslo_log import log as logging

from cyborg import errors, objects
from cyborg.clients.placement_api import (
    Forbidden,
    InUse,
    Inventories,
    PlacementApi,
    Refused,
    Row,
    Stale,
    Taken,
)

LOG = logging.getLogger(__name__)

OWNER = os_traits.OWNER_CYBORG
#: Nova sets one of these on each provider that it makes below a compute node. Releases before 34
#: set only the second, and on providers of PCI devices only.
OF_NOVA = os_traits.OWNER_NOVA, os_traits.COMPUTE_MANAGED_PCI_DEVICE

#: A PCI address at the end of a name, as sysfs spells it (Nova: in capitals) or as libvirt does.
ADDRESS = re.compile(r'([0-9a-f]{4,8})[:_]([0-9a-f]{2})[:_]([0-9a-f]{2})[._]([0-7])$', re.I)


@dataclass
class SeenProvider:
    """The content of a provider, which is valid while its generation is the same."""

    generation: int
    is_ours: bool
    traits: frozenset[str] | None = None
    inventories: Inventories | None = None


class Subtree:
    """The providers below a compute node, remembered from one publication to the next."""

    def __init__(self, api: PlacementApi, root_name: str) -> None:
        self.api = api
        self.root_name = root_name
        self.root_uuid = ''
        #: uuid of the root of the tree: the compute node itself may have a parent
        self.tree_uuid = ''
        self.seen: dict[str, SeenProvider] = {}

    def read(self) -> dict[str, Row]:
        """Returns all providers below the compute node, by uuid, parents first."""
        rows = self._rows()
        if any(not self._knows(row) for row in rows.values()):
            ours = {row['uuid'] for row in self.api.find(in_tree=self.root_uuid, required=OWNER)}
            self.seen |= {
                uuid: SeenProvider(row['generation'], is_ours=uuid in ours)
                for uuid, row in rows.items()
                if not self._knows(row)
            }
        self.seen = {uuid: self.seen[uuid] for uuid in rows}
        return rows

    def adoptable(self, uuids: Collection[str]) -> frozenset[str]:
        """Returns those of these uuids that are providers below the compute node, and not Nova's.

        Call it after ``read``.
        """
        found = frozenset(uuids) & self.seen.keys()
        if all(self.seen[uuid].is_ours for uuid in found):
            return found
        novas = self.api.find(in_tree=self.root_uuid, required=f'in:{",".join(OF_NOVA)}')
        refused = {row['uuid']: row['name'] for row in novas if not self._is_ours(row['uuid'])}
        for uuid in sorted(found & refused.keys()):
            LOG.error(
                'Resource provider %s (%s) is not taken over, because it belongs to Nova.',
                refused[uuid],
                uuid,
            )
        return found - refused.keys()

    def _is_ours(self, uuid: str) -> bool:
        return uuid in self.seen and self.seen[uuid].is_ours

    def _knows(self, row: Row) -> bool:
        seen = self.seen.get(row['uuid'])
        return seen is not None and seen.generation == row['generation']

    def _rows(self) -> dict[str, Row]:
        tree = self.api.find(in_tree=self.root_uuid) if self.root_uuid else []
        if (self.root_uuid, self.root_name) not in {(row['uuid'], row['name']) for row in tree}:
            named = self.api.find(name=self.root_name)
            if not named:
                raise errors.ProviderTreeMissing(host=self.root_name)
            self.root_uuid = named[0]['uuid']
            self.tree_uuid = named[0]['root_provider_uuid']
            tree = self.api.find(in_tree=self.root_uuid)
        children = defaultdict(list)
        for row in tree:
            children[row['parent_provider_uuid']].append(row)
        # not the whole tree: if the compute node has a parent, its siblings belong to other agents
        below = children[self.root_uuid]
        for row in below:
            below += children[row['uuid']]
        return {row['uuid']: row for row in below}


@dataclass(frozen=True)
class Published:
    """The result of a publication. Providers that it does not name are in Placement as wanted."""

    #: provider name -> the uuid under which it existed already, to be used from now on
    adopted: dict[str, str]
    #: provider name -> who claims it; such a provider is not published
    conflicts: dict[str, str]
    #: False: guests use an inventory that should be removed, which is reserved instead, or a
    #: provider is refused. The caller tries again.
    is_complete: bool
    #: provider name -> why Placement refuses it; such a provider has no inventory
    refused: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class WantedProvider:
    """A provider of ours as it is wanted."""

    uuid: str
    name: str
    parent_uuid: str | None
    traits: frozenset[str]
    resource_class: str | None
    total: int
    reserved: int
    #: PCI addresses of all functions of its device: a provider with one of them claims the device
    addresses: frozenset[str] = frozenset()

    @classmethod
    def of(cls, provider: objects.Provider, addresses: Iterable[str] = ()) -> Self:
        return cls(
            provider.uuid,
            provider.name,
            provider.parent_uuid,
            frozenset((*provider.traits, OWNER)),
            provider.resource_class,
            provider.total,
            provider.reserved,
            frozenset(addresses),
        )

    @property
    def identities(self) -> set[str]:
        return _identities(self.name).union(*map(_identities, self.addresses))

    @property
    def inventories(self) -> Inventories:
        if self.resource_class is None or not self.total:
            return {}
        return {
            self.resource_class: {
                'total': self.total,
                'reserved': self.reserved,
                'min_unit': 1,
                'max_unit': self.total,
                'step_size': 1,
                'allocation_ratio': 1.0,
            }
        }


class Publication:
    """One attempt: read, compare, write the differences. Raises Stale after a race; the caller then
    makes a new attempt."""

    def __init__(
        self, subtree: Subtree, wanted: Iterable[WantedProvider], taken_over: Collection[str] = ()
    ) -> None:
        self.api = subtree.api
        self.wanted = _top_down(wanted)
        self.rows = subtree.read()
        self.seen = subtree.seen
        #: uuids of providers that were taken over from another service: ours without the trait,
        #: whatever their names
        self.taken_over = subtree.adoptable(taken_over)
        self.tree_uuid = subtree.tree_uuid
        self.adopted: dict[str, str] = {}
        self.conflicts: dict[str, str] = {}
        #: wanted uuid -> actual uuid, of the providers that are in place
        self.placed: dict[str | None, str] = {None: subtree.root_uuid}
        #: wanted uuid -> who claims it
        self.claims: dict[str | None, str] = {}
        self.is_complete = True
        self.refused: dict[str, str] = {}
        #: uuid of a provider that exists -> the name under which it is wanted
        self.names: dict[str, str] = {}

    def run(self) -> Published:
        existing = self._match()
        self.names = {
            existing[provider.uuid]: provider.name
            for provider in self.wanted
            if provider.uuid in existing
        }
        kept = set(existing.values())
        # unwanted providers are emptied first, so that no device is offered twice
        self._empty([uuid for uuid in self.rows if self.seen[uuid].is_ours and uuid not in kept])
        self.api.learn_traits(trait for provider in self.wanted for trait in provider.traits)
        for provider in self.wanted:
            with self._apart(provider.name):
                self._place(provider, existing.get(provider.uuid))
        self._offer(
            {
                self.placed[provider.uuid]: provider.inventories
                for provider in self.wanted
                if provider.uuid in self.placed
            }
        )
        self._empty([uuid for uuid, name in self.names.items() if name in self.refused])
        return Published(
            self.adopted, self.conflicts, self.is_complete and not self.refused, self.refused
        )

    def _match(self) -> dict[str, str]:
        """Returns the uuids of existing providers by wanted uuid, and notes claims of others."""
        for provider in self.wanted:
            row = self.rows.get(provider.uuid)
            if row and row['name'] == provider.name:
                # also without the trait: the agent may have died right after it created it
                self.seen[provider.uuid].is_ours = True
        for uuid in self.taken_over:
            self.seen[uuid].is_ours = True
        foreign = {
            key: row
            for uuid, row in self.rows.items()
            if not self.seen[uuid].is_ours
            for key in _identities(row['name'])
        }
        ours = {
            row['name'].casefold(): uuid
            for uuid, row in self.rows.items()
            if self.seen[uuid].is_ours
        }
        existing = {}
        for provider in self.wanted:
            for row in filter(None, map(foreign.get, sorted(provider.identities))):
                self._claim(
                    provider,
                    f'{row["name"]} ({row["uuid"]}) is the same device, and does not carry {OWNER}',
                )
            if provider.parent_uuid in self.claims:
                self._claim(provider, self.claims[provider.parent_uuid])
            elif provider.uuid in self.claims:
                continue
            elif provider.uuid in self.taken_over:
                existing[provider.uuid] = provider.uuid
            elif provider.name.casefold() in ours:
                existing[provider.uuid] = ours[provider.name.casefold()]
        return existing

    def _claim(self, provider: WantedProvider, owner: str) -> None:
        self.claims[provider.uuid] = self.conflicts[provider.name] = owner

    def _place(self, provider: WantedProvider, uuid: str | None) -> None:
        """Create, move or adopt a provider, and set its traits. Its inventory is written later, so
        that no server can get it without its traits."""
        if provider.parent_uuid in self.claims:
            self._claim(provider, self.claims[provider.parent_uuid])
        if provider.uuid in self.claims:
            return
        if provider.parent_uuid not in self.placed:
            raise Refused('its parent is refused')
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

    def _create(self, provider: WantedProvider, parent_uuid: str) -> str:
        try:
            row = self.api.create(provider.uuid, provider.name, parent_uuid)
        except Refused:
            if not self.api.find(uuid=parent_uuid):
                raise Stale(f'{parent_uuid} vanished') from None
            raise
        LOG.info('Created resource provider %s (%s)', provider.name, provider.uuid)
        self.rows[provider.uuid], self.names[provider.uuid] = row, provider.name
        self.seen[provider.uuid] = SeenProvider(
            row['generation'], is_ours=True, traits=frozenset(), inventories={}
        )
        return provider.uuid

    def _holder(self, provider: WantedProvider) -> str:
        """Returns the provider that has the name or the uuid that we wanted to create."""
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
        """Write the inventories that differ, in one call if possible."""
        changes = {
            uuid: inventories
            for uuid, inventories in wanted.items()
            if self._inventories(uuid) != inventories
        }
        if len(changes) > 1 and self._reshape(changes):
            return
        for uuid, inventories in changes.items():
            with self._apart(self.names.get(uuid) or self.rows[uuid]['name']):
                self._set_inventories(uuid, inventories)

    def _reshape(self, changes: dict[str, Inventories]) -> bool:
        try:
            generations = self.api.reshape(
                {
                    uuid: (self.seen[uuid].generation, inventories)
                    for uuid, inventories in changes.items()
                }
            )
        except (Forbidden, InUse, Refused) as obstacle:
            LOG.debug('Writing inventories one by one: %s', obstacle)
            return False
        for uuid, generation in generations.items():
            self.seen[uuid].generation = generation
            self.seen[uuid].inventories = changes[uuid]
        return True

    @contextlib.contextmanager
    def _apart(self, name: str) -> Iterator[None]:
        """Record that Placement refuses a provider, so that the others are published."""
        try:
            yield
        except Refused as refusal:
            self.refused.setdefault(name, str(refusal))

    def _set_inventories(self, uuid: str, inventories: Inventories) -> None:
        present = self._inventories(uuid)
        try:
            self._write_inventories(uuid, inventories)
        except InUse:
            # a class that guests still use cannot be removed, so it is fully reserved
            self.is_complete = False
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
        """Remove the inventories and traits of providers, but keep the providers: nova-compute
        remembers them, and builds no server while one that it remembers is missing."""
        self._offer(dict.fromkeys(unwanted, {}))
        for uuid in unwanted:
            if not self.seen[uuid].inventories:  # a provider that a guest uses keeps its traits
                self._set_traits(uuid, frozenset({OWNER}))


def _reserved(inventories: Inventories) -> Inventories:
    """Returns the same inventories, fully reserved."""
    return {
        name: inventory | {'reserved': inventory['total']}
        for name, inventory in inventories.items()
    }


def _identities(name: str) -> set[str]:
    """Returns the keys that two providers of one device share: the name in lower case, and the PCI
    address in it."""
    address = ADDRESS.search(name)
    return {name.casefold()} | ({':'.join(address.groups()).lower()} if address else set())


def _top_down(wanted: Iterable[WantedProvider]) -> list[WantedProvider]:
    """Returns the providers, each after its parent."""
    children = defaultdict(list)
    for provider in sorted(wanted, key=lambda provider: provider.name):
        children[provider.parent_uuid].append(provider)
    ordered = children[None]
    for provider in ordered:
        ordered += children.pop(provider.uuid, [])
    if children.keys() != {None}:
        raise ValueError(f'Providers are wanted below {[*children]}, which are not wanted.')
    return ordered
