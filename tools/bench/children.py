# SPDX-License-Identifier: Apache-2.0
"""Child processes that execute commands, so that the measured code and the measuring code have
separate GILs.

Commands and results are lines of JSON: ``["run", {"seconds": 1}]``, ``{"result": [0.1]}``.
"""

import json
import os
import pathlib
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any, Self

ROOT = pathlib.Path(__file__).parents[2]


class Failed(Exception):
    """A child failed; the message is its traceback."""


class Child:
    """Runs a module in a child process until the ``with`` block ends."""

    def __init__(
        self,
        module: str,
        *arguments: str,
        log: pathlib.Path | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._environ = os.environ | {'PYTHONPATH': str(ROOT)} | (environ or {})
        self._argv = [sys.executable, '-m', module, *arguments]
        self._log = log or pathlib.Path(os.devnull)
        self.hello: Any = None  #: the first result

    def __enter__(self) -> Self:
        with self._log.open('ab') as log:
            self._process = subprocess.Popen(
                self._argv,
                cwd=ROOT,
                env=self._environ,
                text=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        self.pid = self._process.pid
        self.hello = self.receive()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def execute(self, name: str, **arguments: Any) -> Any:
        """Execute a command in the child and return its result."""
        self.send(name, **arguments)
        return self.receive()

    def send(self, name: str, **arguments: Any) -> None:
        """Send a command; ``receive`` waits for its result."""
        self._process.stdin.write(f'{json.dumps([name, arguments])}\n')
        self._process.stdin.flush()

    def receive(self) -> Any:
        line = self._process.stdout.readline()
        if not line:
            raise Failed(f'{" ".join(self._argv[1:])} ended; its log: {self._log}')
        response = json.loads(line)
        if 'error' in response:
            raise Failed(response['error'])
        return response['result']


def serve(commands: Mapping[str, Callable[..., Any]], hello: Any = None) -> None:
    """Execute commands from standard input in the child, until its end."""
    # the output of libraries must not be taken for a result
    output, sys.stdout = sys.stdout, sys.stderr

    def send(**response: Any) -> None:
        print(json.dumps(response), file=output, flush=True)

    send(result=hello)
    for line in sys.stdin:
        name, arguments = json.loads(line)
        try:
            send(result=commands[name](**arguments))
        except Exception:
            send(error=traceback.format_exc())
