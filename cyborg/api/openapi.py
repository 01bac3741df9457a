# SPDX-License-Identifier: Apache-2.0
"""Describes the API in OpenAPI, derived from the declared operations and types."""

from collections.abc import Iterable, Iterator
from http import HTTPStatus
from typing import Any

from cyborg.api import microversions
from cyborg.api.controllers import base
from cyborg.api.expose import UNFINISHED, Operation
from cyborg.api.microversions import Version
from cyborg.api.request import IDEMPOTENCY_KEY, KEY_PATTERN
from cyborg.api.types import documents, json_schema

#: descriptions of the statuses with which a request can fail
MEANINGS = {
    HTTPStatus.BAD_REQUEST: 'The request is malformed.',
    HTTPStatus.UNAUTHORIZED: 'There is no valid token.',
    HTTPStatus.FORBIDDEN: 'Policy does not allow it, or it needs a service token.',
    HTTPStatus.NOT_FOUND: 'It names something that does not exist, or that is of another project.',
    HTTPStatus.NOT_ACCEPTABLE: 'It needs another version of the API.',
    HTTPStatus.CONFLICT: 'It conflicts with the present state.',
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: 'The body is too large.',
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: 'The body is not JSON.',
    HTTPStatus.UNPROCESSABLE_ENTITY: 'It is well formed, but its content is not valid.',
    HTTPStatus.LOCKED: 'Not everything is resolved yet.',
    HTTPStatus.SERVICE_UNAVAILABLE: 'A service that it needs is not available.',
}
ANY = (HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_ACCEPTABLE, HTTPStatus.SERVICE_UNAVAILABLE)
GUARDED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
WITH_BODY = (HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNSUPPORTED_MEDIA_TYPE)

#: the schemas of the placeholders in paths
PLACEHOLDERS: dict[str, documents.Schema] = {
    'uuid': documents.UUID.schema,
    'same_uuid': documents.UUID.schema | {'description': 'the same uuid again'},
    'handle': documents.UUID.schema,
    'ref': {
        'type': 'string',
        'minLength': 1,
        'description': 'a uuid or a name; for DELETE also several, with commas',
    },
}
HEADERS = {
    'Vary': 'that versions differ',
    'OpenStack-API-Version': 'the requested version',
    'OpenStack-API-Minimum-Version': 'the oldest version',
    'OpenStack-API-Maximum-Version': 'the newest version',
}


def describe(nouns: Iterable[type[base.Collection]], version: Version) -> dict[str, Any]:
    """Returns the description of one version of the API, without the URL where it is mounted."""
    nouns = list(nouns)
    described = [*(noun.item for noun in nouns), documents.Error]
    components = {
        document.__name__: json_schema.at(document.described(), version) for document in described
    }
    return {
        'openapi': '3.1.0',
        'info': {
            'title': 'OpenStack Accelerator API',
            'version': str(version),
            'description': f'The API for a request that asks for version {version} with '
            f'{microversions.HEADER}: {microversions.SERVICE_TYPE} {version}.',
            'license': {'name': 'Apache 2.0', 'identifier': 'Apache-2.0'},
        },
        'security': [{'token': []}],
        'tags': [{'name': noun.path} for noun in nouns],
        'paths': _paths(nouns, version),
        'components': {
            'schemas': components,
            'responses': {
                str(int(status)): _failure(meaning) for status, meaning in MEANINGS.items()
            },
            'parameters': {
                'version': {
                    'name': microversions.HEADER,
                    'in': 'header',
                    'description': 'the version of the API, and of what is described here',
                    'schema': {'const': f'{microversions.SERVICE_TYPE} {version}'},
                }
            },
            'headers': {
                name: {'description': meaning, 'schema': {'type': 'string'}}
                for name, meaning in HEADERS.items()
            },
            'securitySchemes': {
                'token': {'type': 'apiKey', 'in': 'header', 'name': 'X-Auth-Token'}
            },
        },
    }


