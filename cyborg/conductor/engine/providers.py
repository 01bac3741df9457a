# SPDX-License-Identifier: Apache-2.0
"""The provider tree of a host in Placement, derived from its rows."""

from collections.abc import Iterable

from cyborg import objects
from cyborg.conductor.engine.open_tasks import Opened
from cyborg.conductor.engine.tasks import region_of
from cyborg.db.sqlalchemy import models, tasks
from cyborg.db.sqlalchemy.engine import Session
from cyborg.objects import Withheld

Device = models.Device
Deployable = models.Deployable


def tree(
    session: Session,
    hostname: str,
    rows: Iterable[Device],
    *,
    is_silent: bool = False,
    is_disabled: bool = False,
) -> list[objects.Provider]:
    """Returns the provider tree of a host, parents before children. If its agent ``is_silent``,
    the providers whose handles the agent must prepare are reserved; if it ``is_disabled``, all
    are."""
    opened = Opened(tasks.of_host(session, hostname))
    parts = [part for device in rows for part in sorted(device.deployables, key=_depth)]
    quarantined = {
        region_of(part)
        for part in parts
        if any(handle.withheld == Withheld.QUARANTINED for handle in part.attach_handles)
    }
    return [
        _provider(
            part,
            opened,
            is_region_quarantined=region_of(part) in quarantined - {None},
            is_silent=is_silent,
            is_disabled=is_disabled,
        )
        for part in parts
    ]


def _depth(row: Deployable) -> int:
    return 0 if row.parent is None else 1 + _depth(row.parent)


def _needs_agent(row: Deployable) -> bool:
    """Returns whether the agent must prepare a handle of a deployable before a server can use
    it."""
    return row.is_programmable or any(handle.is_host_prepared for handle in row.attach_handles)


def _provider(
    row: Deployable,
    opened: Opened,
    *,
    is_region_quarantined: bool,
    is_silent: bool,
    is_disabled: bool,
) -> objects.Provider:
    device, total = row.device, len(row.attach_handles)
    is_held_back = (
        is_disabled
        or device.is_missing
        or device.fault is not None
        or opened.is_programming(row)
        or device.status == objects.DeviceStatus.MAINTAINING
        or is_silent
        and _needs_agent(row)
    )
    # a quarantined handle is reserved in addition to Placement's allocations
    lost = sum(
        1
        for handle in row.attach_handles
        if handle.is_missing
        or handle.withheld == Withheld.QUARANTINED
        or is_region_quarantined
        and handle.withheld == Withheld.CLEANING
        or is_silent
        and handle.withheld is not None
        or handle.arq_id is None
        and handle.uuid in opened.failed
    )
    return objects.Provider(
        uuid=row.rp_uuid,
        name=row.name,
        parent_uuid=row.parent.rp_uuid if row.parent else None,
        resource_class=row.resource_class,
        total=total,
        reserved=total if is_held_back else min(total, lost + row.reserved),
        traits=row.traits,
    )
