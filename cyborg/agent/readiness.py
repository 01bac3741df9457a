# SPDX-License-Identifier: Apache-2.0
"""Whether the agent is ready for nova-compute, which asks through os_acc."""

import contextlib
import threading
from collections.abc import Iterable, Iterator

import oslo_messaging as messaging

from cyborg import errors, objects

#: the obstacle before the first round has ended
NOT_YET = 'It has not discovered its devices yet.'
UNDER_WAY = 'It is discovering its devices.'


class Readiness:
    """Written by the inventory thread, read by any thread.

    The agent is ready when every driver has answered once, everything that can be published is
    published, and no round is in progress. A compute node that Placement does not know is no
    obstacle, since nova-compute creates it after it has asked whether the agent is ready.
    """

    def __init__(self, drivers: Iterable[str]) -> None:
        #: driver that has not answered yet -> its error
        self._unanswered: dict[str, str] = dict.fromkeys(drivers, NOT_YET)
        self._is_looking = False
        self._failure: str | None = NOT_YET
        self._lock = threading.Lock()

    def obstacle(self) -> str | None:
        """Return why the agent is not ready, or None if it is."""
        with self._lock:
            if self._failure == NOT_YET:
                return NOT_YET
            if self._is_looking:
                return UNDER_WAY
            if self._unanswered:
                return ' '.join(
                    f'Driver {name} has not answered yet: {error}'
                    for name, error in sorted(self._unanswered.items())
                )
            return self._failure

    @property
    def is_waiting(self) -> bool:
        """Whether some driver has never answered."""
        return bool(self._unanswered)

    def note(self, drivers: Iterable[objects.Driver]) -> None:
        """Record which drivers have answered."""
        with self._lock:
            for driver in drivers:
                if driver.status == objects.DriverStatus.OK:
                    self._unanswered.pop(driver.name, None)
                elif driver.name in self._unanswered:
                    self._unanswered[driver.name] = driver.error or 'it failed.'

    @contextlib.contextmanager
    def round(self) -> Iterator[None]:
        """Wrap a round of the inventory, and record its error, which is raised again."""
        with self._lock:
            self._is_looking = True
        failure: str | None = 'Its last discovery failed; see its log.'
        try:
            yield
            failure = None
        except errors.ProviderTreeMissing:
            failure = None
            raise
        except (errors.CyborgError, messaging.MessagingException) as error:
            failure = getattr(error, 'faultstring', str(error))
            raise
        finally:
            with self._lock:
                self._is_looking, self._failure = False, failure
