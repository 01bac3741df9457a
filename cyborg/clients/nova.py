# SPDX-License-Identifier: Apache-2.0
"""The calls to Nova: external events about binds, and queries about servers."""

import uuid
from collections.abc import Collection, Sequence
from typing import Any

from keystoneauth1 import exceptions

from cyborg import errors

#: The first microversion with accelerator-request-bound, under the name that Nova knows in any
#: catalogue.
MICROVERSION = {'microversion': '2.82', 'microversion_service_type': 'compute'}
#: the statuses of a Nova that is down or overloaded, or that refuses our credentials
AWAY = frozenset({401, 403, 429, 502, 503, 504})

#: the status of an event about a bind that has succeeded
COMPLETED = 'completed'

#: states of servers that keep their devices
SETTLED = frozenset({'ACTIVE', 'SHUTOFF', 'PAUSED', 'SUSPENDED'})


class Nova:
    """The client of Nova, on a service of openstacksdk. All threads share it."""

    def __init__(self, service: Any) -> None:
        self._service = service

    def exists(self, server: str) -> bool:
        """Returns whether Nova knows a server. Raises Unavailable if Nova does not answer."""
        try:
            response = self._service.get(f'/servers/{server}', raise_exc=False)
        except exceptions.ClientException as error:
            raise errors.Unavailable(f'Nova cannot be reached: {error}') from error
        if response.status_code == 200:
            return True
        if _is_unknown(response):
            return False
        raise errors.Unavailable(f'Nova answered {response.status_code}.')

    def is_offloaded(self, server: str) -> bool:
        """Returns whether a server is shelved and offloaded, so that it runs nowhere; False for one
        that Nova does not know. Raises Unavailable if Nova does not answer."""
        return self.status(server) == 'SHELVED_OFFLOADED'

    def status(self, server: str) -> str | None:
        """Returns the status of a server, or None if Nova does not know it. Raises Unavailable if
        Nova does not answer."""
        shown = self._shown(server)
        return None if shown is None else str(shown.get('status', 'UNKNOWN'))

    def has_devices(self, server: str) -> bool:
        """Returns whether a server is on a host and no task of Nova is in progress for it; False
        for one that Nova does not know. Raises Unavailable if Nova does not answer."""
        shown = self._shown(server) or {}
        return shown.get('status') in SETTLED and shown.get('OS-EXT-STS:task_state') is None

    def _shown(self, server: str) -> dict[str, Any] | None:
        """Returns the document of a server, or None if Nova does not know the server."""
        try:
            response = self._service.get(f'/servers/{server}', raise_exc=False)
            shown: dict[str, Any] = response.json().get('server', {})
        except (exceptions.ClientException, ValueError, AttributeError) as error:
            raise errors.Unavailable(f'Nova does not show the server: {error}') from error
        if response.status_code == 200:
            return shown
        if _is_unknown(response):
            return None
        raise errors.Unavailable(f'Nova answered {response.status_code}.')

    def sees_all(self) -> bool:
        """Returns whether our user may see servers of all projects. If not, Nova answers 404 for
        those of others."""
        try:
            response = self._service.get(
                '/servers', params={'all_tenants': 1, 'limit': 1}, raise_exc=False
            )
        except exceptions.ClientException as error:
            raise errors.Unavailable(f'Nova cannot be reached: {error}') from error
        if response.status_code not in (200, 403):
            raise errors.Unavailable(f'Nova answered {response.status_code}.')
        return bool(response.status_code == 200)

    def projects_of(self, servers: Collection[str]) -> dict[str, str]:
        """Returns the projects of servers, without those servers that Nova does not know. It reads
        the list of all servers, page by page.

        Raises Unavailable if Nova does not answer, or does not show servers of all projects.
        """
        found: dict[str, str] = {}
        page: dict[str, str] = {}
        while set(servers) - found.keys():
            last = {'marker': list(page)[-1]} if page else {}
            page = self._page_of_projects(last)
            if page.keys() <= found.keys():  # the list has ended
                break
            found |= page
        return {server: found[server] for server in servers if server in found}

    def _page_of_projects(self, last: dict[str, str]) -> dict[str, str]:
        """Returns the projects of the servers of one page, in its order."""
        try:
            response = self._service.get(
                '/servers/detail', params={'all_tenants': 1} | last, raise_exc=False
            )
            if response.status_code == 200:
                return {each['id']: each['tenant_id'] for each in response.json()['servers']}
        except (exceptions.ClientException, ValueError, KeyError, TypeError) as error:
            raise errors.Unavailable(f'Nova does not list the servers: {error}') from error
        if response.status_code == 403:
            raise errors.Unavailable(
                'The user of [nova] cannot see the servers of all projects; it needs the role '
                'admin.'
            )
        raise errors.Unavailable(f'Nova answered {response.status_code}.')

    def accepts_events(self) -> bool:
        """Returns whether our user may send events. Raises Unavailable if Nova does not answer.

        Nova checks the policy before it looks up the server of the event, which does not exist.
        """
        event = {
            'name': 'accelerator-request-bound',
            'server_uuid': str(uuid.uuid4()),
            'tag': str(uuid.uuid4()),
            'status': COMPLETED,
        }
        try:
            response = self._service.post(
                '/os-server-external-events',
                json={'events': [event]},
                raise_exc=False,
                **MICROVERSION,
            )
        except exceptions.ClientException as error:
            raise errors.Unavailable(f'Nova cannot be reached: {error}') from error
        if response.status_code == 403:
            return False
        if response.status_code in (200, 207) or _is_unknown(response):
            return True
        raise errors.Unavailable(f'Nova answered {response.status_code}.')

    def send_events(
        self, events: Sequence[tuple[str, str, str]], request_id: str | None = None
    ) -> list[int]:
        """Send events, each as (server, request, completed or failed); returns the code of Nova's
        answer for each.

        Raises Unavailable if Nova does not answer at all. A failure of these servers only, whose
        cell may be down, is a code: other servers may not be affected.
        """
        body = {
            'events': [
                {
                    'name': 'accelerator-request-bound',
                    'server_uuid': server,
                    'tag': arq,
                    'status': status,
                }
                for server, arq, status in events
            ]
        }
        try:
            response = self._service.post(
                '/os-server-external-events',
                json=body,
                global_request_id=request_id,
                raise_exc=False,
                **MICROVERSION,
            )
        except exceptions.ClientException as error:
            raise errors.Unavailable(f'Nova cannot be reached: {error}') from error
        if response.status_code in (200, 207):
            answers = _answers(response)
            return [answers.get((server, arq), 200) for server, arq, _ in events]
        if response.status_code in AWAY or (
            response.status_code == 404 and not _is_unknown(response)
        ):
            raise errors.Unavailable(f'Nova answered {response.status_code}.')
        return [response.status_code] * len(events)


def _is_unknown(response: Any) -> bool:
    """Returns whether a 404 is from Nova itself, and not from a proxy."""
    try:
        return response.status_code == 404 and 'itemNotFound' in response.json()
    except (TypeError, ValueError):  # it has another form, or is not JSON
        return False


def _answers(response: Any) -> dict[tuple[str, str], int]:
    """Returns the code of each event, by server and request."""
    try:
        return {
            (event.get('server_uuid'), event.get('tag')): event.get('code', 200)
            for event in response.json().get('events', [])
        }
    except (ValueError, AttributeError) as error:
        raise errors.Unavailable('The endpoint of Nova does not answer as Nova does.') from error
