# SPDX-License-Identifier: Apache-2.0
"""The cards that can be simulated: data/catalogue.yaml, by PCI id."""

import copy
import functools
from importlib import resources
from typing import Any

import yaml

from cyborg.sim.bus import Facts


def load(name: str) -> Any:
    """A description that comes with the simulator."""
    return yaml.safe_load(resources.files('cyborg.sim').joinpath('data', name).read_text())


@functools.cache
def _cards() -> dict[str, Facts]:
    return load('catalogue.yaml')


def models() -> dict[str, str]:
    """What there is: PCI id -> name."""
    return {model: facts['name'] for model, facts in _cards().items()}


def card(model: str) -> Facts:
    """A card's facts, the caller's own. An id that is not in the catalogue is a plain card
    of that id, of no class anybody looks for."""
    vendor, _, device = model.lower().partition(':')
    plain = {'name': f'Card {model}', 'class': 'ff0000'}
    return copy.deepcopy(_cards().get(model.lower(), plain)) | {
        'vendor': vendor, 'device': device}
