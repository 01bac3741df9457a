# SPDX-License-Identifier: Apache-2.0
"""Promises about attach and detach: repeated, all at a time, cut off anywhere."""

import concurrent.futures
import copy
import errno
import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from cyborg import errors, objects
from cyborg.accelerator.driver import Driver
from cyborg.accelerator.sysfs import Sysfs, Writer
from cyborg.sim.conformance.bench import Bench, Checks, Failed, Skipped, handles
from cyborg.sim.conformance.looking import identities

#: No driver needs so many steps; one that does not come to an end is stopped here.
MOST_STEPS = 100

Verb = Callable[[Driver], None]
Act = Callable[[], str]
Step = Callable[[int, Act], str]  #: called with the step's number and what it does


class Cut(BaseException):
    """The agent ends in the middle of something."""


def _work(device: objects.Device, part: objects.Deployable, handle: objects.AttachHandle,
          number: int = 1) -> objects.Task:
    """As the conductor asks for it: the handle has a uuid by then."""
    stored = objects.AttachHandle(
        uuid=str(uuid.UUID(int=number, version=4)), key=handle.key, type=handle.type,
        info=handle.info, is_host_prepared=handle.is_host_prepared)
    return objects.Task(
        uuid=str(uuid.UUID(int=number + 3)), kind=objects.TaskKind.PREPARE, generation=1,
        deployable_uuid=str(uuid.UUID(int=number + 4)), handle=stored,
        driver_name=device.driver_name,
        device_key=device.key, deployable_name=part.name, arq_uuid=str(uuid.UUID(int=number + 1)),
        instance_uuid=str(uuid.UUID(int=number + 2)), group={})


def prepared(bench: Bench) -> list[objects.Task]:
    """One a model and resource class is enough: the others are the same to the driver."""
    found = {}
    for device, part, handle in handles(bench.discover().values()):
        if handle.is_host_prepared:
            found.setdefault((device.model, part.resource_class, handle.type),
                             _work(device, part, handle))
    if not found:
        raise Skipped('the host has nothing to prepare for its handles')
    return list(found.values())


def can_be_repeated(bench: Bench) -> None:
    """Attaching and detaching can be repeated, and leave nothing behind."""
    before = bench.picture()
    for work in prepared(bench):
        bench.driver().detach(work.handle)  # never attached
        if bench.picture() != before:
            raise Failed(f'detaching {work.handle.key} changed what was never attached')
        driver = bench.driver()
        driver.attach(work.handle, work)
        during = bench.picture()
        if during == before:
            raise Failed(f'attaching {work.handle.key} of {work.deployable_name}, which the host '
                         'must prepare, changed nothing')
        for each in (driver, bench.driver()):
            each.attach(work.handle, work)
            if bench.picture() != during:
                raise Failed(f'attaching {work.handle.key} again changed something')
        for each in (driver, driver, bench.driver()):
            each.detach(work.handle)
            _expect(bench, before, f'detaching {work.handle.key}')


def keeps_names(bench: Bench) -> None:
    """A handle that is in use is found under the same name."""
    for work in prepared(bench):
        expected = identities(bench.discover().values())
        bench.driver().attach(work.handle, work)
        present = identities(bench.discover().values())
        bench.driver().detach(work.handle)
        if lost := expected - present:
            raise Failed(f'{" ".join(sorted(lost)[0])} was not found while {work.handle.key} '
                         f'of {work.deployable_name} was in use')


def keeps_its_word(bench: Bench) -> None:
    """All handles of a deployable can be had at a time, in any order, by several threads."""
    before = bench.picture()
    prepared(bench)
    for device in bench.discover().values():
        for part in device.deployables:
            works = [_work(device, part, handle, 1000 * number) for number, handle
                     in enumerate(part.attach_handles, 1) if handle.is_host_prepared]
            driver = bench.driver()
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                done = [pool.submit(driver.attach, work.handle, work) for work in reversed(works)]
                refusals = [each.exception() for each in done if each.exception()]
                concurrent.futures.wait(
                    [pool.submit(driver.detach, work.handle) for work in works])
            if refusals:
                raise Failed(f'{len(refusals)} of {len(works)} handles of {part.name} could not '
                             f'be had when all were: {refusals[0]}')
            _expect(bench, before, f'detaching all of {part.name}')


