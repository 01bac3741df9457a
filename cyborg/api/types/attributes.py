# SPDX-License-Identifier: Apache-2.0
"""Attributes on the wire."""

import re
from typing import Any

import wsme.types

from cyborg import errors
from cyborg.api.types import documents
from cyborg.api.types.documents import Field

NESTED_SINCE = (2, 4)


class DeployableRef(documents.UserType):
    """A deployable: its internal number, or its uuid."""

    basetype, name = str, 'deployable-ref'
    schema: documents.Schema = {'type': ['string', 'integer']}

    def validate(self, value: str | int) -> str:
        """Returns it as the conductor takes it."""
        text = str(value).strip()
        if documents.UUID.matches(text):
            return text.lower()
        if not re.fullmatch('[0-9]{1,10}', text):
            raise errors.BadRequest('deployable_id must be the number or the uuid of a deployable.')
        if int(text) > documents.LARGEST_ID:
            raise errors.DeployableNotFound(uuid=text)
        return str(int(text))


DEPLOYABLE = DeployableRef()
#: 65535 bytes, however the characters are encoded
VALUE = wsme.types.StringType(max_length=16383)


class Attribute(documents.Noun):
    uuid = Field(documents.UUID)
    deployable_id = Field(documents.ID)
    deployable_uuid = Field(documents.UUID, since=NESTED_SINCE)
    parent_uuid = Field(documents.UUID, nullable=True, since=NESTED_SINCE)
    key = Field(str)
    value = Field(str)
    created_at = Field(documents.MOMENT)
    updated_at = Field(documents.MOMENT, nullable=True)
    links = documents.links('attributes')
    children = Field(
        ['Attribute'],
        'those below it, if they were asked for',
        since=NESTED_SINCE,
        mandatory=False,
    )


class ShowQuery(documents.Body):
    nested = Field(bool, 'show those below others inside them, as children', since=NESTED_SINCE)


class AttributeQuery(documents.Listing):
    deployable_id = Field(str)
    deployable_uuid = Field(documents.UUID, since=NESTED_SINCE)
    key = Field(documents.FILTER)
    value = Field(VALUE)
    parent_uuid = Field(documents.UUID, since=NESTED_SINCE)
    nested = ShowQuery.nested.again()
    sort_key = documents.sort_key('key')

    def filters(self) -> dict[str, Any]:
        """Returns what the attributes must have, as the conductor knows it."""
        filters = super().filters()
        filters.pop('nested', None)
        if 'deployable_id' not in filters:
            return filters
        try:
            given = DEPLOYABLE.validate(filters.pop('deployable_id'))
        except errors.DeployableNotFound:
            return filters | {'deployable_id': []}
        if not documents.UUID.matches(given):
            return filters | {'deployable_id': int(given)}
        if filters.setdefault('deployable_uuid', given) != given:
            raise errors.BadRequest('deployable_id and deployable_uuid must mean the same.')
        return filters


class NewAttribute(documents.Body):
    deployable_id = Field(DEPLOYABLE, 'the number or the uuid of a deployable', mandatory=True)
    key = Field(wsme.types.StringType(min_length=1, max_length=255), mandatory=True)
    value = Field(VALUE, mandatory=True)
    parent_uuid = Field(documents.UUID, nullable=True, since=NESTED_SINCE)


class Wrapped(documents.UserType):
    """A new attribute, which the SDK wraps and others send bare."""

    basetype, name = dict, 'new-attribute'
    schema: documents.Schema = {
        'type': 'object',
        'if': {'required': ['attribute']},
        'then': {'properties': {'attribute': NewAttribute.schema()}},
        'else': NewAttribute.schema(),
    }

    def validate(self, value: dict[str, Any]) -> NewAttribute:
        return NewAttribute.of(value.get('attribute', value))
