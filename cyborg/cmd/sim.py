# SPDX-License-Identifier: Apache-2.0
"""Build, record and mount simulated hosts, check drivers on them, and change the hosts of a
cyborg-standalone that runs."""

import argparse
import pathlib
import sys
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import stevedore
import yaml
from oslo_config import cfg

from cyborg import conf as our_conf
from cyborg import errors
from cyborg.accelerator import driver, pci
from cyborg.accelerator.sysfs import Sysfs
from cyborg.sim import Host, conformance, description, fpga_tools, namespace, recorder
from cyborg.sim.bus import Facts
from cyborg.workbench import client

HEADER = """\
# SPDX-License-Identifier: Apache-2.0
# Recorded by cyborg-sim: the files that drivers read on a host{serials}.
"""


def build(options: argparse.Namespace) -> int:
    """Build the tree of a described host."""
    host = Host.described(options.directory, options.description)
    cards = ', '.join(host.cards.values()) or 'no card'
    print(f'{options.directory} is the sysfs of a host with {cards}.')
    return 0


def record(options: argparse.Namespace) -> int:
    """Record the files that drivers read, as a description or as a tree."""
    sysfs = _sysfs(options.root)
    facts = recorder.record(
        sysfs, list(_drivers(_configure(options.config_file), sysfs)), options.with_serials
    )
    note = '' if options.with_serials else '; serial numbers are replaced'
    text = HEADER.format(serials=note) + yaml.safe_dump(facts, sort_keys=False, width=99)
    if str(options.destination) == '-':
        print(text, end='')
    elif options.destination.suffix in ('.yaml', '.yml'):
        options.destination.write_text(text)
    else:
        Host.described(options.destination, facts)
    return 0


def check(options: argparse.Namespace) -> int:
    """Check a driver and print a line for each check; returns 1 if one fails."""
    is_configured = options.config_file or options.description or options.root
    with conformance.sample('' if is_configured else options.driver) as sample:
        files = options.config_file
        if sample:
            files = [str(sample.options)]
            print('The driver is checked with sample options and cards of cyborg-sim.')
        make = conformance.by_name(options.driver, _configure(files))
        return _check(options.driver, make, (sample and sample.facts) or _host(options, make))


def _host(options: argparse.Namespace, make: conformance.MakeDriver) -> Facts:
    """Return the description of the host on which a driver is checked."""
    if options.root:
        sysfs = _sysfs(options.root)
        return recorder.record(sysfs, [make(sysfs)], with_serials=True)
    if options.description:
        return description.load(options.description)
    return conformance.default_host(make)


def _check(name: str, make: conformance.MakeDriver, facts: Facts) -> int:
    failed = skipped = 0
    for result in conformance.run(conformance.on_simulated_host(make, facts), conformance.CHECKS):
        failed += result.failure is not None
        skipped += result.skipped is not None
        print(result, flush=True)
    performed = len(conformance.CHECKS) - skipped
    outcome = f'fails {failed} of {performed}' if failed else f'passes all {performed}'
    print(f'{name} {outcome} checks that were performed; {skipped} were skipped.')
    return 1 if failed else 0


def mount(options: argparse.Namespace) -> int:
    """Run a command with the described host as its /sys."""
    description.load(options.description)  # a mistake in the description is reported first
    if why := namespace.why_not():
        raise errors.ConfigError(why=why)
    namespace.enter(options.description.absolute(), options.run)


def image(options: argparse.Namespace) -> int:
    """Make an image that simulated FPGAs load."""
    options.file.write_bytes(fpga_tools.gbs(options.region_type, options.functions))
    print(
        f'{options.file} is an image for regions of type {options.region_type}, with '
        f'{", ".join(options.functions)}.'
    )
    return 0


def plug(options: argparse.Namespace) -> int:
    """Plug a card into a host of a running standalone."""
    return _perform(options, card=options.card, at=options.at)


def pull(options: argparse.Namespace) -> int:
    """Pull a card out of a host of a running standalone."""
    return _perform(options, at=options.at)


def fault(options: argparse.Namespace) -> int:
    """Cause a fault of a card of a running standalone, or remove it."""
    return _perform(options, at=options.at, kind=options.kind)


def reboot(options: argparse.Namespace) -> int:
    """Reboot a host of a running standalone."""
    return _perform(options)


def _perform(options: argparse.Namespace, **arguments: str | None) -> int:
    done = client.perform(
        options.state_dir.absolute(), options.command, hostname=options.host, **arguments
    )
    print(done['sentence'])
    return 0


def _sysfs(root: str) -> Sysfs:
    sysfs = Sysfs(root)
    if not sysfs.has(pci.DEVICES):
        raise errors.ConfigError(why=f'{root} is not a sysfs: it has no {pci.DEVICES}.')
    return sysfs


def _drivers(conf: cfg.ConfigOpts, sysfs: Sysfs) -> Iterator[driver.Driver]:
    """Yield the installed drivers that can be loaded."""
    for name in sorted(stevedore.ExtensionManager(driver.NAMESPACE).entry_points_names()):
        try:
            yield from driver.load([name], conf, sysfs)
        except errors.CyborgError as error:
            print(f'Skipped: {error.faultstring}', file=sys.stderr)


