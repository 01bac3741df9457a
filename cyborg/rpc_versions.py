# SPDX-License-Identifier: Apache-2.0
"""In which RPC version a client writes a message while releases run side by side."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from oslo_log import log

from cyborg import objects
from cyborg.objects import manifests

LOG = log.getLogger(__name__)

#: seconds for which messages have an older version after a server has refused a newer one
CAUTION = 60
#: method -> arguments that are newer than the oldest version -> the version that they came with;
#: a call leaves out those that it does not need
Added = Mapping[str, Mapping[str, str]]


class VersionChoice:
    """Chooses the oldest version in which nothing of a message is lost, and none that is newer
    than ``newest()`` or that a server has just refused. rpc.Client describes the parameters."""

    def __init__(
        self, whose: str, newest: Callable[[], str], added: Added, changed: Mapping[str, str]
    ) -> None:
        self._whose, self._newest = whose, newest
        self._added, self._changed = added, changed
        #: the version that a server refused, and until when it is not tried
        self._refused: str | None = None
        self._cautious_until = 0.0

    def oldest(self, method: str, arguments: Mapping[str, Any]) -> str:
        """Returns the oldest version that has this form of the method and all the arguments."""
        added = self._added.get(method, {})
        return _newest_of(
            [
                self._changed.get(method, manifests.OLDEST),
                *(added[name] for name in arguments if name in added),
            ]
        )

    def versions(
        self, method: str, arguments: Mapping[str, Any], *, is_cast: bool = False
    ) -> list[str]:
        """Returns the versions in which a message can be sent, the best one first. There is none
        if ``newest()`` does not have this form of the method, or one of the arguments.

        Nobody can refuse a cast. Those with objects are sent to agents, whose version is known;
        lists of objects are smaller in the newest version.
        """
        if (oldest := self.oldest(method, arguments)) != manifests.OLDEST:
            return _descending(oldest, self._newest())
        needed = [
            *(
                manifests.NEWEST if is_cast else manifests.needed(each.obj_name())
                for each in _objects_in(arguments)
            ),
            manifests.OLDEST,
        ]
        limit = min(_newest_of(needed), self._limit(), key=manifests.parsed)
        return _descending(manifests.OLDEST, limit)

    def _limit(self) -> str:
        if self._refused is None or time.monotonic() >= self._cautious_until:
            return self._newest()
        refused = manifests.parsed(self._refused)
        older = [each for each in manifests.CHANGES if manifests.parsed(each) < refused]
        return min(self._newest(), _newest_of([*older, manifests.OLDEST]), key=manifests.parsed)

    def note_refusal(self, version: str) -> None:
        """Do not use a version for a while that a server has refused."""
        if self._refused is None or time.monotonic() >= self._cautious_until:
            LOG.info(
                'A %s of an earlier release refuses version %s of RPC; older ones are used for %s '
                'seconds.',
                self._whose,
                version,
                CAUTION,
            )
        self._refused, self._cautious_until = version, time.monotonic() + CAUTION


def _descending(oldest: str, newest: str) -> list[str]:
    """Returns the versions from one to another, the newest first."""
    first, last = manifests.parsed(oldest), manifests.parsed(newest)
    return sorted(
        (each for each in manifests.CHANGES if first <= manifests.parsed(each) <= last),
        key=manifests.parsed,
        reverse=True,
    )


def _newest_of(versions: Iterable[str]) -> str:
    return max(versions, key=manifests.parsed)


def _objects_in(arguments: Mapping[str, Any]) -> Iterator[objects.CyborgObject]:
    """Yields the objects among arguments, and one of each list."""
    for value in arguments.values():
        each = value[0] if isinstance(value, list) and value else value
        if isinstance(each, objects.CyborgObject):
            yield each
