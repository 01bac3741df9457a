# SPDX-License-Identifier: Apache-2.0
"""Where a driver is tried: a host, fresh drivers on it, and what a check came to."""

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
from cyborg.sim.recorder import names
from cyborg.sim.tree import scratch_directory

NOWHERE = '/nonexistent'
MakeDriver = Callable[[Sysfs], Driver]


def by_name(name: str, conf: cfg.ConfigOpts) -> MakeDriver:
    """For drivers of a name, which is looked up once."""
    [first] = driver.load([name], conf, Sysfs(NOWHERE))
    return lambda sysfs: type(first)(conf, sysfs)


class Failed(Exception):
    """A promise that is not kept, in a sentence for the author of the driver."""


class Skipped(Exception):
    """Why a promise cannot be tried here."""


@dataclasses.dataclass(frozen=True)
class Check:
    """One promise."""

    promise: str
    function: Callable[['Bench'], None]
    is_last: bool  #: the host is not fit for another one afterwards


@dataclasses.dataclass(frozen=True)
class Result:
    """What became of a check."""

    promise: str
    failure: str | None = None
    skipped: str | None = None

    def __str__(self) -> str:
        if self.failure is not None:
            return f'FAIL  {self.promise}: {self.failure}.'
        return f'ok    {self.promise}' if self.skipped is None else (
            f'skip  {self.promise}: {self.skipped}.')


class Checks(tuple[Check, ...]):
    """Made of functions whose first line of documentation is the promise they try."""

    def __new__(cls, *functions: Callable[['Bench'], None],
                last: Iterable[Callable[['Bench'], None]] = ()) -> 'Checks':
        return super().__new__(cls, (
            Check((each.__doc__ or '').splitlines()[0].rstrip('.'), each, each in last)
            for each in functions))


class Bench:
    """A host and a way to make drivers for it."""

    def __init__(self, make: MakeDriver, sysfs: Sysfs, host: Host | None = None,
                 facts: Facts | None = None) -> None:
        self._make = make
        self.sysfs = sysfs
        self._host = host
        self._facts = facts or {}

    @property
    def host(self) -> Host:
        if self._host is None:
            raise Skipped('it needs a simulated host')
        return self._host

    @property
    def facts(self) -> Facts:
        """What the simulated host was made from; the caller's own."""
        return copy.deepcopy(self._facts)

    def driver(self, sysfs: Sysfs | None = None) -> Driver:
        """A new one, as after a restart of the agent."""
        return self._make(sysfs or self.sysfs)

    def discover(self, sysfs: Sysfs | None = None) -> dict[str, objects.Device]:
        """What a new driver finds, by key."""
        return {device.key: device for device in self.driver(sysfs).discover()}

    def picture(self) -> Mapping[str, str]:
        """All that a driver might have changed."""
        if self._host is None:
            return names(self.sysfs)
        return snapshot(self._host.sysfs.path)


def snapshot(root: Path) -> dict[str, str]:
    """Every file, link and directory, but for numbers that the kernel gives out as it likes."""
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


def plain(device: objects.Device) -> Any:
    """A device as it travels, but for the order in which its fields were set."""
    def strip(part: Any) -> Any:
        if isinstance(part, dict):
            return {key: strip(value) for key, value in part.items()
                    if key != 'cyborg_object.changes'}
        return [strip(each) for each in part] if isinstance(part, list) else part
    return strip(device.obj_to_primitive())


def handles(devices: Iterable[objects.Device]) -> Iterator[
        tuple[objects.Device, objects.Deployable, objects.AttachHandle]]:
    """All handles, and where they belong."""
    for device in devices:
        for deployable in device.deployables:
            for handle in deployable.attach_handles:
                yield device, deployable, handle


Benches = Callable[[], contextlib.AbstractContextManager[Bench]]


def simulated(make: MakeDriver, facts: Facts) -> Benches:
    """Benches with a new simulated host each."""
    @contextlib.contextmanager
    def bench() -> Iterator[Bench]:
        with scratch_directory() as directory:
            host = Host.described(directory / 'sys', facts)
            yield Bench(make, host.sysfs, host, facts)
    return bench


def on_real(make: MakeDriver, sysfs: Sysfs) -> Benches:
    """Benches on one host that is there."""
    return lambda: contextlib.nullcontext(Bench(make, sysfs))


def run(benches: Benches, checks: Iterable[Check]) -> Iterator[Result]:
    """Try one promise after the other, on another host after one that was broken."""
    with contextlib.ExitStack() as stack:
        bench = None
        for check in checks:
            bench = bench or stack.enter_context(benches())
            result = _try(check, bench)
            yield result
            if result.failure is not None or check.is_last:
                bench = stack.close()


def _try(check: Check, bench: Bench) -> Result:
    try:
        check.function(bench)
    except Skipped as reason:
        return Result(check.promise, skipped=str(reason))
    except Failed as failure:
        return Result(check.promise, failure=str(failure))
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return Result(check.promise, failure=f'{error!r} was raised, in {where.filename}, '
                                             f'line {where.lineno}')
    return Result(check.promise)
