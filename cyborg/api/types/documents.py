# SPDX-License-Identifier: Apache-2.0
"""Documents, their fields, and the types of values that several nouns use."""

import copy
import datetime
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self, TypeGuard

import wsme
import wsme.types

from cyborg.api.types import json_schema

Schema = json_schema.Schema

LARGEST_ID = 2**31 - 1
MOMENT = datetime.datetime


class Field(wsme.wsattr):
    """An attribute of a document: that of WSME, with its description for clients."""

    def __init__(
        self,
        datatype: Any,
        description: str | None = None,
        *,
        since: tuple[int, int] | None = None,
        nullable: bool = False,
        mandatory: bool | None = None,
        source: str | None = None,
    ) -> None:
        """``since`` is the first version of the API that has it; ``mandatory`` None is the default
        of the document; ``source`` is the name of the attribute in objects."""
        super().__init__(datatype, mandatory=mandatory)
        self.description, self.since, self.nullable = description, since, nullable
        self._source = source

    @property
    def source(self) -> str:
        return self._source or str(self.name)

    def schema(self) -> Schema:
        """Returns the JSON Schema of its type, with the description of the field."""
        schema = schema_of(self.datatype)
        if self.nullable:
            schema = json_schema.or_null(schema)
        if self.description is not None:
            schema |= {'description': self.description}
        return schema if self.since is None else json_schema.since(self.since, schema)

    def again(self) -> Self:
        """Returns the same field for another document."""
        return copy.copy(self)


class Document(wsme.types.Base):
    """An object that the API takes or shows. WSME treats every public attribute as a field."""

    #: the default of ``mandatory`` of its fields
    _mandatory: ClassVar[bool] = True
    #: the schema of keys that are not declared; None: they are ignored
    _unknown_keys: ClassVar[bool | Schema | None] = False
    _min_keys: ClassVar[int] = 0
    _examples: ClassVar[Sequence[Any]] = ()
    _wsme_attr_order: ClassVar[list[str]]
    #: the fields that are present in a document that was read
    _given: Sequence[Field] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # The order of declaration, which WSME would otherwise search in the source.
        cls._wsme_attr_order = list(
            dict.fromkeys(
                name
                for each in reversed(cls.__mro__)
                for name, member in vars(each).items()
                if isinstance(member, Field)
            )
        )

    @classmethod
    def declared(cls) -> list[Field]:
        """Returns the fields, in their order."""
        return list(wsme.types.list_attributes(cls))

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        """Returns a validated document, with each value converted by its type."""
        read = cls()
        read._given = [field for field in cls.declared() if field.name in document]
        for field in read._given:
            setattr(read, field.key, document[field.name])
        return read

    @classmethod
    def described(cls) -> Schema:
        """Returns its JSON Schema, with the fields of all versions."""
        fields = cls.declared()
        is_mandatory = {None: cls._mandatory, True: True, False: False}
        return _said(
            type='object',
            properties={field.name: field.schema() for field in fields},
            required=[field.name for field in fields if is_mandatory[field.mandatory]] or None,
            additionalProperties=cls._unknown_keys,
            minProperties=cls._min_keys or None,
            examples=list(cls._examples) or None,
        )

    @classmethod
    def schema(cls) -> Schema:
        """Returns the schema for its use in another schema."""
        return cls.described()

    def given(self) -> dict[str, Any]:
        """Returns the values that are present in the document, by the names of objects."""
        return {field.source: getattr(self, field.key) for field in self._given}


class Noun(Document):
    """A document with its own name in the OpenAPI description."""

    @classmethod
    def schema(cls) -> Schema:
        return json_schema.ref(cls.__name__)


class Body(Document):
    """A document that a client sends."""

    _mandatory = False
    _unknown_keys: ClassVar[bool | Schema | None] = None


class UserType(wsme.types.UserType):
    """A type with a JSON Schema of its own."""

    schema: Schema


class Shown(UserType):
    """A type whose values are converted before they are shown: see ``tobasetype``."""


class Uuid(UserType):
    """A UUID with hyphens, which WSME's own type does not require; stored in lower case."""

    basetype, name = str, 'uuid'
    schema: Schema = {
        'type': 'string',
        'pattern': '^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$',
        'description': 'a UUID such as 5d0e2ab1-3f5c-4b7e-9a35-0b1c7c2d9f10',
    }

    def matches(self, value: str) -> bool:
        return re.fullmatch(self.schema['pattern'], value) is not None

    def validate(self, value: str) -> str:
        if not self.matches(value):
            raise ValueError(f'Value should be {self.schema["description"]}')
        return value.lower()


class Enum(wsme.types.Enum):
    """The enum of WSME, which loses the order of its values."""

    def __init__(self, *values: str) -> None:
        super().__init__(str, *values)
        self.schema = {'type': 'string', 'enum': [str(value) for value in values]}


class Duration(UserType):
    """Seconds."""

    basetype, name = float, 'seconds'
    schema: Schema = {'type': 'number', 'minimum': 0}


