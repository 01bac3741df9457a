# SPDX-License-Identifier: Apache-2.0
"""The agent's Placement: our providers below a compute node, as the conductor wants them."""

import contextlib
import random
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Set

from keystoneauth1.adapter import Adapter

from cyborg import errors, objects
from cyborg.clients.placement_api import InUse, PlacementApi, Rejection, Stale
from cyborg.clients.provider_tree import Subtree
from cyborg.clients.publication import Publication, Published, Wanted

__all__ = ['Placement', 'Published']

#: Upper bounds, in seconds, of the pauses before each attempt; more than one attempt is needed
#: only when others write at the same moment.
PAUSES = (0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
#: How Placement calls those that may be servers. Nova does not say what its consumers are; its
#: migrations hold no accelerators, for it refuses to move who has some.
SERVERS = frozenset({'INSTANCE', 'unknown'})


class Placement:
    """For one thread at a time. What it remembers is what makes it cheap, so keep it."""

    def __init__(self, adapter: Adapter) -> None:
        self._api = PlacementApi(adapter)
        self._subtrees: dict[str, Subtree] = {}
        #: root name -> what was wanted last, and what came of it
        self._done: dict[str, tuple[frozenset[Wanted], Published]] = {}

    def publish(self, root_name: str, providers: Iterable[objects.Provider],
                addresses: Mapping[str, Set[str]] | None = None) -> Published:
        """Make our providers below a compute node equal to these; touch nothing else.

        ``addresses`` are those of the functions of each provider's device, by provider name: a
        provider of somebody else on one of them is a conflict. The same list again costs no
        call. Providers that are not in it are emptied and kept. What guests still hold is
        reserved, what Placement refuses is returned; both are tried again each time.
        """
        known = addresses or {}
        wanted = frozenset(Wanted.of(each, known.get(each.name, ())) for each in providers)
        if root_name in self._done and self._done[root_name][0] == wanted:
            return self._done[root_name][1]
        self._done.pop(root_name, None)
        published = _publish(self._subtree(root_name), wanted)
        if published.is_settled:
            self._done[root_name] = wanted, published
        return published

    def forget(self) -> None:
        """Have the next publication look at Placement, even if nothing changed here."""
        self._done.clear()

    def leftovers(self, root_name: str, wanted: Collection[str]) -> dict[str, str]:
        """Our providers below a compute node that are not among these uuids, leaves first:
        uuid -> name."""
        with _understood():
            subtree = self._subtree(root_name)
            rows = subtree.read()
            return {uuid: row['name'] for uuid, row in reversed(rows.items())
                    if subtree.seen[uuid].is_ours and uuid not in wanted}

    def delete(self, uuids: Iterable[str]) -> set[str]:
        """Delete these, leaves first; returns those that stay since something is in the way:
        allocations, or providers below."""
        self.forget()
        stay = set()
        for uuid in uuids:
            with _understood():
                try:
                    self._api.delete(uuid)
                except InUse:
                    stay.add(uuid)
                except Stale:
                    pass  # somebody else was faster
        return stay

    def _subtree(self, root_name: str) -> Subtree:
        if root_name not in self._subtrees:
            self._subtrees[root_name] = Subtree(self._api, root_name)
        return self._subtrees[root_name]


def _publish(subtree: Subtree, wanted: Iterable[Wanted]) -> Published:
    for attempt, pause in enumerate(PAUSES):
        time.sleep(random.uniform(0, pause))
        try:
            published = Publication(subtree, wanted).run()
        except Stale as race:
            reason = race
        except Rejection as rejection:
            raise errors.PlacementUnavailable(why=str(rejection)) from rejection
        else:
            # a trait or class may be refused that we wrongly took for known: not the next time
            if not published.refused or attempt:
                return published
    raise errors.PlacementUnavailable(
        why=f'others write below {subtree.root_name} all the time; last: {reason}')


class Allocations:
    """Who holds what, for those who compare."""

    def __init__(self, adapter: Adapter) -> None:
        self._api = PlacementApi(adapter)

    def providers_of(self, consumer: str) -> set[str]:
        """The providers on which a server holds something."""
        with _understood():
            return self._api.allocations(consumer)

    def other_servers_on(self, provider: str, servers: set[str]) -> set[str]:
        """Who but these servers holds something of a provider; what says that it is something
        else than a server is left out."""
        with _understood():
            return {consumer for consumer in self._api.consumers(provider) - servers
                    if self._api.consumer_type(consumer) in SERVERS}


@contextlib.contextmanager
def _understood() -> Iterator[None]:
    """An endpoint that rejects a plain question is not Placement, or none that we can use."""
    try:
        yield
    except Rejection as rejection:
        raise errors.PlacementUnavailable(why=str(rejection)) from rejection