def _configure(files: Sequence[str]) -> cfg.ConfigOpts:
    conf = cfg.ConfigOpts()
    our_conf.register(conf)
    conf(
        [word for file in files for word in ('--config-file', file)],
        project='cyborg',
        default_config_files=[],
        default_config_dirs=[],
    )
    return conf


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog='cyborg-sim', description=__doc__)
    commands = parser.add_subparsers(dest='command', required=True)
    tree = commands.add_parser('build', help='build the tree of a described host')
    tree.set_defaults(function=build)
    tree.add_argument(
        'description',
        metavar='DESCRIPTION',
        type=pathlib.Path,
        help='a YAML file, or a tree that was built or recorded',
    )
    tree.add_argument(
        'directory',
        metavar='DIR',
        type=pathlib.Path,
        help='a new or empty directory, or one that this command built',
    )
    recording = commands.add_parser('record', help='record the files that drivers read on a host')
    recording.set_defaults(function=record)
    recording.add_argument(
        'destination',
        metavar='FILE|DIR',
        type=pathlib.Path,
        help='a description if the name ends with .yaml or is - (standard output); '
        'otherwise a directory for the tree',
    )
    recording.add_argument(
        '--root', default='/sys', help='the sysfs to record; default: %(default)s'
    )
    recording.add_argument(
        '--with-serials',
        action='store_true',
        help='keep serial numbers, which are replaced otherwise',
    )
    trial = commands.add_parser('check', help='check a driver on a simulated host')
    trial.set_defaults(function=check)
    trial.add_argument('driver', metavar='DRIVER', help='its name in [agent] enabled_drivers')
    where = trial.add_mutually_exclusive_group()
    where.add_argument(
        '--description',
        metavar='FILE',
        type=pathlib.Path,
        help="the host for the checks; default: one with the cards of the driver's "
        'catalogue, and sample options if the driver needs any',
    )
    where.add_argument('--root', metavar='DIR', help='a sysfs that is copied for the checks')
    mounting = commands.add_parser(
        'mount',
        help='run a command with a simulated /sys',
        usage='%(prog)s [-h] DESCRIPTION -- COMMAND ...',
    )
    mounting.set_defaults(function=mount)
    mounting.add_argument('description', metavar='DESCRIPTION', type=pathlib.Path)
    mounting.add_argument('run', metavar='COMMAND', nargs='+')
    _add_image(commands)
    _add_standalone_commands(commands)
    for each in (recording, trial):
        each.add_argument(
            '--config-file',
            metavar='FILE',
            action='append',
            default=[],
            help='options of drivers; may be repeated',
        )
    return parser


def _add_image(commands: Any) -> None:
    making = commands.add_parser('image', help='make an image that simulated Intel FPGAs load')
    making.set_defaults(function=image)
    making.add_argument('file', metavar='FILE', type=pathlib.Path)
    making.add_argument(
        '--region-type',
        metavar='UUID',
        type=_uuid,
        required=True,
        help='the type of the region, as in its trait CUSTOM_FPGA_INTEL_REGION_<UUID>',
    )
    making.add_argument(
        '--function',
        dest='functions',
        metavar='UUID',
        type=_uuid,
        action='append',
        required=True,
        help='a function of the image; may be repeated if the region has several ports',
    )


def _uuid(text: str) -> str:
    """Returns a uuid as cards spell it; the trait of a region has it in capitals, with ``_``."""
    try:
        return str(uuid.UUID(text.replace('_', '-')))
    except ValueError:
        raise argparse.ArgumentTypeError(f'{text} is not a uuid') from None


def _add_standalone_commands(commands: Any) -> None:
    """Add the commands that change a host of a running standalone."""
    plugging = commands.add_parser('plug', help='plug a card into a running standalone')
    plugging.set_defaults(function=plug)
    plugging.add_argument(
        'card',
        metavar='CARD',
        help='the name of a spare card of the host, or a PCI id of the catalogue ("10de:1eb8")',
    )
    plugging.add_argument(
        '--at', metavar='ADDRESS', help='the slot; default: that of the spare card, or a free one'
    )
    pulling = commands.add_parser('pull', help='pull a card out of a running standalone')
    pulling.set_defaults(function=pull)
    failing = commands.add_parser('fault', help='cause a fault of a card of a running standalone')
    failing.set_defaults(function=fault)
    for each in (pulling, failing):
        each.add_argument('at', metavar='ADDRESS', help='its slot, such as 0000:3b:00.0')
    kind = failing.add_mutually_exclusive_group()
    kind.add_argument(
        '--silent',
        dest='kind',
        action='store_const',
        const='silent',
        help='it no longer answers; default: it had a fatal PCI error',
    )
    kind.add_argument(
        '--clear', dest='kind', action='store_const', const='none', help='remove the fault'
    )
    rebooting = commands.add_parser('reboot', help='reboot a host of a running standalone')
    rebooting.set_defaults(function=reboot)
    for each in (plugging, pulling, failing, rebooting):
        each.add_argument('--host', metavar='NAME', help='needed if there are several hosts')
        each.add_argument(
            '--state-dir',
            type=pathlib.Path,
            default='cyborg-standalone',
            help='the directory of the standalone; default: %(default)s',
        )


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
