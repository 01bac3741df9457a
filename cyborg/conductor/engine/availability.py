# SPDX-License-Identifier: Apache-2.0
"""Decides how often a device profile fits on each host, and why not more often.

Placement says on which providers a group fits now. The rows say how often, and why not. Placement
is asked about all hosts at once; where the rows do not explain its answer, it is asked again with
one condition less.
"""

import datetime
import operator
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import os_traits

from cyborg import objects
from cyborg.conductor.engine import capacity, packing
from cyborg.db.sqlalchemy.units import COUNTS, Host, Part
from cyborg.objects import Obstacle

#: how many sums of amounts Placement is asked about, if several groups want units of one class
MOST_SUMS = 6

#: reason -> the words about one unit, and about several
PHRASES = {
    Obstacle.TRAIT_MISSING: ('does not have the traits', 'do not have the traits'),
    Obstacle.IN_USE: ('is in use', 'are in use'),
    Obstacle.COMPUTE_DISABLED: ('waits for the compute service, which is disabled',) * 2,
    Obstacle.AGENT_SILENT: ('waits for the agent, which is silent',) * 2,
    Obstacle.CONFLICT: ('is claimed by another provider', 'are claimed by other providers'),
    Obstacle.DISABLED: ('is disabled', 'are disabled'),
    Obstacle.AT_FAULT: ('is at fault', 'are at fault'),
    Obstacle.QUARANTINED: ('could not be cleaned', 'could not be cleaned'),
    Obstacle.BEING_PROGRAMMED: ('is being programmed', 'are being programmed'),
    Obstacle.BEING_CLEANED: ('is being cleaned', 'are being cleaned'),
    Obstacle.USED_BY_OTHERS: ('is used by another program', 'are used by other programs'),
    Obstacle.TOO_FEW: (
        'is free on a device with too few free units',
        'are free on devices with too few free units',
    ),
    Obstacle.NO_ROOM: (
        'is free, but Placement has no room for the amount',
        'are free, but Placement has no room for the amount',
    ),
    Obstacle.NOT_IN_PLACEMENT: (
        'is free, but not in Placement',
        'are free, but not in Placement',
    ),
    Obstacle.CLASS_MISSING: (
        'is on a device that has not all of the classes',
        'are on devices that have not all of the classes',
    ),
}


@dataclass(frozen=True)
class Wanted:
    """What a group asks of one provider."""

    amounts: tuple[tuple[str, int], ...]
    required: frozenset[str]
    forbidden: frozenset[str]

    @classmethod
    def of(cls, group: Mapping[str, str]) -> 'Wanted':
        def names(value: str) -> frozenset[str]:
            return frozenset(
                key.removeprefix('trait:')
                for key, text in group.items()
                if key.startswith('trait:') and text == value
            )

        return cls(
            tuple(
                sorted(
                    (key.removeprefix('resources:'), int(amount))
                    for key, amount in group.items()
                    if key.startswith('resources:')
                )
            ),
            names('required'),
            names('forbidden'),
        )

    @cached_property
    def classes(self) -> frozenset[str]:
        return frozenset(name for name, _ in self.amounts)

    def amount(self, resource_class: str) -> int:
        return dict(self.amounts)[resource_class]

    def missing(self, traits: frozenset[str]) -> frozenset[str]:
        """Returns required traits that are missing and forbidden ones that are there."""
        return (self.required - traits) | (self.forbidden & traits)


class Offers(Protocol):
    """What is asked of Placement; each method is one call."""

    def offering(
        self,
        amounts: Iterable[tuple[str, int]] = (),
        required: Collection[str] = (),
        forbidden: Collection[str] = (),
        tree: str | None = None,
    ) -> set[str]:
        """Returns the uuids of the providers with room for amounts, and with traits."""

    def disabled_hosts(self) -> set[str]:
        """Returns the names of compute nodes whose service is disabled."""

    def root(self, hostname: str) -> str | None:
        """Returns the uuid of a compute node."""


