# SPDX-License-Identifier: Apache-2.0
"""Runs checks: a testbed provides a host and new drivers on it; a check gives a result."""

import contextlib
import copy
import dataclasses
import os
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from oslo_config import cfg

from cyborg import objects
from cyborg.accelerator import driver
from cyborg.accelerator.driver import Driver
from cyborg.accelerator.sysfs import Sysfs
from cyborg.sim.bus import Facts
from cyborg.sim.host import Host
from cyborg.sim.recorder import bound_drivers
from cyborg.sim.tree import scratch_directory

NOWHERE = '/nonexistent'
MakeDriver = Callable[[Sysfs], Driver]


def by_name(name: str, conf: cfg.ConfigOpts) -> MakeDriver:
    """Return a function that creates drivers of this name."""
    [first] = driver.load([name], conf, Sysfs(NOWHERE))
    return lambda sysfs: type(first)(conf, sysfs)


class CheckFailed(Exception):
    """The driver does not meet a requirement; the message is for its author."""


class CheckSkipped(Exception):
    """The requirement cannot be checked here; the message says why."""


@dataclasses.dataclass(frozen=True)
class Check:
    """A requirement and the function that checks it."""

    requirement: str
    function: Callable[['Testbed'], None]
    is_last: bool  #: the host cannot be used for another check afterwards


@dataclasses.dataclass(frozen=True)
class Result:
    """The result of a check."""

    requirement: str
    failure: str | None = None
    skipped: str | None = None

    def __str__(self) -> str:
        if self.failure is not None:
            return f'FAIL  {self.requirement}: {self.failure}.'
        return (
            f'ok    {self.requirement}'
            if self.skipped is None
            else (f'skip  {self.requirement}: {self.skipped}.')
        )


class Checks(tuple[Check, ...]):
    """Checks made of functions; the first line of a docstring is the requirement."""

    def __new__(
        cls,
        *functions: Callable[['Testbed'], None],
        last: Iterable[Callable[['Testbed'], None]] = (),
    ) -> 'Checks':
        return super().__new__(
            cls,
            (
                Check((each.__doc__ or '').splitlines()[0].rstrip('.'), each, each in last)
                for each in functions
            ),
        )


class Testbed:
    """A host, and a function that creates drivers for it."""

    def __init__(
        self, make: MakeDriver, sysfs: Sysfs, host: Host | None = None, facts: Facts | None = None
    ) -> None:
        self._make = make
        self.sysfs = sysfs
        self._host = host
        self._facts = facts or {}

    @property
    def host(self) -> Host:
        if self._host is None:
            raise CheckSkipped('it needs a simulated host')
        return self._host

    @property
    def facts(self) -> Facts:
        """A copy of the description of the simulated host."""
        return copy.deepcopy(self._facts)

    def driver(self, sysfs: Sysfs | None = None) -> Driver:
        """Create a driver, as after a restart of the agent."""
        return self._make(sysfs or self.sysfs)

    def discover(self, sysfs: Sysfs | None = None) -> dict[str, objects.Device]:
        """Return the devices that a new driver finds, by key."""
        return {device.key: device for device in self.driver(sysfs).discover()}

    def snapshot(self) -> Mapping[str, str]:
        """Return the state of everything that a driver might change."""
        if self._host is None:
            return bound_drivers(self.sysfs)
        return _read_files(self._host.sysfs.path)


def _read_files(root: Path) -> dict[str, str]:
    """Return every file, link and directory, without the arbitrary numbers of IOMMU groups."""
    found = {}
    for directory, inner, files in os.walk(root):
        here = Path(directory)
        if here == root:
            inner[:] = [each for each in inner if each not in ('kernel', '.scratch')]
        for name in (*inner, *files):
            path = here / name
            if name == 'iommu_group':
                content = ''
            elif path.is_symlink():
                content = os.readlink(path)
            else:
                content = '' if path.is_dir() else path.read_bytes().decode(errors='replace')
            found[str(path.relative_to(root))] = content
    return found


def comparable(device: objects.Device) -> Any:
    """Return the serialized device without the order in which its fields were set."""

    def strip(part: Any) -> Any:
        if isinstance(part, dict):
            return {
                key: strip(value) for key, value in part.items() if key != 'cyborg_object.changes'
            }
        return [strip(each) for each in part] if isinstance(part, list) else part

    return strip(device.obj_to_primitive())


def handles(
    devices: Iterable[objects.Device],
) -> Iterator[tuple[objects.Device, objects.Deployable, objects.AttachHandle]]:
    """Yield all handles, each with its device and deployable."""
    for device in devices:
        for deployable in device.deployables:
            for handle in deployable.attach_handles:
                yield device, deployable, handle


MakeTestbed = Callable[[], contextlib.AbstractContextManager[Testbed]]


def on_simulated_host(make: MakeDriver, facts: Facts) -> MakeTestbed:
    """Return a function that creates a testbed with a new simulated host."""

    @contextlib.contextmanager
    def testbed() -> Iterator[Testbed]:
        with scratch_directory() as directory:
            host = Host.described(directory / 'sys', facts)
            yield Testbed(make, host.sysfs, host, facts)

    return testbed


def on_real_host(make: MakeDriver, sysfs: Sysfs) -> MakeTestbed:
    """Return a function that creates a testbed on an existing host."""
    return lambda: contextlib.nullcontext(Testbed(make, sysfs))


def run(make_testbed: MakeTestbed, checks: Iterable[Check]) -> Iterator[Result]:
    """Run the checks in turn; a new host follows a failure, or a check that breaks its host."""
    with contextlib.ExitStack() as stack:
        testbed: Testbed | None = None
        for check in checks:
            testbed = testbed or stack.enter_context(make_testbed())
            result = _try(check, testbed)
            yield result
            if result.failure is not None or check.is_last:
                stack.close()
                testbed = None


def _try(check: Check, testbed: Testbed) -> Result:
    try:
        check.function(testbed)
    except CheckSkipped as reason:
        return Result(check.requirement, skipped=str(reason))
    except CheckFailed as failure:
        return Result(check.requirement, failure=str(failure))
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return Result(
            check.requirement,
            failure=f'{error!r} was raised, in {where.filename}, line {where.lineno}',
        )
    return Result(check.requirement)
