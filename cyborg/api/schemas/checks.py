# SPDX-License-Identifier: Apache-2.0
"""Holding what a client sends against a schema, and saying what is wrong with it."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import jsonschema
import webob

from cyborg import errors

UUID = {'type': 'string', 'pattern': '^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$',
        'description': 'a UUID such as 5d0e2ab1-3f5c-4b7e-9a35-0b1c7c2d9f10'}
LONGEST_NUMBER = 1000
TYPES = {'object': 'an object', 'array': 'a list', 'string': 'a string', 'integer': 'a number',
         'boolean': 'true or false', 'null': 'null'}


def _pattern(validator: Any, pattern: str, instance: Any,
             schema: Mapping[str, Any]) -> Iterator[jsonschema.ValidationError]:
    # for Python, unlike ECMA, $ may also stand before a newline at the end
    if isinstance(instance, str) and not re.fullmatch(pattern, instance):
        yield jsonschema.ValidationError(f'does not match {pattern}')


VALIDATOR = jsonschema.validators.extend(jsonschema.Draft202012Validator, {'pattern': _pattern})


def is_uuid(value: str) -> bool:
    return re.fullmatch(UUID['pattern'], value) is not None


def uuid(value: str, what: str) -> str:
    """The UUID in the spelling we store, or BadRequest."""
    if not is_uuid(value):
        raise errors.BadRequest(f'{what} must be {UUID["description"]}.')
    return value.lower()


def document(request: webob.Request, schema: Mapping[str, Any]) -> Any:
    """The body of a request, held against its schema."""
    if not request.body:
        raise errors.BadRequest('This request needs a body, in JSON.')
    kind = request.content_type or 'application/json'
    if not re.fullmatch(r'application/([\w.-]+\+)?json', kind, re.IGNORECASE):
        raise errors.UnsupportedMediaType(kind=kind[:64])
    try:
        parsed = json.loads(request.body, object_pairs_hook=_unique, parse_int=_number,
                            parse_constant=_no_such_number)
        _refuse_unstorable(parsed)
    except UnicodeDecodeError as error:
        raise errors.BadRequest('The body must be UTF-8.') from error
    except ValueError as error:
        raise errors.BadRequest(f'The body is not JSON: {error}.') from error
    except RecursionError as error:
        raise errors.BadRequest('The body is nested too deeply.') from error
    check(parsed, schema, 'The body')
    return parsed


def query(given: webob.multidict.MultiDict, schema: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a request, held against their schema, each as what it should be."""
    known = schema['properties']
    if unknown := sorted(set(given) - set(known)):
        raise errors.BadRequest(
            f'Unknown query parameter: {_short(unknown)}; '
            f'{"known are: " + ", ".join(sorted(known)) if known else "none is known here"}.')
    parameters = {}
    for name, value in given.items():
        if name in parameters:
            raise errors.BadRequest(
                f'Query parameter {name} is given twice; put several values into one, with '
                f'commas, where a list is taken.')
        parameters[name] = _typed(value, known[name])
    _refuse_unstorable(parameters)
    check(parameters, schema, 'The query')
    return parameters


def _typed(text: str, schema: Mapping[str, Any]) -> str | int | bool:
    """What a query says, if it can be had as what it should be."""
    match schema.get('type'):
        case 'integer' if re.fullmatch('[0-9]{1,10}', text):
            return int(text)
        case 'boolean':
            return {'true': True, 'false': False}.get(text.lower(), text)
    return text.lower() if schema.get('pattern') == UUID['pattern'] else text


def check(value: Any, schema: Mapping[str, Any], what: str) -> None:
    """BadRequest with a sentence about the first thing that is wrong."""
    error = jsonschema.exceptions.best_match(VALIDATOR(schema).iter_errors(value))
    if error is not None:
        steps = list(error.absolute_path)
        if 'propertyNames' in error.absolute_schema_path:
            steps.append(error.instance)
        where = '/'.join(str(step)[:64] for step in steps)
        raise errors.BadRequest(f'{f"{what}: {where}" if where else what} {_why(error)}.')


def _why(error: jsonschema.ValidationError) -> str:
    expected = error.validator_value
    match error.validator:
        case 'type':
            kinds = [expected] if isinstance(expected, str) else expected
            return f'must be {" or ".join(TYPES[kind] for kind in kinds)}'
        case 'required':
            missing = [name for name in expected if name not in error.instance]
            return f'must have {_short(missing)}'
        case 'enum':
            return f'must be one of {", ".join(expected)}, not {str(error.instance)[:64]}'
        case 'pattern' if 'description' in error.schema:
            return f'must be {error.schema["description"]}'
        case 'minItems' | 'minProperties' | 'minLength':
            return 'must not be empty'
        case 'maxItems':
            return f'must not have more than {expected} items'
        case 'uniqueItems':
            return 'must not have anything twice'
        case 'maxLength':
            return f'must not be longer than {expected} characters'
        case 'minimum':
            return f'must be at least {expected}'
        case 'maximum':
            return f'must be at most {expected}'
        case 'additionalProperties' if isinstance(error.instance, dict):
            known = error.schema.get('properties', {})
            unknown = sorted(set(error.instance) - set(known))
            return f'must not have {_short(unknown)}; known are: {", ".join(known)}'
        case 'not':
            return error.schema.get('description', 'is not known')
    return f'is not as expected: {error.message[:200]}'


def _short(names: Iterable[str]) -> str:
    return ', '.join(names)[:200]


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f'{name[:64]} is there twice')
        found[name] = value
    return found


def _number(text: str) -> int:
    # Python would explain how to make it read more digits than it does
    if len(text) > LONGEST_NUMBER:
        raise ValueError(f'a number has more than {LONGEST_NUMBER} digits')
    return int(text)


def _no_such_number(name: str) -> None:
    raise ValueError(f'{name} is no number')


def _refuse_unstorable(value: Any) -> None:
    """Some characters cannot be stored by every database, or not at all."""
    match value:
        case str():
            if re.search('[\0\ud800-\udfff]', value):
                raise errors.BadRequest(
                    'Text must not hold NUL characters or halves of surrogate pairs.')
        case dict():
            for name, item in value.items():
                _refuse_unstorable(name)
                _refuse_unstorable(item)
        case list():
            for item in value:
                _refuse_unstorable(item)
