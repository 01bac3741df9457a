# SPDX-License-Identifier: Apache-2.0
"""The types of fields: those of oslo.versionedobjects, and faster ones for long lists."""

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

from cyborg.objects.object_lists import ListOfObjectsField

__all__ = (
    'BooleanField',
    'DateTimeField',
    'DictOfIntegersField',
    'DictOfStringsField',
    'EnumField',
    'FloatField',
    'IntegerField',
    'ListOfDictOfNullableStringsField',
    'ListOfObjectsField',
    'ListOfStringsField',
    'ObjectField',
    'StringField',
    'UUIDField',
    'UnspecifiedDefault',
)


class UUID(fields.UUID):
    """Refuses other text. The library's own field only warns, and changes the warning filters of
    the process."""

    _pattern = re.compile(fields.UUID.PATTERN)

    def coerce(self, obj: Any, attr: str, value: Any) -> str:
        text = str(value)
        if not self._pattern.match(text):
            raise ValueError(f'{attr} must be a UUID, not {text!r}.')
        return text


class UUIDField(fields.StringField):
    AUTO_TYPE = UUID()


class DateTime(fields.DateTime):
    """A time, serialized to the second."""

    def to_primitive(self, obj: Any, attr: str, value: datetime.datetime) -> str:
        return value.isoformat(timespec='seconds')

    def from_primitive(self, obj: Any, attr: str, value: Any) -> datetime.datetime:
        return datetime.datetime.fromisoformat(value)


class DateTimeField(fields.AutoTypedField):
    AUTO_TYPE = DateTime()
