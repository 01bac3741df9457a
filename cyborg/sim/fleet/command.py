# SPDX-License-Identifier: Apache-2.0
"""``cyborg-sim fleet``: starts the processes, and tells what they do."""

import argparse
import contextlib
import json
import multiprocessing
import queue
import signal
import sys
import time
from collections.abc import Sequence
from typing import Any

from cyborg import errors
from cyborg.sim import usage
from cyborg.sim.fleet import figures, member

#: seconds between two looks whether who should say something still lives
PAUSE = 1.0


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument('--hosts', type=int, required=True, help='how many')
    parser.add_argument('--devices', type=int, default=4, help='of each; default: %(default)s')
    parser.add_argument('--processes', type=int, default=2, help='default: %(default)s')
    parser.add_argument('--period', type=float, default=60,
                        help='seconds between two heartbeats of a host, as [agent] '
                             'resync_interval; default: %(default)s')
    parser.add_argument('--churn', metavar='WHAT=RATE,...', type=_rates, default={},
                        help='what happens a minute, over all hosts: cards, binds')
    parser.add_argument('--duration', type=float, metavar='SECONDS',
                        help='default: until Ctrl-C')
    parser.add_argument('--every', type=float, default=60, metavar='SECONDS',
                        help='between two lines; default: %(default)s')
    parser.add_argument('--conductor-pid', type=int, action='append', default=[], metavar='PID',
                        help='of a conductor on this machine, to see what it takes of a core; '
                             'may be repeated')
    parser.add_argument('--prefix', default='sim', help='of their names; default: %(default)s')
    parser.add_argument('--known', action='store_true',
                        help='conductors know these hosts: begin with heartbeats')
    parser.add_argument('--json', action='store_true', help='lines for programs')


def names(prefix: str, hosts: int) -> list[str]:
    """What the hosts are called."""
    return [f'{prefix}{number}' for number in range(hosts)]


def orders(options: argparse.Namespace) -> list[member.Order]:
    """The hosts and what happens to them, in equal shares."""
    called, processes = names(options.prefix, options.hosts), options.processes
    return [member.Order(
        config_files=options.config_file, names=called[number::processes],
        devices=options.devices, period=options.period, known=options.known,
        cards=options.churn.get('cards', 0) / processes,
        binds=options.churn.get('binds', 0) / processes, every=options.every)
        for number in range(min(processes, options.hosts))]


def run(options: argparse.Namespace) -> int:
    """Start the fleet; a line every so often, until it is told to stop."""
    if not options.config_file:
        raise errors.ConfigError(why='Say with --config-file where the broker is.')
    # a fresh interpreter: a fork would share connections and locks
    fresh = multiprocessing.get_context('spawn')
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends like Ctrl-C
    stopping = fresh.Event()
    parts = [Part(fresh, order, stopping) for order in orders(options)]
    try:
        for part in parts:
            part.hear()
        _tell(options, 'listening', {})
        _watch(options, parts)
    except KeyboardInterrupt:
        print(file=sys.stderr)
    finally:
        stopping.set()
        for part in parts:
            part.end()
    return 0


class Part:
    """A process of the fleet, and what it has to say."""

    def __init__(self, fresh: Any, order: member.Order, stopping: Any) -> None:
        self._told = fresh.Queue()
        self._process = fresh.Process(target=member.main, args=(order, self._told, stopping),
                                      daemon=True)
        self._process.start()

    def hear(self) -> Any:
        """What it says next."""
        while True:
            try:
                return self._told.get(timeout=PAUSE)
            except queue.Empty:
                if not self._process.is_alive():
                    raise errors.ConfigError(
                        why='A process of the fleet has ended; it said why.') from None

    def end(self) -> None:
        """It does not end before it is rid of what it has to say."""
        with contextlib.suppress(errors.ConfigError):
            self.hear()
        self._process.join()


def _watch(options: argparse.Namespace, parts: Sequence[Part]) -> None:
    end = time.monotonic() + options.duration if options.duration else float('inf')
    before, then = _conductor(options), time.monotonic()
    while time.monotonic() < end:
        told = figures.together([part.hear() for part in parts])
        now, spent = time.monotonic(), _conductor(options)
        if options.conductor_pid:
            told['conductor'] = (spent - before) / (now - then)
        told['seconds'] = now - then
        before, then = spent, now
        _tell(options, figures.sentence(told), told)


def _conductor(options: argparse.Namespace) -> float:
    return usage.cpu(pid for each in options.conductor_pid for pid in usage.with_children(each))


def _tell(options: argparse.Namespace, sentence: str, told: dict[str, Any]) -> None:
    if options.json:
        print(json.dumps(told), flush=True)
    else:
        print(f'{time.strftime("%H:%M:%S")} {sentence}', flush=True)


def _rates(text: str) -> dict[str, float]:
    rates = {}
    for part in text.split(','):
        name, _, rate = part.partition('=')
        if name not in ('cards', 'binds'):
            raise argparse.ArgumentTypeError(f'{name} is neither cards nor binds')
        try:
            rates[name] = float(rate)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f'{rate or "nothing"} is no rate') from error
    return rates
