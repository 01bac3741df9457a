# SPDX-License-Identifier: Apache-2.0
"""Authenticated sessions: how a section of the configuration becomes a way to a service."""

import contextlib
from collections.abc import Iterator
from typing import Any

import requests
from keystoneauth1 import adapter, exceptions, loading
from oslo_config import cfg
from oslo_context import context

from cyborg import errors

#: The names under which the catalogue lists what our sections speak of.
SERVICE_TYPES = {'placement': 'placement', 'nova': 'compute', 'glance': 'image'}
#: Seconds without a byte before a call fails: by default keystoneauth would wait for ever.
TIMEOUT = 60
REQUEST_ID = 'X-OpenStack-Request-ID'


class Adapter(adapter.Adapter):
    """keystoneauth's, which also tells the other service for which request it works, and tells
    whoever asks when it is Keystone that refuses."""

    def __init__(self, *args: Any, section: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._section = section

    def request(self, url: str, method: str, **kwargs: Any) -> requests.Response:
        if (current := context.get_current()) is not None:
            headers = kwargs.pop('headers', None) or {}
            kwargs['headers'] = {REQUEST_ID: current.global_id} | headers
        with self._accepted():
            return super().request(url, method, **kwargs)

    def get_endpoint(self, *args: Any, **kwargs: Any) -> str | None:
        with self._accepted():
            return super().get_endpoint(*args, **kwargs)

    @contextlib.contextmanager
    def _accepted(self) -> Iterator[None]:
        try:
            yield
        except exceptions.Unauthorized as error:
            raise exceptions.AuthorizationFailure(
                f'Keystone does not accept the credentials of [{self._section}]: '
                f'{error}') from error


def connect(conf: cfg.ConfigOpts, section: str,
            transport: requests.Session | None = None) -> Adapter:
    """The way to a service, to be made once and kept: it holds the session and its token.

    A transport takes the place of the network, for a service in the same process.
    """
    loading.register_auth_conf_options(conf, section)  # auth_section may name one not ours
    source = conf[section].auth_section or section
    try:
        auth = loading.load_auth_from_conf_options(conf, section)
    except exceptions.ClientException as error:  # an unknown plugin, or one that lacks options
        raise errors.ConfigError(why=f'[{source}] cannot be used to authenticate: {error}'
                                 ) from error
    if auth is None:
        raise errors.ConfigError(
            why=f'[{source}] auth_type is not set: set it to a keystoneauth plugin, '
                'for instance "password", with its options.')
    session = loading.load_session_from_conf_options(
        conf, section, auth=auth, session=transport, timeout=conf[section].timeout or TIMEOUT)
    options: dict[str, Any] = {
        'session': session,
        'service_type': conf[section].service_type or SERVICE_TYPES[section]}
    try:
        loading.adapter.process_conf_options(conf[section], options)
    except TypeError as error:
        raise errors.ConfigError(why=f'[{section}]: {error}') from error
    return Adapter(**options, section=source, user_agent='cyborg')
