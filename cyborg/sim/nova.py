# SPDX-License-Identifier: Apache-2.0
"""A fake Nova: accepts external events over real HTTP, and creates compute nodes."""

import json
import threading
from collections.abc import Callable
from typing import Any
from urllib import parse

from keystoneauth1.adapter import Adapter

from cyborg.sim import http_server


class Nova(http_server.HttpServer):
    """Records the events that it receives. ``code`` is the code that it returns for an event."""

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._events: list[dict[str, str]] = []
        self.requests: list[dict[str, Any]] = []  #: the body of each POST
        self.request_ids: list[str | None] = []  #: the request id of each POST
        self.offloaded: set[str] = set()  #: servers that are shelved
        self.running: dict[str, str | None] = {}  #: active servers, with what Nova does with them
        self.unknown: set[str] = set()  #: servers that were deleted
        self.projects: dict[str, str] = {}  #: the servers that it lists, with their projects
        self.hides_others = False  #: whether it treats the caller as a user of one project
        self.forbids_events = False  #: whether its policy lets the caller send none
        self.code = 200  #: for each event; 5xx is the status of the whole request
        self.codes: dict[
            str, int
        ] = {}  #: for the events of these servers or accelerator requests instead
        super().__init__(self._handler())

    def events(self) -> list[dict[str, str]]:
        """Return the accepted events in their order."""
        with self._lock:
            return list(self._events)

    def wait_for_events(self, count: int, timeout: float = 120) -> list[dict[str, str]]:
        """Wait for so many events and return all; after the timeout return what there is."""
        return self.wait_for(lambda events: len(events) >= count, timeout)

    def wait_for(
        self, are_there: Callable[[list[dict[str, str]]], bool], timeout: float = 30
    ) -> list[dict[str, str]]:
        """Wait until the condition holds or the time is over, and return the events."""
        with self._lock:
            self._lock.wait_for(lambda: are_there(self._events), timeout)
            return list(self._events)

    def _take(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        with self._lock:
            self.requests.append(body)
            results = [event | {'code': self._code(event)} for event in body['events']]
            worst = max(result['code'] for result in results)
            if worst >= 500:
                return worst, {'computeFault': {'code': worst, 'message': 'down'}}
            self._events.extend(
                event
                for event, result in zip(body['events'], results, strict=True)
                if result['code'] == 200
            )
            self._lock.notify_all()
        return (200 if worst == 200 else 207), {'events': results}

    def _code(self, event: dict[str, str]) -> int:
        return self.codes.get(event['tag'], self.codes.get(event['server_uuid'], self.code))

    def _listed(self, path: str) -> list[dict[str, str]]:
        """Return a page of two servers, from the one after the marker on."""
        listed = [{'id': server, 'tenant_id': each} for server, each in self.projects.items()]
        marker = parse.parse_qs(parse.urlsplit(path).query).get('marker', [''])[0]
        start = 1 + list(self.projects).index(marker) if marker else 0
        return listed[start : start + 2]

    def _handler(nova) -> type[http_server.JsonHandler]:
        class Handler(http_server.JsonHandler):
            def do_GET(self) -> None:
                server = self.path.rpartition('/servers/')[2]
                if nova.hides_others and 'all_tenants' in self.path:
                    self.send_json(403, {'forbidden': {'code': 403, 'message': 'not allowed'}})
                    return
                if server.startswith('detail?'):
                    self.send_json(200, {'servers': nova._listed(self.path)})
                    return
                if server in nova.unknown or (nova.hides_others and server != self.path):
                    self.send_json(404, {'itemNotFound': {'code': 404, 'message': server}})
                    return
                if server in nova.offloaded:
                    self.send_json(200, {'server': {'id': server, 'status': 'SHELVED_OFFLOADED'}})
                    return
                if server in nova.running:
                    shown = {'status': 'ACTIVE', 'OS-EXT-STS:task_state': nova.running[server]}
                    self.send_json(200, {'server': {'id': server} | shown})
                    return
                # keystoneauth requests the version document; it serves as a server, too
                self.send_json(
                    200,
                    {
                        'version': {
                            'id': 'v2.1',
                            'status': 'CURRENT',
                            'version': '2.100',
                            'min_version': '2.1',
                            'links': [{'rel': 'self', 'href': nova.url}],
                        }
                    },
                )

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers['Content-Length'])))
                nova.request_ids.append(self.headers.get('X-OpenStack-Request-ID'))
                asked = self.headers.get('OpenStack-API-Version', '')
                if self.path != '/os-server-external-events' or asked != 'compute 2.82':
                    self.send_json(400, {'badRequest': {'code': 400, 'message': 'not known'}})
                elif nova.forbids_events:
                    self.send_json(403, {'forbidden': {'code': 403, 'message': 'not allowed'}})
                else:
                    self.send_json(*nova._take(body))

        return Handler


def make_compute_node(placement: Adapter, name: str) -> str:
    """Create a node in Placement, unless it exists, as nova-compute does; returns its uuid."""
    headers = {'OpenStack-API-Version': 'placement 1.39'}
    found = placement.get('/resource_providers', params={'name': name}, headers=headers).json()
    if found['resource_providers']:
        known: str = found['resource_providers'][0]['uuid']
        return known
    made = placement.post('/resource_providers', json={'name': name}, headers=headers)
    new: str = made.json()['uuid']
    return new
