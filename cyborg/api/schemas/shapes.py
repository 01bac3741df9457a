# SPDX-License-Identifier: Apache-2.0
"""What every list takes, what every item shows, and what of it an older version knows."""

from collections.abc import Mapping
from typing import Any

import microversion_parse

from cyborg.api import microversions
from cyborg.api.schemas import checks

Schema = dict[str, Any]

#: marks what a later version than the first one brought
SINCE = 'x-since'

LARGEST_ID = 2**31 - 1

LINKS: Schema = {'type': 'array', 'items': {
    'type': 'object', 'required': ['rel', 'href'],
    'properties': {'rel': {'type': 'string'}, 'href': {'type': 'string'}}}}
MOMENT: Schema = {'type': 'string', 'format': 'date-time',
                  'description': 'ISO 8601, with an offset'}
TEXT: Schema = {'type': 'string'}
TEXT_OR_NULL: Schema = {'type': ['string', 'null']}
FLAG: Schema = {'type': 'boolean'}
FILTER: Schema = {'type': 'string', 'maxLength': 255}
ID: Schema = {'type': 'integer', 'minimum': 0, 'maximum': LARGEST_ID}
#: no value is valid
NEVER: Schema = {'not': {}}


def or_null(schema: Schema) -> Schema:
    """The same, or nothing."""
    return schema | {'type': [schema['type'], 'null']}


def since(version: tuple[int, int], schema: Schema) -> Schema:
    """The same, in this version of the API and later ones."""
    return schema | {SINCE: '{}.{}'.format(*version)}


def at(schema: Any, version: microversions.Version, *, is_body: bool = False) -> Any:
    """A schema as one version of the API has it: without what came later. In a body that is
    refused, also by versions that ignore keys which no version knows."""
    match schema:
        case list() | tuple():
            return [at(each, version, is_body=is_body) for each in schema]
        case dict():
            kept = {key: at(value, version, is_body=is_body) for key, value in schema.items()
                    if not (isinstance(value, dict) and _is_later(value, version))}
            if 'properties' in kept and 'required' in kept:
                kept['required'] = [name for name in kept['required']
                                    if name in kept['properties']]
            if 'properties' in kept and is_body:
                kept['properties'] |= {
                    name: _needing(part[SINCE]) for name, part in schema['properties'].items()
                    if _is_later(part, version)}
            return kept
    return schema


def _needing(version: str) -> Schema:
    return NEVER | {'description': f'needs version {version} of this API or later'}


def _is_later(schema: Mapping[str, Any], version: microversions.Version) -> bool:
    return SINCE in schema and version < microversion_parse.parse_version_string(schema[SINCE])


def listing(*sort_keys: str, **filters: Schema) -> Schema:
    """The query of a list: its filters, and how to page through it."""
    return {'type': 'object', 'properties': filters | {
        'limit': {'type': 'integer', 'minimum': 1,
                  'description': 'the most to be shown at once; a link leads to more'},
        'marker': checks.UUID,
        'sort_key': {'type': 'string', 'enum': ['created_at', 'uuid', *sort_keys]},
        'sort_dir': {'type': 'string', 'enum': ['asc', 'desc']},
    }}


def item(**fields: Schema) -> Schema:
    """The shape of one shown thing: these fields, the common ones, nothing else."""
    properties = fields | {
        'uuid': checks.UUID, 'created_at': MOMENT, 'updated_at': or_null(MOMENT),
        'links': LINKS}
    return {'type': 'object', 'properties': properties, 'required': list(properties),
            'additionalProperties': False}


def ref(name: str) -> Schema:
    """What a collection calls its items, wherever else they are shown."""
    return {'$ref': f'#/components/schemas/{name}'}


def wrapped(**parts: Schema) -> Schema:
    """An object with these keys."""
    return {'type': 'object', 'properties': parts, 'required': list(parts),
            'additionalProperties': False}


def items(key: str, name: str) -> Schema:
    """Some of a collection."""
    return wrapped(**{key: {'type': 'array', 'items': ref(name)}})


def page(key: str, name: str) -> Schema:
    """A page of a collection, with a link to the next one if there is one."""
    whole = items(key, name)
    whole['properties'][f'{key}_links'] = LINKS
    return whole
