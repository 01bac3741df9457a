# SPDX-License-Identifier: Apache-2.0
"""Reduces JSON Schemas to one version of the API."""

from collections.abc import Mapping
from typing import Any

import microversion_parse

from cyborg.api import microversions

Schema = dict[str, Any]

#: marks a part of a schema that a later version than the first has added
SINCE = 'x-since'
#: no value is valid
NEVER: Schema = {'not': {}}


def ref(name: str) -> Schema:
    """Returns a reference to a noun, wherever else it is described."""
    return {'$ref': f'#/components/schemas/{name}'}


def or_null(schema: Schema) -> Schema:
    """Returns a schema that also allows null."""
    nothing = {'enum': [*schema['enum'], None]} if 'enum' in schema else {}
    return schema | {'type': [schema['type'], 'null']} | nothing


def since(version: tuple[int, int], schema: Schema) -> Schema:
    """Returns a schema for this version of the API and later ones."""
    return schema | {SINCE: '{}.{}'.format(*version)}


def at(schema: Any, version: microversions.Version, *, is_body: bool = False) -> Any:
    """Returns a schema without the parts that later versions have added. A body with such a part
    is refused, also by versions that ignore unknown keys."""
    match schema:
        case list() | tuple():
            return [at(each, version, is_body=is_body) for each in schema]
        case dict():
            kept = {
                key: at(value, version, is_body=is_body)
                for key, value in schema.items()
                if not (isinstance(value, dict) and _is_later(value, version))
            }
            if 'properties' in kept and 'required' in kept:
                kept['required'] = [name for name in kept['required'] if name in kept['properties']]
            if 'properties' in kept and is_body:
                kept['properties'] |= {
                    name: _needing(part[SINCE])
                    for name, part in schema['properties'].items()
                    if _is_later(part, version)
                }
            return kept
    return schema


def _needing(version: str) -> Schema:
    return NEVER | {'description': f'needs version {version} of this API or later'}


def _is_later(schema: Mapping[str, Any], version: microversions.Version) -> bool:
    return SINCE in schema and version < microversion_parse.parse_version_string(schema[SINCE])