def operations(
    noun: type[base.RestController], version: Version
) -> Iterator[tuple[str, Operation]]:
    """Returns the operations that a version has, by name."""
    return (
        (name, operation)
        for name, operation in noun.operations.items()
        if version >= operation.since
    )


def statuses(operation: Operation) -> list[HTTPStatus]:
    """Returns the statuses with which an operation can fail."""
    found = {*ANY, *operation.fails}
    if operation.rule:
        found.update(GUARDED)
    if operation.body is not None:
        found.update(WITH_BODY)
    if '{' in operation.path:
        found.add(HTTPStatus.NOT_FOUND)
    return sorted(found)


def _paths(nouns: Iterable[type[base.Collection]], version: Version) -> dict[str, Any]:
    paths: dict[str, Any] = {}
    for noun in nouns:
        for name, operation in operations(noun, version):
            path = f'/v2/{noun.path}' + (f'/{operation.path}' if operation.path else '')
            summary = getattr(noun, name).__doc__
            paths.setdefault(path, {})[operation.method.lower()] = {
                'operationId': f'{noun.path}.{name}',
                'tags': [noun.path],
                'summary': summary,
                **_operation(noun, operation, version),
            }
    return paths


def _operation(
    noun: type[base.Collection], operation: Operation, version: Version
) -> dict[str, Any]:
    described: dict[str, Any] = {
        'parameters': [
            {'$ref': '#/components/parameters/version'},
            *_parameters(operation, version),
        ],
        'responses': {
            **{
                str(int(status)): _answer(noun, operation, version, status)
                for status in (operation.status, *([UNFINISHED] * operation.can_last))
            },
            **{
                str(int(status)): {'$ref': f'#/components/responses/{int(status)}'}
                for status in statuses(operation)
            },
        },
    }
    if operation.rule:
        described['x-policy'] = operation.rule
    if operation.since > microversions.LOWEST:
        described[json_schema.SINCE] = '{}.{}'.format(*operation.since)
    if (body := operation.schemas[version].body) is not None:
        described['requestBody'] = {
            'required': True,
            'content': _json(body),
        }
    return described


def _parameters(operation: Operation, version: Version) -> Iterator[dict[str, Any]]:
    for name in operation.placeholders:
        yield {'name': name, 'in': 'path', 'required': True, 'schema': PLACEHOLDERS[name]}
    for name, schema in operation.schemas[version].query['properties'].items():
        yield {'name': name, 'in': 'query', 'schema': schema}
    if operation.status == HTTPStatus.CREATED:
        yield {
            'name': IDEMPOTENCY_KEY,
            'in': 'header',
            'description': 'the same key in each repetition of a request; all of them return what '
            'the first one created',
            'schema': {'type': 'string', 'pattern': f'^{KEY_PATTERN}$'},
        }


def _answer(
    noun: type[base.Collection], operation: Operation, version: Version, status: HTTPStatus
) -> dict[str, Any]:
    answer: dict[str, Any] = {
        'description': status.phrase,
        'headers': {name: {'$ref': f'#/components/headers/{name}'} for name in HEADERS},
    }
    if operation.shown is not None:
        answer['content'] = _json(json_schema.at(documents.schema_of(operation.shown), version))
        if not operation.path:
            answer['links'] = _links(noun, operation, version)
    return answer


def _links(noun: type[base.Collection], operation: Operation, version: Version) -> dict[str, Any]:
    """Returns the links from the uuid of the first item of a list, or of a created item."""
    parts = documents.schema_of(operation.shown).get('properties', {})
    uuid = '$response.body#' + (f'/{noun.key}/0/uuid' if noun.key in parts else '/uuid')
    return {
        name: {
            'operationId': f'{noun.path}.{name}',
            'parameters': dict.fromkeys(other.placeholders, uuid),
        }
        for name, other in operations(noun, version)
        if '{' in other.path and '{handle}' not in other.path
    }


def _failure(meaning: str) -> dict[str, Any]:
    return {'description': meaning, 'content': _json(documents.Error.schema())}


def _json(schema: documents.Schema) -> dict[str, Any]:
    return {'application/json': {'schema': schema}}
