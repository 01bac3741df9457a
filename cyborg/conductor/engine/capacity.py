# SPDX-License-Identifier: Apache-2.0
"""Decides which units are free, in use or withheld, by the rows alone."""

import datetime
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from cyborg import objects
from cyborg.db.sqlalchemy.units import MISSING, Host, Located, Part
from cyborg.objects import DeviceStatus, Obstacle, Withheld

WITHHELD = {
    Withheld.QUARANTINED: Obstacle.QUARANTINED,
    Withheld.PROGRAMMING: Obstacle.BEING_PROGRAMMED,
    Withheld.CLEANING: Obstacle.BEING_CLEANED,
}


def is_silent(host: Host | None, silent_since: datetime.datetime) -> bool:
    """Returns whether the agent of a host has missed its heartbeats."""
    return host is None or host.last_heartbeat < silent_since


def obstacle(
    *, is_silent: bool, claimant: str | None, is_disabled: bool, fault: str | None
) -> Obstacle | None:
    """Returns why no unit of a deployable can be used, apart from those that requests hold."""
    if is_silent:
        return Obstacle.AGENT_SILENT
    if claimant is not None:
        return Obstacle.CONFLICT
    if is_disabled:
        return Obstacle.DISABLED
    return None if fault is None else Obstacle.AT_FAULT


def common(part: Part) -> Obstacle | None:
    """Returns the same for a part."""
    return obstacle(
        is_silent=part.is_silent,
        claimant=part.claimant,
        is_disabled=part.is_disabled,
        fault=part.fault,
    )


def withheld(part: Part, common: Obstacle | None) -> Counter[Obstacle]:
    """Returns why units of a deployable that no request holds cannot be used, each counted once."""
    if common is not None:
        return +Counter({common: part.total - part.held})
    return +Counter(
        {
            Obstacle.QUARANTINED: part.quarantined,
            Obstacle.BEING_PROGRAMMED: part.programming,
            Obstacle.BEING_CLEANED: part.cleaning,
            Obstacle.USED_BY_OTHERS: part.occupied + min(part.free, part.reserved),
        }
    )


def by_model(parts: Iterable[Located]) -> list[objects.ModelCapacity]:
    """Returns the units by model and resource class."""
    grouped: dict[tuple[str, str, str | None, str], list[Located]] = defaultdict(list)
    for each in parts:
        part = each.part
        grouped[part.type, part.vendor, part.model, part.resource_class].append(each)
    found = []
    for key in sorted(grouped, key=lambda key: tuple(text or '' for text in key)):
        members, obstacles = grouped[key], Counter[Obstacle]()
        units = in_use = 0
        for part, count in Counter(each.part for each in members).items():
            units, in_use = units + count * part.total, in_use + count * part.held
            for name, number in withheld(part, common(part)).items():
                obstacles[name] += count * number
        found.append(
            objects.ModelCapacity(
                type=key[0],
                vendor=key[1],
                model=key[2],
                resource_class=key[3],
                hosts=len({each.hostname for each in members}),
                units=units,
                in_use=in_use,
                free=units - in_use - obstacles.total(),
                withheld={str(name): count for name, count in obstacles.items()},
            )
        )
    return found


def judge(
    found: objects.HostUnits, reserved: Mapping[str, int], conflicts: Mapping[str, str]
) -> None:
    """Set why units of a host that no request holds cannot be used. ``reserved``: deployable ->
    number of free units that cannot be used because others use the resources of the card."""
    for device in found.devices:
        for part in device.deployables:
            common = obstacle(
                is_silent=not found.is_alive,
                claimant=conflicts.get(part.name),
                is_disabled=device.status == DeviceStatus.MAINTAINING,
                fault=MISSING if device.is_missing else device.fault,
            )
            unheld = [unit for unit in part.units if unit.arq_uuid is None]
            for unit in unheld:
                unit.withheld = _obstacle(unit, common)
            free = [unit for unit in unheld if unit.withheld is None]
            for unit in free[max(0, len(free) - reserved.get(part.uuid, 0)) :]:
                unit.withheld = Obstacle.USED_BY_OTHERS


def _obstacle(unit: objects.Unit, common: Obstacle | None) -> str | None:
    if common is not None:
        return common
    if unit.withheld is not None:
        return WITHHELD[Withheld(unit.withheld)]
    return Obstacle.USED_BY_OTHERS if unit.is_missing else None
