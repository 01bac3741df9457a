# SPDX-License-Identifier: Apache-2.0
"""Checks of the steps that clean handles. They erase data, so they run on simulated hosts only."""

import dataclasses
import uuid
from collections.abc import Sequence
from typing import Any

from cyborg import errors, objects
from cyborg.accelerator import cleaning, pci
from cyborg.accelerator.driver import Driver
from cyborg.sim.conformance.intercepted_sysfs import (
    checked_permissions,
    interruptions,
    refusals,
)
from cyborg.sim.conformance.testbed import (
    CheckFailed,
    Checks,
    CheckSkipped,
    Testbed,
    comparable,
    handles,
)

#: What guests leave, and the step that removes it.
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


def _cases(testbed: Testbed) -> list[Case]:
    """Return one handle per model and resource class: the driver treats the others alike."""
    found: dict[Any, Case] = {}
    driver = testbed.driver(testbed.host.sysfs)
    for device, part, handle in handles(testbed.discover().values()):
        stored = objects.AttachHandle(
            uuid=str(uuid.UUID(int=1, version=4)),
            key=handle.key,
            type=handle.type,
            info=handle.info,
            is_host_prepared=handle.is_host_prepared,
        )
        # BLANK loads an image of the operator, and with it changes the device
        if steps := [step for step in driver.steps_for(stored) if step is not cleaning.BLANK]:
            found.setdefault(
                (device.model, part.resource_class, handle.type), Case(stored, part.name, steps)
            )
    if not found:
        raise CheckSkipped('the driver has no steps that clean its handles')
    return list(found.values())


def _discovered(testbed: Testbed) -> dict[str, Any]:
    return {key: comparable(device) for key, device in testbed.discover().items()}


def _expect(testbed: Testbed, before: dict[str, Any], what: str) -> None:
    after = _discovered(testbed)
    if changed := [key for key in before if before[key] != after.get(key)]:
        raise CheckFailed(f'{what} changed the device {changed[0]}')


def declares_steps(testbed: Testbed) -> None:
    """The steps of a handle are declared and have different names."""
    for case in _cases(testbed):
        names = [step.name for step in case.steps]
        declared = (*testbed.driver().clean_steps, cleaning.REMOVE)
        if undeclared := [step.name for step in case.steps if step not in declared]:
            raise CheckFailed(f'{undeclared[0]} is not among its clean_steps')
        if len(set(names)) < len(names):
            raise CheckFailed(
                f'{case.handle.key} has two steps with the same name: {", ".join(names)}'
            )


def cleaning_is_idempotent(testbed: Testbed) -> None:
    """Cleaning steps can be repeated, and do not change the device."""
    before = _discovered(testbed)
    for case in _cases(testbed):
        case.clean(testbed.driver())
        _expect(testbed, before, f'cleaning {case.handle.key}')
        driver = testbed.driver()
        for step in case.steps:
            for _ in range(2):
                driver.clean(case.handle, step.name, case.deployable)
        _expect(testbed, before, f'cleaning {case.handle.key} again')


def removes_guest_data(testbed: Testbed) -> None:
    """Cleaning removes what a guest wrote to registers, or to a disk that can be formatted."""
    for case in _cases(testbed):
        _have_guest_use(testbed, case)
        case.clean(testbed.driver())
        _require_no_traces(testbed, case, 'after all steps')


def _have_guest_use(testbed: Testbed, case: Case) -> None:
    if cleaning.RESET in case.steps and case.address:
        testbed.host.have_guest_use(case.address)


def _require_no_traces(testbed: Testbed, case: Case, when: str) -> None:
    wanted = tuple(kind for kind, step in TRACES.items() if step in case.steps)
    if case.address and wanted:
        left = [each for each in testbed.host.traces(case.address) if each.startswith(wanted)]
        if left:
            raise CheckFailed(f'a guest left its {", ".join(left)} on {case.address} {when}')


def survives_interrupted_cleaning(testbed: Testbed) -> None:
    """Cleaning that was interrupted at any step is completed by repeating it."""
    before = _discovered(testbed)
    for case in _cases(testbed):
        for when in interruptions(testbed, case.clean):
            case.clean(testbed.driver())
            _expect(testbed, before, f'cleaning {case.handle.key}, which was interrupted {when},')


def reports_failed_steps(testbed: Testbed) -> None:
    """A step that the kernel or a tool refuses raises DriverFailed, and can be tried again."""
    for case in _cases(testbed):
        _have_guest_use(testbed, case)
        case.clean(testbed.driver())
        before = _discovered(testbed)  # without a formatting step, guest data stays on a disk

        def use_and_clean(driver: Driver, case: Case = case) -> None:
            _have_guest_use(testbed, case)
            case.clean(driver)

        for number, is_reported in refusals(testbed, use_and_clean):
            if not is_reported:
                _require_no_traces(
                    testbed, case, f'although no error was raised when step {number} was refused'
                )
            case.clean(testbed.driver())
            _expect(testbed, before, f'cleaning {case.handle.key} after a refusal')


def declares_cleaning_privileges(testbed: Testbed) -> None:
    """The driver declares what it writes and runs for cleaning."""
    sysfs, undeclared = checked_permissions(testbed)
    for case in _cases(testbed):
        case.clean(testbed.driver(sysfs))
    if undeclared:
        raise CheckFailed(f'it {undeclared[0]} without declaring it')


def reports_missing_cards(testbed: Testbed) -> None:
    """Cleaning a missing card raises DriverFailed, unless nothing remains to be cleaned."""
    for case in _cases(testbed):
        if case.address not in testbed.host.cards or cleaning.REMOVE in case.steps:
            continue
        testbed.host.pull_out(case.address)
        try:
            case.clean(testbed.driver())
        except errors.DriverFailed:
            continue
        except Exception as error:
            raise CheckFailed(
                f'cleaning {case.handle.key} of a missing card raised {error!r}'
            ) from error
        raise CheckFailed(f'cleaning {case.handle.key} of a missing card raised no error')


CLEANING_CHECKS = Checks(
    declares_steps,
    cleaning_is_idempotent,
    removes_guest_data,
    survives_interrupted_cleaning,
    reports_failed_steps,
    declares_cleaning_privileges,
    reports_missing_cards,
    last=[removes_guest_data, reports_missing_cards],
)
