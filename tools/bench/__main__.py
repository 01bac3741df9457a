# SPDX-License-Identifier: Apache-2.0
"""Measure, print, store and compare with the last run."""

import argparse
import pathlib
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tools.bench import (
    agent_rounds,
    availability,
    heartbeats,
    hotplug,
    html_report,
    life,
    lists,
    operation_counts,
    results,
    start,
    targets,
    text_report,
)
from tools.bench.children import ROOT
from tools.bench.figures import Figure, compare
from tools.bench.scale import FULL, QUICK, Scale
from tools.bench.sites import Embedded, Site

RESULTS = ROOT / 'bench-results'


@dataclass(frozen=True)
class Measurement:
    """A measurement that can be selected by its name."""

    name: str
    measure: Callable[[Site, Scale], Iterator[Figure]]
    #: the sites on which it can run
    sites: tuple[str, ...] = ('embedded', 'services')


MEASUREMENTS = (
    Measurement('life', life.measure),
    Measurement('lists', lists.measure),
    Measurement('availability', availability.measure),
    Measurement('report', agent_rounds.measure),
    Measurement('counts', operation_counts.measure, sites=('embedded',)),
    Measurement('hotplug', hotplug.measure, sites=('embedded',)),
    Measurement('fleet', heartbeats.measure, sites=('services',)),
    Measurement('start', start.measure),
)


def measure(site: Site, scale: Scale, names: Sequence[str]) -> list[Figure]:
    """Return the figures of the selected measurements."""
    figures: list[Figure] = []
    for each in MEASUREMENTS:
        if each.name in names and site.name in each.sites:
            began = time.monotonic()
            try:
                figures.extend(each.measure(site, scale))
            except Exception:  # a failure must not lose hours of other measurements
                traceback.print_exc()
            print(f'{each.name}: {time.monotonic() - began:.0f} s', file=sys.stderr)
    return figures


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parse(arguments)
    with options.site() as site:
        figures = measure(site, QUICK if options.quick else FULL, options.only)
    run = results.Run.now(site.name, 'quick' if options.quick else 'full', figures)
    before = results.last(options.results, run.site, run.scale)
    changes = compare(before.figures, figures) if before is not None else []
    path = run.save(options.results)
    path.with_suffix('.html').write_text(html_report.render(run, before, changes))
    print(f'{run.title}\n{text_report.render(figures)}')
    if before is not None:
        print(f'\nCompared with {before.title}:\n{text_report.render_changes(changes)}')
    print(f'\nTargets:\n{text_report.render_verdicts(targets.judge(figures))}')
    print(f'\n{path}\n{path.with_suffix(".html")}')
    return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    names = [each.name for each in MEASUREMENTS]

    def chosen(text: str) -> list[str]:
        asked = text.split(',')
        if unknown := set(asked) - set(names):
            raise argparse.ArgumentTypeError(
                f'{", ".join(sorted(unknown))}: none of {", ".join(names)}'
            )
        return asked

    parser = argparse.ArgumentParser(prog='python -m tools.bench', description=__doc__)
    parser.add_argument(
        '--services',
        dest='site',
        action='store_const',
        default=Embedded,
        const=_services,
        help='measure on RabbitMQ, MariaDB and Keystone instead of in one process',
    )
    parser.add_argument('--quick', action='store_true', help='measure less; takes about a minute')
    parser.add_argument(
        '--only',
        metavar='NAME,...',
        type=chosen,
        default=names,
        help=f'some of: {", ".join(names)}',
    )
    parser.add_argument(
        '--results',
        metavar='DIR',
        type=pathlib.Path,
        default=RESULTS,
        help='the directory of stored runs',
    )
    return parser.parse_args(arguments)


def _services() -> Site:
    from tools.bench.deployed_site import Services

    return Services()


if __name__ == '__main__':
    sys.exit(main())
