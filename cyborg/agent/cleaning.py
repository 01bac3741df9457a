# SPDX-License-Identifier: Apache-2.0
"""Cleans what a guest had: the steps that its driver declares, then the operator's scripts."""

import functools
import os
import re
import select
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from oslo_config import cfg
from oslo_log import log

from cyborg import errors, objects
from cyborg.accelerator import cleaning, driver, pci
from cyborg.agent.drivers import Guard
from cyborg.objects import Cleaning

LOG = log.getLogger(__name__)

#: Names of scripts. What editors and packagers leave beside them is none.
SCRIPT = re.compile(r'\d\d-[A-Za-z0-9_.-]+')
LEFT_BEHIND = ('.bak', '.orig', '.swp', '.rpmnew', '.rpmsave', '.rpmorig', '.dpkg-old',
               '.dpkg-new', '.dpkg-dist')
#: What a script finds in its environment beside what it is about.
ENVIRONMENT = {'PATH': '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
               'LANG': 'C.UTF-8'}
LONGEST_OUTPUT = 64 * 1024
LAST_LINES = 5  #: of what a script said are told when it fails
LONGEST_LINE = 200

Act = Callable[[], None]


class Cleaner:
    """Cleans handles of one host as its options, or the task, say."""

    def __init__(self, conf: cfg.ConfigOpts, hostname: str) -> None:
        self._conf = conf.cleaning
        self._hostname = hostname
        self._require_known(conf)

    def level_of(self, driver_name: str, steps: Sequence[cleaning.Step]) -> Cleaning:
        """How handles are cleaned whose driver has these steps for them.

        Where nothing can be done at the configured level, and nothing is required, that is none.
        """
        level = self._level(driver_name)
        if level == Cleaning.NONE or self._is_required(driver_name):
            return level
        has_steps = any(step.is_part_of(level) for step in steps)
        return (level if has_steps or os.path.isdir(self._directory(driver_name))
                else Cleaning.NONE)

    def clean(self, guard: Guard, task: objects.Task) -> list[objects.Step]:
        """Do the steps of the task's level and run the scripts; returns how each ended.

        The first that fails ends it with CleaningFailed, unless cleaning is not required: then
        the failure is noted in the step, and the rest is done, too.
        """
        level = Cleaning(task.cleaning or self._level(guard.name))
        is_required = (self._is_required(guard.name) if task.is_cleaning_required is None
                       else task.is_cleaning_required)
        done: list[objects.Step] = []
        if level == Cleaning.NONE:
            return done
        for name, act in self._acts(guard, task, level):
            step = _timed(name, act)
            done.append(step)
            if step.error is None:
                continue
            if is_required:
                raise _failure(step, done)
            LOG.warning('Handle %s of %s was not cleaned by %s, which is not required: %s',
                        task.handle.uuid, task.device_key, name, step.error)
        if not done and is_required:
            raise errors.CleaningFailed(
                f'Cleaning is required at the level {level}, but the driver {guard.name} has no '
                f'step for this handle, and there is no script in '
                f'{self._directory(guard.name)}.')
        return done

    def versions(self, guard: Guard, task: objects.Task) -> dict[str, str]:
        """What ran on a handle, for the record: of firmware and kernel driver what is told."""
        try:
            return guard.versions(task)
        except errors.CyborgError as error:
            LOG.warning('The versions of %s are not known: %s', task.device_key,
                        error.faultstring)
            return {}

    def _acts(self, guard: Guard, task: objects.Task,
              level: Cleaning) -> Iterator[tuple[str, Act]]:
        for step in guard.steps_for(task.handle):
            # other guests use what else is in the region
            if step.is_part_of(level) and (task.is_alone or step is not cleaning.BLANK):
                yield step.name, functools.partial(self._do, guard, task, step)
        directory = self._directory(guard.name)
        try:
            found = scripts(directory)
        except OSError as error:
            yield directory.name, functools.partial(_refuse, directory, error)
            return
        environment = self._environment(guard.name, task, level)
        for path in found:
            yield f'{directory.name}/{path.name}', functools.partial(
                self._run, path, environment)

    def _do(self, guard: Guard, task: objects.Task, step: cleaning.Step) -> None:
        try:
            guard.clean(task, step.name,
                        task.deployable_name.removeprefix(f'{self._hostname}_'),
                        self._conf.step_timeout)
        except errors.CyborgError as error:
            raise errors.DriverFailed(f'{error.faultstring} It needs {step.needs}.') from error

    def _run(self, path: Path, environment: Mapping[str, str]) -> None:
        _require_safe(path.parent.parent)
        _require_safe(path.parent)
        _require_safe(path)
        run(path, environment, self._conf.script_timeout)

    def _environment(self, driver_name: str, task: objects.Task,
                     level: Cleaning) -> dict[str, str]:
        return ENVIRONMENT | {
            'CYBORG_ADDRESS': pci.address_of(task.handle.info) or '',
            'CYBORG_HANDLE_UUID': task.handle.uuid,
            'CYBORG_DEVICE_KEY': task.device_key,
            'CYBORG_DEPLOYABLE': task.deployable_name,
            'CYBORG_DRIVER': driver_name,
            'CYBORG_ARQ_UUID': task.arq_uuid or '',
            'CYBORG_PROJECT_ID': task.project_id or '',
            'CYBORG_HOST': self._hostname,
            'CYBORG_LEVEL': str(level),
        }

    def _level(self, driver_name: str) -> Cleaning:
        return Cleaning(self._conf.driver_levels.get(driver_name, self._conf.level))

    def _is_required(self, driver_name: str) -> bool:
        return bool(self._conf.driver_required.get(driver_name, self._conf.required))

    def _directory(self, driver_name: str) -> Path:
        return Path(self._conf.scripts_directory) / driver_name

    def _require_known(self, conf: cfg.ConfigOpts) -> None:
        known = driver.names_known() | {*conf.agent.enabled_drivers}
        for option in ('driver_levels', 'driver_required'):
            if unknown := sorted(self._conf[option].keys() - known):
                raise errors.ConfigError(
                    why=f'[cleaning] {option} names {unknown[0]}, which is no driver; known '
                        f'drivers: {", ".join(sorted(known))}.')


