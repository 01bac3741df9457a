# SPDX-License-Identifier: Apache-2.0
"""Many objects of a kind as one table: what they have in common is said once, not for each."""

import itertools
from collections.abc import Sequence
from typing import Any

from oslo_versionedobjects import base, fields

#: what a message carries as it is in the object
PLAIN = (fields.StringField, fields.IntegerField, fields.BooleanField, fields.FloatField,
         fields.EnumField)
TABLE = 'cyborg_object.table'
VERSION = 'cyborg_object.version'
DATA = 'cyborg_object.data'


class List(fields.List):
    """Of objects."""

    def to_primitive(self, obj: Any, attr: str, value: Any) -> Any:
        return pack(value)

    def from_primitive(self, obj: Any, attr: str, value: Any) -> Any:
        return unpack(value) if is_table(value) else super().from_primitive(obj, attr, value)


class ListOfObjectsField(fields.AutoTypedField):
    def __init__(self, kind: str, **options: Any) -> None:
        self.AUTO_TYPE = List(fields.Object(kind))
        super().__init__(**options)


def is_table(value: Any) -> bool:
    return isinstance(value, dict) and TABLE in value


def pack(items: Sequence[Any]) -> list[Any] | dict[str, Any]:
    """The primitive form of objects: a table of them, if all have the same fields set."""
    first = vars(items[0]) if items else {}
    kind = type(items[0]) if items else None
    if len(items) < 2 or any(type(item) is not kind or vars(item).keys() != first.keys()
                             for item in items):
        return [item.obj_to_primitive() for item in items]
    data = {name: _pack_column(name, slot, items)
            for name, slot in items[0].slots.items() if slot in first}
    return {TABLE: items[0].obj_name(), VERSION: items[0].VERSION, DATA: data}


def _pack_column(name: str, slot: str, items: Sequence[Any]) -> Any:
    """The values of a field; of lists of objects, how long each is, and all their objects."""
    field, values = items[0].fields[name], [vars(item)[slot] for item in items]
    if isinstance(field, PLAIN):
        return values
    if isinstance(field, ListOfObjectsField):
        return [list(map(len, values)), pack(list(itertools.chain(*values)))]
    return [field.to_primitive(item, name, value)
            for item, value in zip(items, values, strict=True)]


def unpack(table: dict[str, Any]) -> list[Any]:
    """The objects that a table was made of."""
    kind: Any = base.VersionedObject.obj_class_from_name(table[TABLE], table[VERSION])
    columns = {kind.slots[name]: _unpack_column(name, kind.fields[name], column, kind())
               for name, column in table[DATA].items() if name in kind.fields}
    made = []
    for values in zip(*columns.values(), strict=True):
        item = kind()
        vars(item).update(zip(columns, values, strict=True))
        made.append(item)
    return made


def _unpack_column(name: str, field: Any, column: Any, example: Any) -> Any:
    if isinstance(field, PLAIN):
        return column
    if isinstance(field, ListOfObjectsField):
        lengths, packed = column
        items = iter(field.from_primitive(example, name, packed))
        return [list(itertools.islice(items, length)) for length in lengths]
    return [field.from_primitive(example, name, value) for value in column]
