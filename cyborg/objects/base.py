# SPDX-License-Identifier: Apache-2.0
"""The base of all objects that are sent by RPC."""

import copy
import operator
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from oslo_versionedobjects import base, exception

from cyborg import errors
from cyborg.objects import fields, manifests, object_lists

T = TypeVar('T', bound=Any)
UNSET = object()


def register(cls: T) -> T:
    """Make an object known to the serializer."""
    registered: T = base.VersionedObjectRegistry.register(cls)
    registered.slots = {name: f'_obj_{name}' for name in registered.fields}
    for name, slot in registered.slots.items():  # our objects load no field lazily
        setattr(registered, name, getattr(registered, name).getter(operator.attrgetter(slot)))
    registered.defaults = {
        name: field.default
        for name, field in registered.fields.items()
        if field.default is not fields.UnspecifiedDefault
    }
    return registered


class CyborgObject(base.VersionedObject, base.ComparableVersionedObject):
    """An object with typed fields. It uses neither the database nor messages."""

    OBJ_PROJECT_NAMESPACE = 'cyborg'
    OBJ_SERIAL_NAMESPACE = 'cyborg_object'
    #: field -> the attribute in which the library stores it
    slots: ClassVar[dict[str, str]]
    #: field -> its default, if it has one
    defaults: ClassVar[dict[str, Any]]
    #: fields that are newer than the first version of the class -> their first version
    added: ClassVar[dict[str, str]] = {}
    #: fields that once had another name -> that name, and the version in which it changed
    renamed: ClassVar[dict[str, tuple[str, str]]] = {}

    if TYPE_CHECKING:  # register() creates an attribute for each field

        def __getattr__(self, name: str) -> Any: ...

    def __init__(self, **values: Any) -> None:
        super().__init__()
        if values:  # without values the object is being deserialized, which sets the fields
            for name, value in (self.defaults | values).items():
                setattr(self, self.slots[name], self.fields[name].coerce(self, name, value))

    @classmethod
    def of(cls, facts: Any, **more: Any) -> Self:
        """Returns an object made from a row, or from another object or mapping with our fields as
        attributes or keys. Values must have the right types; missing fields stay unset."""
        if hasattr(facts, '_asdict'):  # a named tuple, as rows are
            facts = facts._asdict()
        if not isinstance(facts, Mapping):
            # fields in ``more`` are not read from ``facts``, which may cost a query
            facts = {
                name: value
                for name in cls.fields.keys() - more.keys()
                if (value := getattr(facts, name, UNSET)) is not UNSET
            }
        slots, made = cls.slots, cls()
        kept = made.__dict__
        kept.update({slots[name]: value for name, value in facts.items() if name in slots})
        kept.update({slots[name]: value for name, value in more.items()})
        for name, default in cls.defaults.items():
            if slots[name] not in kept:
                kept[slots[name]] = copy.copy(default)
        return made

    def obj_to_primitive(
        self,
        target_version: str | None = None,
        version_manifest: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Returns the serialized object.

        Without arguments lists of objects are tables. With a version of this class, and the
        versions of the others by name, it has the format of oslo.versionedobjects, without the
        fields that these versions lack.
        """
        if target_version is not None or version_manifest is not None:
            return self._to_older_primitive(target_version or self.VERSION, version_manifest or {})
        kept = self.__dict__
        data = {
            name: self.fields[name].to_primitive(self, name, kept[slot])
            for name, slot in self.slots.items()
            if slot in kept
        }
        return self._envelope(self.VERSION, data)

    def _to_older_primitive(self, version: str, manifest: Mapping[str, str]) -> dict[str, Any]:
        if manifests.parsed(version) > manifests.parsed(self.VERSION):
            raise exception.InvalidTargetVersion(version=version)
        data = {
            name: self._to_older_value(name, self.__dict__[slot], manifest)
            for name, slot in self.slots.items()
            if slot in self.__dict__
        }
        self.obj_make_compatible(data, version)
        return self._envelope(version, data)

    def _to_older_value(self, name: str, value: Any, manifest: Mapping[str, str]) -> Any:
        field = self.fields[name]
        if value is not None and isinstance(field, fields.ObjectField):
            return value.obj_to_primitive(manifest.get(value.obj_name()), manifest)
        if value is not None and isinstance(field, fields.ListOfObjectsField):
            return [
                each.obj_to_primitive(manifest.get(each.obj_name()), manifest) for each in value
            ]
        return field.to_primitive(self, name, value)

    def _envelope(self, version: str, data: dict[str, Any]) -> dict[str, Any]:
        return {
            self._obj_primitive_key(name): value
            for name, value in (
                ('name', self.obj_name()),
                ('namespace', self.OBJ_PROJECT_NAMESPACE),
                ('version', version),
                ('data', data),
            )
        }

    def obj_make_compatible(self, primitive: dict[str, Any], target_version: str) -> None:
        """Remove the fields that are newer, and use the former names of renamed ones. A class whose
        fields have changed otherwise extends this."""
        for name, since in self.added.items():
            if manifests.parsed(since) > manifests.parsed(target_version):
                primitive.pop(name, None)
        for name, (former, since) in self.renamed.items():
            if name in primitive and manifests.parsed(since) > manifests.parsed(target_version):
                primitive[former] = primitive.pop(name)

    def obj_what_changed(self) -> set[str]:
        """Returns nothing: objects are messages, and changes are not tracked."""
        return set()

    @classmethod
    def obj_class_from_name(cls, objname: str, objver: str) -> Any:
        """Returns the class that reads a version, also a newer minor version."""
        return object_lists.class_of(objname, objver)

    @classmethod
    def _obj_from_primitive(cls, context: Any, objver: str, primitive: dict[str, Any]) -> Self:
        """Take the fields without coercion: the sender has validated them. Fields that the sender
        does not know have their defaults, and those that are not known here are left out."""
        made = cls()
        made.__dict__.update(object_lists.missing(cls, objver))
        for sent_name, value in cls._obj_primitive_field(primitive, 'data').items():
            if (name := object_lists.present_name(cls, sent_name)) in cls.fields:
                setattr(made, cls.slots[name], cls.fields[name].from_primitive(made, name, value))
        return made

    def given(self, name: str, default: Any = None) -> Any:
        """Returns a field, or the default if it is not set."""
        return getattr(self, name) if self.obj_attr_is_set(name) else default


class Stamped(CyborgObject):
    """An object of a row, with its two timestamps."""

    fields = {
        'created_at': fields.DateTimeField(nullable=True),
        'updated_at': fields.DateTimeField(nullable=True),
    }


class Serializer(base.VersionedObjectSerializer):
    """Writes objects for readers of an RPC version, and reads those of all versions.

    For the newest version lists are tables. For an older one objects are backported.
    """

    OBJ_BASE_CLASS = CyborgObject

    def __init__(self, version: str = manifests.NEWEST) -> None:
        self._manifest = None if version == manifests.NEWEST else manifests.manifest(version)

    def serialize_entity(self, context: Any, entity: Any) -> Any:
        if isinstance(entity, CyborgObject):
            return self._primitive(entity)
        if (
            self._manifest is None
            and isinstance(entity, list)
            and entity
            and isinstance(entity[0], CyborgObject)
        ):
            return object_lists.pack(entity)
        return super().serialize_entity(context, entity)

    def _primitive(self, entity: CyborgObject) -> dict[str, Any]:
        if self._manifest is None:
            return entity.obj_to_primitive()
        version = self._manifest.get(entity.obj_name())
        if version is None:
            raise errors.IncompatibleRelease(
                why=f'The release of the reader has no {entity.obj_name()}.'
            )
        return entity.obj_to_primitive(version, self._manifest)

    def deserialize_entity(self, context: Any, entity: Any) -> Any:
        if object_lists.is_table(entity):
            return object_lists.unpack(entity)
        return super().deserialize_entity(context, entity)