class Asked:
    """What Placement has answered about the groups of a profile."""

    def __init__(
        self, offers: Offers, groups: Sequence[Mapping[str, str]], hostname: str | None = None
    ) -> None:
        self._offers = offers
        self.wanted = [Wanted.of(group) for group in groups]
        self._is_known, self._tree = True, None
        if hostname is not None:
            self._tree = offers.root(hostname)
            self._is_known = self._tree is not None
        self.offered = {
            each: self._ask(each.amounts, each.required, each.forbidden)
            for each in dict.fromkeys(self.wanted)
        }
        self.sums = {
            (resource_class, amount): self._ask([(resource_class, amount)])
            for resource_class, amount in self._sums()
        }
        self.disabled = offers.disabled_hosts()
        self._without: dict[tuple[Wanted, str], set[str]] = {}

    def _ask(
        self,
        amounts: Iterable[tuple[str, int]] = (),
        required: Collection[str] = (),
        forbidden: Collection[str] = (),
    ) -> set[str]:
        if not self._is_known:
            return set()
        return self._offers.offering(amounts, required, forbidden, self._tree)

    def _sums(self) -> list[tuple[str, int]]:
        """Returns the amounts of a class that several groups want together from one provider."""
        by_class: dict[str, list[int]] = defaultdict(list)
        for each in self.wanted:
            for name, amount in each.amounts:
                by_class[name].append(amount)
        found = []
        for name, amounts in by_class.items():
            sums: set[int] = set()
            for amount in amounts[:MOST_SUMS]:
                sums |= {amount, *(each + amount for each in sums)}
            found += [(name, each) for each in sorted(sums - set(amounts))[:MOST_SUMS]]
        return found

    def lacks_traits(self, wanted: Wanted, rp_uuid: str) -> bool:
        """Returns whether a provider has the amounts, but not the traits."""
        if not wanted.required and not wanted.forbidden:
            return False
        key = wanted, 'traits'
        if key not in self._without:
            self._without[key] = self._ask(wanted.amounts)
        return rp_uuid in self._without[key]

    def has_traits(self, wanted: Wanted, rp_uuid: str) -> bool:
        """Returns whether a provider has the traits, but not the amounts."""
        key = wanted, 'resources'
        if key not in self._without:
            self._without[key] = self._ask(
                required=wanted.required | {os_traits.OWNER_CYBORG}, forbidden=wanted.forbidden
            )
        return rp_uuid in self._without[key]


#: what the rows say of a part, without its names
_FACTS = operator.attrgetter(
    'resource_class',
    'traits',
    'fault',
    *COUNTS,
    'reserved',
    'is_disabled',
)


