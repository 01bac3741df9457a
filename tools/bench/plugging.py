# SPDX-License-Identifier: Apache-2.0
"""From the slot to Placement and back, as figures."""

from collections.abc import Iterator

from tools.bench import hotplug
from tools.bench.figures import Figure
from tools.bench.scale import Scale
from tools.bench.sites import Site

NAME = 'hotplug'


def measure(site: Site, scale: Scale) -> Iterator[Figure]:
    """By each way that can be had here; it brings a cloud of its own."""
    for way, found in hotplug.measure(scale.plugs).items():
        if isinstance(found, dict) and 'skipped' not in found:
            for verb, seconds in found.items():
                for name, value in seconds.items():
                    yield Figure(NAME, f'{verb} {name}', 's', value, {'way': way})
