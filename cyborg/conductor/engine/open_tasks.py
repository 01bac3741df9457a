# SPDX-License-Identifier: Apache-2.0
"""The open tasks of a host, as far as its inventory depends on them."""

from collections.abc import Iterable

from cyborg.conductor.engine.lost_images import LostImages
from cyborg.conductor.engine.tasks import region_of
from cyborg.db.sqlalchemy import deployables, models, tasks
from cyborg.db.sqlalchemy.engine import Session
from cyborg.objects import TaskKind, Withheld

Device = models.Device
Deployable = models.Deployable
#: why handles are withheld that were not cleaned
UNCLEAN = {Withheld.CLEANING, Withheld.QUARANTINED}


class Opened:
    """The open tasks of a host that its inventory depends on."""

    def __init__(self, opened: Iterable[tasks.Open]) -> None:
        opened = list(opened)
        #: deployables, by uuid, into which an image is being loaded
        self.programmed = {task.deployable_uuid for task in opened if task.kind == TaskKind.PROGRAM}
        #: deployables that may have lost their image
        self.images = LostImages()
        #: handles, by uuid, that the host failed to release or to clean
        self.failed = {
            task.handle_uuid for task in opened if task.attempts and task.kind in tasks.HAND_BACK
        }

    def is_programming(self, row: Deployable) -> bool:
        """Returns whether an image is being loaded into this deployable or one above it."""
        return row.uuid in self.programmed or (
            row.parent is not None and self.is_programming(row.parent)
        )

    def withhold_new(self, session: Session, row: Device) -> None:
        """Withhold handles of a card that appear while their deployable is being programmed or
        cleaned."""
        for part in row.deployables:
            if self.is_programming(part):
                for handle in part.attach_handles:
                    if handle.is_unused:
                        handle.withheld = Withheld.PROGRAMMING
            if part.is_programmable:
                self._withhold_uncleaned(session, row, part)

    @staticmethod
    def _withhold_uncleaned(session: Session, row: Device, region: Deployable) -> None:
        """Withhold the new handles of a region until its last clean-up has ended, and an operator
        has decided about it if it failed: the region may be blanked once more."""
        parts = [part for part in row.deployables if region_of(part) is region]
        handles = [handle for part in parts for handle in part.attach_handles]
        new = [handle for handle in handles if handle.id is None and handle.is_unused]
        if not new or UNCLEAN.isdisjoint(handle.withheld for handle in handles):
            return
        with session.no_autoflush:
            deployables.lock(session, region)  # the last clean-up may have ended since
            ids = [part.id for part in parts if part.id is not None]
            if tasks.is_clean_up_due(session, ids):
                for handle in new:
                    handle.withheld = Withheld.CLEANING
