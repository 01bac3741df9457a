# SPDX-License-Identifier: Apache-2.0
"""What Placement has below a compute node, and what need not be read again."""

from collections import defaultdict
from dataclasses import dataclass

import os_traits

from cyborg import errors
from cyborg.clients.placement_api import Inventories, PlacementApi, Row

OWNER = os_traits.OWNER_CYBORG


@dataclass
class Seen:
    """A provider's content, true as long as Placement shows the same generation."""

    generation: int
    is_ours: bool
    traits: frozenset[str] | None = None
    inventories: Inventories | None = None


class Subtree:
    """The providers below a compute node, remembered from one look to the next."""

    def __init__(self, api: PlacementApi, root_name: str) -> None:
        self.api = api
        self.root_name = root_name
        self.root_uuid = ''
        #: of the whole tree, should the compute node itself be below something
        self.tree_uuid = ''
        self.seen: dict[str, Seen] = {}

    def read(self) -> dict[str, Row]:
        """All that is below the compute node, by uuid and from the top down."""
        rows = self._rows()
        if any(not self._knows(row) for row in rows.values()):
            ours = {row['uuid'] for row in self.api.find(in_tree=self.root_uuid, required=OWNER)}
            self.seen |= {uuid: Seen(row['generation'], is_ours=uuid in ours)
                          for uuid, row in rows.items() if not self._knows(row)}
        self.seen = {uuid: self.seen[uuid] for uuid in rows}
        return rows

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
        # not the whole tree: should the compute node be below something, what is beside it
        # is another agent's
        below = children[self.root_uuid]
        for row in below:
            below += children[row['uuid']]
        return {row['uuid']: row for row in below}
