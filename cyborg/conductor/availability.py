# SPDX-License-Identifier: Apache-2.0
"""How often device profiles fit, as the conductor tells the API and the metrics."""

import contextlib
import datetime
from collections.abc import Iterator
from concurrent import futures
from typing import Any

from oslo_context import context
from oslo_log import log

from cyborg import errors, objects, tracing
from cyborg.conductor.endpoint import Endpoint, exposed
from cyborg.conductor.engine import availability
from cyborg.context import RequestContext
from cyborg.db.sqlalchemy import device_profiles, devices, units
from cyborg.db.sqlalchemy.engine import Database
from cyborg.objects import profile_groups

LOG = log.getLogger(__name__)

#: the most profiles in the metrics, where each is a value of a label
MOST_PROFILES = 100
#: the most calls of Placement at a time for one question
MOST_CALLS = 4


class Availability(Endpoint):
    def __init__(self, *parts: Any, offers: availability.Offers) -> None:
        super().__init__(*parts)
        self._offers = offers

    @exposed
    def get_availability(
        self, context: RequestContext, ref: str, hostname: str | None, with_hosts: bool
    ) -> objects.Availability:
        return _look(
            self.db,
            self._offers,
            self.silent_since(),
            ref,
            audience=self.audience(context),
            hostname=hostname,
            with_hosts=with_hosts,
        )


def fits(
    db: Database, offers: availability.Offers, silent_since: datetime.datetime, names: list[str]
) -> dict[str, int]:
    """Returns how often profiles fit, by name. A profile that does not exist, or is not valid, is
    left out."""
    found = {}
    for name in names[:MOST_PROFILES]:
        try:
            found[name] = _look(db, offers, silent_since, name).fits
        except errors.NotFound:
            LOG.debug('[conductor] metrics_profiles: there is no device profile %s.', name)
        except errors.InvalidProfile as error:
            LOG.warning('[conductor] metrics_profiles: %s', error.faultstring)
    return found


def _look(
    db: Database,
    offers: availability.Offers,
    silent_since: datetime.datetime,
    ref: str,
    *,
    audience: str | None = None,
    hostname: str | None = None,
    with_hosts: bool = False,
) -> objects.Availability:
    """Ask Placement while the rows are read, outside the transaction, then compare."""
    with db.reader() as session:
        profile = device_profiles.get(session, audience, ref)
        _require_amounts(profile)
        if hostname is not None and units.host(session, hostname) is None:
            if not devices.are_on(session, hostname):
                raise errors.AgentNotFound(ref=hostname)
    with _threads() as threads:
        asked = availability.Asked(offers, profile.groups, threads, hostname)
        with db.reader() as session:
            classes = profile_groups.classes(profile.groups)
            parts = units.parts(session, silent_since, classes, hostname)
        hosts = availability.measure(asked, parts, hostname)
    return availability.summarize(profile, hosts, with_hosts=with_hosts)


def _require_amounts(profile: objects.DeviceProfile) -> None:
    """Raises InvalidProfile if an amount is not a number, as it may be in an imported profile."""
    for number, group in enumerate(profile.groups):
        for key, amount in group.items():
            if key.startswith('resources:') and not str(amount).isdecimal():
                why = f'group {number} asks for {amount!r} of {key}; an administrator must mend it.'
                raise errors.InvalidProfile(name=profile.name, why=why)


@contextlib.contextmanager
def _threads() -> Iterator[futures.Executor]:
    """Threads that work for the request of this one."""
    current, trace = context.get_current(), tracing.outgoing()

    def begin() -> None:
        tracing.incoming(trace)
        if current is not None:
            current.update_store()  # Placement's client reads the request id from there

    pool = futures.ThreadPoolExecutor(MOST_CALLS, 'availability', begin)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)
