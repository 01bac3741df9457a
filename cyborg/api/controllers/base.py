# SPDX-License-Identifier: Apache-2.0
"""The base classes of controllers: routing, and for a noun its documents and pages."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar
from urllib.parse import urlencode

import pecan
import pecan.rest
import webob
import webob.exc
from oslo_config import cfg

from cyborg.api import waiting
from cyborg.api.expose import Operation
from cyborg.api.request import Request
from cyborg.api.types import documents, rendering

Route = tuple[Callable[..., webob.Response], list[str]]


class RestController(pecan.rest.RestController):
    """A pecan RestController: methods have its names, controllers below it are attributes.

    It routes by the declarations of ``expose``. Pecan's own ``_route`` treats every attribute as a
    part of a path, does not know versions, and answers 404 instead of 405.
    """

    #: by the names of the methods
    operations: ClassVar[dict[str, Operation]]

    def __init__(self, conf: cfg.ConfigOpts, conductor: Any, waiter: waiting.Waiter) -> None:
        self.conf, self.conductor, self.waiter = conf, conductor, waiter

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.operations = {
            name: member.operation
            for name, member in vars(cls).items()
            if hasattr(member, 'operation')
        }

    def route(self, segments: list[str], request: Request) -> Route:
        """Returns the operation. Raises 404 for an unknown path, 405 for a known path without this
        method. The path begins with a version, also if the URL has none."""
        below = getattr(self, segments[0], None) if segments else None
        if isinstance(below, RestController):
            return below.route(segments[1:], request)
        method = 'GET' if request.method == 'HEAD' else request.method
        offered, hint = set(), ''
        for name, operation in self.operations.items():
            values = operation.match(segments)
            if values is None:
                continue
            if request.version is not None and request.version < operation.since:
                hint = ' Version {}.{} of this API has it.'.format(*operation.since)
            elif operation.method == method:
                return getattr(self, name), values
            else:
                offered.add(operation.method)
        if offered:
            raise webob.exc.HTTPMethodNotAllowed(
                f'{method} is not offered here; these are: {", ".join(sorted(offered))}.{hint}',
                allow=sorted(offered),
            )
        raise webob.exc.HTTPNotFound(f'There is nothing at this path.{hint}')


class Collection(RestController):
    """A noun that can be listed."""

    #: below /v2
    path: ClassVar[str]
    #: of the list in its body
    key: ClassVar[str]
    #: the type of its items, a documents.Noun
    item: ClassVar[Any]

    def as_document(self, item: Any, request: Request, *including: str) -> dict[str, Any]:
        """Returns the document of an item in the version of the request."""
        return rendering.render(item, self.item, request, *including)

    def page(
        self,
        request: Request,
        query: documents.Listing,
        fetch: Callable[..., Sequence[Any]],
        filters: dict[str, Any],
        *including: str,
        path: str | None = None,
        key: str | None = None,
        item: Any = None,
    ) -> dict[str, Any]:
        """Returns the page that the query asks for, with a link to the next page if there is one.

        The collection comes first, because some clients read the first key, whatever its name.
        ``path``, ``key`` and ``item`` are those of another collection that belongs to an item.
        """
        path, key = path or self.path, key or self.key
        as_document = rendering.renderer(item or self.item, request.negotiated, including)
        wanted = query.page()
        limit = min(wanted.get('limit', self.conf.api.max_limit), self.conf.api.max_limit)
        # one more than is shown, to find out whether there is a next page
        found = fetch(request.context, filters, wanted | {'limit': limit + 1})
        body: dict[str, Any] = {key: [as_document(each, request) for each in found[:limit]]}
        if len(found) > limit:
            following = dict(request.GET) | {'limit': limit, 'marker': found[limit - 1].uuid}
            link = request.link('v2', path, rel='next')
            body[f'{key}_links'] = [link | {'href': f'{link["href"]}?{urlencode(following)}'}]
        return body
