# SPDX-License-Identifier: Apache-2.0
"""cyborg-sim: simulated hosts, one or thousands, and whether drivers stand them."""

import argparse
import pathlib
import sys
from collections.abc import Iterator, Sequence

import stevedore
import yaml
from oslo_config import cfg

from cyborg import conf as our_conf
from cyborg import errors
from cyborg.accelerator import driver, pci
from cyborg.accelerator.sysfs import Sysfs
from cyborg.sim import Host, conformance, description, namespace, recorder
from cyborg.sim.bus import Facts
from cyborg.sim.fleet import command as fleet

HEADER = """\
# SPDX-License-Identifier: Apache-2.0
# Recorded by cyborg-sim: what drivers look at on a host{serials}.
"""


def build(options: argparse.Namespace) -> int:
    """Make the tree of a described host."""
    host = Host.described(options.directory, options.description)
    cards = ', '.join(host.cards.values()) or 'no card'
    print(f'{options.directory} is the sysfs of a host with {cards}.')
    return 0


def record(options: argparse.Namespace) -> int:
    """Write what drivers look at, as a description or as a tree."""
    sysfs = _sysfs(options.root)
    facts = recorder.record(sysfs, list(_drivers(_configure(options.config_file), sysfs)),
                            options.with_serials)
    told = '' if options.with_serials else '; serial numbers are replaced'
    text = HEADER.format(serials=told) + yaml.safe_dump(facts, sort_keys=False, width=99)
    if str(options.destination) == '-':
        print(text, end='')
    elif options.destination.suffix in ('.yaml', '.yml'):
        options.destination.write_text(text)
    else:
        Host.described(options.destination, facts)
    return 0


def check(options: argparse.Namespace) -> int:
    """Try a driver, one line a promise; 1 if it does not keep them all."""
    is_told = options.config_file or options.description or options.root
    with conformance.sample('' if is_told else options.driver) as sample:
        files = options.config_file
        if sample:
            files = [str(sample.options)]
            print('Tried with options and cards that come with cyborg-sim for this driver.')
        make = conformance.by_name(options.driver, _configure(files))
        return _try(options.driver, make, (sample and sample.facts) or _host(options, make))


def _host(options: argparse.Namespace, make: conformance.MakeDriver) -> Facts:
    """The host on which a driver is to be tried."""
    if options.root:
        sysfs = _sysfs(options.root)
        return recorder.record(sysfs, [make(sysfs)], with_serials=True)
    if options.description:
        return description.load(options.description)
    return conformance.default_host(make)


def _try(name: str, make: conformance.MakeDriver, facts: Facts) -> int:
    failures = 0
    for result in conformance.run(conformance.simulated(make, facts), conformance.CHECKS):
        failures += result.failure is not None
        print(result, flush=True)
    print(f'{name} keeps all promises.' if not failures else
          f'{name} breaks {failures} of {len(conformance.CHECKS)} promises.')
    return 1 if failures else 0


def mount(options: argparse.Namespace) -> int:
    """Run a command that finds the described host as its /sys."""
    description.load(options.description)  # a mistake in it comes first
    if why := namespace.why_not():
        raise errors.ConfigError(why=why)
    namespace.enter(options.description.absolute(), options.run)


def _sysfs(root: str) -> Sysfs:
    sysfs = Sysfs(root)
    if not sysfs.has(pci.DEVICES):
        raise errors.ConfigError(why=f'{root} holds no {pci.DEVICES}: it is no sysfs.')
    return sysfs


def _drivers(conf: cfg.ConfigOpts, sysfs: Sysfs) -> Iterator[driver.Driver]:
    """All that are installed and load."""
    for name in sorted(stevedore.ExtensionManager(driver.NAMESPACE).entry_points_names()):
        try:
            yield from driver.load([name], conf, sysfs)
        except errors.CyborgError as error:
            print(f'Left out: {error.faultstring}', file=sys.stderr)


def _configure(files: Sequence[str]) -> cfg.ConfigOpts:
    conf = cfg.ConfigOpts()
    our_conf.register(conf)
    conf([word for file in files for word in ('--config-file', file)], project='cyborg',
         default_config_files=[], default_config_dirs=[])
    return conf


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog='cyborg-sim', description=__doc__)
    commands = parser.add_subparsers(dest='command', required=True)
    tree = commands.add_parser('build', help='make the tree of a described host')
    tree.set_defaults(function=build)
    tree.add_argument('description', metavar='DESCRIPTION', type=pathlib.Path,
                      help='a YAML file, or a tree that was built or recorded')
    tree.add_argument('directory', metavar='DIR', type=pathlib.Path,
                      help='new, empty, or made by this command')
    recording = commands.add_parser('record', help='write down what drivers look at on a host')
    recording.set_defaults(function=record)
    recording.add_argument('destination', metavar='FILE|DIR', type=pathlib.Path,
                           help='a description if it ends with .yaml, or is - for standard '
                                'output; else a directory for the tree')
    recording.add_argument('--root', default='/sys', help='default: %(default)s')
    recording.add_argument('--with-serials', action='store_true',
                           help='keep serial numbers; else others take their place')
    trial = commands.add_parser('check', help='try whether a driver keeps its promises')
    trial.set_defaults(function=check)
    trial.add_argument('driver', metavar='DRIVER', help='as in [agent] enabled_drivers')
    where = trial.add_mutually_exclusive_group()
    where.add_argument('--description', metavar='FILE', type=pathlib.Path,
                       help='a host for it; default: one with the cards of its catalogue, and '
                            'options if it needs some')
    where.add_argument('--root', metavar='DIR', help='a sysfs, whose copy is the host')
    inside = commands.add_parser(
        'mount', help='run a command with a simulated /sys',
        usage='%(prog)s [-h] DESCRIPTION -- COMMAND ...')
    inside.set_defaults(function=mount)
    inside.add_argument('description', metavar='DESCRIPTION', type=pathlib.Path)
    inside.add_argument('run', metavar='COMMAND', nargs='+')
    many = commands.add_parser('fleet', help='be the agents of many hosts')
    many.set_defaults(function=fleet.run)
    fleet.add_options(many)
    for each in (recording, trial, many):
        each.add_argument('--config-file', metavar='FILE', action='append', default=[],
                          help='options, of drivers or of the broker; may be repeated')
    return parser


def main() -> None:
    options = _parser().parse_args()
    try:
        sys.exit(options.function(options))
    except errors.CyborgError as error:
        why = error.faultstring
    except (cfg.Error, ValueError) as error:
        why = str(error)
    except OSError as error:
        why = f'{error.filename or "A file"}: {error.strerror or error}.'
    sys.exit(f'cyborg-sim: {why}')
