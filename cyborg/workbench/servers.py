# SPDX-License-Identifier: Apache-2.0
"""Simulated servers. They get accelerators as those of Nova do: accelerator requests, allocation
candidates, an allocation, a bind and its events. No guest is started."""

import dataclasses
import json
import pathlib
import threading
import uuid
from typing import Any

import requests
from keystoneauth1.adapter import Adapter

from cyborg import errors
from cyborg.clients import wsgi
from cyborg.sim import nova as sim_nova

API = 'http://cyborg.local'
HEADERS = {'OpenStack-API-Version': 'accelerator latest', 'X-Auth-Token': 'demo:demo'}
PLACEMENT_HEADERS = {'OpenStack-API-Version': 'placement 1.39'}
#: the name of a profile's group in a query to Placement
SUFFIX = '_device_profile_{}'
#: seconds for which a server waits for the events of its requests, as [DEFAULT]
#: vif_plugging_timeout of Nova says it
PATIENCE = 300


class BuildFailed(Exception):
    """A server cannot be built; the message says why."""


@dataclasses.dataclass
class Server:
    """A simulated server."""

    id: str
    name: str
    profile: str | None  #: the device profile that it asks for
    status: str = 'BUILD'
    hostname: str | None = None
    fault: str | None = None  #: why it is in ERROR


