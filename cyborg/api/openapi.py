# SPDX-License-Identifier: Apache-2.0
"""The API described in OpenAPI, made of the operations and schemas that it is run by."""

from collections.abc import Iterable, Iterator
from http import HTTPStatus
from typing import Any

from cyborg.api import microversions, pages
from cyborg.api.expose import UNFINISHED, Operation, Resource
from cyborg.api.microversions import Version
from cyborg.api.schemas import checks, shapes

#: how a request can fail, and what that means
MEANINGS = {
    HTTPStatus.BAD_REQUEST: 'The request is malformed.',
    HTTPStatus.UNAUTHORIZED: 'There is no valid token.',
    HTTPStatus.FORBIDDEN: 'Policy does not allow it, or it needs a service token.',
    HTTPStatus.NOT_FOUND: "What it names is not there, or is another project's.",
    HTTPStatus.NOT_ACCEPTABLE: 'It needs another version of the API.',
    HTTPStatus.CONFLICT: 'It conflicts with what is there.',
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: 'The body is too large.',
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: 'The body is not JSON.',
    HTTPStatus.UNPROCESSABLE_ENTITY: 'It is well formed, and makes no sense.',
    HTTPStatus.LOCKED: 'Not everything is resolved yet.',
    HTTPStatus.SERVICE_UNAVAILABLE: 'Something that it needs is away.',
}
ANY = (HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_ACCEPTABLE, HTTPStatus.SERVICE_UNAVAILABLE)
GUARDED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
WITH_BODY = (HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNSUPPORTED_MEDIA_TYPE)

#: what stands for a placeholder of a path
PLACEHOLDERS: dict[str, shapes.Schema] = {
    'uuid': checks.UUID,
    'same_uuid': checks.UUID | {'description': 'the same again'},
    'ref': {'type': 'string', 'minLength': 1,
            'description': 'a uuid or a name; to delete, also some, with commas'},
}
ERROR = shapes.wrapped(error_message={
    'type': 'string', 'contentMediaType': 'application/json',
    'description': 'an object in a string: faultcode (Client or Server), faultstring (what is '
                   'wrong, and what would be right) and debuginfo (null)'})
HEADERS = {
    'Vary': 'that versions differ',
    'OpenStack-API-Version': 'the version that was asked for',
    'OpenStack-API-Minimum-Version': 'the oldest version there is',
    'OpenStack-API-Maximum-Version': 'the newest version there is',
}


def describe(nouns: Iterable[type[pages.Collection]], version: Version) -> dict[str, Any]:
    """One version of the API, wherever it is mounted."""
    nouns = list(nouns)
    components = {noun.name: shapes.at(noun.shape, version) for noun in nouns}
    return {
        'openapi': '3.1.0',
        'info': {
            'title': 'OpenStack Accelerator API',
            'version': str(version),
            'description': f'What a request gets that asks for version {version} with '
                           f'{microversions.HEADER}: {microversions.SERVICE_TYPE} {version}.',
            'license': {'name': 'Apache 2.0', 'identifier': 'Apache-2.0'},
        },
        'security': [{'token': []}],
        'tags': [{'name': noun.path} for noun in nouns],
        'paths': _paths(nouns, version),
        'components': {
            'schemas': components | {'Error': ERROR},
            'responses': {str(int(status)): _failure(meaning)
                          for status, meaning in MEANINGS.items()},
            'parameters': {'version': {
                'name': microversions.HEADER, 'in': 'header',
                'description': 'the version of the API, and of what is described here',
                'schema': {'const': f'{microversions.SERVICE_TYPE} {version}'}}},
            'headers': {name: {'description': meaning, 'schema': {'type': 'string'}}
                        for name, meaning in HEADERS.items()},
            'securitySchemes': {'token': {
                'type': 'apiKey', 'in': 'header', 'name': 'X-Auth-Token'}},
        },
    }


def operations(noun: type[Resource], version: Version) -> Iterator[tuple[str, Operation]]:
    """Those that a version has, by name."""
    return ((name, operation) for name, operation in noun.operations.items()
            if version >= operation.since)


def statuses(operation: Operation) -> list[HTTPStatus]:
    """How an operation can fail."""
    found = {*ANY, *operation.fails}
    if operation.rule:
        found.update(GUARDED)
    if operation.body is not None:
        found.update(WITH_BODY)
    if '{' in operation.path:
        found.add(HTTPStatus.NOT_FOUND)
    return sorted(found)


def _paths(nouns: Iterable[type[pages.Collection]], version: Version) -> dict[str, Any]:
    paths: dict[str, Any] = {}
    for noun in nouns:
        for name, operation in operations(noun, version):
            path = f'/v2/{noun.path}' + (f'/{operation.path}' if operation.path else '')
            summary = getattr(noun, name).__doc__
            paths.setdefault(path, {})[operation.method.lower()] = {
                'operationId': f'{noun.path}.{name}', 'tags': [noun.path],
                'summary': summary, **_operation(noun, operation, version)}
    return paths


def _operation(noun: type[pages.Collection], operation: Operation,
               version: Version) -> dict[str, Any]:
    described: dict[str, Any] = {
        'parameters': [{'$ref': '#/components/parameters/version'},
                       *_parameters(operation, version)],
        'responses': {
            **{str(int(status)): _answer(noun, operation, version, status)
               for status in (operation.status, *([UNFINISHED] * operation.can_last))},
            **{str(int(status)): {'$ref': f'#/components/responses/{int(status)}'}
               for status in statuses(operation)}},
    }
    if operation.rule:
        described['x-policy'] = operation.rule
    if operation.since > microversions.LOWEST:
        described[shapes.SINCE] = '{}.{}'.format(*operation.since)
    if operation.body is not None:
        described['requestBody'] = {'required': True, 'content': _json(
            shapes.at(operation.body, version, is_body=True))}
    return described


def _parameters(operation: Operation, version: Version) -> Iterator[dict[str, Any]]:
    for name in _placeholders(operation):
        yield {'name': name, 'in': 'path', 'required': True, 'schema': PLACEHOLDERS[name]}
    query = shapes.at(operation.query, version) or {'properties': {}}
    for name, schema in query['properties'].items():
        yield {'name': name, 'in': 'query', 'schema': schema}


def _answer(noun: type[pages.Collection], operation: Operation, version: Version,
            status: HTTPStatus) -> dict[str, Any]:
    answer: dict[str, Any] = {'description': status.phrase, 'headers': {
        name: {'$ref': f'#/components/headers/{name}'} for name in HEADERS}}
    if operation.shown is not None:
        answer['content'] = _json(shapes.at(operation.shown, version))
        if not operation.path:
            answer['links'] = _links(noun, operation, version)
    return answer


def _links(noun: type[pages.Collection], operation: Operation,
           version: Version) -> dict[str, Any]:
    """Where the uuid of the first item of a list, or of what was made, leads."""
    parts = operation.shown.get('properties', {}) if operation.shown else {}
    uuid = '$response.body#' + (f'/{noun.key}/0/uuid' if noun.key in parts else '/uuid')
    return {name: {'operationId': f'{noun.path}.{name}',
                   'parameters': dict.fromkeys(_placeholders(other), uuid)}
            for name, other in operations(noun, version) if '{' in other.path}


def _placeholders(operation: Operation) -> list[str]:
    return [part.strip('{}') for part in operation.path.split('/') if part.startswith('{')]


def _failure(meaning: str) -> dict[str, Any]:
    return {'description': meaning, 'content': _json(shapes.ref('Error'))}


def _json(schema: shapes.Schema) -> dict[str, Any]:
    return {'application/json': {'schema': schema}}
