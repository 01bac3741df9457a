# SPDX-License-Identifier: Apache-2.0
"""What the tools of operators are told: devices that fail, and what becomes of them.

Where to is for [oslo_messaging_notifications] to say; nowhere by default.
"""

import concurrent.futures
from collections.abc import Iterable

import oslo_messaging as messaging
from oslo_config import cfg

from cyborg import rpc
from cyborg.conductor.engine.notices import Kind, Notice
from cyborg.context import RequestContext

PRIORITIES = {Kind.FAILED: 'error', Kind.RECOVERED: 'info', Kind.REMOVED: 'info'}


class Notifier:
    """Sends in a thread of its own, so that no host waits for a broker that is away."""

    def __init__(self, conf: cfg.ConfigOpts, name: str) -> None:
        self._transport = rpc.notification_transport(conf)
        self._notifier = messaging.Notifier(
            self._transport, f'conductor.{name}', retry=rpc.TRIES - 1)
        self._thread = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix='notify')

    def stop(self) -> None:
        """Send what is still to be sent."""
        self._thread.shutdown(wait=True)
        self._transport.cleanup()

    def send(self, context: RequestContext, notices: Iterable[Notice]) -> None:
        """Tell about devices, in this order. What cannot be sent is in the log."""
        if not self._notifier.is_enabled():
            return
        for notice in notices:
            tell = getattr(self._notifier, PRIORITIES[notice.kind])
            # of the context only what is no secret
            self._thread.submit(tell, {'request_id': context.request_id},
                                f'device.{notice.kind}', notice.facts)
