# SPDX-License-Identifier: Apache-2.0
"""Attributes on the wire."""

import re
from typing import Any

from cyborg import errors
from cyborg.api.schemas import checks, shapes
from cyborg.api.schemas.shapes import since

NESTED_SINCE = (2, 4)

#: a deployable: its internal number, or its uuid
DEPLOYABLE = {'type': ['string', 'integer'],
              'description': 'the number or the uuid of a deployable'}
NESTED = since(NESTED_SINCE, shapes.FLAG | {
    'description': 'show those below others inside them, as children'})
PARENT = since(NESTED_SINCE, checks.UUID)

LIST = shapes.listing(
    'key', deployable_id={'type': 'string'}, deployable_uuid=PARENT, key=shapes.FILTER,
    value={'type': 'string', 'maxLength': 16383}, parent_uuid=PARENT, nested=NESTED)
SHOW = {'type': 'object', 'properties': {'nested': NESTED}}

FIELDS = {
    'type': 'object', 'required': ['deployable_id', 'key', 'value'], 'properties': {
        'deployable_id': DEPLOYABLE,
        'key': {'type': 'string', 'minLength': 1, 'maxLength': 255},
        'value': {'type': 'string', 'maxLength': 16383},  # 65535 bytes, however they are encoded
        'parent_uuid': since(NESTED_SINCE, shapes.or_null(checks.UUID)),
    }}
#: the SDK wraps what others send bare
CREATE = {'type': 'object', 'if': {'required': ['attribute']},
          'then': {'properties': {'attribute': FIELDS}}, 'else': FIELDS}

SHOWN = shapes.item(
    deployable_id=shapes.ID,
    deployable_uuid=since(NESTED_SINCE, checks.UUID),
    parent_uuid=since(NESTED_SINCE, shapes.or_null(checks.UUID)),
    key=shapes.TEXT,
    value=shapes.TEXT)
SHOWN['properties']['children'] = since(NESTED_SINCE, {
    'type': 'array', 'items': shapes.ref('Attribute'),
    'description': 'those below it, if they were asked for'})


def deployable(given: str | int) -> str:
    """The number or the uuid of a deployable, as the conductor takes it."""
    text = str(given).strip()
    if checks.is_uuid(text):
        return text.lower()
    if not re.fullmatch('[0-9]{1,10}', text):
        raise errors.BadRequest('deployable_id must be the number or the uuid of a deployable.')
    if int(text) > shapes.LARGEST_ID:
        raise errors.DeployableNotFound(uuid=text)
    return str(int(text))


def filters(found: dict[str, Any]) -> dict[str, Any]:
    """The filters of a list, as the conductor knows them."""
    filters = {name: value for name, value in found.items()
               if name not in ('deployable_id', 'nested')}
    if 'deployable_id' not in found:
        return filters
    try:
        given = deployable(found['deployable_id'])
    except errors.DeployableNotFound:
        return filters | {'deployable_id': []}
    if not checks.is_uuid(given):
        return filters | {'deployable_id': int(given)}
    if filters.setdefault('deployable_uuid', given) != given:
        raise errors.BadRequest('deployable_id and deployable_uuid must mean the same.')
    return filters
