# SPDX-License-Identifier: Apache-2.0
"""What every object that travels by RPC has in common."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Self, TypeVar

from oslo_versionedobjects import base, fields

T = TypeVar('T', bound=type)


def register(cls: T) -> T:
    """Make an object known to the serializer."""
    registered: T = base.VersionedObjectRegistry.register(cls)
    return registered


class CyborgObject(base.VersionedObject, base.ComparableVersionedObject):
    """Fields and their meaning; no behaviour that needs a database or a message."""

    OBJ_PROJECT_NAMESPACE = 'cyborg'
    OBJ_SERIAL_NAMESPACE = 'cyborg_object'

    if TYPE_CHECKING:  # registering makes attributes of the fields
        def __getattr__(self, name: str) -> Any: ...

    def __init__(self, **values: Any) -> None:
        super().__init__(**values)
        if values:  # an object that is being rebuilt from a message fills itself
            self.obj_set_defaults(*self._defaults())

    @classmethod
    def _defaults(cls) -> list[str]:
        """The fields that have a default."""
        return [name for name, field in cls.fields.items()
                if field.default is not fields.UnspecifiedDefault]

    @classmethod
    def of(cls, facts: Any, **more: Any) -> Self:
        """Build from anything that has our fields as attributes or keys; the rest stays unset."""
        unset = object()
        get: Callable[[str, Any], Any] = facts.get if isinstance(facts, Mapping) else (
            lambda name, default: getattr(facts, name, default))
        # what is given is not looked up: to look may cost a query
        values = more | {name: value for name in cls.fields.keys() - more.keys()
                         if (value := get(name, unset)) is not unset}
        return cls(**values)

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
