# SPDX-License-Identifier: Apache-2.0
"""What an agent's rounds cost, its report and what it publishes: on a small and a large host."""

from collections.abc import Iterator

from tools.bench.children import Child
from tools.bench.figures import Figure, percentile
from tools.bench.scale import Scale
from tools.bench.sites import Site

NAME = 'report'
COUNTS = {'statements': 'statements', 'calls': 'RPC calls', 'casts': 'RPC casts',
          'placement': 'Placement calls'}


def measure(site: Site, scale: Scale) -> Iterator[Figure]:
    """The rounds of several hosts of each size."""
    with Child('tools.bench.reporting', str(site.directory / 'reporting'),
               log=site.directory / 'reporting.log', environ=site.engines()) as child:
        for size in ('small', 'large'):
            rounds = [child.order('measure', size=size) for _ in range(scale.rounds)]
            for name in rounds[0]:
                at = {'host': size, 'round': name}
                yield Figure(NAME, 'p50', 'ms', 1000 * percentile(
                    [each[name]['seconds'] for each in rounds], 50), at)
                for key, words in COUNTS.items():
                    yield Figure(NAME, words, '1', max(each[name][key] for each in rounds), at)
