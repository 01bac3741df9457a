# SPDX-License-Identifier: Apache-2.0
"""Reads data/catalogue.yaml, the cards that can be simulated, by PCI id."""

import copy
import functools
from importlib import resources
from typing import Any

import yaml

from cyborg.sim.bus import Facts


def load(name: str) -> Any:
    """Return the content of a YAML file that is installed with the simulator."""
    return yaml.safe_load(resources.files('cyborg.sim').joinpath('data', name).read_text())


@functools.cache
def _cards() -> dict[str, Facts]:
    cards: dict[str, Facts] = load('catalogue.yaml')
    return cards


def models() -> dict[str, str]:
    """Return the names of the cards by PCI id."""
    return {model: facts['name'] for model, facts in _cards().items()}


def card(model: str) -> Facts:
    """Return a copy of a card's facts. An id that is not in the catalogue gives a plain card of
    an unassigned PCI class."""
    vendor, _, device = model.lower().partition(':')
    plain = {'name': f'Card {model}', 'class': 'ff0000'}
    return copy.deepcopy(_cards().get(model.lower(), plain)) | {'vendor': vendor, 'device': device}
