# SPDX-License-Identifier: Apache-2.0
"""Simulate the agents of many hosts: start processes that share them, and print statistics."""

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

from oslo_config import cfg

from cyborg import errors
from tools import process_usage
from tools.fleet import interval_statistics, process

#: seconds between two checks whether a child process that sends nothing is still alive
PAUSE = 1.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the fleet; returns the exit status."""
    options = parse(arguments)
    try:
        return run(options)
    except errors.CyborgError as error:
        print(f'tools.fleet: {error.faultstring}', file=sys.stderr)
    except (cfg.Error, OSError) as error:
        print(f'tools.fleet: {error}', file=sys.stderr)
    return 1


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog='python -m tools.fleet', description=__doc__)
    parser.add_argument(
        '--config-file',
        metavar='FILE',
        action='append',
        required=True,
        help='names the broker, as for the conductor; may be repeated',
    )
    parser.add_argument('--hosts', type=int, required=True, help='number of hosts')
    parser.add_argument(
        '--devices', type=int, default=4, help='number of devices per host; default: %(default)s'
    )
    parser.add_argument(
        '--processes',
        type=int,
        default=2,
        help='number of processes that share the hosts; default: %(default)s',
    )
    parser.add_argument(
        '--period',
        type=float,
        default=60,
        metavar='SECONDS',
        help='between two heartbeats of a host, as [agent] resync_interval; default: %(default)s',
    )
    parser.add_argument(
        '--churn',
        metavar='WHAT=RATE,...',
        type=_rates,
        default={},
        help='changes per minute, over all hosts: cards, binds',
    )
    parser.add_argument(
        '--duration', type=float, metavar='SECONDS', help='default: until Ctrl-C is pressed'
    )
    parser.add_argument(
        '--every',
        type=float,
        default=60,
        metavar='SECONDS',
        help='between two lines of output; default: %(default)s',
    )
    parser.add_argument(
        '--conductor-pid',
        type=int,
        action='append',
        default=[],
        metavar='PID',
        help='a conductor on this machine, whose CPU usage is printed; may be repeated',
    )
    parser.add_argument(
        '--prefix', default='sim', help='prefix of the host names; default: %(default)s'
    )
    parser.add_argument(
        '--known',
        action='store_true',
        help='the conductors know these hosts already: start with heartbeats',
    )
    parser.add_argument('--json', action='store_true', help='print each line as JSON')
    return parser.parse_args(arguments)


def host_names(prefix: str, hosts: int) -> list[str]:
    """Return the names of the hosts."""
    return [f'{prefix}{number}' for number in range(hosts)]


def assignments(options: argparse.Namespace) -> list[process.Assignment]:
    """Divide the hosts and the rates of changes equally among the processes."""
    names, processes = host_names(options.prefix, options.hosts), options.processes
    return [
        process.Assignment(
            config_files=options.config_file,
            names=names[number::processes],
            devices=options.devices,
            period=options.period,
            known=options.known,
            cards=options.churn.get('cards', 0) / processes,
            binds=options.churn.get('binds', 0) / processes,
            every=options.every,
        )
        for number in range(min(processes, options.hosts))
    ]


def run(options: argparse.Namespace) -> int:
    """Start the processes and print their statistics until the time is over or Ctrl-C."""
    # not fork: the children would share connections and locks
    spawning = multiprocessing.get_context('spawn')
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C
    stopping = spawning.Event()
    children = [ChildProcess(spawning, assignment, stopping) for assignment in assignments(options)]
    try:
        for child in children:
            child.receive()
        _print(options, 'listening', {})
        _watch(options, children)
    except KeyboardInterrupt:
        print(file=sys.stderr)
    finally:
        stopping.set()
        for child in children:
            child.end()
    return 0


class ChildProcess:
    """A process of the fleet, and the queue of its statistics."""

    def __init__(self, spawning: Any, assignment: process.Assignment, stopping: Any) -> None:
        self._messages = spawning.Queue()
        self._process = spawning.Process(
            target=process.main, args=(assignment, self._messages, stopping), daemon=True
        )
        self._process.start()

    def receive(self) -> Any:
        """Wait for the next message; raises ConfigError if the process has ended."""
        while True:
            try:
                return self._messages.get(timeout=PAUSE)
            except queue.Empty:
                if not self._process.is_alive():
                    raise errors.ConfigError(
                        why='A process of the fleet has ended; its own output says why.'
                    ) from None

    def end(self) -> None:
        """Wait for the end of the process, which must first empty its queue."""
        with contextlib.suppress(errors.ConfigError):
            self.receive()
        self._process.join()


def _watch(options: argparse.Namespace, children: Sequence[ChildProcess]) -> None:
    end = time.monotonic() + options.duration if options.duration else float('inf')
    before, then = _conductor_cpu(options), time.monotonic()
    while time.monotonic() < end:
        statistics = interval_statistics.combine([child.receive() for child in children])
        now, spent = time.monotonic(), _conductor_cpu(options)
        if options.conductor_pid:
            statistics['conductor'] = (spent - before) / (now - then)
        statistics['seconds'] = now - then
        before, then = spent, now
        _print(options, interval_statistics.render(statistics), statistics)


def _conductor_cpu(options: argparse.Namespace) -> float:
    return process_usage.cpu(
        pid for each in options.conductor_pid for pid in process_usage.with_children(each)
    )


def _print(options: argparse.Namespace, line: str, statistics: dict[str, Any]) -> None:
    if options.json:
        print(json.dumps(statistics), flush=True)
    else:
        print(f'{time.strftime("%H:%M:%S")} {line}', flush=True)


def _rates(text: str) -> dict[str, float]:
    rates = {}
    for entry in text.split(','):
        name, _, rate = entry.partition('=')
        if name not in ('cards', 'binds'):
            raise argparse.ArgumentTypeError(f'{name} is neither cards nor binds')
        try:
            rates[name] = float(rate)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f'{rate or "nothing"} is not a number') from error
    return rates
