# SPDX-License-Identifier: Apache-2.0
"""The types of fields: oslo.versionedobjects', and faster ones where lists are made of them."""

import datetime
import re
from typing import Any

from oslo_versionedobjects import fields
from oslo_versionedobjects.fields import (
    BooleanField,
    DictOfIntegersField,
    DictOfStringsField,
    EnumField,
    FloatField,
    IntegerField,
    ListOfDictOfNullableStringsField,
    ListOfStringsField,
    ObjectField,
    StringField,
    UnspecifiedDefault,
)

from cyborg.objects.tables import ListOfObjectsField

__all__ = (
    'BooleanField', 'DateTimeField', 'DictOfIntegersField', 'DictOfStringsField', 'EnumField',
    'FloatField', 'IntegerField', 'ListOfDictOfNullableStringsField', 'ListOfObjectsField',
    'ListOfStringsField', 'ObjectField', 'StringField', 'UUIDField', 'UnspecifiedDefault',
)


class UUID(fields.UUID):
    """Refuses what is none; the library's own warns, by way of filters of the whole process."""

    _pattern = re.compile(fields.UUID.PATTERN)

    def coerce(self, obj: Any, attr: str, value: Any) -> str:
        text = str(value)
        if not self._pattern.match(text):
            raise ValueError(f'{text!r} is no UUID, which {attr} must be.')
        return text


class UUIDField(fields.StringField):
    AUTO_TYPE = UUID()


class DateTime(fields.DateTime):
    """To the second."""

    def to_primitive(self, obj: Any, attr: str, value: datetime.datetime) -> str:
        return value.isoformat(timespec='seconds')

    def from_primitive(self, obj: Any, attr: str, value: Any) -> datetime.datetime:
        return datetime.datetime.fromisoformat(value)


class DateTimeField(fields.AutoTypedField):
    AUTO_TYPE = DateTime()
