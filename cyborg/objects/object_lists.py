# SPDX-License-Identifier: Apache-2.0
"""The wire format of lists of objects: one table instead of one document for each object.

It is sent to readers that have announced our version of the RPC interface (manifests.py). Others
get the format of oslo.versionedobjects, which every release reads.
"""

import copy
import functools
import itertools
from collections.abc import Sequence
from typing import Any

from oslo_versionedobjects import base, fields

from cyborg import errors
from cyborg.objects import manifests

#: types of fields whose values are the same in a message and in the object
PLAIN = (
    fields.StringField,
    fields.IntegerField,
    fields.BooleanField,
    fields.FloatField,
    fields.EnumField,
)
TABLE = 'cyborg_object.table'
VERSION = 'cyborg_object.version'
DATA = 'cyborg_object.data'


class List(fields.List):
    """A list of objects."""

    def to_primitive(self, obj: Any, attr: str, value: Any) -> Any:
        return pack(value)

    def from_primitive(self, obj: Any, attr: str, value: Any) -> Any:
        return unpack(value) if is_table(value) else super().from_primitive(obj, attr, value)


class ListOfObjectsField(fields.ListOfObjectsField):
    def __init__(self, kind: str, **options: Any) -> None:
        super().__init__(kind, **options)
        self._type = self.AUTO_TYPE = List(fields.Object(kind))


def class_of(name: str, version: str) -> Any:
    """Returns the class that reads a version of an object. One of a newer minor version is read
    without the fields that are not known here.

    Raises IncompatibleRelease if the object is not known, or not in this major version.
    """
    known = base.VersionedObjectRegistry.obj_classes().get(name, [])
    major = manifests.parsed(version)[0]
    for kind in known:
        if manifests.parsed(kind.VERSION)[0] == major:
            return kind
    raise errors.IncompatibleRelease(
        why=f'{name} {version} was received, and this release reads '
        f'{f"{name} {known[0].VERSION}" if known else "no such object"}.'
    )


def missing(kind: Any, version: str) -> dict[str, Any]:
    """Returns the defaults, by slot, of the fields that were added after a version."""
    return copy.deepcopy(found) if (found := _missing(kind, version)) else {}


@functools.cache
def _missing(kind: Any, version: str) -> dict[str, Any]:
    return {
        kind.slots[name]: kind.defaults[name]
        for name, since in kind.added.items()
        if name in kind.defaults and manifests.parsed(since) > manifests.parsed(version)
    }


def present_name(kind: Any, name: str) -> str:
    """Returns the name that a field has now."""
    return _present_names(kind).get(name, name) if kind.renamed else name


@functools.cache
def _present_names(kind: Any) -> dict[str, str]:
    return {former: name for name, (former, _) in kind.renamed.items()}


def is_table(value: Any) -> bool:
    return isinstance(value, dict) and TABLE in value


def pack(items: Sequence[Any]) -> list[Any] | dict[str, Any]:
    """Returns the primitive form of objects: a table if all have the same fields set."""
    first = vars(items[0]) if items else {}
    kind = type(items[0]) if items else None
    if len(items) < 2 or any(
        type(item) is not kind or vars(item).keys() != first.keys() for item in items
    ):
        return [item.obj_to_primitive() for item in items]
    data = {
        name: _pack_column(name, slot, items)
        for name, slot in items[0].slots.items()
        if slot in first
    }
    return {TABLE: items[0].obj_name(), VERSION: items[0].VERSION, DATA: data}


def _pack_column(name: str, slot: str, items: Sequence[Any]) -> Any:
    """Returns the values of a field; for lists of objects, their lengths and all objects."""
    field, values = items[0].fields[name], [vars(item)[slot] for item in items]
    if isinstance(field, PLAIN):
        return values
    if isinstance(field, ListOfObjectsField):
        return [list(map(len, values)), pack(list(itertools.chain(*values)))]
    return [
        field.to_primitive(item, name, value) for item, value in zip(items, values, strict=True)
    ]


def unpack(table: dict[str, Any]) -> list[Any]:
    """Returns the objects of a table."""
    kind = class_of(table[TABLE], table[VERSION])
    columns = {
        kind.slots[name]: _unpack_column(name, kind.fields[name], column, kind())
        for sent_name, column in table[DATA].items()
        if (name := present_name(kind, sent_name)) in kind.fields
    }
    made, is_older = [], bool(_missing(kind, table[VERSION]))
    for values in zip(*columns.values(), strict=True):
        item = kind()
        if is_older:
            vars(item).update(missing(kind, table[VERSION]))
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
