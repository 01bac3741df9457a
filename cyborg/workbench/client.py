# SPDX-License-Identifier: Apache-2.0
"""Calls the control interface of a running standalone."""

import pathlib
from typing import Any

import requests

from cyborg import errors
from cyborg.workbench import state_directory

#: seconds; a reboot stops and starts an agent
TIMEOUT = 300


def perform(directory: pathlib.Path, operation: str, **arguments: Any) -> dict[str, Any]:
    """Have the standalone of a directory perform an operation; returns what it answers. Raises
    ConfigError if none runs, and Conflict with its sentence if it refuses."""
    url = f'{state_directory.running_url(directory)}/control/{operation}'
    given = {name: value for name, value in arguments.items() if value is not None}
    session = requests.Session()
    session.trust_env = False  # a proxy does not reach this machine's own address
    try:
        response = session.post(url, json=given, timeout=TIMEOUT)
        answer: dict[str, Any] = response.json()
    except (requests.RequestException, ValueError) as error:
        raise errors.Unavailable(f'The cyborg-standalone of {directory} failed: {error}') from error
    if not response.ok:
        raise errors.Conflict(str(answer.get('error', response.reason)))
    return answer
