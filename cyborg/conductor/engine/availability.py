# SPDX-License-Identifier: Apache-2.0
"""Decides how often a device profile fits on each host, and why not more often.

Placement says on which providers a group fits now. The rows say how often, and why not. Placement
is asked about all hosts at once; where the rows do not explain its answer, it is asked again with
one condition less.
"""

import dataclasses
import itertools
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import os_traits

from cyborg import objects
from cyborg.conductor.engine import capacity, packing
from cyborg.db.sqlalchemy.units import Located, Part
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
    """What Placement answers about the groups of a profile. Questions that do not depend on each
    other are asked at the same time, in other threads."""

    def __init__(
        self,
        offers: Offers,
        groups: Sequence[Mapping[str, str]],
        threads: Executor,
        hostname: str | None = None,
    ) -> None:
        self._offers, self._threads = offers, threads
        self.wanted = [Wanted.of(group) for group in groups]
        self._is_known, self._tree = True, None
        if hostname is not None:
            self._tree = offers.root(hostname)
            self._is_known = self._tree is not None
        self._disabled = threads.submit(offers.disabled_hosts)
        self._offered = {
            each: self._submit(each.amounts, each.required, each.forbidden)
            for each in dict.fromkeys(self.wanted)
        }
        self._without: dict[tuple[Wanted, str], set[str]] = {}

    @cached_property
    def disabled(self) -> set[str]:
        """The hosts whose compute service is disabled."""
        return self._disabled.result()

    def about(self, parts: Sequence[Located]) -> 'Answers':
        """Returns the answers about these parts. A sum for which none of them has enough units is
        left out. What Placement answers about others is forgotten at once, to save memory."""
        largest: dict[str, int] = defaultdict(int)
        for part in {each.part for each in parts}:
            largest[part.resource_class] = max(largest[part.resource_class], part.usable)
        sums = {
            (resource_class, amount): self._submit([(resource_class, amount)])
            for resource_class, amount in self._sums()
            if amount <= largest[resource_class]
        }
        return Answers(
            {each: _are_in(self._offered.pop(each), parts) for each in list(self._offered)},
            {each: _are_in(sums.pop(each), parts) for each in list(sums)},
        )

    def _submit(self, *criteria: Any) -> Future[set[str]]:
        return self._threads.submit(self._ask, *criteria)

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

    def reason(self, wanted: Wanted, rp_uuid: str) -> Obstacle:
        """Returns why Placement does not offer a provider, if the rows do not explain it."""
        if self._lacks_traits(wanted, rp_uuid):
            return Obstacle.TRAIT_MISSING
        if self._has_traits(wanted, rp_uuid):
            return Obstacle.NO_ROOM
        return Obstacle.NOT_IN_PLACEMENT

    def _lacks_traits(self, wanted: Wanted, rp_uuid: str) -> bool:
        """Returns whether a provider has the amounts, but not the traits."""
        if not wanted.required and not wanted.forbidden:
            return False
        key = wanted, 'traits'
        if key not in self._without:
            self._without[key] = self._ask(wanted.amounts)
        return rp_uuid in self._without[key]

    def _has_traits(self, wanted: Wanted, rp_uuid: str) -> bool:
        """Returns whether a provider has the traits, but not the amounts."""
        key = wanted, 'resources'
        if key not in self._without:
            self._without[key] = self._ask(
                required=wanted.required | {os_traits.OWNER_CYBORG}, forbidden=wanted.forbidden
            )
        return rp_uuid in self._without[key]


def _are_in(answer: Future[set[str]], parts: Sequence[Located]) -> list[bool]:
    uuids = answer.result()
    return [each.rp_uuid in uuids for each in parts]


@dataclass(frozen=True)
class Answers:
    """What Placement answers about parts, in their order."""

    #: whether it offers each part to a group
    offered: dict[Wanted, list[bool]]
    #: whether each part has room for an amount of a class
    sums: dict[tuple[str, int], list[bool]]

    def by_part(self) -> Iterable[tuple[bool, ...]]:
        return zip(*self.offered.values(), *self.sums.values(), strict=True)


