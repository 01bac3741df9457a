# SPDX-License-Identifier: Apache-2.0
"""A stand-in for Nova: takes external events over real HTTP, and makes compute nodes."""

import json
import threading
from collections.abc import Callable
from typing import Any

from keystoneauth1.adapter import Adapter

from cyborg.sim import neighbour


class Nova(neighbour.Neighbour):
    """Remembers what it was told. Set ``code`` to have it answer an event otherwise."""

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._events: list[dict[str, str]] = []
        self.requests: list[dict[str, Any]] = []  #: bodies, one a POST
        self.request_ids: list[str | None] = []  #: those that came along
        self.offloaded: set[str] = set()  #: servers that are shelved
        self.unknown: set[str] = set()  #: servers that were deleted
        self.hides_others = False  #: whether it takes us for a user of one project
        self.code = 200  #: of each event; 5xx: of the whole request
        self.codes: dict[str, int] = {}  #: of events of these servers or requests instead
        super().__init__(self._handler())

    def events(self) -> list[dict[str, str]]:
        """All events that were taken, in their order."""
        with self._lock:
            return list(self._events)

    def wait_for_events(self, count: int, timeout: float = 120) -> list[dict[str, str]]:
        """The events, once there are so many; whatever there is when the time is over."""
        return self.wait_for(lambda events: len(events) >= count, timeout)

    def wait_for(self, are_there: Callable[[list[dict[str, str]]], bool],
                 timeout: float = 30) -> list[dict[str, str]]:
        """The events, once they are those that somebody waits for, or the time is over."""
        with self._lock:
            self._lock.wait_for(lambda: are_there(self._events), timeout)
            return list(self._events)

    def _take(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        with self._lock:
            self.requests.append(body)
            answers = [event | {'code': self._code(event)} for event in body['events']]
            worst = max(answer['code'] for answer in answers)
            if worst >= 500:
                return worst, {'computeFault': {'code': worst, 'message': 'down'}}
            self._events.extend(event for event, answer in zip(
                body['events'], answers, strict=True) if answer['code'] == 200)
            self._lock.notify_all()
        return (200 if worst == 200 else 207), {'events': answers}

    def _code(self, event: dict[str, str]) -> int:
        return self.codes.get(event['tag'], self.codes.get(event['server_uuid'], self.code))

    def _handler(nova) -> type[neighbour.Handler]:
        class Handler(neighbour.Handler):
            def do_GET(self) -> None:
                server = self.path.rpartition('/servers/')[2]
                if nova.hides_others and self.path.startswith('/servers?all_tenants'):
                    self.answer(403, {'forbidden': {'code': 403, 'message': 'not allowed'}})
                    return
                if server in nova.unknown or (nova.hides_others and server != self.path):
                    self.answer(404, {'itemNotFound': {'code': 404, 'message': server}})
                    return
                if server in nova.offloaded:
                    self.answer(200, {'server': {'id': server, 'status': 'SHELVED_OFFLOADED'}})
                    return
                # the version document that keystoneauth may ask for does for a server too
                self.answer(200, {'version': {
                    'id': 'v2.1', 'status': 'CURRENT', 'version': '2.100', 'min_version': '2.1',
                    'links': [{'rel': 'self', 'href': nova.url}]}})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers['Content-Length'])))
                nova.request_ids.append(self.headers.get('X-OpenStack-Request-ID'))
                asked = self.headers.get('OpenStack-API-Version', '')
                if self.path != '/os-server-external-events' or asked != 'compute 2.82':
                    self.answer(400, {'badRequest': {'code': 400, 'message': 'not known'}})
                else:
                    self.answer(*nova._take(body))
        return Handler


def make_compute_node(placement: Adapter, name: str) -> str:
    """Do what nova-compute does at its start: have the node in Placement. Answers its uuid."""
    headers = {'OpenStack-API-Version': 'placement 1.39'}
    found = placement.get('/resource_providers', params={'name': name}, headers=headers).json()
    if found['resource_providers']:
        return found['resource_providers'][0]['uuid']
    made = placement.post('/resource_providers', json={'name': name}, headers=headers)
    return made.json()['uuid']
