# SPDX-License-Identifier: Apache-2.0
"""The calls of Placement's REST API, one method each, and exceptions for its errors."""

import codecs
import contextlib
import json
import re
from collections.abc import Iterable
from http import HTTPStatus
from itertools import chain
from typing import Any

import requests
from keystoneauth1 import exceptions
from keystoneauth1.adapter import Adapter

from cyborg import errors

#: the header has the name of the service that Placement expects, whatever the catalogue has
MICROVERSION = {'microversion': '1.39', 'microversion_service_type': 'placement'}
#: Characters of trait names to ask for at once: web servers limit the length of a URL.
LONGEST_QUERY = 2000
CUSTOM = re.compile('CUSTOM_[A-Z0-9_]{1,248}')
#: A list of providers as Placement writes it, and the texts of a field in it. Quotes within a
#: string are escaped, so that nothing else matches.
PROVIDERS = '{"resource_providers": [', ']}'
VALUES = {name: re.compile(rf'"{name}": "([^"\\]*(?:\\.[^"\\]*)*)"') for name in ('uuid', 'name')}
#: bytes of an answer that are read at once
CHUNK = 1 << 16

Row = dict[str, Any]
Inventories = dict[str, dict[str, Any]]


class Rejection(Exception):
    """Placement answered and refused the call."""


class Stale(Rejection):
    """A generation conflict: another client has written since we read."""


class InUse(Rejection):
    """Cannot be deleted: it has allocations, or providers below it."""


class Taken(Rejection):
    """A provider of that name or uuid exists."""


class Refused(Rejection):
    """Placement rejects the content of the call; a retry would not help."""


class Forbidden(errors.PlacementUnavailable):
    """Our credentials do not allow the call. A caller without an alternative treats Placement as
    unavailable."""


#: What a 409 is about; one that names no other reason is a race.
REASONS = {
    'placement.duplicate_name': Taken,
    'placement.inventory.inuse': InUse,
    'placement.resource_provider.inuse': InUse,
    'placement.resource_provider.cannot_delete_parent': InUse,
}


