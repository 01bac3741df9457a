# SPDX-License-Identifier: Apache-2.0
"""What Cyborg asks of Nova: to hear how binding went."""

from collections.abc import Sequence
from typing import Any

from keystoneauth1 import exceptions

from cyborg import errors

MICROVERSION = '2.82'  #: the first that knows accelerator-request-bound
#: the answers of a Nova that is away, overloaded, or will not have us
AWAY = frozenset({401, 403, 429, 502, 503, 504})


class Nova:
    """Over one keystoneauth adapter, made once and reused."""

    def __init__(self, adapter: Any) -> None:
        self._adapter = adapter

    def exists(self, server: str) -> bool:
        """Does Nova know this server? Raises Unavailable when it cannot tell."""
        try:
            response = self._adapter.get(f'/servers/{server}', raise_exc=False)
        except exceptions.ClientException as error:
            raise errors.Unavailable(f'Nova cannot be reached: {error}') from error
        if response.status_code == 200:
            return True
        if _is_unknown(response):
            return False
        raise errors.Unavailable(f'Nova answered {response.status_code}.')

    def is_offloaded(self, server: str) -> bool:
        """Is this server shelved, so that it runs nowhere? False for one that Nova does not know.
        Raises Unavailable when it cannot tell."""
        try:
            response = self._adapter.get(f'/servers/{server}', raise_exc=False)
            status = response.json().get('server', {}).get('status')
        except (exceptions.ClientException, ValueError, AttributeError) as error:
            raise errors.Unavailable(f'Nova does not tell how the server is: {error}') from error
        if response.status_code != 200 and not _is_unknown(response):
            raise errors.Unavailable(f'Nova answered {response.status_code}.')
        return bool(status == 'SHELVED_OFFLOADED')

    def sees_all(self) -> bool:
        """Is it shown servers of all projects? Others' are unknown to those who are not."""
        try:
            response = self._adapter.get(
                '/servers', params={'all_tenants': 1, 'limit': 1}, raise_exc=False)
        except exceptions.ClientException as error:
            raise errors.Unavailable(f'Nova cannot be reached: {error}') from error
        if response.status_code not in (200, 403):
            raise errors.Unavailable(f'Nova answered {response.status_code}.')
        return response.status_code == 200

    def send_events(self, events: Sequence[tuple[str, str, str]],
                    request_id: str | None = None) -> list[int]:
        """Send (server, request, completed or failed) of one server; answers a code for each.

        Raises Unavailable when Nova cannot be asked at all. What it cannot do for this server,
        whose cell may be down, says nothing of others.
        """
        body = {'events': [
            {'name': 'accelerator-request-bound', 'server_uuid': server, 'tag': arq,
             'status': status} for server, arq, status in events]}
        headers = {'X-OpenStack-Request-ID': request_id} if request_id else {}
        try:
            response = self._adapter.post(
                '/os-server-external-events', json=body, microversion=MICROVERSION,
                headers=headers, raise_exc=False)
        except exceptions.ClientException as error:
            raise errors.Unavailable(f'Nova cannot be reached: {error}') from error
        if response.status_code in (200, 207):
            answers = _answers(response)
            return [answers.get((server, arq), 200) for server, arq, _ in events]
        if response.status_code in AWAY or (
                response.status_code == 404 and not _is_unknown(response)):
            raise errors.Unavailable(f'Nova answered {response.status_code}.')
        return [response.status_code] * len(events)


def _is_unknown(response: Any) -> bool:
    """Does Nova itself say that it knows no such server, and not somebody on the way to it?"""
    try:
        return response.status_code == 404 and 'itemNotFound' in response.json()
    except ValueError:
        return False


def _answers(response: Any) -> dict[tuple[str, str], int]:
    """(server, request) -> the code of its event."""
    try:
        return {(event.get('server_uuid'), event.get('tag')): event.get('code', 200)
                for event in response.json().get('events', [])}
    except (ValueError, AttributeError) as error:
        raise errors.Unavailable('What answers in the place of Nova is not Nova.') from error