def scripts(directory: Path) -> list[Path]:
    """The scripts of a directory, in the order in which they are run; none if it is not there."""
    try:
        names = sorted(os.listdir(directory))
    except FileNotFoundError:
        return []
    return [directory / name for name in names
            if SCRIPT.fullmatch(name) and not name.endswith(LEFT_BEHIND)]


def _refuse(directory: Path, error: OSError) -> None:
    raise errors.CleaningFailed(
        f'{directory} cannot be read: {error.strerror or error}.') from error


def _require_safe(path: Path) -> None:
    """Raise CleaningFailed for what another user may have written."""
    status = os.lstat(path)
    is_script = SCRIPT.fullmatch(path.name) is not None
    wrong = None
    if is_script and not stat.S_ISREG(status.st_mode):
        wrong = 'is not a regular file'
    elif status.st_uid not in (0, os.geteuid()):
        wrong = 'belongs neither to root nor to the user of the agent'
    elif status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        wrong = 'can be written by other users'
    elif is_script and not os.access(path, os.X_OK):
        wrong = 'cannot be executed'
    if wrong:
        raise errors.CleaningFailed(f'{path} {wrong}, so it is not run.')


def run(path: Path, environment: Mapping[str, str], seconds: float) -> None:
    """Run a script to its end. What it leaves running is killed, as it is itself at the limit."""
    with tempfile.TemporaryFile() as output:
        try:
            # a group of its own, so that all that it starts can be found
            process = subprocess.Popen(
                [path], cwd='/', env=dict(environment), stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT, start_new_session=True)
        except OSError as error:
            raise errors.CleaningFailed(
                f'{path} does not run: {error.strerror or error}.') from error
        is_ended = _wait(process.pid, seconds)
        # not yet waited for, its id is nobody else's
        os.killpg(process.pid, signal.SIGKILL)
        code = process.wait()
        if is_ended and code == 0:
            return
        how = (f'did not end within {seconds:g} seconds' if not is_ended
               else f'ended with {code}' if code > 0
               else f'was ended by signal {-code}')
        said = _last_lines(output.fileno())
        raise errors.CleaningFailed(f'{path} {how}{f": {said}" if said else "."}')


def _wait(process: int, seconds: float) -> bool:
    """Has a process ended in time? It still has to be waited for."""
    file = os.pidfd_open(process)
    try:
        return bool(select.select([file], [], [], seconds)[0])
    finally:
        os.close(file)


def _last_lines(file: int) -> str:
    size = os.fstat(file).st_size
    text = os.pread(file, LONGEST_OUTPUT, max(size - LONGEST_OUTPUT, 0))
    lines = text.decode(errors='replace').replace('\0', '\ufffd').split('\n')
    return ' / '.join(line.strip()[:LONGEST_LINE] for line in [
        each for each in lines if each.strip()][-LAST_LINES:])


def _timed(name: str, act: Act) -> objects.Step:
    begun, error = time.monotonic(), None
    try:
        act()
    except errors.CyborgError as failure:
        error = failure.faultstring
    except OSError as failure:
        error = str(failure)
    return objects.Step(name=name, seconds=time.monotonic() - begun, error=error)


def _failure(step: objects.Step, done: list[objects.Step]) -> errors.CleaningFailed:
    failure = errors.CleaningFailed(step=step.name, why=step.error)
    failure.steps = done
    return failure
