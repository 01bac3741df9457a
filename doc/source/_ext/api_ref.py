# SPDX-License-Identifier: Apache-2.0
"""Writes the API reference from the operations and types that the API is run by."""

import json
import pathlib
from collections.abc import Iterator
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList
from sphinx.util.nodes import nested_parse_with_titles

from cyborg.api import microversions, openapi
from cyborg.api.controllers import root
from cyborg.api.types import documents, json_schema

SAMPLES = pathlib.Path(__file__).parents[1] / 'api-ref' / 'samples'
DOCUMENT = openapi.describe(root.COLLECTIONS, microversions.HIGHEST)
NAMES = {
    'string': 'text',
    'integer': 'number',
    'number': 'number',
    'boolean': 'true or false',
    'object': 'object',
    'null': 'null',
}


class Generated(Directive):
    """A directive whose content is written by a function."""

    def run(self) -> list[nodes.Node]:
        node = nodes.section()
        node.document = self.state.document
        nested_parse_with_titles(self.state, StringList(list(self.lines()), source=self.name), node)
        return node.children

    def lines(self) -> Iterator[str]:
        raise NotImplementedError


class Versions(Generated):
    """``.. api-versions::`` becomes the list of all versions and what they brought."""

    def lines(self) -> Iterator[str]:
        for version, brought in microversions.HISTORY.items():
            yield from (str(version), f'    {brought}', '')


class Reference(Generated):
    """``.. api-ref:: devices`` becomes all that can be done with devices."""

    required_arguments = 1

    def lines(self) -> Iterator[str]:
        noun = next(noun for noun in root.COLLECTIONS if noun.path == self.arguments[0])
        yield from title('What one shows', '-')
        yield from table(DOCUMENT['components']['schemas'][noun.item.__name__]['properties'])
        for path, methods in DOCUMENT['paths'].items():
            for method, operation in methods.items():
                if noun.path in operation['tags'] and _can_succeed(operation):
                    yield from described(method.upper(), path, operation)


def _can_succeed(operation: dict[str, Any]) -> bool:
    return any(status < '400' for status in operation['responses'])


def described(method: str, path: str, operation: dict[str, Any]) -> Iterator[str]:
    """One operation."""
    yield from title(f'{method} {path}', '-')
    yield from (operation['summary'], '')
    if json_schema.SINCE in operation:
        yield from (f'Since {operation[json_schema.SINCE]}.', '')
    yield from (f'Policy: ``{operation["x-policy"]}``', '')
    query = {
        each['name']: each['schema']
        for each in operation['parameters']
        if each.get('in') == 'query'
    }
    if query:
        yield from ('.. rubric:: Query', '')
        yield from table(query)
    if 'requestBody' in operation:
        yield from ('.. rubric:: Body', '')
        yield from body(operation['requestBody']['content']['application/json']['schema'])
    yield from ('.. rubric:: Answers', '')
    for status, answer in operation['responses'].items():
        meaning = (
            answer.get('description') or DOCUMENT['components']['responses'][status]['description']
        )
        yield f'* {status}: {meaning}'
    yield ''
    yield from shown(operation)
    yield from sample(operation['operationId'])


def shown(operation: dict[str, Any]) -> Iterator[str]:
    """The fields of what only this operation shows, or of its items and theirs."""
    for answer in operation['responses'].values():
        schema = answer.get('content', {}).get('application/json', {}).get('schema', {})
        for title_of, item in _own(schema):
            yield from (f'.. rubric:: {title_of}', '')
            yield from table(item['properties'])


def _own(schema: dict[str, Any], name: str = 'What is shown') -> Iterator[tuple[str, Any]]:
    """Objects that are described in place, each with what it is called."""
    properties = schema.get('properties', {})
    if not properties or schema == documents.Link.schema():
        return
    lists = {key: each['items'] for key, each in properties.items() if each.get('type') == 'array'}
    if not properties.keys() <= {*lists}:
        yield name, schema
    for key, item in lists.items():
        yield from _own(item, f'Each of ``{key}``')


def body(schema: dict[str, Any]) -> Iterator[str]:
    """What a request carries."""
    if schema['type'] == 'array':
        yield from ('A list of:', '')
        schema = schema['items']
    # one of two forms, of which the plain one is told
    schema = schema.get('else', schema)
    if 'properties' in schema:
        yield from table(schema['properties'], schema.get('required', ()))
    else:
        each = schema['additionalProperties']['items']
        yield from ('By uuid, a list of:', '')
        yield from table(each['properties'], each['required'])


def sample(operation: str) -> Iterator[str]:
    """What was really asked and answered."""
    told = json.loads((SAMPLES / f'{operation}.json').read_text())
    asked, answered = told['request'], told['response']
    yield from (
        '.. rubric:: Example',
        '',
        '.. code-block:: none',
        '',
        f'   {asked["method"]} {asked["path"]}',
        '',
    )
    if asked['body'] is not None:
        yield from code(asked['body'])
    yield from (
        f'is answered with {answered["status"]}'
        + (':' if answered['body'] is not None else ' and no body.'),
        '',
    )
    if answered['body'] is not None:
        yield from code(answered['body'])


def code(document: Any) -> Iterator[str]:
    yield from ('.. code-block:: json', '')
    yield from (f'   {line}' for line in json.dumps(document, indent=2).splitlines())
    yield ''


def title(text: str, mark: str) -> Iterator[str]:
    yield from (text, mark * len(text), '')


def table(fields: dict[str, Any], required: Any = ()) -> Iterator[str]:
    """Fields with their kinds and meanings."""
    yield from (
        '.. list-table::',
        '   :header-rows: 1',
        '   :widths: 25 25 50',
        '',
        '   * - Name',
        '     - What it is',
        '     - Meaning',
    )
    for name, schema in fields.items():
        meaning = []
        if schema.get('description') not in (None, documents.UUID.schema['description']):
            words = schema['description']
            meaning.append(f'{words[0].upper()}{words[1:]}.')
        if name in required:
            meaning.append('Needed.')
        if json_schema.SINCE in schema:
            meaning.append(f'Since {schema[json_schema.SINCE]}.')
        yield from (f'   * - ``{name}``', f'     - {kind(schema)}', f'     - {" ".join(meaning)}')
    yield ''


def kind(schema: dict[str, Any]) -> str:
    """What a value can be, in words."""
    if '$ref' in schema:
        return schema['$ref'].rpartition('/')[2]
    if 'enum' in schema:
        values = (f'``{value}``' for value in schema['enum'] if value is not None)
        return 'one of ' + ', '.join(values) + (' or null' if None in schema['enum'] else '')
    kinds = schema.get('type', 'string')
    found = []
    for each in [kinds] if isinstance(kinds, str) else kinds:
        if each == 'string' and schema.get('pattern') == documents.UUID.schema['pattern']:
            found.append('UUID')
        elif each == 'string' and schema.get('format') == 'date-time':
            found.append('time')
        elif each == 'array':
            found.append(f'list of {kind(schema["items"])}')
        else:
            found.append(NAMES[each])
    return ' or '.join(found)


def setup(app: Any) -> dict[str, bool]:
    app.add_directive('api-ref', Reference)
    app.add_directive('api-versions', Versions)
    return {'parallel_read_safe': True}