def survives_cuts(bench: Bench) -> None:
    """Attaching or detaching that was cut off anywhere is completed by repeating it."""
    before = bench.picture()
    for work in prepared(bench):
        def attach(driver: Driver, work: objects.Task = work) -> None:
            driver.attach(work.handle, work)

        def detach(driver: Driver, work: objects.Task = work) -> None:
            driver.detach(work.handle)
        attach(bench.driver())
        during = bench.picture()
        detach(bench.driver())
        for when in cuts(bench, attach):
            attach(bench.driver())
            _expect(bench, during, f'attaching {work.handle.key}, which was cut off {when},')
            detach(bench.driver())
            _expect(bench, before, f'detaching {work.handle.key} after an attach cut off {when}')
        for _ in cuts(bench, attach):  # given up instead of completed
            detach(bench.driver())
            _expect(bench, before, f'detaching {work.handle.key}, half attached,')
        attach(bench.driver())
        for when in cuts(bench, detach):
            detach(bench.driver())
            _expect(bench, before, f'detaching {work.handle.key}, which was cut off {when},')
            attach(bench.driver())
        detach(bench.driver())


def cuts(bench: Bench, verb: Verb) -> Iterator[str]:
    """Do it again and again, cut off before and after its first step, its second…"""
    for number in range(1, MOST_STEPS):
        for moment in ('before', 'after'):
            def step(present: int, act: Act, number: int = number, moment: str = moment) -> str:
                if present > number or (present == number and moment == 'before'):
                    raise Cut
                said = act()
                if present == number:
                    raise Cut
                return said
            sysfs, steps = stepped(bench.sysfs, step)
            try:
                verb(bench.driver(sysfs))
            except Cut:
                yield f'{moment} step {number} ({steps[number - 1]})'
            else:
                return
    raise Failed(f'it takes more than {MOST_STEPS} steps')


def tells_refusals(bench: Bench) -> None:
    """A write that the kernel refuses is told as DriverFailed, and can be tried again."""
    before = bench.picture()
    for work in prepared(bench):
        for number in range(1, MOST_STEPS):
            def step(present: int, act: Act, number: int = number) -> str:
                if present == number:
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
                return act()
            sysfs, steps = stepped(bench.sysfs, step)
            try:
                bench.driver(sysfs).attach(work.handle, work)
            except errors.DriverFailed as told:
                if not told.faultstring.strip():
                    raise Failed('DriverFailed has no sentence') from told
            except Exception as error:
                raise Failed(f'EIO when {steps[-1]} came out as {error!r}') from error
            bench.driver().attach(work.handle, work)
            bench.driver().detach(work.handle)
            _expect(bench, before, f'detaching {work.handle.key} after a refused write')
            if len(steps) < number:
                break


def declares_its_deeds(bench: Bench) -> None:
    """What it writes and runs is declared, so that root does it for an agent that is not root."""
    sysfs, undeclared = judged(bench)
    for work in prepared(bench):
        driver = bench.driver(sysfs)
        driver.attach(work.handle, work)
        driver.detach(work.handle)
    if undeclared:
        raise Failed(f'it {undeclared[0]}, which it does not declare')


def judged(bench: Bench) -> tuple[Sysfs, list[str]]:
    """The same host, and a list of what is done on it that the driver does not declare."""
    judge = bench.driver()
    undeclared: list[str] = []

    def write(path: Path, text: str) -> None:
        if not judge.may_write(Path(os.path.realpath(path)), text):
            undeclared.append(f'writes {path.relative_to(bench.sysfs.path)}')
        bench.sysfs.writer(path, text)

    def run(*command: str) -> str:
        if not judge.may_run(command):
            undeclared.append(f'runs {" ".join(command)}')
        return bench.sysfs.run(*command)
    return _acting(bench.sysfs, write, run), undeclared


def stepped(sysfs: Sysfs, step: Step) -> tuple[Sysfs, list[str]]:
    """The same host, on which each change is a step that may go wrong; and what they were."""
    steps: list[str] = []

    def write(path: Path, text: str) -> None:
        def act() -> str:
            sysfs.writer(path, text)
            return ''
        steps.append(f'writing {text!r} to {path.name}')
        step(len(steps), act)

    def run(*command: str) -> str:
        steps.append(f'running {" ".join(command)}')
        return step(len(steps), lambda: sysfs.run(*command))
    return _acting(sysfs, write, run), steps


def _acting(sysfs: Sysfs, write: Writer, run: Callable[..., str]) -> Sysfs:
    """The same host, on which changes are made by others."""
    acting = copy.copy(sysfs)
    acting.host = acting
    acting.writer = write
    acting.run = run  # type: ignore[method-assign]
    return acting


def _expect(bench: Bench, expected: Mapping[str, str], what: str) -> None:
    present = bench.picture()
    if present != expected:
        changed = set(present.items()) ^ set(expected.items())
        raise Failed(f'{what} left something else than expected: {sorted(changed)[0][0]}')


SERVING = Checks(can_be_repeated, keeps_names, keeps_its_word, survives_cuts, tells_refusals,
                 declares_its_deeds)
