# SPDX-License-Identifier: Apache-2.0
"""IOMMU groups: a guest gets a whole group or nothing, so only one handle of each is offered."""

from collections.abc import Collection, Iterable

from cyborg import objects
from cyborg.db.sqlalchemy import models

Device = models.Device
Handle = models.AttachHandle
ADDRESS = '{domain}:{bus}:{device}.{function}'
WITHHELD = (
    '{address} shares its IOMMU group with {other}, which is offered or in use: a guest '
    'gets all of a group or nothing. Disable the other device; this one is offered when no '
    'request holds the other.'
)


class Groups:
    """The groups of a host that hold more than one function, as a report shows them.

    The choice is stable: a handle that is held stays, else the one that was offered before, else
    the one with the lowest address. Rows of a driver that failed take part, too: other members
    of their groups name their addresses.
    """

    def __init__(self, report: objects.Report, rows: Collection[Device]) -> None:
        self._groups = {
            frozenset((address_of(handle), *handle.given('companions', ())))
            for device in report.devices
            for part in device.deployables
            for handle in part.attach_handles
            if handle.given('companions')
        }
        addresses = frozenset().union(*self._groups)
        #: handles that are stored already: they must be locked before a decision about them
        self.handles = (
            [handle for _, handle in _members(rows) if address_of(handle) in addresses]
            if addresses
            else []
        )
        self._offered = {handle.uuid for handle in self.handles if not handle.is_missing}

    def withhold(self, rows: Collection[Device]) -> None:
        """Offer one handle of each group and mark the others as missing. A device that has no
        offered handle left says why."""
        for group in sorted(self._groups, key=min):
            members = [
                (device, handle) for device, handle in _members(rows) if address_of(handle) in group
            ]
            kept = self._choose(members)
            for device, handle in members if kept else ():
                if handle in kept:
                    continue
                if not handle.is_missing:
                    handle.is_missing = True
                everything = [each for part in device.deployables for each in part.attach_handles]
                if device.fault is None and all(each.is_missing for each in everything):
                    device.fault = WITHHELD.format(
                        address=address_of(handle), other=address_of(kept[0])
                    )

    def _choose(self, members: list[tuple[Device, Handle]]) -> list[Handle]:
        held = [handle for _, handle in members if not handle.is_unused]
        usable = [
            handle
            for device, handle in members
            if device.fault is None
            and not handle.is_missing
            and device.status != objects.DeviceStatus.MAINTAINING
        ]
        usable.sort(key=lambda handle: (handle.uuid not in self._offered, address_of(handle)))
        return held or usable[:1]


def _members(rows: Iterable[Device]) -> list[tuple[Device, Handle]]:
    """Yields the PCI handles of devices that are present."""
    return [
        (row, handle)
        for row in rows
        if not row.is_missing
        for part in row.deployables
        for handle in part.attach_handles
        if handle.type == objects.HandleType.PCI
    ]


def address_of(handle: objects.AttachHandle | Handle) -> str:
    """Returns the address of the PCI function of a handle."""
    return ADDRESS.format_map({'domain': '', 'bus': '', 'device': '', 'function': ''} | handle.info)


def function_of(handle: objects.AttachHandle | Handle) -> str | None:
    """Returns the address of the PCI function that a guest gets with a handle, or None."""
    is_function = handle.type == objects.HandleType.PCI and 'function' in handle.info
    return address_of(handle) if is_function else None