@dataclass(frozen=True, eq=False)
class Case:
    """A part, and what Placement answers about it. Parts that are alike have the same one."""

    part: Part
    #: the compute service of the host is disabled
    is_compute_disabled: bool
    #: the groups to which Placement offers the part
    offered: frozenset[Wanted]
    #: units that the part can give: as the rows have it, and not more than Placement has room for
    room: int
    #: why Placement does not offer the part to a group, if the rows do not explain that
    unexplained: Mapping[Wanted, Obstacle] = field(default_factory=dict)

    @property
    def is_up(self) -> bool:
        """Nova can place servers on the host and bind their requests."""
        return not self.is_compute_disabled and not self.part.is_silent

    @cached_property
    def common(self) -> Obstacle | None:
        """Why no unit that is not held can be used, or None."""
        return Obstacle.COMPUTE_DISABLED if self.is_compute_disabled else capacity.common(self.part)

    def has_offer(self, wanted: Wanted) -> bool:
        """Returns whether Placement offers the part to a group, and a bind would accept it."""
        return (
            wanted in self.offered
            and wanted.classes == {self.part.resource_class}
            and not wanted.missing(self.part.traits)
        )

    def fits(self, wanted: Wanted) -> int:
        """Returns how often a group fits: Placement and the rows must agree."""
        if not self.is_up or not self.has_offer(wanted):
            return 0
        return self.part.usable // wanted.amount(self.part.resource_class)

    def is_doubtful(self, wanted: Wanted) -> bool:
        """Returns whether the rows do not explain that Placement does not offer the part."""
        part = self.part
        return (
            wanted not in self.offered
            and part.free > part.reserved
            and wanted.classes == {part.resource_class}
            and part.usable >= wanted.amount(part.resource_class)
            and not wanted.missing(part.traits)
            and self.common is None
        )

    def obstacles(self, wanted: Wanted) -> Counter[Obstacle]:
        """Returns why units cannot be used: how many by reason, each counted once."""
        part = self.part
        if wanted.classes != {part.resource_class}:
            return Counter({Obstacle.CLASS_MISSING: part.total})
        if wanted.missing(part.traits):
            return Counter({Obstacle.TRAIT_MISSING: part.total})
        found = Counter({Obstacle.IN_USE: part.held}) + capacity.withheld(part, self.common)
        free = part.total - found.total()
        if free and part.usable < wanted.amount(part.resource_class):
            found[Obstacle.TOO_FEW] = free
        elif unexplained := self.unexplained.get(wanted):
            found[unexplained] = free
        return +found


class Cases:
    """Finds the case of each part."""

    def __init__(self, asked: Asked, answers: Answers) -> None:
        self._asked = asked
        self._groups, self._sums = list(answers.offered), list(answers.sums)
        self._made: dict[tuple[Any, ...], Case] = {}
        self._doubts: dict[Case, list[Wanted]] = {}

    def of(self, located: Located, answers: tuple[bool, ...]) -> Case:
        hostname, rp_uuid, part = located
        key = part, hostname in self._asked.disabled, answers
        case = self._made.get(key)
        if case is None:
            case = self._made[key] = self._make(*key)
            self._doubts[case] = [each for each in self._groups if case.is_doubtful(each)]
        if not self._doubts[case]:
            return case
        reasons = {each: self._asked.reason(each, rp_uuid) for each in self._doubts[case]}
        return self._made.setdefault(
            (case, *reasons.values()), dataclasses.replace(case, unexplained=reasons)
        )

    def _make(self, part: Part, is_compute_disabled: bool, answers: tuple[bool, ...]) -> Case:
        count, room = len(self._groups), part.usable
        for (resource_class, amount), has_room in zip(self._sums, answers[count:], strict=True):
            if resource_class == part.resource_class and not has_room:
                room = min(room, amount - 1)
        offered = itertools.compress(self._groups, answers)
        return Case(part, is_compute_disabled, frozenset(offered), room)


def measure(
    asked: Asked, parts: Sequence[Located], hostname: str | None = None
) -> list[objects.HostAvailability]:
    """Returns how often the groups of a profile fit on the hosts of these parts; also on one that
    is asked for and has none.

    Most hosts of a cloud are alike. Hosts with the same rows and answers of Placement are judged
    together.
    """
    answers = asked.about(parts)
    cases = Cases(asked, answers)
    by_host: dict[str, tuple[Case, ...]] = {} if hostname is None else {hostname: ()}
    known: dict[tuple[Case, ...], tuple[Case, ...]] = {}
    for each, answer in zip(parts, answers.by_part(), strict=True):
        members = *by_host.get(each.hostname, ()), cases.of(each, answer)
        by_host[each.hostname] = known.setdefault(members, members)
    alike: dict[tuple[Case, ...], list[str]] = defaultdict(list)
    for name, members in by_host.items():
        alike[members].append(name)
    return [_judge(asked.wanted, members, names) for members, names in alike.items()]


