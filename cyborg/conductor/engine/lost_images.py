# SPDX-License-Identifier: Apache-2.0
"""Images that programmable deployables have lost, as the reports of a host show it.

A card that was without power has lost its images. Its content may show that only in a later
report: until then its deployables are marked as those that may have lost their image, and the
image is loaded again for the next request that asks for it.
"""

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from cyborg import objects
from cyborg.conductor.engine.tasks import region_of
from cyborg.db.sqlalchemy import attach_handles, models

Device = models.Device
Deployable = models.Deployable
#: the key of the function in the content of a deployable
FUNCTION = 'function'
#: stored as the boot of a deployable whose card was missing, or whose lost image cannot be loaded
#: now, and differs from every boot: the image is lost. The first report after the card's return may
#: lack its regions, or may show them as not programmable, so a later report must know of it.
PULLED = 'pulled'
#: columns that tell of the image of a deployable
_IMAGE = ('bitstream_id', 'bitstream_content', 'bitstream_facts')


@dataclasses.dataclass(frozen=True)
class Emptied:
    """A programmable deployable of which requests hold a part, and whose image is not known."""

    part: Deployable
    #: the same and, if it is a region, the functions in it
    parts: tuple[Deployable, ...]
    #: the requests, by row, that hold it or a function of it
    holders: frozenset[int]
    #: whether its card may have lost power since the content was last seen
    may_have_lost_image: bool
    #: whether the report shows its function. A driver cannot read it while a guest uses the device.
    is_function_shown: bool
    #: the columns that told of its image until then
    lost: Mapping[str, Any] | None

    @property
    def lost_image(self) -> str | None:
        """The image that it had until then."""
        return self.lost['bitstream_id'] if self.lost else None


class LostImages:
    """Compares the images of a host's deployables with the content that one report shows."""

    def __init__(self) -> None:
        #: reported deployables, by uuid, that may have lost their image when the report arrived
        self._suspected: set[str] = set()
        #: deployable, by uuid -> the columns that told of the image that it lost with its power
        self._lost: dict[str, Mapping[str, Any]] = {}
        #: deployables, by uuid, whose functions the report shows
        self._shown: set[str] = set()

    def suspect(
        self, rows: Collection[Device], report: objects.Report, programmed: Collection[str]
    ) -> None:
        """Mark the deployables of cards that may have lost power since the last report: the agent
        has just started, or the card was missing, if only between two reports.

        ``programmed`` are deployables, by uuid, into which an image was to be loaded. An agent that
        has just started may have ended in the middle of that: the former image is forgotten.
        Nobody can tell whether it had begun, and if it had not, an image that is wanted again is
        loaded once more.
        """
        reported = {device.key for device in report.devices}
        returned = {row.key for row in rows if row.is_missing}.union(report.given('returned', ()))
        for row in rows:
            if report.is_first or row.key in reported & returned:
                for part in row.deployables:
                    if part.is_programmable and not _is_flash(part):
                        part.may_have_lost_image = True
                        if row.is_missing and not report.is_first:
                            part.boot_id = PULLED
                    if report.is_first and part.uuid in programmed:
                        _forget(part)

    def compare(
        self,
        row: Deployable,
        deployable: objects.Deployable,
        boot_id: str | None,
        *,
        is_programming: bool,
    ) -> None:
        """Forget the image if the hardware shows other content: another program has loaded that,
        or the card has loaded its flash after a power cycle. Hardware that never shows its content
        has lost the image if its host was started since, or if the card is back after reports
        without it. A report lacks the cards of a driver that is not enabled, too, but the agent has
        just started then. Content that was read while an image is being loaded is not compared."""
        if row.may_have_lost_image:
            self._suspected.add(row.uuid)
        content = deployable.given('content', {})
        if FUNCTION in content:
            self._shown.add(row.uuid)
        if deployable.bitstream_id:
            row.bitstream_id, row.bitstream_content = deployable.bitstream_id, content
            row.may_have_lost_image = False
        elif content and not is_programming:
            self._judge(row, content)
        elif row.is_programmable and not is_programming and not row.bitstream_content:
            self._judge_unseen(row, boot_id)
        if row.is_programmable and not row.may_have_lost_image:
            row.boot_id = boot_id  # None from an agent of the previous release
        elif row.is_programmable:
            row.boot_id = row.boot_id or boot_id

    def _judge(self, row: Deployable, content: dict[str, str]) -> None:
        known = row.bitstream_content or {}
        # no report has shown the content since the image was loaded: it may be lost already
        is_lost = bool(row.may_have_lost_image and not known)
        is_same = all(known.get(name, value) == value for name, value in content.items())
        if row.bitstream_id and is_same and not is_lost:
            row.bitstream_content = known | content
            if known.keys() - content.keys():
                return  # what is not shown yet may be lost
        elif row.bitstream_id:
            self._note_loss(row)
        elif FUNCTION not in content:
            return  # a function that is part of the card may be lost, too
        row.may_have_lost_image = False

    def _judge_unseen(self, row: Deployable, boot_id: str | None) -> None:
        is_known = row.boot_id is not None and boot_id is not None
        is_started = is_known and row.boot_id != boot_id
        if row.may_have_lost_image and (is_started or row.boot_id == PULLED):
            self._note_loss(row)

    def _note_loss(self, row: Deployable) -> None:
        if row.may_have_lost_image and row.bitstream_id:
            self._lost[row.uuid] = {name: getattr(row, name) for name in _IMAGE}
        row.may_have_lost_image = False
        _forget(row)

    def emptied(self, rows: Iterable[Device]) -> Iterator[Emptied]:
        """Yields the deployables that may have to be programmed again."""
        for device in rows:
            for part in device.deployables:
                if device.is_missing or not part.is_programmable or part.bitstream_id is not None:
                    continue
                within = [each for each in device.deployables if region_of(each) is part]
                if part.uuid in self._lost:
                    # a bind that found the image there may have taken a handle since it was read
                    attach_handles.lock(
                        [handle for each in within for handle in each.attach_handles]
                    )
                holders = frozenset(
                    handle.arq_id
                    for each in within
                    for handle in each.attach_handles
                    if handle.arq_id is not None
                )
                # another service has loaded the image of an imported one, and its server runs
                if holders and not any(each.is_imported for each in within):
                    yield Emptied(
                        part,
                        tuple(within),
                        holders,
                        may_have_lost_image=part.uuid in self._suspected,
                        is_function_shown=part.uuid in self._shown,
                        lost=self._lost.get(part.uuid),
                    )


def keep_loss(part: Deployable, lost: Mapping[str, Any], *, is_awaited: bool) -> None:
    """Have the next report note the loss of an image again: it cannot be loaded now.

    If that report shows the content of the image, somebody else has loaded it, and it is not lost.
    But requests that wait for the image need the task in any case.
    """
    for name in _IMAGE:
        setattr(part, name, lost[name])
    if is_awaited:
        part.bitstream_content = None
    part.may_have_lost_image, part.boot_id = True, PULLED


def _is_flash(row: Deployable) -> bool:
    """Returns whether an image of this deployable is in the flash of a card, which keeps it without
    power. Such a card has no handles itself."""
    return row.parent_id is None and not row.attach_handles


def _forget(row: Deployable) -> None:
    for name in _IMAGE:
        setattr(row, name, None)
