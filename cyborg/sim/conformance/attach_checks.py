# SPDX-License-Identifier: Apache-2.0
"""Checks of attach and detach: repeated, concurrent, and interrupted."""

import concurrent.futures
import uuid
from collections.abc import Mapping
from typing import Any

from cyborg import objects
from cyborg.accelerator.driver import Driver
from cyborg.sim.conformance.discovery_checks import identities
from cyborg.sim.conformance.intercepted_sysfs import (
    checked_permissions,
    interruptions,
    refusals,
)
from cyborg.sim.conformance.testbed import CheckFailed, Checks, CheckSkipped, Testbed, handles


def _task(
    device: objects.Device, part: objects.Deployable, handle: objects.AttachHandle, number: int = 1
) -> objects.Task:
    """Return the task that the conductor would send, in which the handle has a uuid."""
    stored = objects.AttachHandle(
        uuid=str(uuid.UUID(int=number, version=4)),
        key=handle.key,
        type=handle.type,
        info=handle.info,
        is_host_prepared=handle.is_host_prepared,
    )
    return objects.Task(
        uuid=str(uuid.UUID(int=number + 3)),
        kind=objects.TaskKind.PREPARE,
        generation=1,
        deployable_uuid=str(uuid.UUID(int=number + 4)),
        handle=stored,
        driver_name=device.driver_name,
        device_key=device.key,
        deployable_name=part.name,
        arq_uuid=str(uuid.UUID(int=number + 1)),
        instance_uuid=str(uuid.UUID(int=number + 2)),
        group={},
    )


def prepared(testbed: Testbed) -> list[objects.Task]:
    """Return one task per model and resource class: the driver treats the others alike."""
    found: dict[Any, objects.Task] = {}
    for device, part, handle in handles(testbed.discover().values()):
        if handle.is_host_prepared:
            found.setdefault(
                (device.model, part.resource_class, handle.type), _task(device, part, handle)
            )
    if not found:
        raise CheckSkipped('no handle needs preparation by the host')
    return list(found.values())


def is_idempotent(testbed: Testbed) -> None:
    """Attaching and detaching can be repeated, and leave nothing behind."""
    before = testbed.snapshot()
    for task in prepared(testbed):
        testbed.driver().detach(task.handle)  # never attached
        if testbed.snapshot() != before:
            raise CheckFailed(f'detaching {task.handle.key} changed what was never attached')
        driver = testbed.driver()
        driver.attach(task.handle, task)
        during = testbed.snapshot()
        if during == before:
            raise CheckFailed(
                f'attaching {task.handle.key} of {task.deployable_name}, which the host '
                'must prepare, changed nothing'
            )
        for each in (driver, testbed.driver()):
            each.attach(task.handle, task)
            if testbed.snapshot() != during:
                raise CheckFailed(f'attaching {task.handle.key} again changed something')
        for each in (driver, driver, testbed.driver()):
            each.detach(task.handle)
            _expect(testbed, before, f'detaching {task.handle.key}')


def keeps_names_in_use(testbed: Testbed) -> None:
    """A handle that is in use is found under the same name."""
    for task in prepared(testbed):
        expected = identities(testbed.discover().values())
        testbed.driver().attach(task.handle, task)
        present = identities(testbed.discover().values())
        testbed.driver().detach(task.handle)
        if lost := expected - present:
            raise CheckFailed(
                f'{" ".join(sorted(lost)[0])} was not found while {task.handle.key} '
                f'of {task.deployable_name} was in use'
            )


def attaches_all_handles(testbed: Testbed) -> None:
    """All handles of a deployable can be attached at once, in any order, by several threads."""
    before = testbed.snapshot()
    prepared(testbed)
    for device in testbed.discover().values():
        for part in device.deployables:
            tasks = [
                _task(device, part, handle, 1000 * number)
                for number, handle in enumerate(part.attach_handles, 1)
                if handle.is_host_prepared
            ]
            driver = testbed.driver()
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                done = [pool.submit(driver.attach, task.handle, task) for task in reversed(tasks)]
                errors = [each.exception() for each in done if each.exception()]
                concurrent.futures.wait([pool.submit(driver.detach, task.handle) for task in tasks])
            if errors:
                raise CheckFailed(
                    f'{len(errors)} of {len(tasks)} handles of {part.name} could not '
                    f'be attached at once: {errors[0]}'
                )
            _expect(testbed, before, f'detaching all of {part.name}')


def survives_interruption(testbed: Testbed) -> None:
    """Attaching or detaching that was interrupted at any step is completed by repeating it."""
    before = testbed.snapshot()
    for task in prepared(testbed):

        def attach(driver: Driver, task: objects.Task = task) -> None:
            driver.attach(task.handle, task)

        def detach(driver: Driver, task: objects.Task = task) -> None:
            driver.detach(task.handle)

        attach(testbed.driver())
        during = testbed.snapshot()
        detach(testbed.driver())
        for when in interruptions(testbed, attach):
            attach(testbed.driver())
            _expect(testbed, during, f'attaching {task.handle.key}, which was interrupted {when},')
            detach(testbed.driver())
            _expect(
                testbed, before, f'detaching {task.handle.key} after an attach interrupted {when}'
            )
        for _ in interruptions(testbed, attach):  # given up instead of completed
            detach(testbed.driver())
            _expect(testbed, before, f'detaching {task.handle.key}, partly attached,')
        attach(testbed.driver())
        for when in interruptions(testbed, detach):
            detach(testbed.driver())
            _expect(testbed, before, f'detaching {task.handle.key}, which was interrupted {when},')
            attach(testbed.driver())
        detach(testbed.driver())


def reports_refused_writes(testbed: Testbed) -> None:
    """A write that the kernel refuses raises DriverFailed, and attaching can be tried again."""
    before = testbed.snapshot()
    for task in prepared(testbed):

        def attach(driver: Driver, task: objects.Task = task) -> None:
            driver.attach(task.handle, task)

        for _ in refusals(testbed, attach):
            attach(testbed.driver())
            testbed.driver().detach(task.handle)
            _expect(testbed, before, f'detaching {task.handle.key} after a refused write')


def declares_privileges(testbed: Testbed) -> None:
    """The driver declares what it writes and runs, which a privileged daemon may do for it."""
    sysfs, undeclared = checked_permissions(testbed)
    for task in prepared(testbed):
        driver = testbed.driver(sysfs)
        driver.attach(task.handle, task)
        driver.detach(task.handle)
    if undeclared:
        raise CheckFailed(f'it {undeclared[0]} without declaring it')


def _expect(testbed: Testbed, expected: Mapping[str, str], what: str) -> None:
    present = testbed.snapshot()
    if present != expected:
        changed = set(present.items()) ^ set(expected.items())
        raise CheckFailed(f'{what} left an unexpected state: {sorted(changed)[0][0]}')


ATTACH_CHECKS = Checks(
    is_idempotent,
    keeps_names_in_use,
    attaches_all_handles,
    survives_interruption,
    reports_refused_writes,
    declares_privileges,
)
