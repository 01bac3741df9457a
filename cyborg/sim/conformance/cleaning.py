# SPDX-License-Identifier: Apache-2.0
"""Promises about the steps by which handles are cleaned. They erase data, so that they are only
tried on a simulated host."""

import dataclasses
import errno
import os
import uuid
from collections.abc import Sequence
from typing import Any

from cyborg import errors, objects
from cyborg.accelerator import cleaning, pci
from cyborg.accelerator.driver import Driver
from cyborg.sim.conformance.bench import Bench, Checks, Failed, Skipped, handles, plain
from cyborg.sim.conformance.serving import MOST_STEPS, Act, cuts, judged, stepped

#: What guests leave, and what takes it away.
TRACES = {'registers': cleaning.RESET, 'namespace': cleaning.FORMAT}


@dataclasses.dataclass(frozen=True)
class Case:
    """A handle that can be cleaned."""

    handle: objects.AttachHandle
    deployable: str
    steps: Sequence[cleaning.Step]

    @property
    def address(self) -> str | None:
        return pci.address_of(self.handle.info)

    def clean(self, driver: Driver) -> None:
        for step in self.steps:
            driver.clean(self.handle, step.name, self.deployable)


def _cases(bench: Bench) -> list[Case]:
    """One a model and resource class is enough: the others are the same to the driver."""
    found: dict[Any, Case] = {}
    driver = bench.host and bench.driver()
    for device, part, handle in handles(bench.discover().values()):
        stored = objects.AttachHandle(
            uuid=str(uuid.UUID(int=1, version=4)), key=handle.key, type=handle.type,
            info=handle.info, is_host_prepared=handle.is_host_prepared)
        if steps := driver.steps_for(stored):
            found.setdefault((device.model, part.resource_class, handle.type),
                             Case(stored, part.name, steps))
    if not found:
        raise Skipped('the driver has no steps to clean its handles')
    return list(found.values())


def _picture(bench: Bench) -> dict[str, Any]:
    return {key: plain(device) for key, device in bench.discover().items()}


def _expect(bench: Bench, before: dict[str, Any], what: str) -> None:
    after = _picture(bench)
    if changed := [key for key in before if before[key] != after.get(key)]:
        raise Failed(f'{what} left the device {changed[0]} otherwise than it was found')


def declares_steps(bench: Bench) -> None:
    """The steps for a handle are declared, under names that differ."""
    for case in _cases(bench):
        names = [step.name for step in case.steps]
        declared = (*bench.driver().clean_steps, cleaning.REMOVE)
        if undeclared := [step.name for step in case.steps if step not in declared]:
            raise Failed(f'{undeclared[0]} is not among its clean_steps')
        if len(set(names)) < len(names):
            raise Failed(f'{case.handle.key} has two steps of one name: {", ".join(names)}')


def can_be_cleaned_again(bench: Bench) -> None:
    """Cleaning steps can be repeated, and leave the device as it was found."""
    before = _picture(bench)
    for case in _cases(bench):
        case.clean(bench.driver())
        _expect(bench, before, f'cleaning {case.handle.key}')
        driver = bench.driver()
        for step in case.steps:
            for _ in range(2):
                driver.clean(case.handle, step.name, case.deployable)
        _expect(bench, before, f'cleaning {case.handle.key} again')


def takes_traces_away(bench: Bench) -> None:
    """What a guest wrote to registers, or to a disk that can be formatted, is gone afterwards."""
    for case in _cases(bench):
        _have_guest_use(bench, case)
        case.clean(bench.driver())
        _require_no_traces(bench, case, 'after all steps')


def _have_guest_use(bench: Bench, case: Case) -> None:
    if cleaning.RESET in case.steps and case.address:
        bench.host.have_guest_use(case.address)


def _require_no_traces(bench: Bench, case: Case, when: str) -> None:
    wanted = tuple(kind for kind, step in TRACES.items() if step in case.steps)
    if case.address and wanted:
        left = [each for each in bench.host.traces(case.address) if each.startswith(wanted)]
        if left:
            raise Failed(f'a guest left its {", ".join(left)} on {case.address} {when}')


def completes_cleaning(bench: Bench) -> None:
    """Cleaning that was cut off anywhere is completed by repeating it."""
    before = _picture(bench)
    for case in _cases(bench):
        for when in cuts(bench, case.clean):
            case.clean(bench.driver())
            _expect(bench, before, f'cleaning {case.handle.key}, which was cut off {when},')


def tells_failed_steps(bench: Bench) -> None:
    """A step that the kernel or a tool refuses is told as DriverFailed, and can be tried again."""
    for case in _cases(bench):
        _have_guest_use(bench, case)
        case.clean(bench.driver())
        before = _picture(bench)  # without a step for it, what a guest left on a disk is there
        for number in range(1, MOST_STEPS):
            def step(present: int, act: Act, number: int = number) -> str:
                if present == number:
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
                return act()
            sysfs, done = stepped(bench.sysfs, step)
            _have_guest_use(bench, case)
            try:
                case.clean(bench.driver(sysfs))
            except errors.DriverFailed as told:
                if not told.faultstring.strip():
                    raise Failed('DriverFailed has no sentence') from told
            except Exception as error:
                raise Failed(f'EIO when {done[-1]} came out as {error!r}') from error
            else:
                _require_no_traces(bench, case, f'and it was not told: step {number} was refused')
            case.clean(bench.driver())
            _expect(bench, before, f'cleaning {case.handle.key} after a refusal')
            if len(done) < number:
                break


def declares_how_it_cleans(bench: Bench) -> None:
    """What it writes and runs to clean is declared, so that root does it."""
    sysfs, undeclared = judged(bench)
    for case in _cases(bench):
        case.clean(bench.driver(sysfs))
    if undeclared:
        raise Failed(f'it {undeclared[0]}, which it does not declare')


def tells_lost_cards(bench: Bench) -> None:
    """To clean a card that is gone is DriverFailed, unless nothing is left to clean with it."""
    for case in _cases(bench):
        if case.address not in bench.host.cards or cleaning.REMOVE in case.steps:
            continue
        bench.host.pull_out(case.address)
        try:
            case.clean(bench.driver())
        except errors.DriverFailed:
            continue
        except Exception as error:
            raise Failed(f'cleaning {case.handle.key} of a card that is gone raised '
                         f'{error!r}') from error
        raise Failed(f'cleaning {case.handle.key} of a card that is gone was no error')


CLEANING = Checks(declares_steps, can_be_cleaned_again, takes_traces_away, completes_cleaning,
                  tells_failed_steps, declares_how_it_cleans, tells_lost_cards,
                  last=[takes_traces_away, tells_lost_cards])