class PlacementApi:
    def __init__(self, service: Adapter) -> None:
        self._service = service
        #: custom traits and classes that exist; they are rarely deleted, so each is read once
        self._traits: set[str] = set()
        self._classes: set[str] = set()

    def find(self, **criteria: str) -> list[Row]:
        """Returns the providers that match all filters: name, uuid, in_tree, required."""
        return list(self._call('GET', '/resource_providers', params=criteria)['resource_providers'])

    def find_values(self, name: str, **criteria: str) -> set[str]:
        """Returns the uuids, or the names, of the providers that match all filters.

        They are read from the text while it arrives: an answer about 10,000 providers is 8 MB,
        nearly all of it links. To decode it takes several times as long, and 50 MB of memory.
        """
        response = self._answer('GET', '/resource_providers', params=criteria, stream=True)
        try:
            with contextlib.closing(response):
                return _values(name, response.iter_content(CHUNK))
        except (requests.RequestException, ValueError) as error:
            raise errors.PlacementUnavailable(why=str(error)) from error

    def create(self, uuid: str, name: str, parent_uuid: str) -> Row:
        return self._call(
            'POST',
            '/resource_providers',
            json={'uuid': uuid, 'name': name, 'parent_provider_uuid': parent_uuid},
        )

    def move(self, uuid: str, name: str, parent_uuid: str) -> Row:
        return self._call(
            'PUT',
            f'/resource_providers/{uuid}',
            json={'name': name, 'parent_provider_uuid': parent_uuid},
        )

    def delete(self, uuid: str) -> None:
        self._call('DELETE', f'/resource_providers/{uuid}')

    def inventories(self, uuid: str) -> tuple[int, Inventories]:
        answer = self._call('GET', f'/resource_providers/{uuid}/inventories')
        return answer['resource_provider_generation'], answer['inventories']

    def set_inventories(self, uuid: str, generation: int, inventories: Inventories) -> int:
        """Replace all inventories; the generation grows even if nothing changed."""
        self._create('resource_classes', inventories, self._classes)
        answer = self._call(
            'PUT',
            f'/resource_providers/{uuid}/inventories',
            json={'resource_provider_generation': generation, 'inventories': inventories},
        )
        return int(answer['resource_provider_generation'])

    def reshape(self, changes: dict[str, tuple[int, Inventories]]) -> dict[str, int]:
        """Replace all inventories of several providers, by uuid, or none of them."""
        self._create(
            'resource_classes',
            chain.from_iterable(inventories for _, inventories in changes.values()),
            self._classes,
        )
        self._call(
            'POST',
            '/reshaper',
            json={
                'allocations': {},
                'inventories': {
                    uuid: {'resource_provider_generation': generation, 'inventories': inventories}
                    for uuid, (generation, inventories) in changes.items()
                },
            },
        )
        # The answer has no generations. Placement increments that of a provider twice if its new
        # inventory is not empty. Should that change, the next read finds other generations.
        return {
            uuid: generation + (2 if inventories else 1)
            for uuid, (generation, inventories) in changes.items()
        }

    def set_traits(self, uuid: str, generation: int, traits: Iterable[str]) -> int:
        """Replace all traits; the generation stays if nothing changed."""
        self._create('traits', traits, self._traits)
        answer = self._call(
            'PUT',
            f'/resource_providers/{uuid}/traits',
            json={'resource_provider_generation': generation, 'traits': sorted(traits)},
        )
        return int(answer['resource_provider_generation'])

    def allocations(self, consumer: str) -> set[str]:
        """Returns the providers of which a consumer has allocations."""
        return set(self._call('GET', f'/allocations/{consumer}')['allocations'])

    def consumers(self, uuid: str) -> set[str]:
        """Returns the consumers of a provider; none if there is no such provider."""
        try:
            return set(self._call('GET', f'/resource_providers/{uuid}/allocations')['allocations'])
        except Stale:
            return set()

    def consumer_type(self, consumer: str) -> str | None:
        """Returns INSTANCE, MIGRATION…; None if the consumer has no allocations any more."""
        found: str | None = self._call('GET', f'/allocations/{consumer}').get('consumer_type')
        return found

    def learn_traits(self, traits: Iterable[str]) -> None:
        """Read which of these traits exist, in few calls, so that only missing ones are created."""
        for names in _chunks(sorted(_custom(traits) - self._traits)):
            query = {'name': f'in:{",".join(names)}'}
            self._traits.update(self._call('GET', '/traits', params=query)['traits'])

    def unknown_names(self, names: Iterable[str]) -> set[str]:
        """Returns those of these names that are neither traits nor resource classes."""
        unknown = set(names)
        answer = self._call('GET', '/resource_classes')['resource_classes']
        unknown -= {each['name'] for each in answer}
        for chunk in _chunks(sorted(unknown)):
            query = {'name': f'in:{",".join(chunk)}'}
            unknown -= {*self._call('GET', '/traits', params=query)['traits']}
        return unknown

    def _create(self, collection: str, names: Iterable[str], existing: set[str]) -> None:
        """Create the custom names that are not known to exist."""
        for name in sorted(_custom(names) - existing):
            self._call('PUT', f'/{collection}/{name}')
            existing.add(name)

    def _call(self, method: str, path: str, **kwargs: Any) -> Row:
        """Returns the document of the answer, an empty one if there is none."""
        return _decode(self._answer(method, path, **kwargs))

    def _answer(self, method: str, path: str, **kwargs: Any) -> requests.Response:
        try:
            response: requests.Response = self._service.request(
                path,
                method,
                headers={'Accept': 'application/json'},
                raise_exc=False,
                **MICROVERSION,
                **kwargs,
            )
        except (exceptions.ClientException, requests.RequestException) as error:
            raise errors.PlacementUnavailable(why=str(error)) from error
        if response.ok:
            return response
        code, detail = _explain(response)
        what = f'{method} {path} answered {response.status_code}: {detail}'
        match response.status_code:
            case HTTPStatus.CONFLICT:
                raise REASONS.get(code, Stale)(what)
            case HTTPStatus.NOT_FOUND:  # calls name only providers that have just been read
                raise Stale(what)
            case HTTPStatus.BAD_REQUEST:
                self._traits.clear()  # one of them may have been deleted
                self._classes.clear()
                raise Refused(what)
            case HTTPStatus.FORBIDDEN:
                raise Forbidden(why=what)
        raise errors.PlacementUnavailable(why=what)


def _values(name: str, chunks: Iterable[bytes]) -> set[str]:
    """Returns the texts of a field in a list of providers."""
    texts = codecs.iterdecode(chunks, 'utf-8')
    begin, end = PROVIDERS
    text = ''
    while len(text) < len(begin) and (more := next(texts, '')):
        text += more
    if not text.startswith(begin):  # it is written in another form
        return {row[name] for row in json.loads(text + ''.join(texts))['resource_providers']}
    found: set[str] = set()
    while True:
        read = 0
        for match in VALUES[name].finditer(text):
            found.add(match[1])
            read = match.end()
        more = next(texts, '')
        if not more:
            break
        text = text[read:] + more
    if not text.endswith(end):
        raise ValueError('The list of providers is incomplete.')
    return {json.loads(f'"{each}"') if '\\' in each else each for each in found}


def _decode(response: requests.Response) -> Row:
    try:
        answer: Row = response.json() if response.content else {}
    except requests.RequestException as error:
        raise errors.PlacementUnavailable(why=str(error)) from error
    return answer


def _explain(response: requests.Response) -> tuple[str, str]:
    """Returns the code and the message of an error, from Placement or from a proxy."""
    try:
        [error] = response.json()['errors']
        # the first paragraph only says what the status means
        return error.get('code', ''), error['detail'].strip().rpartition('\n\n')[2].strip()
    except (ValueError, KeyError, TypeError):  # a proxy's page rather than Placement's answer
        return '', response.reason


def _custom(names: Iterable[str]) -> set[str]:
    """Returns the custom names. The standard ones exist in every Placement."""
    return {name for name in names if CUSTOM.fullmatch(name)}


def _chunks(names: list[str]) -> Iterable[list[str]]:
    """Yields the names in groups that fit into a query string."""
    chunk: list[str] = []
    for name in names:
        if chunk and len(','.join((*chunk, name))) > LONGEST_QUERY:
            yield chunk
            chunk = []
        chunk.append(name)
    if chunk:
        yield chunk
