# SPDX-License-Identifier: Apache-2.0
"""Processes that take orders: who is measured, and who measures, each have a GIL of their own.

Orders and answers are lines of JSON: ``["run", {"seconds": 1}]``, ``{"result": [0.1]}``.
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
    """What a child could not do, in its own words."""


class Child:
    """A module of ours that runs apart, until the ``with`` block ends."""

    def __init__(self, module: str, *arguments: str, log: pathlib.Path | None = None,
                 environ: Mapping[str, str] | None = None) -> None:
        self._environ = os.environ | {'PYTHONPATH': str(ROOT)} | (environ or {})
        self._argv = [sys.executable, '-m', module, *arguments]
        self._log = log or pathlib.Path(os.devnull)
        self.hello: Any = None  #: what it said first

    def __enter__(self) -> Self:
        with self._log.open('ab') as log:
            self._process = subprocess.Popen(
                self._argv, cwd=ROOT, env=self._environ, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
        self.pid = self._process.pid
        self.hello = self.answer()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def order(self, name: str, **arguments: Any) -> Any:
        """Have something done, and wait for it."""
        self.send(name, **arguments)
        return self.answer()

    def send(self, name: str, **arguments: Any) -> None:
        """Have something done; ``answer`` waits for it."""
        self._process.stdin.write(f'{json.dumps([name, arguments])}\n')
        self._process.stdin.flush()

    def answer(self) -> Any:
        line = self._process.stdout.readline()
        if not line:
            raise Failed(f'{" ".join(self._argv[1:])} ended; its log: {self._log}')
        answer = json.loads(line)
        if 'error' in answer:
            raise Failed(answer['error'])
        return answer['result']


def obey(orders: Mapping[str, Callable[..., Any]], hello: Any = None) -> None:
    """The child's side: do what is ordered until there are no more orders."""
    # what libraries print must not be taken for an answer
    answers, sys.stdout = sys.stdout, sys.stderr

    def say(**answer: Any) -> None:
        print(json.dumps(answer), file=answers, flush=True)

    say(result=hello)
    for line in sys.stdin:
        name, arguments = json.loads(line)
        try:
            say(result=orders[name](**arguments))
        except Exception:
            say(error=traceback.format_exc())
