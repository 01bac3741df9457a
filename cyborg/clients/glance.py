# SPDX-License-Identifier: Apache-2.0
"""The calls to Glance, by python-glanceclient: images, their members, their data."""

import contextlib
import contextvars
import functools
from collections.abc import Callable, Generator, Iterator, Mapping
from http import HTTPStatus
from typing import Any, Self

import requests
import urllib3.exceptions
from keystoneauth1 import adapter, plugin
from oslo_config import cfg
from oslo_log import log

from cyborg import errors
from cyborg.clients import keystone

LOG = log.getLogger(__name__)

#: the content type that python-glanceclient streams; it reads others into memory
DATA = 'application/octet-stream'
PIECE = 256 * 1024


class Glance:
    """The client of Glance. All threads share it."""

    def __init__(self, way: Any) -> None:
        self._way = way

    @functools.cached_property
    def _client(self) -> Any:
        # its import takes 0.2 s, which an agent that loads no image does not spend
        import glanceclient

        return glanceclient.Client('2', session=_Session(self._way), user_agent='cyborg')

    @classmethod
    def connect(cls, conf: cfg.ConfigOpts) -> Self | None:
        """Returns the client that [glance] configures; None if [glance] is empty, as it is on hosts
        without FPGAs."""
        if not (conf.glance.auth_type or conf.glance.auth_section):
            return None
        return cls(keystone.connect(conf, 'glance'))

    @property
    def auth(self) -> plugin.BaseAuthPlugin | None:
        """Returns the credentials of [glance]; the key manager is called with them, too."""
        auth: plugin.BaseAuthPlugin | None = self._way.auth or self._way.session.auth
        return auth

    def image(self, uuid: str, request_id: str | None = None) -> dict[str, Any]:
        """Returns an image with its properties."""
        with _call(request_id):
            return dict(self._client.images.get(uuid))

    def search(
        self,
        filters: Mapping[str, str],
        request_id: str | None = None,
        require_time: Callable[[], None] = lambda: None,
    ) -> list[dict[str, Any]]:
        """Returns the images with these properties, of all projects that [glance] may see.

        They come in pages. ``require_time`` is called for each image, and raises an error if the
        time is over.
        """
        try:
            with _call(request_id):
                found = self._client.images.list(
                    filters={'visibility': 'all', 'member_status': 'all'} | dict(filters)
                )
                images = []
                for image in found:
                    require_time()
                    images.append(dict(image))
                return images
        except errors.NotFound as error:
            raise errors.Unavailable(
                'Glance does not let the user of [glance] search for images.'
            ) from error

    def members(self, uuid: str, request_id: str | None = None) -> dict[str, str]:
        """Returns the projects with which an image is shared, each with its status."""
        with _call(request_id):
            return {
                member['member_id']: str(member.get('status'))
                for member in self._client.image_members.list(uuid)
            }

    def data(self, uuid: str, request_id: str | None = None) -> Generator[bytes, None, None]:
        """Yields the data of an image as it arrives, in pieces of up to PIECE bytes.

        The pieces of python-glanceclient have 1 MiB. It waits until that much has arrived, for
        hours if the other side is slow, and the caller could not give up.
        """
        call = _Call(request_id)
        with call.translated():
            with call.current():
                self._client.images.data(uuid, do_checksum=False)
            if call.status != HTTPStatus.NO_CONTENT:
                answer = call.responses[-1].raw
                while piece := answer.read1(PIECE, decode_content=True):
                    yield piece


class _Call:
    """One call to Glance: the request that it is made for, and the status of the answer."""

    def __init__(self, request_id: str | None) -> None:
        self.request_id = request_id
        self.responses: list[requests.Response] = []

    @property
    def status(self) -> int | None:
        """The HTTP status of the last answer; None if there was none."""
        return self.responses[-1].status_code if self.responses else None

    @contextlib.contextmanager
    def current(self) -> Iterator[None]:
        token = _CALL.set(self)
        try:
            yield
        finally:
            _CALL.reset(token)

    @contextlib.contextmanager
    def translated(self) -> Iterator[None]:
        """Raises our errors for the many that the client and its libraries raise."""
        try:
            yield
        except (errors.CyborgError, ImportError):
            raise
        except Exception as error:
            # addresses are for operators, not for the tenant who asked for an image
            LOG.warning('Glance failed: %s: %s', type(error).__name__, error)
            raise self._failure(error) from error
        finally:
            for (
                response
            ) in self.responses:  # the client does not close one that it has not read to its end
                response.close()

    def _failure(self, error: Exception) -> errors.CyborgError:
        status = self.status
        if status is None:
            return errors.Unavailable('Glance cannot be reached.')
        if status == HTTPStatus.UNAUTHORIZED:
            return errors.Unavailable(
                'Glance does not accept the credentials that the host has in [glance].'
            )
        if status in (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND):
            return errors.NotFound('Glance does not have it, or does not show it to this host.')
        if status == HTTPStatus.BAD_REQUEST:
            return errors.BadRequest('Glance does not accept the query.')
        if status >= HTTPStatus.MULTIPLE_CHOICES:
            return errors.Unavailable(f'Glance answered {status}.')
        if isinstance(error, ValueError):  # first: some errors of requests are both
            return errors.Unavailable('The answer of Glance is not JSON.')
        if isinstance(error, requests.RequestException | urllib3.exceptions.HTTPError):
            return errors.Unavailable('The connection to Glance broke.')
        return errors.Unavailable('The answer of Glance cannot be read.')


@contextlib.contextmanager
def _call(request_id: str | None) -> Iterator[None]:
    call = _Call(request_id)
    with call.translated(), call.current():
        yield


_CALL: contextvars.ContextVar[_Call] = contextvars.ContextVar('glance_call')


class _Session(adapter.Adapter):
    """Replaces the keystoneauth session of python-glanceclient.

    The client itself would use one request id for all calls, and expects an endpoint without a
    version in the catalogue.
    """

    def request(self, url: str, method: str, **kwargs: Any) -> requests.Response:
        call = _CALL.get()
        if (self.session.get_endpoint() or '').rstrip('/').endswith('/v2'):
            url = url.removeprefix('/v2')
        headers = {_text(name): _text(value) for name, value in kwargs['headers'].items()}
        kwargs |= {'headers': headers, 'global_request_id': call.request_id}
        response = self.session.request(url, method, **kwargs)
        call.responses.append(response)
        if (
            response.ok
            and url.endswith('/file')
            and response.status_code != HTTPStatus.NO_CONTENT
            and response.headers.get('Content-Type') != DATA
        ):
            raise errors.Unavailable('The answer of Glance is not an image.')
        return response


def _text(header: str | bytes) -> str:
    return header.decode() if isinstance(header, bytes) else header