class Measure:
    """How often the groups of a profile fit on each host.

    Most hosts of a cloud are alike. Hosts with the same rows and answers of Placement are judged
    together.
    """

    def __init__(
        self,
        asked: Asked,
        hosts: Mapping[str, Host],
        silent_since: datetime.datetime,
    ) -> None:
        self._asked = asked
        self._conditions = capacity.Conditions(hosts, silent_since)
        self._judged: dict[tuple[Any, ...], dict[str, Any]] = {}

    def hosts(
        self, parts: Iterable[Part], hostname: str | None = None
    ) -> list[objects.HostAvailability]:
        """Returns the hosts of these parts; also one that is asked for and has none."""
        by_host: dict[str, list[Part]] = {} if hostname is None else {hostname: []}
        for part in parts:
            by_host.setdefault(part.hostname, []).append(part)
        return [self._host(name, members) for name, members in by_host.items()]

    def _host(self, hostname: str, parts: Sequence[Part]) -> objects.HostAvailability:
        facts = self._is_up(hostname), *map(self._facts, parts)
        if facts not in self._judged:
            self._judged[facts] = self._judge(hostname, parts)
        return objects.HostAvailability.of(self._judged[facts], hostname=hostname)

    def _facts(self, part: Part) -> tuple[Any, ...]:
        """Returns all that the judgement of a part depends on."""
        rp_uuid, asked = part.rp_uuid, self._asked
        return (
            _FACTS(part),
            self._common(part),
            self._conditions.claimant(part.hostname, part.name),
            *[rp_uuid in offered for offered in asked.offered.values()],
            *[rp_uuid in offered for offered in asked.sums.values()],
            *[self._unexplained(wanted, part) for wanted in asked.offered],
        )

    def _judge(self, hostname: str, parts: Sequence[Part]) -> dict[str, Any]:
        """Returns the fields of a host that others may have in common with it."""
        groups = [
            self._group(index, wanted, parts) for index, wanted in enumerate(self._asked.wanted)
        ]
        fits, is_at_most = groups[0].fits, False
        if len(groups) > 1:
            fits, is_at_most = self._together(hostname, parts)
        return {'fits': fits, 'is_at_most': is_at_most, 'groups': groups}

    def _group(
        self, index: int, wanted: Wanted, parts: Sequence[Part]
    ) -> objects.GroupAvailability:
        mine = [part for part in parts if part.resource_class in wanted.classes]
        obstacles: Counter[Obstacle] = Counter()
        for part in mine:
            obstacles += self._obstacles(wanted, part)
        units = sum(part.total for part in mine)
        fits = sum(self._fits(wanted, part) for part in mine)
        free = units - obstacles.total()
        return objects.GroupAvailability.of(
            {
                'group': index,
                'fits': fits,
                'units': units,
                'free': free,
                'obstacles': {str(name): count for name, count in obstacles.items()},
                'sentence': self._sentence(wanted, mine, free, fits, obstacles),
            }
        )

    def _fits(self, wanted: Wanted, part: Part) -> int:
        """Returns how often a group fits on a provider: Placement and the rows must agree."""
        if not self._is_up(part.hostname) or not self._is_offered(wanted, part):
            return 0
        return part.usable // wanted.amount(part.resource_class)

    def _is_offered(self, wanted: Wanted, part: Part) -> bool:
        """Returns whether Placement offers a part to a group, and a bind would accept it."""
        return (
            wanted.classes == {part.resource_class}
            and part.rp_uuid in self._asked.offered[wanted]
            and not wanted.missing(part.traits)
        )

    def _is_up(self, hostname: str) -> bool:
        """Returns whether Nova can place servers on a host and bind their requests."""
        return hostname not in self._asked.disabled and not self._conditions.is_silent(hostname)

    def _obstacles(self, wanted: Wanted, part: Part) -> Counter[Obstacle]:
        """Returns why units of a part cannot be used: how many by reason, each counted once."""
        if wanted.classes != {part.resource_class}:
            return Counter({Obstacle.CLASS_MISSING: part.total})
        if wanted.missing(part.traits):
            return Counter({Obstacle.TRAIT_MISSING: part.total})
        common = self._common(part)
        found = Counter({Obstacle.IN_USE: part.held}) + capacity.withheld(part, common)
        free = part.total - found.total()
        if free and part.usable < wanted.amount(part.resource_class):
            found[Obstacle.TOO_FEW] = free
        elif unexplained := self._unexplained(wanted, part):
            found[unexplained] = free
        return +found

    def _common(self, part: Part) -> Obstacle | None:
        """Returns why no unit of a part that is not held can be used, or None."""
        if part.hostname in self._asked.disabled:
            return Obstacle.COMPUTE_DISABLED
        return self._conditions.obstacle(
            part.hostname, part.name, is_disabled=part.is_disabled, fault=part.fault
        )

    def _unexplained(self, wanted: Wanted, part: Part) -> Obstacle | None:
        """Returns why Placement does not offer the free units of a part, if the rows do not explain
        it."""
        if (
            part.rp_uuid in self._asked.offered[wanted]
            or part.free <= part.reserved
            or wanted.classes != {part.resource_class}
            or part.usable < wanted.amount(part.resource_class)
            or wanted.missing(part.traits)
            or self._common(part) is not None
        ):
            return None
        if self._asked.lacks_traits(wanted, part.rp_uuid):
            return Obstacle.TRAIT_MISSING
        if self._asked.has_traits(wanted, part.rp_uuid):
            return Obstacle.NO_ROOM
        return Obstacle.NOT_IN_PLACEMENT

    def _together(self, hostname: str, parts: Sequence[Part]) -> tuple[int, bool]:
        """Returns how often all groups fit on a host, and whether that is an upper bound."""
        if not self._is_up(hostname):
            return 0, False
        rooms = [self._room(part) for part in parts]
        groups = [
            packing.Group(
                wanted.amounts[0][1],
                tuple(index for index, part in enumerate(parts) if self._is_offered(wanted, part)),
            )
            for wanted in self._asked.wanted
        ]
        return packing.pack(tuple(rooms), tuple(groups))

    def _room(self, part: Part) -> int:
        """Returns the units that a part can give: as the rows have it, and not more than Placement
        has room for."""
        room = part.usable
        for (resource_class, amount), offered in self._asked.sums.items():
            if resource_class == part.resource_class and part.rp_uuid not in offered:
                room = min(room, amount - 1)
        return room

    def _sentence(
        self,
        wanted: Wanted,
        parts: Sequence[Part],
        free: int,
        fits: int,
        obstacles: Mapping[Obstacle, int],
    ) -> str:
        """Returns what an operator is told about a group on a host."""
        classes = ' and '.join(sorted(wanted.classes))
        if not parts:
            return f'The host has no unit of {classes}.'
        total = sum(part.total for part in parts)
        said = [f'{free} {"is" if free == 1 else "are"} free'] if free else []
        for obstacle, count in obstacles.items():
            detail = self._detail(obstacle, wanted, parts)
            said.append(
                f'{count} {PHRASES[obstacle][count != 1]}' + (f' ({detail})' if detail else '')
            )
        times = {0: 'It does not fit', 1: 'It fits once'}.get(fits, f'It fits {fits} times')
        return f'{times}: of {total} unit{"s" * (total != 1)} of {classes}, {_listed(said)}.'

    def _detail(self, obstacle: Obstacle, wanted: Wanted, parts: Sequence[Part]) -> str:
        match obstacle:
            case Obstacle.TRAIT_MISSING:
                missing = frozenset[str]().union(*(wanted.missing(part.traits) for part in parts))
                return ', '.join(
                    f'{name} is forbidden' if name in wanted.forbidden else name
                    for name in sorted(missing)
                )
            case Obstacle.AT_FAULT:
                return next((part.fault for part in parts if part.fault), '')
            case Obstacle.CONFLICT:
                claims = (self._conditions.claimant(part.hostname, part.name) for part in parts)
                return next(filter(None, claims), '')
        return ''