class Servers:
    """The servers of a standalone. They are kept in a file."""

    def __init__(
        self, api: Any, placement: Adapter, nova: sim_nova.Nova, path: pathlib.Path
    ) -> None:
        self._session = requests.Session()
        self._session.headers.update(HEADERS)
        wsgi.mount(self._session, API, api)
        self._placement = placement
        self._nova = nova
        self._path = path
        self._lock = threading.RLock()
        #: held while a server is built, so that it is deleted afterwards
        self._builds: dict[str, threading.Lock] = {}
        self._servers: dict[str, Server] = {}
        if path.exists():
            self._servers = {each['id']: Server(**each) for each in json.loads(path.read_text())}
        for server in self._servers.values():
            if server.status == 'BUILD':
                server.status = 'ERROR'
                server.fault = 'The standalone was stopped while it built this server.'

    def all(self) -> list[Server]:
        """Return all servers in the order of their creation."""
        with self._lock:
            return [dataclasses.replace(server) for server in self._servers.values()]

    def get(self, ref: str) -> Server:
        """Return a server by its id or its name; raises NotFound."""
        with self._lock:
            for server in self._servers.values():
                if ref in (server.id, server.name):
                    return dataclasses.replace(server)
        raise errors.NotFound(f'There is no server {ref}.')

    def profiles(self) -> list[dict[str, Any]]:
        """Return all device profiles."""
        found: list[dict[str, Any]] = self._call('GET', '/device_profiles')['device_profiles']
        return found

    def boot(
        self,
        name: str | None,
        profile: str | None,
        hostname: str | None = None,
        *,
        wait: bool = True,
    ) -> Server:
        """Create a server with the accelerators of a profile, or with none; returns it. Raises
        NotFound for a profile that does not exist. Whatever else fails puts it in ERROR."""
        if profile and profile not in {each['name'] for each in self.profiles()}:
            raise errors.NotFound(f'There is no device profile {profile}.')
        new = str(uuid.uuid4())
        server = Server(new, name or f'server-{new[:4]}', profile)
        with self._lock:
            self._builds[server.id] = threading.Lock()
            self._builds[server.id].acquire()
            self._servers[server.id] = server
            self._save()
        if wait:
            self._build(server, hostname)
        else:
            threading.Thread(
                target=self._build, args=(server, hostname), name='build', daemon=True
            ).start()
        return dataclasses.replace(server)

    def delete(self, ref: str) -> None:
        """Release the accelerators of a server and forget it; raises NotFound. Waits for the end
        of its build."""
        server = self.get(ref)
        if build := self._builds.get(server.id):
            with build:
                pass
        self._call('DELETE', f'/accelerator_requests?instance={server.id}')
        self._free(server.id)
        with self._lock:
            self._servers.pop(server.id, None)
            self._builds.pop(server.id, None)
            self._save()

    # -- the way of a server to its accelerators -------------------------------------------

    def _build(self, server: Server, hostname: str | None) -> None:
        arqs: list[dict[str, Any]] = []
        build = self._builds[server.id]
        try:
            if server.profile:
                arqs = self._call(
                    'POST', '/accelerator_requests', {'device_profile_name': server.profile}
                )['arqs']
            groups = self._groups(server.profile)
            host, chosen = self._claim(server, groups, hostname)
            server.hostname = host
            self._bind(server, arqs, chosen)
            server.status = 'ACTIVE'
        except (BuildFailed, errors.CyborgError) as error:
            self._give_up(server, arqs, str(error))
        except Exception as error:  # a thread has nobody else to tell
            self._give_up(server, arqs, f'{type(error).__name__}: {error}')
        finally:
            with self._lock:
                self._save()
            build.release()

    def _groups(self, profile: str | None) -> list[dict[str, str]]:
        for each in self.profiles() if profile else ():
            if each['name'] == profile:
                groups: list[dict[str, str]] = each['groups']
                return groups
        return []

    def _claim(
        self, server: Server, groups: list[dict[str, str]], hostname: str | None
    ) -> tuple[str, dict[int, str]]:
        """Choose a host as Nova's scheduler does, and write the allocation; returns the host and
        the provider of each group. Raises BuildFailed if no host fits."""
        roots = {each['name']: each['uuid'] for each in self._compute_nodes()}
        if hostname and hostname not in roots:
            raise BuildFailed(f'There is no host {hostname}.')
        if not groups:
            return hostname or min(roots), {}
        query = {'group_policy': 'none', 'limit': '1'} | {
            key: value
            for number, group in enumerate(groups)
            for key, value in _query(group, SUFFIX.format(number)).items()
        }
        if hostname:
            query |= {f'in_tree{SUFFIX.format(n)}': roots[hostname] for n in range(len(groups))}
        found = self._ask('GET', '/allocation_candidates', params=query)
        if not found['allocation_requests']:
            raise BuildFailed(self._why_not(server.profile or '', hostname))
        candidate = found['allocation_requests'][0]
        chosen = {
            number: candidate['mappings'][SUFFIX.format(number)][0] for number in range(len(groups))
        }
        self._ask(
            'PUT',
            f'/allocations/{server.id}',
            json=candidate
            | {
                'project_id': 'demo',
                'user_id': 'demo',
                'consumer_generation': None,
                'consumer_type': 'INSTANCE',
            },
        )
        root = found['provider_summaries'][chosen[0]]['root_provider_uuid']
        return next(name for name, each in roots.items() if each == root), chosen

    def _compute_nodes(self) -> list[dict[str, Any]]:
        return [
            each
            for each in self._ask('GET', '/resource_providers')['resource_providers']
            if each['uuid'] == each['root_provider_uuid']
        ]

    def _why_not(self, profile: str, hostname: str | None) -> str:
        """Return the sentences of Cyborg on what is in the way."""
        where = f'?hostname={hostname}' if hostname else ''
        found = self._call('GET', f'/device_profiles/{profile}/availability{where}')
        sentences = [
            f'{host["hostname"]}: {group["sentence"]}'
            for host in found.get('hosts', ())
            for group in host['groups']
            if not group['fits']
        ]
        return ' '.join(['No valid host was found.', *sentences])

    def _bind(self, server: Server, arqs: list[dict[str, Any]], chosen: dict[int, str]) -> None:
        if not arqs:
            return
        self._call(
            'PATCH',
            '/accelerator_requests',
            {
                arq['uuid']: [
                    {'op': 'add', 'path': f'/{key}', 'value': value}
                    for key, value in (
                        ('hostname', server.hostname),
                        ('device_rp_uuid', chosen[arq['device_profile_group_id']]),
                        ('instance_uuid', server.id),
                    )
                ]
                for arq in arqs
            },
        )
        wanted = {arq['uuid'] for arq in arqs}
        heard = {
            event['tag']: event['status']
            for event in self._nova.wait_for(
                lambda events: wanted <= {event['tag'] for event in events}, PATIENCE
            )
            if event['tag'] in wanted
        }
        if failed := sorted(uuid for uuid in wanted if heard.get(uuid) != 'completed'):
            raise BuildFailed(f'Cyborg could not bind {", ".join(failed)}.')

    def _give_up(self, server: Server, arqs: list[dict[str, Any]], why: str) -> None:
        server.status, server.fault = 'ERROR', why
        try:
            if arqs:
                names = ','.join(arq['uuid'] for arq in arqs)
                self._call('DELETE', f'/accelerator_requests?arqs={names}')
            self._free(server.id)
        except (BuildFailed, errors.CyborgError) as error:
            server.fault += f' What it had could not be released: {error}'

    def _free(self, server: str) -> None:
        """Delete the allocation of a server, which may have none."""
        self._placement.delete(f'/allocations/{server}', headers=PLACEMENT_HEADERS, raise_exc=False)

    # -- tools -----------------------------------------------------------------------------

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        """Call the API of Cyborg; raises BuildFailed with its sentence."""
        response = self._session.request(method, f'{API}/v2{path}', json=body)
        if not response.ok:
            raise BuildFailed(_sentence(response))
        return response.json() if response.content else None

    def _ask(self, method: str, path: str, **options: Any) -> Any:
        """Call Placement; raises BuildFailed with its sentence."""
        response = self._placement.request(
            path, method, headers=PLACEMENT_HEADERS, raise_exc=False, **options
        )
        if not response.ok:
            raise BuildFailed(_sentence(response))
        return response.json() if response.content else None

    def _save(self) -> None:
        """Write the file. The caller holds the lock."""
        new = self._path.with_suffix('.new')
        new.write_text(
            json.dumps([dataclasses.asdict(each) for each in self._servers.values()], indent=1)
        )
        new.replace(self._path)


def _query(group: dict[str, str], suffix: str) -> dict[str, str]:
    """Return the parameters of a query for a group of a profile."""
    resources = [
        f'{key.removeprefix("resources:")}:{value}'
        for key, value in group.items()
        if key.startswith('resources:')
    ]
    required = [
        ('!' if value == 'forbidden' else '') + key.removeprefix('trait:')
        for key, value in group.items()
        if key.startswith('trait:')
    ]
    return {f'resources{suffix}': ','.join(resources)} | (
        {f'required{suffix}': ','.join(required)} if required else {}
    )


def _sentence(response: requests.Response) -> str:
    """Return what a service says about an error."""
    try:
        body = response.json()
        if 'error_message' in body:
            return str(json.loads(body['error_message'])['faultstring'])
        return str(body['errors'][0]['detail']).strip()
    except (KeyError, TypeError, ValueError, IndexError):
        return f'{response.status_code} {response.reason}: {response.text}'
