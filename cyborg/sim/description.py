# SPDX-License-Identifier: Apache-2.0
"""Reads and validates the descriptions of hosts."""

from pathlib import Path
from typing import Any

import jsonschema
import yaml

from cyborg import errors
from cyborg.sim import catalogue

DEMO = 'demo-host.yaml'
#: The copy of its description that a tree contains.
KEPT = '.scratch/description.yaml'

_ADDRESS = {'type': 'string', 'pattern': r'^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$'}
_ID = {'type': 'string', 'pattern': '^[0-9a-f]{4}$'}
_COUNT = {'type': 'integer', 'minimum': 0}
_PATHS = {'propertyNames': {'pattern': r'^(?!/)(?!(.*/)?\.\.(/|$)).+$'}}
_SRIOV = {
    'type': 'object',
    'required': ['total'],
    'properties': {
        'total': _COUNT,
        'enabled': _COUNT,
        'offset': _COUNT,
        'stride': _COUNT,
        'vf': {
            'type': 'object',
            'required': ['device'],
            'properties': {'device': _ID, 'driver': {'type': ['string', 'null']}},
        },
    },
    'if': {'properties': {'total': {'minimum': 1}}},
    'then': {'required': ['offset', 'vf']},
}
_RESET = {
    'type': ['boolean', 'object'],
    'additionalProperties': False,
    'properties': {
        'error': {'type': 'string', 'pattern': '^E[A-Z0-9]+$'},
        'silences': {'type': 'boolean'},
        'counts': {'enum': ['fatal', 'nonfatal', 'correctable']},
    },
}
_CARD = {
    'type': 'object',
    'required': ['at'],
    # a card of the catalogue, or one that is described completely
    'oneOf': [{'required': ['model']}, {'required': ['vendor', 'device', 'class']}],
    'properties': {
        'at': _ADDRESS,
        'vendor': _ID,
        'device': _ID,
        'model': {'type': 'string', 'pattern': '^[0-9a-f]{4}:[0-9a-f]{4}$'},
        'subsystem': {'type': 'string', 'pattern': '^[0-9a-f]{4}:[0-9a-f]{4}$'},
        'class': {'type': 'string', 'pattern': '^[0-9a-f]{6}$'},
        'revision': {'type': 'string', 'pattern': '^[0-9a-f]{2}$'},
        'name': {'type': 'string'},
        'driver': {'type': ['string', 'null']},
        'numa_node': {'type': 'integer'},
        'iommu': {'type': 'boolean'},
        'vfs': _COUNT,
        'vfs_by_rule': {'type': 'boolean'},
        'sriov': _SRIOV,
        'reset': _RESET,
        'attributes': {'type': 'object'} | _PATHS,
    },
}
SCHEMA = {
    'type': 'object',
    'additionalProperties': False,
    'properties': {
        'cards': {'type': 'array', 'items': _CARD},
        'spares': {'type': 'object', 'additionalProperties': _CARD},
        'groups': {'type': 'object', 'propertyNames': _ADDRESS, 'additionalProperties': _COUNT},
        'bound': {
            'type': 'object',
            'propertyNames': _ADDRESS,
            'additionalProperties': {'type': ['string', 'null']},
        },
        'mediated': {
            'type': 'object',
            'additionalProperties': {
                'type': 'object',
                'required': ['at', 'type'],
                'additionalProperties': False,
                'properties': {'at': _ADDRESS, 'type': {'type': 'string'}},
            },
        },
        'files': {'type': 'object', 'additionalProperties': {'type': ['string', 'null']}} | _PATHS,
        'links': {'type': 'object', 'additionalProperties': {'type': 'string'}} | _PATHS,
        'tools': {
            'type': 'object',
            'propertyNames': {'pattern': '^[A-Za-z0-9][A-Za-z0-9._-]*$'},
            'additionalProperties': {'type': 'string'},
        },
    },
}


def load(source: Path | str | None = None) -> dict[str, Any]:
    """Return the description in a file or of a tree; by default that of the demo's host."""
    if source is None:
        facts: dict[str, Any] = catalogue.load(DEMO)
        return facts
    path = Path(source)
    if path.is_dir():
        if not (path / KEPT).is_file():
            raise errors.ConfigError(
                why=f'{path} was not built by cyborg-sim; use cyborg-sim record to describe it.'
            )
        path = path / KEPT
    try:
        return check(yaml.safe_load(path.read_text()))
    except yaml.YAMLError as error:
        mark = getattr(error, 'problem_mark', None)
        where = f' in line {mark.line + 1}' if mark else ''
        problem = getattr(error, 'problem', None) or 'unreadable characters'
        raise errors.ConfigError(why=f'{source} is not YAML{where}: {problem}.') from error
    except OSError as error:
        raise errors.ConfigError(why=f'{source} cannot be read: {error.strerror}.') from error
    except ValueError as error:
        raise errors.ConfigError(why=f'{source} describes no host: {error}.') from error


def check(facts: Any) -> dict[str, Any]:
    """Return the description if it is valid; raises ValueError."""
    if not isinstance(facts, dict):
        raise ValueError('it has no cards')
    checker = jsonschema.Draft202012Validator(SCHEMA)
    error = jsonschema.exceptions.best_match(checker.iter_errors(facts))
    if error is not None:
        place = '.'.join(map(str, error.absolute_path))
        raise ValueError(f'{place}: {error.message}' if place else error.message)
    return facts
