# SPDX-License-Identifier: Apache-2.0
"""A document is declared once: what is checked, shown and described follows from that."""

import datetime
import types

import jsonschema
import pytest
import wsme.types

from cyborg import errors, objects
from cyborg.api import microversions
from cyborg.api.controllers import root
from cyborg.api.types import documents, json_schema, rendering, validation
from cyborg.api.types.documents import Field

NOW = datetime.datetime(2026, 3, 1, 10, 0, tzinfo=datetime.UTC)
OLD, NEW = microversions.Version(2, 0), microversions.HIGHEST

#: what the nouns of the API show
OBJECTS = {
    'DeviceProfile': objects.DeviceProfile,
    'AcceleratorRequest': objects.Arq,
    'Device': objects.Device,
    'Deployable': objects.Deployable,
    'Attribute': objects.Attribute,
    'Agent': objects.Agent,
    'ModelCapacity': objects.ModelCapacity,
    'TopologyHost': objects.HostUnits,
    'ProjectUsage': objects.ProjectUsage,
}


class Part(documents.Document):
    size = Field(wsme.types.IntegerType(minimum=1))


class Thing(documents.Noun):
    uuid = Field(documents.UUID)
    colour = Field(documents.Enum('red', 'blue'), 'as it was painted', source='paint')
    made_at = Field(documents.MOMENT, nullable=True)
    is_new = Field(bool, since=(2, 3))
    parts = Field([Part], mandatory=False)
    links = documents.links('things')


class NewThing(documents.Body):
    colour = Field(wsme.types.StringType(max_length=4), mandatory=True)
    parent = Field(documents.UUID, nullable=True, since=(2, 3))


def request(version):
    return types.SimpleNamespace(
        negotiated=version, link=lambda *parts, rel='self': {'rel': rel, 'href': '/'.join(parts)}
    )


def thing(**facts):
    made = {'uuid': 'u', 'paint': 'red', 'made_at': NOW, 'is_new': True, 'parts': []}
    return types.SimpleNamespace(**made | facts)


def test_a_field_is_shown_under_its_own_name_from_its_version_on():
    shown = rendering.render(thing(), Thing, request(NEW))
    assert list(shown) == ['uuid', 'colour', 'made_at', 'is_new', 'links']
    assert shown == {
        'uuid': 'u',
        'colour': 'red',
        'made_at': '2026-03-01T10:00:00+00:00',
        'is_new': True,
        'links': [{'rel': 'self', 'href': 'v2/things/u'}],
    }
    assert 'is_new' not in rendering.render(thing(), Thing, request(OLD))


def test_a_field_that_need_not_be_there_is_shown_if_it_is_named():
    size = types.SimpleNamespace(size=3)
    shown = rendering.render(thing(parts=[size]), Thing, request(NEW), 'parts')
    assert shown['parts'] == [{'size': 3}]


def test_the_schema_says_what_the_declaration_does():
    schema = Thing.described()
    assert list(schema['properties']) == ['uuid', 'colour', 'made_at', 'is_new', 'parts', 'links']
    assert schema['required'] == ['uuid', 'colour', 'made_at', 'is_new', 'links']
    assert schema['additionalProperties'] is False
    assert schema['properties']['colour'] == {
        'type': 'string',
        'enum': ['red', 'blue'],
        'description': 'as it was painted',
    }
    assert schema['properties']['made_at']['type'] == ['string', 'null']
    assert schema['properties']['parts']['items']['properties']['size'] == {
        'type': 'integer',
        'minimum': 1,
    }
    assert 'is_new' not in json_schema.at(schema, OLD)['properties']


def test_what_may_be_null_may_be_so_among_chosen_values_too():
    nullable = json_schema.or_null(documents.schema_of(documents.Enum('red')))
    assert jsonschema.Draft202012Validator(nullable).is_valid(None)


@pytest.mark.parametrize(
    'body, why',
    [
        ({}, 'must have colour'),
        ({'colour': 'green'}, 'colour must not be longer than 4 characters'),
        ({'colour': 'red', 'parent': 'x'}, 'parent needs version 2.3 of this API or later'),
    ],
)
def test_a_body_is_refused_that_is_not_as_declared(body, why):
    schema = json_schema.at(NewThing.schema(), OLD, is_body=True)
    with pytest.raises(errors.BadRequest, match=why):
        validation.check(body, schema, 'The body')


def test_a_body_is_read_as_its_types_have_it():
    uuid = '5D0E2AB1-3F5C-4B7E-9A35-0B1C7C2D9F10'
    read = documents.read(NewThing, {'colour': 'red', 'parent': uuid, '__class__': 'x'})
    assert isinstance(read, NewThing)
    assert read.given() == {'colour': 'red', 'parent': uuid.lower()}
    assert documents.read(NewThing, {'colour': 'red'}).parent is wsme.types.Unset


@pytest.mark.parametrize('noun', root.COLLECTIONS, ids=lambda noun: noun.path)
def test_every_field_of_a_noun_is_one_of_its_object(noun):
    known = OBJECTS[noun.item.__name__].fields
    assert not {field.source for field in noun.item.declared()} - known.keys()


@pytest.mark.parametrize('noun', root.COLLECTIONS, ids=lambda noun: noun.path)
def test_every_version_that_brought_a_field_or_a_method_is_in_the_history(noun):
    operations = noun.operations.values()
    taken = [each.query for each in operations if each.query is not None]
    fields = [field for each in (noun.item, *taken) for field in each.declared()]
    brought = {field.since for field in fields if field.since} | {each.since for each in operations}
    assert brought <= microversions.HISTORY.keys()


@pytest.mark.parametrize('name', ['conf', 'operations', 'page', 'get_one', '_route', 'v2'])
def test_what_a_controller_has_is_no_part_of_a_path(admin, name):
    for path in (f'/v2/{name}', f'/v2/device_profiles/{name}', f'/v2/device_profiles/x/{name}'):
        assert admin.get(path, version='latest').status_int == 404
    assert 'GET' not in admin.post(f'/v2/{name}').headers.get('Allow', '')
