# SPDX-License-Identifier: Apache-2.0
"""What Cyborg asks of Glance: images, their properties and their data."""

import contextlib
from collections.abc import Iterator
from typing import Any, Self

import requests
from keystoneauth1 import exceptions
from oslo_config import cfg
from oslo_log import log

from cyborg import errors
from cyborg.clients import keystone

LOG = log.getLogger(__name__)

CHUNK = 1024 * 1024


class Glance:
    """Over one keystoneauth adapter, made once and reused."""

    def __init__(self, adapter: Any) -> None:
        self._adapter = adapter

    @classmethod
    def connect(cls, conf: cfg.ConfigOpts) -> Self | None:
        """As [glance] says; None where it says nothing: most hosts have nothing to program."""
        if not (conf.glance.auth_type or conf.glance.auth_section):
            return None
        return cls(keystone.connect(conf, 'glance'))

    def image(self, uuid: str, request_id: str | None = None) -> dict[str, Any]:
        """All that is known of an image."""
        with self._asked(f'/{uuid}', request_id) as response:
            return self._document(response)

    def members(self, uuid: str, request_id: str | None = None) -> set[str]:
        """The projects with which an image is shared."""
        with self._asked(f'/{uuid}/members', request_id) as response:
            return {member['member_id'] for member in self._document(response)['members']}

    def data(self, uuid: str, request_id: str | None = None) -> Iterator[bytes]:
        """What is in an image, piece by piece."""
        with self._asked(f'/{uuid}/file', request_id) as response:
            try:
                yield from response.iter_content(CHUNK)
            except requests.RequestException as error:
                LOG.warning('Glance broke off: %s', error)
                raise errors.Unavailable('Glance broke off.') from error

    @contextlib.contextmanager
    def _asked(self, path: str, request_id: str | None) -> Iterator[requests.Response]:
        headers = {'X-OpenStack-Request-ID': request_id} if request_id else {}
        try:
            base = (self._adapter.get_endpoint() or '').rstrip('/')
            # catalogues name Glance with or without its version
            prefix = '' if base.endswith('/v2') else '/v2'
            response = self._adapter.get(f'{prefix}/images{path}', headers=headers, stream=True,
                                         raise_exc=False)
        except exceptions.ClientException as error:
            # where it should be is for operators to know, not for whoever asked for the image
            LOG.warning('Glance cannot be reached: %s', error)
            raise errors.Unavailable('Glance cannot be reached.') from error
        with response:
            if response.status_code in (403, 404):
                raise errors.NotFound('Glance does not have it, or not for us.')
            if response.status_code != 200:
                raise errors.Unavailable(f'Glance answered {response.status_code}.')
            yield response

    @staticmethod
    def _document(response: requests.Response) -> dict[str, Any]:
        try:
            return dict(response.json())
        except (requests.RequestException, ValueError, TypeError) as error:
            LOG.warning('Glance answered with no JSON: %s', error)
            raise errors.Unavailable('Glance answered with no JSON.') from error
