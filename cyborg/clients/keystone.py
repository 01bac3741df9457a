# SPDX-License-Identifier: Apache-2.0
"""Makes clients of other services with openstacksdk from sections of the configuration.

Importing this module imports openstacksdk, which takes 0.2 s and 12 MB. Processes that call no
other service do not import it.
"""

import contextlib
import os
import re
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

import requests
from keystoneauth1 import exceptions, loading, session
from openstack import connection, proxy
from oslo_config import cfg
from oslo_context import context

from cyborg import errors, metrics

#: The names under which the catalogue lists the services of our sections.
SERVICE_TYPES = {'placement': 'placement', 'nova': 'compute', 'glance': 'image'}
#: Seconds without a byte before a call fails: by default keystoneauth would wait for ever.
TIMEOUT = 60
REQUEST_ID = 'X-OpenStack-Request-ID'
#: the status, in metrics, of a request without an answer
NO_ANSWER = '0'
#: The options of a section that openstacksdk does not take from oslo.config: no release takes the
#: versions, and those of OpenStack 2026.1 and 2026.2 do not take the others either. Without a
#: version it asks for the latest one, and would read the version document of the service.
NOT_IN_SDK = (
    'version',
    'min_version',
    'max_version',
    'connect_retry_delay',
    'status_code_retry_delay',
    'retriable_status_codes',
)


#: in the text of a TLS error, after all that requests and urllib3 say of the connection
UNTRUSTED = re.compile(r'certificate verify failed: (?P<why>[^(\'"]+)')
#: the part of a URL that has a certificate
ORIGIN = re.compile(r'https://[^/\s]+(?<!:)')


class Service(proxy.Proxy):
    """A service of the cloud, as openstacksdk reaches it. Threads may share it.

    It sends the request id to the other service. Its errors say if Keystone refuses the
    credentials, or if a certificate is not trusted.
    """

    def __init__(
        self,
        session: session.Session,
        *,
        connection: connection.Connection,
        section: str,
        name: str,
        more: dict[str, Any],
        **options: Any,
    ) -> None:
        super().__init__(session, **options | more)
        self._connection = connection  # as the SDK does for the proxies that it makes
        self._section = section
        self._name = name

    def request(self, url: str, method: str, *args: Any, **kwargs: Any) -> requests.Response:
        """Send a request, with the same defaults in all releases of the SDK and our request id."""
        kwargs.setdefault('raise_exc', True)
        kwargs.setdefault('connect_retries', self.connect_retries)
        current = context.get_current()
        if current is not None and REQUEST_ID not in (kwargs.get('headers') or {}):
            kwargs['global_request_id'] = kwargs.get('global_request_id') or current.global_id
        with metrics.Timer(
            metrics.SERVICE_CALLS, self._name, metrics.known_method(method)
        ) as timer:
            timer.result = NO_ANSWER
            with self._accepted():
                try:
                    response = super().request(url, method, *args, **kwargs)
                except exceptions.HttpError as error:
                    timer.result = str(error.http_status)
                    raise
            timer.result = str(response.status_code)
        return response

    def get_endpoint(self, *args: Any, **kwargs: Any) -> str | None:
        with self._accepted():
            return super().get_endpoint(*args, **kwargs)

    @contextlib.contextmanager
    def _accepted(self) -> Iterator[None]:
        try:
            yield
        except (exceptions.Unauthorized, exceptions.NotFound) as error:
            # Keystone does not find an application credential that was deleted
            if error.http_status == HTTPStatus.NOT_FOUND and not _is_login(error):
                raise
            raise exceptions.AuthorizationFailure(
                f'Keystone does not accept the credentials of [{self._section}]: {error}'
            ) from error
        except exceptions.SSLError as error:
            if reason := UNTRUSTED.search(str(error)):
                server = ORIGIN.search(str(error))
                raise exceptions.SSLError(
                    f'The certificate of {server[0] if server else "a server"} is not trusted: '
                    f'{reason["why"].strip()}. Set [{self._name}] cafile to a file with the '
                    'certificate of its authority.'
                ) from error
            raise


def _is_login(error: exceptions.HttpError) -> bool:
    return (error.url or '').endswith('/auth/tokens')


def connect(
    conf: cfg.ConfigOpts, section: str, transport: requests.Session | None = None
) -> Service:
    """Returns the service of a section. Create it once and keep it, because it has the session with
    its token and connections.

    Nothing is sent before the first call, so a process may start before Keystone. A ``transport``
    replaces the network for a service in the same process.
    """
    _require_files(conf, section)
    # auth_section may name a section that is not ours
    loading.register_auth_conf_options(conf, section)
    source = conf[section].auth_section or section
    try:
        auth = loading.load_auth_from_conf_options(conf, section)
    except exceptions.ClientException as error:  # an unknown plugin, or one that lacks options
        raise errors.ConfigError(
            why=f'[{source}] cannot be used to authenticate: {error}'
        ) from error
    if auth is None:
        raise errors.ConfigError(
            why=f'[{source}] auth_type is not set: set it to a keystoneauth plugin, '
            'for instance "password", with its options.'
        )
    options: dict[str, Any] = {}
    try:
        loading.adapter.process_conf_options(conf[section], options)
    except TypeError as error:  # the SDK would only log it
        raise errors.ConfigError(why=f'[{section}]: {error}') from error
    # the credentials belong to the section, and so does the connection
    made = connection.Connection(
        session=loading.load_session_from_conf_options(
            conf, section, auth=auth, session=transport, timeout=conf[section].timeout or TIMEOUT
        ),
        oslo_conf=conf,
        service_types=[SERVICE_TYPES[section]],
    )
    # made.placement and its like would log in and look for versions at once
    return made.config.get_session_client(
        SERVICE_TYPES[section],
        constructor=Service,
        connection=made,
        section=source,
        name=section,
        more={name: options[name] for name in NOT_IN_SDK},
        user_agent='cyborg',
    )


def _require_files(conf: cfg.ConfigOpts, section: str) -> None:
    """Raise ConfigError if a certificate or key of a section cannot be read: requests would raise
    an OSError at each call, which keystoneauth does not translate."""
    for option in ('cafile', 'certfile', 'keyfile'):
        path = conf[section][option]
        if path and not os.access(path, os.R_OK):
            raise errors.ConfigError(why=f'[{section}] {option} = {path} cannot be read.')
