# SPDX-License-Identifier: Apache-2.0
"""Placement's REST calls, one method each, and what its refusals mean."""

import re
from collections.abc import Iterable
from http import HTTPStatus
from itertools import chain
from typing import Any

import requests
from keystoneauth1 import exceptions
from keystoneauth1.adapter import Adapter

from cyborg import errors

MICROVERSION = '1.39'
#: Characters of trait names to ask for at once: web servers limit the length of a URL.
LONGEST_QUERY = 2000
CUSTOM = re.compile('CUSTOM_[A-Z0-9_]{1,248}')

Row = dict[str, Any]
Inventories = dict[str, dict[str, Any]]


class Rejection(Exception):
    """Placement is there, and will not do it."""


class Stale(Rejection):
    """Somebody else wrote since we read."""


class InUse(Rejection):
    """Allocations, or providers below, hold what should go."""


class Taken(Rejection):
    """A provider of that name or uuid exists."""


class Refused(Rejection):
    """Placement finds fault with what was sent; asking again would not help."""


class Forbidden(errors.PlacementUnavailable):
    """Our credentials do not allow it. To whoever has no other way Placement cannot be used."""


#: What a 409 is about; one that names no other reason is a race.
REASONS = {
    'placement.duplicate_name': Taken,
    'placement.inventory.inuse': InUse,
    'placement.resource_provider.inuse': InUse,
    'placement.resource_provider.cannot_delete_parent': InUse,
}


class PlacementApi:
    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter
        #: custom ones that exist; they rarely go, so each is asked for once
        self._traits: set[str] = set()
        self._classes: set[str] = set()

    def find(self, **criteria: str) -> list[Row]:
        """Providers with all of these: name, uuid, in_tree, required."""
        return self._call('GET', '/resource_providers', params=criteria)['resource_providers']

    def create(self, uuid: str, name: str, parent_uuid: str) -> Row:
        return self._call('POST', '/resource_providers', json={
            'uuid': uuid, 'name': name, 'parent_provider_uuid': parent_uuid})

    def move(self, uuid: str, name: str, parent_uuid: str) -> Row:
        return self._call('PUT', f'/resource_providers/{uuid}', json={
            'name': name, 'parent_provider_uuid': parent_uuid})

    def delete(self, uuid: str) -> None:
        self._call('DELETE', f'/resource_providers/{uuid}')

    def inventories(self, uuid: str) -> tuple[int, Inventories]:
        answer = self._call('GET', f'/resource_providers/{uuid}/inventories')
        return answer['resource_provider_generation'], answer['inventories']

    def set_inventories(self, uuid: str, generation: int, inventories: Inventories) -> int:
        """Replace all; the generation grows even if nothing changed."""
        self._create('resource_classes', inventories, self._classes)
        return self._call('PUT', f'/resource_providers/{uuid}/inventories', json={
            'resource_provider_generation': generation, 'inventories': inventories,
        })['resource_provider_generation']

    def reshape(self, changes: dict[str, tuple[int, Inventories]]) -> dict[str, int]:
        """Replace all of several providers, or nothing at all; by uuid, with generations."""
        self._create('resource_classes', chain.from_iterable(
            inventories for _, inventories in changes.values()), self._classes)
        self._call('POST', '/reshaper', json={'allocations': {}, 'inventories': {
            uuid: {'resource_provider_generation': generation, 'inventories': inventories}
            for uuid, (generation, inventories) in changes.items()}})
        # not in the answer, but it writes twice what is not to be empty. If that ever changes,
        # the next look finds other generations, and reads what it could have known
        return {uuid: generation + (2 if inventories else 1)
                for uuid, (generation, inventories) in changes.items()}

    def set_traits(self, uuid: str, generation: int, traits: Iterable[str]) -> int:
        """Replace all; the generation stays if nothing changed, so this is as good as a read."""
        self._create('traits', traits, self._traits)
        return self._call('PUT', f'/resource_providers/{uuid}/traits', json={
            'resource_provider_generation': generation, 'traits': sorted(traits),
        })['resource_provider_generation']

    def allocations(self, consumer: str) -> set[str]:
        """The providers on which a consumer holds something."""
        return set(self._call('GET', f'/allocations/{consumer}')['allocations'])

    def consumers(self, uuid: str) -> set[str]:
        """Those that hold something of a provider; none if there is no such provider."""
        try:
            return set(self._call('GET', f'/resource_providers/{uuid}/allocations')[
                'allocations'])
        except Stale:
            return set()

    def consumer_type(self, consumer: str) -> str | None:
        """INSTANCE, MIGRATION…; None if it holds nothing any more."""
        return self._call('GET', f'/allocations/{consumer}').get('consumer_type')

    def learn_traits(self, traits: Iterable[str]) -> None:
        """See at once which of these exist, so that only the others are created."""
        for names in _chunks(sorted(_custom(traits) - self._traits)):
            query = {'name': f'in:{",".join(names)}'}
            self._traits.update(self._call('GET', '/traits', params=query)['traits'])

    def _create(self, collection: str, names: Iterable[str], existing: set[str]) -> None:
        """Create the custom names that are not known to exist."""
        for name in sorted(_custom(names) - existing):
            self._call('PUT', f'/{collection}/{name}')
            existing.add(name)

    def _call(self, method: str, path: str, **kwargs: Any) -> Any:
        headers = {'OpenStack-API-Version': f'placement {MICROVERSION}',
                   'Accept': 'application/json'}
        try:
            response = self._adapter.request(path, method, headers=headers, raise_exc=False,
                                             **kwargs)
            if response.ok:
                return response.json() if response.content else None
        except (exceptions.ClientException, requests.RequestException) as error:
            raise errors.PlacementUnavailable(why=str(error)) from error
        code, detail = _explain(response)
        what = f'{method} {path} answered {response.status_code}: {detail}'
        match response.status_code:
            case HTTPStatus.CONFLICT:
                raise REASONS.get(code, Stale)(what)
            case HTTPStatus.NOT_FOUND:  # we name only what we have just seen
                raise Stale(what)
            case HTTPStatus.BAD_REQUEST:
                self._traits.clear()  # perhaps one was deleted behind our back
                self._classes.clear()
                raise Refused(what)
            case HTTPStatus.FORBIDDEN:
                raise Forbidden(why=what)
        raise errors.PlacementUnavailable(why=what)


def _explain(response: requests.Response) -> tuple[str, str]:
    """The code and the sentence of an error, whoever sent it."""
    try:
        [error] = response.json()['errors']
        # the first paragraph only says what the status means
        return error.get('code', ''), error['detail'].strip().rpartition('\n\n')[2].strip()
    except (ValueError, KeyError, TypeError):  # a proxy's page rather than Placement's answer
        return '', response.reason


def _custom(names: Iterable[str]) -> set[str]:
    """Those that may have to be created; the standard ones come with Placement."""
    return {name for name in names if CUSTOM.fullmatch(name)}


def _chunks(names: list[str]) -> Iterable[list[str]]:
    """The names in groups that fit into a query."""
    chunk: list[str] = []
    for name in names:
        if chunk and len(','.join((*chunk, name))) > LONGEST_QUERY:
            yield chunk
            chunk = []
        chunk.append(name)
    if chunk:
        yield chunk
