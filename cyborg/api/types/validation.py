# SPDX-License-Identifier: Apache-2.0
"""Validates queries and bodies with a JSON Schema, and explains the first error."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import jsonschema
import webob

from cyborg import errors
from cyborg.api.types.documents import UUID

LONGEST_NUMBER = 1000
TYPES = {
    'object': 'an object',
    'array': 'a list',
    'string': 'a string',
    'integer': 'a number',
    'boolean': 'true or false',
    'null': 'null',
}


def _pattern(
    validator: Any, pattern: str, instance: Any, schema: Mapping[str, Any]
) -> Iterator[jsonschema.ValidationError]:
    # in Python, unlike ECMA, $ also matches before a newline at the end
    if isinstance(instance, str) and not re.fullmatch(pattern, instance):
        yield jsonschema.ValidationError(f'does not match {pattern}')


VALIDATOR = jsonschema.validators.extend(  # type: ignore[no-untyped-call]
    jsonschema.Draft202012Validator, {'pattern': _pattern}
)


def uuid(value: str, what: str) -> str:
    """Returns the UUID as it is stored. Raises BadRequest."""
    if not UUID.matches(value):
        raise errors.BadRequest(f'{what} must be {UUID.schema["description"]}.')
    return value.lower()


def document(request: webob.Request, schema: Mapping[str, Any]) -> Any:
    """Returns the body of a request. Raises BadRequest if it does not match the schema."""
    if not request.body:
        raise errors.BadRequest('This request needs a body, in JSON.')
    kind = request.content_type or 'application/json'
    if not re.fullmatch(r'application/([\w.-]+\+)?json', kind, re.IGNORECASE):
        raise errors.UnsupportedMediaType(kind=kind[:64])
    try:
        parsed = json.loads(
            request.body,
            object_pairs_hook=_unique,
            parse_int=_number,
            parse_constant=_no_such_number,
        )
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
    """Returns the query parameters, each converted to its type. Raises BadRequest if they do not
    match the schema."""
    known = schema['properties']
    if unknown := sorted(set(given) - set(known)):
        raise errors.BadRequest(
            f'Unknown query parameter: {_short(unknown)}; '
            f'{"known are: " + ", ".join(sorted(known)) if known else "none is known here"}.'
        )
    parameters = {}
    for name, value in given.items():
        if name in parameters:
            raise errors.BadRequest(
                f'Query parameter {name} is given twice; put several values into one, with '
                f'commas, where a list is taken.'
            )
        parameters[name] = _typed(value, known[name])
    _refuse_unstorable(parameters)
    check(parameters, schema, 'The query')
    return parameters


def _typed(text: str, schema: Mapping[str, Any]) -> str | int | bool:
    """Returns a parameter converted to the type of its schema, or unchanged if that is
    impossible."""
    match schema.get('type'):
        case 'integer' if re.fullmatch('[0-9]{1,10}', text):
            return int(text)
        case 'boolean':
            return {'true': True, 'false': False}.get(text.lower(), text)
    return text


def check(value: Any, schema: Mapping[str, Any], what: str) -> None:
    """Raises BadRequest with a sentence about the first error."""
    error = jsonschema.exceptions.best_match(VALIDATOR(schema).iter_errors(value))
    if error is not None:
        steps = list(error.absolute_path)
        if 'propertyNames' in error.absolute_schema_path:
            steps.append(error.instance)
        where = '/'.join(str(step)[:64] for step in steps)
        raise errors.BadRequest(f'{f"{what}: {where}" if where else what} {_why(error)}.')


def _why(error: Any) -> str:
    """Returns a description of an error, which follows the name of the value in the sentence."""
    explain = REASONS.get(error.validator)
    why = explain(error) if explain else None
    return why or f'is not as expected: {error.message[:200]}'


def _wrong_type(error: Any) -> str:
    expected = error.validator_value
    kinds = [expected] if isinstance(expected, str) else expected
    return f'must be {" or ".join(TYPES[kind] for kind in kinds)}'


def _missing(error: Any) -> str:
    missing = [name for name in error.validator_value if name not in error.instance]
    return f'must have {_short(missing)}'


def _not_among(error: Any) -> str:
    return f'must be one of {", ".join(error.validator_value)}, not {str(error.instance)[:64]}'


def _no_match(error: Any) -> str | None:
    words = error.schema.get('description')
    return words and f'must be {words}'


def _unknown_keys(error: Any) -> str | None:
    if not isinstance(error.instance, dict):
        return None
    known = error.schema.get('properties', {})
    unknown = sorted(set(error.instance) - set(known))
    return f'must not have {_short(unknown)}; known are: {", ".join(known)}'


def _empty(error: Any) -> str:
    return 'must not be empty'


#: keyword of JSON Schema: the description of its error; None: the message of the library is used
REASONS: dict[str, Callable[[Any], str | None]] = {
    'type': _wrong_type,
    'required': _missing,
    'enum': _not_among,
    'pattern': _no_match,
    'minItems': _empty,
    'minProperties': _empty,
    'minLength': _empty,
    'maxItems': lambda error: f'must not have more than {error.validator_value} items',
    'uniqueItems': lambda error: 'must not have an item twice',
    'maxLength': lambda error: f'must not be longer than {error.validator_value} characters',
    'minimum': lambda error: f'must be at least {error.validator_value}',
    'maximum': lambda error: f'must be at most {error.validator_value}',
    'additionalProperties': _unknown_keys,
    'not': lambda error: error.schema.get('description', 'is not known'),
}


def _short(names: Iterable[str]) -> str:
    return ', '.join(names)[:200]


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f'{name[:64]} occurs twice')
        found[name] = value
    return found


def _number(text: str) -> int:
    # the message of Python would explain how to change its own limit
    if len(text) > LONGEST_NUMBER:
        raise ValueError(f'a number has more than {LONGEST_NUMBER} digits')
    return int(text)


def _no_such_number(name: str) -> None:
    raise ValueError(f'{name} is not a number')


def _refuse_unstorable(value: Any) -> None:
    """Raises BadRequest for characters that not every database can store."""
    match value:
        case str():
            if errors.UNSTORABLE.search(value):
                raise errors.BadRequest(
                    'Text must not hold NUL characters or halves of surrogate pairs.'
                )
        case dict():
            for name, item in value.items():
                _refuse_unstorable(name)
                _refuse_unstorable(item)
        case list():
            for item in value:
                _refuse_unstorable(item)
