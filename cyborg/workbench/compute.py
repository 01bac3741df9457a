# SPDX-License-Identifier: Apache-2.0
"""A stand-in for Nova that the openstack command can call: simulated servers and their flavors.

Each device profile is a flavor of the same name; the flavor ``plain`` asks for no accelerator. Of a
new server the name, the flavor and the host in ``availability_zone`` (``nova:compute1``) or
``host`` count. There is no guest, so its image, networks and key are not looked at.
"""

import json
from http import HTTPStatus
from typing import Any

from cyborg import errors
from cyborg.sim import http_server, nova
from cyborg.workbench.servers import Server, Servers

PLAIN = 'plain'
EVENTS = '/os-server-external-events'


class Compute(nova.Nova):
    """Records events as the fake Nova does, and serves simulated servers."""

    servers: Servers | None = None  #: until then it knows none

    def _code(self, event: dict[str, str]) -> int:
        is_known = any(each.id == event['server_uuid'] for each in self._servers())
        return super()._code(event) if is_known else HTTPStatus.NOT_FOUND

    def _servers(self) -> list[Server]:
        return self.servers.all() if self.servers else []

    def _handler(compute) -> type[http_server.JsonHandler]:
        base = super()._handler()

        class Handler(base):  # type: ignore[misc, valid-type]
            def do_GET(self) -> None:
                self._respond('GET')

            def do_DELETE(self) -> None:
                self._respond('DELETE')

            def do_POST(self) -> None:
                if self.path == EVENTS:
                    super().do_POST()
                else:
                    self._respond('POST')

            def _respond(self, method: str) -> None:
                body = self.rfile.read(int(self.headers.get('Content-Length') or 0))
                try:
                    found = compute.call(method, self.path.partition('?')[0], body)
                except errors.CyborgError as error:
                    code = int(error.code)
                    found = (code, {'fault': {'code': code, 'message': error.faultstring}})
                if found is None:
                    super().do_GET()
                elif found[1] is None:
                    self.send_response(found[0])
                    self.send_header('Content-Length', '0')
                    self.end_headers()
                else:
                    self.send_json(*found)

        return Handler

    def call(self, method: str, path: str, body: bytes) -> tuple[int, Any] | None:
        """Return the status and the document of a response; None for the version document."""
        words = path.strip('/').split('/')
        if words[0] == 'v2.1':
            words = words[1:] or ['']
        if words == [''] and method == 'GET':
            return None
        if self.servers is None:
            raise errors.Unavailable('The standalone is starting.')
        found = self._servers_call(method, words, body) or self._flavors_call(method, words)
        if found is None:
            raise errors.NotFound(f'This stand-in for Nova has no {method} {path}.')
        return found

    def _servers_call(self, method: str, words: list[str], body: bytes) -> tuple[int, Any] | None:
        assert self.servers is not None
        match method, words:
            case 'GET', ['servers'] | ['servers', 'detail']:
                return 200, {'servers': [self._shown(each) for each in self.servers.all()]}
            case 'POST', ['servers']:
                return 202, {'server': self._shown(self._create(body))}
            case 'GET', ['servers', ref]:
                return 200, {'server': self._shown(self.servers.get(ref))}
            case 'DELETE', ['servers', ref]:
                self.servers.delete(ref)
                return 204, None
        return None

    def _flavors_call(self, method: str, words: list[str]) -> tuple[int, Any] | None:
        match method, words:
            case 'GET', ['flavors'] | ['flavors', 'detail']:
                return 200, {'flavors': self._flavors()}
            case 'GET', ['flavors', ref]:
                return 200, {'flavor': self._flavor(ref)}
            case 'GET', ['flavors', ref, 'os-extra_specs']:
                return 200, {'extra_specs': self._flavor(ref)['extra_specs']}
        return None

    def _create(self, body: bytes) -> Server:
        assert self.servers is not None
        try:
            asked = json.loads(body)['server']
            flavor = self._flavor(str(asked['flavorRef']))
            zone = str(asked.get('availability_zone') or '')
            hostname = asked.get('host') or zone.partition(':')[2] or None
            name = str(asked['name'])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise errors.BadRequest('A server needs a name and a flavorRef.') from error
        profile = flavor['extra_specs'].get('accel:device_profile')
        return self.servers.boot(name, profile, hostname, wait=False)

    def _flavors(self) -> list[dict[str, Any]]:
        assert self.servers is not None
        return [
            _flavor(name) for name in (PLAIN, *(each['name'] for each in self.servers.profiles()))
        ]

    def _flavor(self, ref: str) -> dict[str, Any]:
        for flavor in self._flavors():
            if flavor['id'] == ref:
                return flavor
        raise errors.NotFound(f'There is no flavor {ref}: each device profile is one.')

    def _shown(self, server: Server) -> dict[str, Any]:
        shown: dict[str, Any] = {
            'id': server.id,
            'name': server.name,
            'status': server.status,
            'tenant_id': 'demo',
            'user_id': 'demo',
            'flavor': _flavor(server.profile or PLAIN) | {'original_name': server.profile or PLAIN},
            'image': '',
            'addresses': {},
            'metadata': {},
            'links': [{'rel': 'self', 'href': f'{self.url}/servers/{server.id}'}],
            'OS-EXT-STS:task_state': 'spawning' if server.status == 'BUILD' else None,
            'OS-EXT-STS:vm_state': {'BUILD': 'building'}.get(server.status, server.status.lower()),
            'OS-EXT-STS:power_state': 1 if server.status == 'ACTIVE' else 0,
            'OS-EXT-SRV-ATTR:host': server.hostname,
            'OS-EXT-SRV-ATTR:hypervisor_hostname': server.hostname,
            'OS-EXT-AZ:availability_zone': 'nova',
        }
        if server.fault:
            shown['fault'] = {'code': 500, 'message': server.fault}
        return shown


def _flavor(name: str) -> dict[str, Any]:
    specs = {} if name == PLAIN else {'accel:device_profile': name}
    return {
        'id': name,
        'name': name,
        'vcpus': 1,
        'ram': 1024,
        'disk': 0,
        'swap': 0,
        'OS-FLV-EXT-DATA:ephemeral': 0,
        'OS-FLV-DISABLED:disabled': False,
        'os-flavor-access:is_public': True,
        'rxtx_factor': 1.0,
        'description': None,
        'extra_specs': specs,
        'links': [],
    }
