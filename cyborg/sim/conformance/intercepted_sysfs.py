# SPDX-License-Identifier: Apache-2.0
"""Copies of a host's sysfs that interrupt, refuse or check what a driver writes and runs.

Each write to a file and each command is one step. The steps of an operation are numbered from 1.
"""

import copy
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from cyborg import errors
from cyborg.accelerator.driver import Driver
from cyborg.accelerator.sysfs import Sysfs, Writer
from cyborg.sim.conformance.testbed import CheckFailed, Testbed

#: An operation that takes more steps is taken for an endless loop.
MOST_STEPS = 100

Operation = Callable[[Driver], None]
Perform = Callable[[], str]
Step = Callable[[int, Perform], str]  #: called with the step's number and what performs it


class Interrupted(BaseException):
    """The agent ends in the middle of an operation."""


def interruptions(testbed: Testbed, operation: Operation) -> Iterator[str]:
    """Repeat an operation and interrupt it before and after its first step, its second step and
    so on. Yields a description of each interruption."""
    for number in range(1, MOST_STEPS):
        for moment in ('before', 'after'):

            def step(
                present: int, perform: Perform, number: int = number, moment: str = moment
            ) -> str:
                if present > number or (present == number and moment == 'before'):
                    raise Interrupted
                output = perform()
                if present == number:
                    raise Interrupted
                return output

            sysfs, steps = _intercept_steps(testbed.sysfs, step)
            try:
                operation(testbed.driver(sysfs))
            except Interrupted:
                yield f'{moment} step {number} ({steps[number - 1]})'
            else:
                return
    raise CheckFailed(f'it takes more than {MOST_STEPS} steps')


def refusals(testbed: Testbed, operation: Operation) -> Iterator[tuple[int, bool]]:
    """Repeat an operation whose first step, second step and so on fails with EIO. Yields the
    number of the step, and whether the driver raised DriverFailed."""
    for number in range(1, MOST_STEPS):

        def step(present: int, perform: Perform, number: int = number) -> str:
            if present == number:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return perform()

        sysfs, steps = _intercept_steps(testbed.sysfs, step)
        is_reported = False
        try:
            operation(testbed.driver(sysfs))
        except errors.DriverFailed as error:
            is_reported = True
            if not error.faultstring.strip():
                raise CheckFailed('DriverFailed has no message') from error
        except Exception as error:
            raise CheckFailed(f'EIO when {steps[-1]} came out as {error!r}') from error
        yield number, is_reported
        if len(steps) < number:
            return


def checked_permissions(testbed: Testbed) -> tuple[Sysfs, list[str]]:
    """Return the same host, and a list that collects the writes and commands which the driver
    does not declare."""
    declaring = testbed.driver()
    undeclared: list[str] = []

    def write(path: Path, text: str) -> None:
        if not declaring.may_write(Path(os.path.realpath(path)), text):
            undeclared.append(f'writes {path.relative_to(testbed.sysfs.path)}')
        testbed.sysfs.writer(path, text)

    def run(*command: str) -> str:
        if not declaring.may_run(command):
            undeclared.append(f'runs {" ".join(command)}')
        return testbed.sysfs.run(*command)

    return _replace(testbed.sysfs, write, run), undeclared


def _intercept_steps(sysfs: Sysfs, step: Step) -> tuple[Sysfs, list[str]]:
    """Return the same host with every step passed to ``step``, and a list that describes them."""
    steps: list[str] = []

    def write(path: Path, text: str) -> None:
        def perform() -> str:
            sysfs.writer(path, text)
            return ''

        steps.append(f'writing {text!r} to {path.name}')
        step(len(steps), perform)

    def run(*command: str) -> str:
        steps.append(f'running {" ".join(command)}')
        return step(len(steps), lambda: sysfs.run(*command))

    return _replace(sysfs, write, run), steps


def _replace(sysfs: Sysfs, write: Writer, run: Callable[..., str]) -> Sysfs:
    """Return the same host with other functions that write files and run commands."""
    replaced = copy.copy(sysfs)
    replaced.host = replaced
    replaced.writer = write
    replaced.run = run  # type: ignore[method-assign]
    return replaced
