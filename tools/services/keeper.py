# SPDX-License-Identifier: Apache-2.0
"""Owns one directory and every process that works in it, and outlives the process that started it.

A process of its own, so that the end of the tests, regular or by SIGKILL, is the same event to it:
its standard input closes; it then ends all its descendants and removes the directory. Being a
subreaper it stays the ancestor even of daemons (epmd) that try to slip away.

Orders and answers are lines of JSON: ``["end", {"by": 15}]``, ``{"result": null}``.
"""

import contextlib
import ctypes
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
from typing import Any

PR_SET_CHILD_SUBREAPER = 36
#: Seconds that a server has to end before it is killed.
PATIENCE = 120


class Keeper:
    """Starts and ends the server of one directory and its helpers."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.directory = directory
        self.server: subprocess.Popen[bytes] | None = None
        self.crash = signal.SIGKILL

    def run(self, argv: list[str], env: dict[str, str], text: str = '') -> int:
        """Run a command to its end; its output goes to the log."""
        with self._log() as log:
            return subprocess.run(
                argv, env=env, input=text.encode(), stdout=log, stderr=log, cwd=self.directory
            ).returncode

    def start(self, argv: list[str], env: dict[str, str], crash: int) -> int:
        """Start the server; `crash` is the signal that ends it abruptly."""
        self.crash = signal.Signals(crash)
        with self._log() as log:
            self.server = subprocess.Popen(
                argv, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.directory
            )
        return self.server.pid

    def is_alive(self) -> bool:
        return self.server is not None and self.server.poll() is None

    def end(self, by: int | None = None) -> None:
        """End the server, abruptly or with the signal `by`, and all its descendants."""
        if self.server is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.server.send_signal(by or self.crash)
                self.server.wait(PATIENCE)
            self.server = None
        # The children of a child that ends become ours, so repeat until there is none.
        with contextlib.suppress(ChildProcessError):
            while True:
                for pid in children_of(os.getpid()):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                os.waitpid(-1, 0)

    def remove(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)

    def _log(self) -> Any:
        return (self.directory / 'log').open('ab')


def children_of(parent: int) -> list[int]:
    """Return the processes whose parent is `parent`."""
    found = []
    for stat in pathlib.Path('/proc').glob('[0-9]*/stat'):
        with contextlib.suppress(OSError):  # it may end meanwhile
            # The name, in brackets, may contain spaces and brackets; state and parent follow it.
            if int(stat.read_text(errors='replace').rpartition(')')[2].split()[1]) == parent:
                found.append(int(stat.parent.name))
    return found


def descendants_of(ancestor: int) -> list[int]:
    """Return the children of a process, their children, and so on."""
    children = children_of(ancestor)
    return children + [each for child in children for each in descendants_of(child)]


def main(directory: str) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # Only closing the input ends this process. Handlers ignore signals, since the servers would
    # inherit SIG_IGN.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    keeper = Keeper(pathlib.Path(directory))
    try:
        for line in sys.stdin:
            order, arguments = json.loads(line)
            if order == 'quit':
                break
            try:
                answer = {'result': getattr(keeper, order)(**arguments)}
            except OSError as error:
                answer = {'error': str(error)}
            with contextlib.suppress(BrokenPipeError):
                print(json.dumps(answer), flush=True)
    finally:
        keeper.end()
        keeper.remove()


if __name__ == '__main__':
    main(sys.argv[1])
