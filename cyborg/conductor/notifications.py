# SPDX-License-Identifier: Apache-2.0
"""Notifications about requests, devices, device profiles and agents, for operators' tools.

They are sent where [oslo_messaging_notifications] says; by default nowhere.
"""

import concurrent.futures
from collections.abc import Iterable, Sequence
from typing import Any

import oslo_messaging as messaging
from oslo_config import cfg
from oslo_log import log

from cyborg import rpc
from cyborg.conductor.engine.changes import Change
from cyborg.context import RequestContext
from cyborg.db.sqlalchemy import clock, device_profiles, engine

LOG = log.getLogger(__name__)

#: the version of all payloads: the minor part grows with a new key, the major part when a key is
#: changed or removed
VERSION = '1.0'
PRIORITIES = {'device.failed': 'error', 'arq.failed': 'error', 'agent.down': 'error'}
#: the first part of the event types that are sent
SENT = frozenset({'arq', 'device', 'device_profile', 'agent'})


class Notifier:
    """Sends in a thread of its own, so that no host waits for a broker that is not available."""

    def __init__(self, conf: cfg.ConfigOpts, name: str, db: engine.Database) -> None:
        self._db = db
        self._transport = rpc.notification_transport(conf)
        self._notifier = messaging.Notifier(
            self._transport, f'conductor.{name}', retry=rpc.TRIES - 1
        )
        #: the driver noop sends nothing
        self._is_on = bool(set(conf.oslo_messaging_notifications.driver) - {'noop'})
        self._thread = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix='notify')

    def stop(self) -> None:
        """Send what is queued, then stop."""
        self._thread.shutdown(wait=True)
        self._transport.cleanup()

    def send(self, context: RequestContext, changes: Iterable[Change]) -> None:
        """Send changes in this order. One that cannot be sent is logged."""
        if not self._is_on:
            return
        sent = [change for change in changes if change.event.partition('.')[0] in SENT]
        if sent:
            # the rest of the context may hold secrets
            about = {'request_id': context.request_id}
            self._thread.submit(self._send, about, sent, clock.now().isoformat())

    def _send(self, about: dict[str, Any], changes: Sequence[Change], at: str) -> None:
        try:
            profiles = self._profiles(changes)
            for change in changes:
                event = change.event.replace(' ', '_')
                tell = getattr(self._notifier, PRIORITIES.get(event, 'info'))
                payload = {'version': VERSION, 'at': at} | change.payload
                if event.startswith('arq.'):
                    uuid, name = profiles.get(change.device_profile_id or 0, (None, None))
                    payload |= {'device_profile_uuid': uuid, 'device_profile_name': name}
                tell(about, event, payload)
        except Exception:
            LOG.exception('Notifications could not be sent.')

    def _profiles(self, changes: Iterable[Change]) -> dict[int, tuple[str, str]]:
        """Returns uuid and name of the profiles of requests, by row. Deleted ones are missing."""
        ids = {
            change.device_profile_id for change in changes if change.device_profile_id is not None
        }
        if not ids:
            return {}
        with self._db.reader() as session:
            return device_profiles.names(session, ids)
