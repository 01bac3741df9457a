# SPDX-License-Identifier: Apache-2.0
"""Device profiles on the wire: shapes here, the meaning of groups in objects.profile_groups."""

import re
from collections.abc import Collection
from typing import Any

from cyborg import errors, objects
from cyborg.api.schemas import checks, shapes
from cyborg.api.schemas.shapes import since
from cyborg.objects import profile_groups

LONGEST_NAME = 255
LONGEST_DESCRIPTION = 65535
NAME = re.compile('[A-Za-z0-9_-]+')

#: on the wire: as objects have it
STORED = {'name': 'name', 'description': 'description', 'groups': 'groups',
          'enabled': 'is_enabled', 'projects': 'project_ids'}

#: since then a new profile has no keys that nobody knows
STRICT_SINCE = (2, 4)
#: since then profiles can be changed, disabled, and be for some projects only
UPDATE_SINCE = (2, 5)

GROUPS = {'type': 'array', 'items': {
    'type': 'object', 'additionalProperties': {'type': ['string', 'integer']}}}
ENABLED = since(UPDATE_SINCE, shapes.FLAG | {
    'description': 'whether new accelerator requests can be made with it'})
PROJECTS = since(UPDATE_SINCE, {
    'type': ['array', 'null'], 'uniqueItems': True,
    # MariaDB takes those that differ in blanks at the end for the same
    'items': {'type': 'string', 'minLength': 1, 'maxLength': 255, 'pattern': r'^\S*$',
              'description': 'an id without blanks'},
    'description': 'the projects that it is for, or null for all; others do not see it, and '
                   'only administrators see all of a list'})

LIST = shapes.listing('name', name={'type': 'string'}, enabled=ENABLED)
DELETE = {'type': 'object', 'properties': {'value': {'type': 'string'},
                                           'name': {'type': 'string'}}}

#: Whether it makes sense is another question, with another status: see ``checked``.
FIELDS = {
    'name': {'type': 'string'},
    'description': {'type': ['string', 'null']},
    'groups': GROUPS,
    'enabled': ENABLED,
    'projects': PROJECTS,
}
EXAMPLE = {'name': 'gzip-offload', 'description': 'Compression in an FPGA', 'groups': [
    {'resources:FPGA': '1',
     'trait:CUSTOM_FPGA_INTEL_FUNCTION_9F1C8A52_7A0F_4D1B_8B53_8A0F5D0D6F21': 'required'}]}
CREATE = {
    'type': 'array', 'minItems': 1, 'examples': [[EXAMPLE]], 'items': {
        'type': 'object', 'required': ['name', 'groups'],
        'properties': FIELDS | {'uuid': shapes.or_null(checks.UUID)},
        'additionalProperties': since(STRICT_SINCE, shapes.NEVER)}}
UPDATE = {'type': 'object', 'minProperties': 1, 'properties': FIELDS,
          'additionalProperties': False,
          'examples': [{'enabled': False}, {'name': 'gzip', 'groups': EXAMPLE['groups']}]}

SHOWN = shapes.item(
    name=shapes.TEXT,
    description=shapes.TEXT_OR_NULL,
    groups={'type': 'array', 'items': {
        'type': 'object', 'additionalProperties': shapes.TEXT}},
    enabled=ENABLED,
    projects=PROJECTS)


def is_name(text: str) -> bool:
    """Could a profile have this name?"""
    return len(text) <= LONGEST_NAME and NAME.fullmatch(text) is not None


def ref(text: str) -> str:
    """A name or uuid as it is stored; ProfileNotFound if it could not be one."""
    if not is_name(text):
        raise errors.ProfileNotFound(names=repr(text[:64]))
    return text.lower() if checks.is_uuid(text) else text


def parts(text: str) -> list[str]:
    """Those of a comma list, which may have blanks around them."""
    return [part.strip() for part in text.split(',')]


def refs(text: str) -> list[str]:
    """The names or uuids in a comma list."""
    found = [ref(part) for part in parts(text) if part]
    if not found:
        raise errors.BadRequest('Say which device profiles, by names or uuids.')
    return list(dict.fromkeys(found))


def profile(document: dict[str, Any], extra_keys: Collection[str]) -> objects.DeviceProfile:
    """The profile that a well-formed document describes, or InvalidProfile."""
    given = {'uuid': document['uuid'].lower()} if document.get('uuid') else {}
    return objects.DeviceProfile(
        **checked(document['name'], document, extra_keys), **given)


def checked(whose: str, document: dict[str, Any],
            extra_keys: Collection[str]) -> dict[str, Any]:
    """What a well-formed document says of a profile, as it is stored, or InvalidProfile."""
    values = {stored: document[name] for name, stored in STORED.items() if name in document}
    try:
        if not is_name(values.get('name', 'x')):
            raise ValueError(f'its name must be 1 to {LONGEST_NAME} letters, digits, hyphens '
                             f'and underscores.')
        if len(values.get('description') or '') > LONGEST_DESCRIPTION:
            raise ValueError(f'its description must not be longer than {LONGEST_DESCRIPTION} '
                             f'characters.')
        if 'groups' in values:
            values['groups'] = profile_groups.normalize(values['groups'], extra_keys)
    except ValueError as error:
        raise errors.InvalidProfile(name=repr(whose[:64]), why=str(error)) from error
    return values
