# SPDX-License-Identifier: Apache-2.0
"""What every object that travels by RPC has in common."""

import copy
import operator
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from oslo_versionedobjects import base

from cyborg.objects import fields, tables

T = TypeVar('T', bound=Any)
UNSET = object()


def register(cls: T) -> T:
    """Make an object known to the serializer."""
    registered: T = base.VersionedObjectRegistry.register(cls)
    registered.slots = {name: f'_obj_{name}' for name in registered.fields}
    for name, slot in registered.slots.items():  # nothing of ours is loaded when it is looked at
        setattr(registered, name, getattr(registered, name).getter(operator.attrgetter(slot)))
    registered.defaults = {
        name: field.default for name, field in registered.fields.items()
        if field.default is not fields.UnspecifiedDefault}
    return registered


class CyborgObject(base.VersionedObject, base.ComparableVersionedObject):
    """Fields and their meaning; no behaviour that needs a database or a message."""

    OBJ_PROJECT_NAMESPACE = 'cyborg'
    OBJ_SERIAL_NAMESPACE = 'cyborg_object'
    #: where the library keeps each field
    slots: ClassVar[dict[str, str]]
    #: of those fields that have one
    defaults: ClassVar[dict[str, Any]]

    if TYPE_CHECKING:  # registering makes attributes of the fields
        def __getattr__(self, name: str) -> Any: ...

    def __init__(self, **values: Any) -> None:
        super().__init__()
        if values:  # an object that is being rebuilt from a message fills itself
            for name, value in (self.defaults | values).items():
                setattr(self, self.slots[name], self.fields[name].coerce(self, name, value))

    @classmethod
    def of(cls, facts: Any, **more: Any) -> Self:
        """Build from a row, or whatever has our fields as attributes or keys, and of the right
        types; the rest stays unset."""
        if hasattr(facts, '_asdict'):  # a named tuple, as rows are
            facts = facts._asdict()
        if not isinstance(facts, Mapping):
            # what is given is not looked up: to look may cost a query
            facts = {name: value for name in cls.fields.keys() - more.keys()
                     if (value := getattr(facts, name, UNSET)) is not UNSET}
        slots, made = cls.slots, cls()
        kept = made.__dict__
        kept.update({slots[name]: value for name, value in facts.items() if name in slots})
        kept.update({slots[name]: value for name, value in more.items()})
        for name, default in cls.defaults.items():
            if slots[name] not in kept:
                kept[slots[name]] = copy.copy(default)
        return made

    def obj_to_primitive(self, target_version: str | None = None,
                         version_manifest: dict[str, str] | None = None) -> dict[str, Any]:
        """As the library does, with less ado where no older version is asked for."""
        if target_version not in (None, self.VERSION) or version_manifest:
            older: dict[str, Any] = super().obj_to_primitive(target_version, version_manifest)
            return older
        kept = self.__dict__
        data = {name: self.fields[name].to_primitive(self, name, kept[slot])
                for name, slot in self.slots.items() if slot in kept}
        return {self._obj_primitive_key(name): value for name, value in (
            ('name', self.obj_name()), ('namespace', self.OBJ_PROJECT_NAMESPACE),
            ('version', self.VERSION), ('data', data))}

    def obj_what_changed(self) -> set[str]:
        """Objects are messages: what was changed since they were made concerns nobody."""
        return set()

    @classmethod
    def _obj_from_primitive(cls, context: Any, objver: str, primitive: dict[str, Any]) -> Self:
        """Take the fields as they are: the sender has made sure that they are well-formed."""
        made = cls()
        made.VERSION = objver
        for name, value in cls._obj_primitive_field(primitive, 'data').items():
            if name in cls.fields:
                setattr(made, cls.slots[name],
                        cls.fields[name].from_primitive(made, name, value))
        return made

    def given(self, name: str, default: Any = None) -> Any:
        """A field, or the default where the builder left it out."""
        return getattr(self, name) if self.obj_attr_is_set(name) else default


class Stamped(CyborgObject):
    """Objects that mirror a row carry its two timestamps."""

    fields = {
        'created_at': fields.DateTimeField(nullable=True),
        'updated_at': fields.DateTimeField(nullable=True),
    }


class Serializer(base.VersionedObjectSerializer):
    OBJ_BASE_CLASS = CyborgObject

    def serialize_entity(self, context: Any, entity: Any) -> Any:
        if isinstance(entity, list) and entity and isinstance(entity[0], CyborgObject):
            return tables.pack(entity)
        return super().serialize_entity(context, entity)

    def deserialize_entity(self, context: Any, entity: Any) -> Any:
        if tables.is_table(entity):
            return tables.unpack(entity)
        return super().deserialize_entity(context, entity)
