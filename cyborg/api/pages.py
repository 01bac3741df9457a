# SPDX-License-Identifier: Apache-2.0
"""Lists, a page at a time."""

import abc
import datetime
from collections.abc import Callable, Sequence
from typing import Any, ClassVar
from urllib.parse import urlencode

from cyborg.api import expose, microversions, requests
from cyborg.api.schemas import shapes

PAGING = ('limit', 'marker', 'sort_key', 'sort_dir')


class Collection(expose.Resource, abc.ABC):
    """A noun that can be listed."""

    #: below /v2
    path: str
    #: of the list in its body
    key: str
    #: what one of them is called where the API is described
    name: str
    #: what one of them shows, over all versions
    shape: shapes.Schema

    _fields: ClassVar[dict[microversions.Version, frozenset[str]]]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._fields = {version: frozenset(shapes.at(cls.shape, version)['properties'])
                       for version in microversions.HISTORY}

    @abc.abstractmethod
    def whole(self, item: Any, request: requests.Request) -> dict[str, Any]:
        """All that the newest version shows of one of them."""

    def show(self, item: Any, request: requests.Request) -> dict[str, Any]:
        """One of them, as this version of the API has it."""
        known = self._fields[request.version]
        return {name: value for name, value in self.whole(item, request).items()
                if name in known}

    def page(self, request: requests.Request, fetch: Callable[..., Sequence[Any]],
             filters: dict[str, Any]) -> dict[str, Any]:
        """The page that the query asks for, and a link to the next one if there is one.

        The collection comes first: some clients read the first key, whatever its name.
        """
        limit = min(request.query.get('limit', self.conf.api.max_limit),
                    self.conf.api.max_limit)
        wanted = {name: request.query[name] for name in PAGING if name in request.query}
        # one more than is shown tells whether there is a next page
        found = fetch(request.context, filters, wanted | {'limit': limit + 1})
        body: dict[str, Any] = {self.key: [self.show(item, request) for item in found[:limit]]}
        if len(found) > limit:
            following = dict(request.GET) | {'limit': limit, 'marker': found[limit - 1].uuid}
            link = request.link('v2', self.path, rel='next')
            body[f'{self.key}_links'] = [
                link | {'href': f'{link["href"]}?{urlencode(following)}'}]
        return body


def filters(request: requests.Request) -> dict[str, Any]:
    """What the query asks for besides a page."""
    return {name: value for name, value in request.query.items() if name not in PAGING}


def stamps(item: Any) -> dict[str, str | None]:
    """When it was made and last changed."""
    return {name: moment(getattr(item, name)) for name in ('created_at', 'updated_at')}


def moment(value: datetime.datetime | None) -> str | None:
    """A point in time, as clients read it."""
    return None if value is None else value.isoformat()
