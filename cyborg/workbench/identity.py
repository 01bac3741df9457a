# SPDX-License-Identifier: Apache-2.0
"""A stand-in for Keystone: it accepts every login, and has the catalogue of the standalone."""

import datetime
from collections.abc import Iterable, Mapping
from typing import Any
from wsgiref.types import StartResponse, WSGIEnvironment

import webob

from cyborg.clients import embedded_placement

REGION = 'RegionOne'
#: what everybody gets; the embedded Placement knows no other
TOKEN = embedded_placement.TOKEN
LIFE = datetime.timedelta(hours=1)
DEFAULT_DOMAIN = {'id': 'default', 'name': 'Default'}


class Identity:
    """A WSGI application below ``url``."""

    def __init__(self, url: str, endpoints: Mapping[str, str]) -> None:
        """``endpoints`` has the URL of each service type."""
        self._url = url
        self._endpoints = endpoints

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        answer: Iterable[bytes] = self._respond(webob.Request(environ))(environ, start_response)
        return answer

    def _respond(self, request: webob.Request) -> webob.Response:
        match request.method, request.path_info.rstrip('/'):
            case 'GET', '':
                return webob.Response(json={'versions': {'values': [self._version()]}}, status=300)
            case 'GET', '/v3':
                return webob.Response(json={'version': self._version()})
            case 'POST' | 'GET', '/v3/auth/tokens':
                status = 201 if request.method == 'POST' else 200
                response = webob.Response(json={'token': self._token()}, status=status)
                response.headers['X-Subject-Token'] = TOKEN
                return response
        return webob.Response(
            json={
                'error': {
                    'code': 404,
                    'title': 'Not Found',
                    'message': 'This stand-in for Keystone only issues tokens.',
                }
            },
            status=404,
        )

    def _version(self) -> dict[str, Any]:
        return {
            'id': 'v3.14',
            'status': 'stable',
            'updated': '2020-04-07T00:00:00Z',
            'links': [{'rel': 'self', 'href': f'{self._url}/v3/'}],
            'media-types': [],
        }

    def _token(self) -> dict[str, Any]:
        now = datetime.datetime.now(datetime.UTC)
        services = {'identity': f'{self._url}/v3'} | dict(self._endpoints)
        return {
            'methods': ['password'],
            'issued_at': _moment(now),
            'expires_at': _moment(now + LIFE),
            'user': {'id': 'admin', 'name': 'admin', 'domain': DEFAULT_DOMAIN},
            'project': {'id': 'demo', 'name': 'demo', 'domain': DEFAULT_DOMAIN},
            'roles': [{'id': role, 'name': role} for role in ('admin', 'member', 'reader')],
            'is_domain': False,
            'audit_ids': ['standalone'],
            'catalog': [
                {
                    'id': kind,
                    'type': kind,
                    'name': kind,
                    'endpoints': [
                        {
                            'id': f'{kind}-{interface}',
                            'interface': interface,
                            'region': REGION,
                            'region_id': REGION,
                            'url': url,
                        }
                        for interface in ('public', 'internal', 'admin')
                    ],
                }
                for kind, url in services.items()
            ],
        }


def _moment(moment: datetime.datetime) -> str:
    return moment.strftime('%Y-%m-%dT%H:%M:%S.000000Z')
