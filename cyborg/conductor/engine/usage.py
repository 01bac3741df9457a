# SPDX-License-Identifier: Apache-2.0
"""Decides which time a report of usage counts."""

import datetime
from typing import NamedTuple

from cyborg import errors

#: what is reported if no start is given, as for ``openstack usage list``
DEFAULT_LENGTH = datetime.timedelta(weeks=4)


class Interval(NamedTuple):
    start: datetime.datetime
    end: datetime.datetime


def complete_since(told: str | None, kept_since: datetime.datetime) -> datetime.datetime:
    """Returns the time since which no step of the history is missing: ``told``, which the last
    sweep has recorded, or ``kept_since``, if that is later. An earlier configuration may have kept
    the history for fewer days."""
    return max(datetime.datetime.fromisoformat(told), kept_since) if told else kept_since


def interval(
    start: str | None,
    end: str | None,
    now: datetime.datetime,
    complete_since: datetime.datetime,
) -> Interval:
    """Returns the part of the time asked for that the history covers. Raises BadRequest if it
    ends before it starts, or starts in the future."""
    until = min(datetime.datetime.fromisoformat(end), now) if end else now
    if start is None:
        since = max(until, datetime.datetime.min.replace(tzinfo=datetime.UTC) + DEFAULT_LENGTH)
        return _covered(since - DEFAULT_LENGTH, until, complete_since)
    since = datetime.datetime.fromisoformat(start)
    if end is not None and datetime.datetime.fromisoformat(end) < since:
        raise errors.BadRequest(f'The end, {end}, must not be before the start, {start}.')
    if since > now:
        raise errors.BadRequest(
            f'The start, {start}, must not be in the future; it is {now.isoformat("T", "seconds")} '
            'now.'
        )
    return _covered(since, until, complete_since)


def _covered(
    start: datetime.datetime, end: datetime.datetime, complete_since: datetime.datetime
) -> Interval:
    """Returns the part of an interval that the history covers, which may have no length."""
    return Interval(min(max(start, complete_since), end), end)