class ListOf(UserType):
    """A list with limits, which that of WSME lacks."""

    basetype, name = list, 'list'

    def __init__(self, item: Any, *, examples: Sequence[Any] = (), **limits: Any) -> None:
        """``limits``: minItems, maxItems, uniqueItems, as in JSON Schema."""
        self.item = item
        self.schema = {'type': 'array', 'items': schema_of(item), **limits}
        if examples:
            self.schema['examples'] = list(examples)

    def validate(self, value: list[Any]) -> list[Any]:
        return [read(self.item, each) for each in value]


class AnyOf(UserType):
    """One of several documents."""

    basetype, name = dict, 'any-of'

    def __init__(self, *choices: Any) -> None:
        self.schema = {'anyOf': [schema_of(choice) for choice in choices]}


class Link(Document):
    _unknown_keys = None

    rel = Field(str)
    href = Field(str)


class Links(UserType):
    """The links to an item: to itself and, if it has one, to its path without a version."""

    basetype, name = list, 'links'

    def __init__(self, path: str, *, has_bookmark: bool = False) -> None:
        """``path``: of its collection, below the version."""
        self.path, self.has_bookmark = path, has_bookmark
        self.schema = {'type': 'array', 'items': Link.schema()}


def read(datatype: Any, value: Any) -> Any:
    """Returns a validated value, converted by its type."""
    return (
        datatype.of(value) if is_document(datatype) else wsme.types.validate_value(datatype, value)
    )


def is_document(datatype: Any) -> TypeGuard[type[Document]]:
    return isinstance(datatype, type) and issubclass(datatype, Document)


NATIVE: dict[Any, Schema] = {
    str: {'type': 'string'},
    bool: {'type': 'boolean'},
    MOMENT: {
        'type': 'string',
        'format': 'date-time',
        'description': 'ISO 8601, with an offset',
    },
}


def schema_of(datatype: Any) -> Schema:
    """Returns the JSON Schema of a type, with the fields of all versions."""
    if datatype in NATIVE:
        return dict(NATIVE[datatype])
    if is_document(datatype):
        return datatype.schema()
    match datatype:
        case wsme.types.ArrayType():
            return {'type': 'array', 'items': schema_of(datatype.item_type)}
        case wsme.types.DictType():
            return {'type': 'object', 'additionalProperties': schema_of(datatype.value_type)}
        case wsme.types.IntegerType():
            return _said(type='integer', minimum=datatype.minimum, maximum=datatype.maximum)
        case wsme.types.StringType():
            return _said(
                type='string',
                minLength=datatype.min_length,
                maxLength=datatype.max_length,
                pattern=datatype.pattern and datatype.pattern.pattern,
                description=getattr(datatype, 'description', None),
            )
    return dict(datatype.schema)


def _said(**keywords: Any) -> Schema:
    return {name: value for name, value in keywords.items() if value is not None}


UUID = Uuid()
DURATION = Duration()
ID = wsme.types.IntegerType(minimum=0, maximum=LARGEST_ID)
COUNT = wsme.types.IntegerType(minimum=0)
#: what a filter compares with a text
FILTER = wsme.types.StringType(max_length=255)


def links(path: str, *, has_bookmark: bool = False) -> Field:
    """Returns the field for links to the items of a collection."""
    return Field(Links(path, has_bookmark=has_bookmark), source='uuid')


class Listing(Body):
    """The query of a list: its filters are declared by subclasses."""

    limit = Field(
        wsme.types.IntegerType(minimum=1), 'the most to be shown at once; a link leads to more'
    )
    marker = Field(UUID)
    sort_dir = Field(Enum('asc', 'desc'))

    def page(self) -> dict[str, Any]:
        """Returns the limit, marker and order of the page."""
        return {name: value for name, value in self.given().items() if name in PAGING}

    def filters(self) -> dict[str, Any]:
        """Returns the filters of the list, by the names of objects."""
        return {name: value for name, value in self.given().items() if name not in PAGING}


PAGING = ('limit', 'marker', 'sort_key', 'sort_dir')


def sort_key(*names: str) -> Field:
    """Returns the field for the sort key of a list."""
    return Field(Enum('created_at', 'uuid', *names))


def wrapped(**parts: Any) -> type[Document]:
    """Returns the type of a document that has only these fields or types."""
    fields = {
        name: part if isinstance(part, Field) else Field(part) for name, part in parts.items()
    }
    return type('Wrapped', (Document,), fields)


def page(key: str, item: type[Document]) -> type[Document]:
    """Returns the type of a page: some items, and a link to the next page if there is one."""
    return wrapped(**{key: [item], f'{key}_links': Field([Link], mandatory=False)})


class ObjectInText(UserType):
    """JSON in a string, of any content."""

    basetype, name = str, 'object-in-text'
    schema: Schema = {'type': 'string', 'contentMediaType': 'application/json'}


class Error(Noun):
    """The body of every error, in the format that clients expect."""

    error_message = Field(
        ObjectInText(),
        'an object in a string: faultcode (Client or Server), faultstring (what is wrong, and '
        'what would be right) and debuginfo (null)',
    )