def _judge(
    profile: Sequence[Wanted], cases: Sequence[Case], hostnames: list[str]
) -> objects.HostAvailability:
    groups = [_group(index, wanted, cases) for index, wanted in enumerate(profile)]
    fits, is_at_most = groups[0].fits, False
    if len(groups) > 1:
        fits, is_at_most = _together(profile, cases)
    return objects.HostAvailability.of(
        {'hostnames': hostnames, 'fits': fits, 'is_at_most': is_at_most, 'groups': groups}
    )


def _group(index: int, wanted: Wanted, cases: Sequence[Case]) -> objects.GroupAvailability:
    mine = [case for case in cases if case.part.resource_class in wanted.classes]
    obstacles: Counter[Obstacle] = Counter()
    for case in mine:
        obstacles += case.obstacles(wanted)
    units = sum(case.part.total for case in mine)
    fits = sum(case.fits(wanted) for case in mine)
    free = units - obstacles.total()
    return objects.GroupAvailability.of(
        {
            'group': index,
            'fits': fits,
            'units': units,
            'free': free,
            'obstacles': {str(name): count for name, count in obstacles.items()},
            'sentence': _sentence(wanted, [case.part for case in mine], free, fits, obstacles),
        }
    )


def _together(profile: Sequence[Wanted], cases: Sequence[Case]) -> tuple[int, bool]:
    """Returns how often all groups fit on a host, and whether that is an upper bound."""
    if not all(case.is_up for case in cases):
        return 0, False
    groups = [
        packing.Group(
            wanted.amounts[0][1],
            tuple(index for index, case in enumerate(cases) if case.has_offer(wanted)),
        )
        for wanted in profile
    ]
    return packing.pack(tuple(case.room for case in cases), tuple(groups))


def _sentence(
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
        detail = _detail(obstacle, wanted, parts)
        said.append(f'{count} {PHRASES[obstacle][count != 1]}' + (f' ({detail})' if detail else ''))
    times = {0: 'It does not fit', 1: 'It fits once'}.get(fits, f'It fits {fits} times')
    return f'{times}: of {total} unit{"s" * (total != 1)} of {classes}, {_listed(said)}.'


def _detail(obstacle: Obstacle, wanted: Wanted, parts: Sequence[Part]) -> str:
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
            return next((part.claimant for part in parts if part.claimant), '')
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
    considered = fitting = fits = 0
    in_the_way: Counter[str] = Counter()
    for alike in hosts:
        count = len(alike.hostnames)
        considered, fits = considered + count, fits + count * alike.fits
        if alike.fits:
            fitting += count
        else:
            in_the_way.update(dict.fromkeys(_why_not(alike), count))
    return objects.Availability(
        profile_uuid=profile.uuid,
        profile_name=profile.name,
        is_enabled=profile.is_enabled,
        fits=fits,
        is_at_most=any(alike.is_at_most for alike in hosts),
        hosts_considered=considered,
        hosts_fitting=fitting,
        obstacles=dict(in_the_way),
        groups=[_total(index, hosts) for index in range(len(profile.groups))],
        hosts=list(hosts) if with_hosts else [],
    )


def _why_not(hosts: objects.HostAvailability) -> set[str]:
    """Returns the obstacles on hosts on which a profile does not fit."""
    unfit = [group for group in hosts.groups if not group.fits]
    found = {name for group in unfit for name in group.obstacles}
    if any(not group.units for group in unfit):
        found.add(str(Obstacle.CLASS_MISSING))
    # each group fits, but not all of them at once
    return found or {str(Obstacle.TOO_FEW)}


def _total(index: int, hosts: Iterable[objects.HostAvailability]) -> objects.GroupAvailability:
    fits = units = free = 0
    obstacles: Counter[str] = Counter()
    for alike in hosts:
        count, group = len(alike.hostnames), alike.groups[index]
        fits, units = fits + count * group.fits, units + count * group.units
        free += count * group.free
        obstacles.update({name: count * number for name, number in group.obstacles.items()})
    return objects.GroupAvailability(
        group=index, fits=fits, units=units, free=free, obstacles=dict(obstacles)
    )