def _listed(said: Sequence[str]) -> str:
    return said[0] if len(said) == 1 else f'{", ".join(said[:-1])} and {said[-1]}'


def summarize(
    profile: objects.DeviceProfile,
    hosts: Sequence[objects.HostAvailability],
    *,
    with_hosts: bool,
) -> objects.Availability:
    """Returns how often a profile fits on all of these hosts."""
    in_the_way: Counter[str] = Counter()
    for host in hosts:
        if not host.fits:
            in_the_way.update(_why_not(host))
    return objects.Availability(
        profile_uuid=profile.uuid,
        profile_name=profile.name,
        is_enabled=profile.is_enabled,
        fits=sum(host.fits for host in hosts),
        is_at_most=any(host.is_at_most for host in hosts),
        hosts_considered=len(hosts),
        hosts_fitting=sum(1 for host in hosts if host.fits),
        obstacles=dict(in_the_way),
        groups=[
            _total(index, [host.groups[index] for host in hosts])
            for index in range(len(profile.groups))
        ],
        hosts=list(hosts) if with_hosts else [],
    )


def _why_not(host: objects.HostAvailability) -> set[str]:
    """Returns the obstacles on a host on which a profile does not fit."""
    unfit = [group for group in host.groups if not group.fits]
    found = {name for group in unfit for name in group.obstacles}
    if any(not group.units for group in unfit):
        found.add(str(Obstacle.CLASS_MISSING))
    # each group fits, but not all of them at once
    return found or {str(Obstacle.TOO_FEW)}


def _total(index: int, groups: Iterable[objects.GroupAvailability]) -> objects.GroupAvailability:
    fits = units = free = 0
    obstacles: Counter[str] = Counter()
    for group in groups:
        fits, units, free = fits + group.fits, units + group.units, free + group.free
        obstacles.update(group.obstacles)
    return objects.GroupAvailability(
        group=index, fits=fits, units=units, free=free, obstacles=dict(obstacles)
    )
