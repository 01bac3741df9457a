# SPDX-License-Identifier: Apache-2.0
"""Statements and messages of each operation: they do not vary from run to run."""

import uuid
from collections.abc import Callable, Iterator
from typing import Any

from tools.bench import filling
from tools.bench.figures import Figure
from tools.bench.scale import Scale
from tools.bench.sites import HOST, PROFILE, Site

NAME = 'counts'
PATH = '/accelerator_requests'
COUNTED = {'statements': 'statements', 'calls': 'RPC calls', 'casts': 'RPC casts'}


def measure(site: Site, scale: Scale) -> Iterator[Figure]:
    """Each operation once, among as many things as the scale has."""
    with filling.Filling(site.database) as rows:
        rows.grow(max(scale.devices))
        for name, operate in _operations(site):
            with site.counted() as counts:
                operate()
            for key, words in COUNTED.items():
                yield Figure(NAME, words, '1', counts[key], {'operation': name})


def _operations(site: Site) -> Iterator[tuple[str, Callable[[], Any]]]:
    """A life, then what is looked at; each is done before the next is asked for."""
    instance, made = str(uuid.uuid4()), []
    yield 'create', lambda: made.extend(
        site.ask('POST', PATH, {'device_profile_name': PROFILE})['arqs'])
    yield 'bind', lambda: site.ask('PATCH', PATH, {made[0]['uuid']: [
        {'op': 'add', 'path': '/hostname', 'value': HOST},
        {'op': 'add', 'path': '/device_rp_uuid', 'value': site.providers[0]},
        {'op': 'add', 'path': '/instance_uuid', 'value': instance}]})
    yield 'read by instance', lambda: site.ask('GET', f'{PATH}?instance={instance}')
    yield 'delete', lambda: site.ask('DELETE', f'{PATH}?instance={instance}')
    for noun in ('devices', 'deployables', 'accelerator_requests', 'device_profiles', 'agents'):
        yield f'list {noun}', lambda noun=noun: site.ask('GET', f'/{noun}?limit=1000')
