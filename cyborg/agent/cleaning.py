# SPDX-License-Identifier: Apache-2.0
"""Cleans handles after use: steps that the driver declares, then scripts of the operator."""

import functools
import os
import re
import stat
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from oslo_config import cfg
from oslo_log import log

from cyborg import errors, objects
from cyborg.accelerator import cleaning, driver, pci, sysfs, tool_output
from cyborg.agent.driver_guard import Guard
from cyborg.objects import Cleaning

LOG = log.getLogger(__name__)

#: Names of scripts; files that editors and package managers leave behind are not run.
SCRIPT = re.compile(r'\d\d-[A-Za-z0-9_.-]+')
LEFT_BEHIND = (
    '.bak',
    '.orig',
    '.swp',
    '.rpmnew',
    '.rpmsave',
    '.rpmorig',
    '.dpkg-old',
    '.dpkg-new',
    '.dpkg-dist',
)
#: The environment of a script, apart from the CYBORG_ variables.
ENVIRONMENT = {
    'PATH': '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
    'LANG': 'C.UTF-8',
}

Act = Callable[[], None]


class Cleaner:
    """Cleans handles of one host as its options or the task demand."""

    def __init__(self, conf: cfg.ConfigOpts, hostname: str) -> None:
        self._conf = conf.cleaning
        self._hostname = hostname
        self._require_known(conf)

    def level_of(self, driver_name: str, steps: Sequence[cleaning.Step]) -> Cleaning:
        """Return the level at which handles with these steps are cleaned.

        This is NONE if there is neither a step nor a script for the configured level, and
        cleaning is not required.
        """
        level = self._level(driver_name)
        if level == Cleaning.NONE or self._is_required(driver_name):
            return level
        has_steps = any(step.is_part_of(level) for step in steps)
        return level if has_steps or os.path.isdir(self._directory(driver_name)) else Cleaning.NONE

    def clean(self, guard: Guard, task: objects.Task) -> list[objects.Step]:
        """Perform the steps of the task's level and run the scripts; returns their results.

        Raises CleaningFailed after the first failure if cleaning is required. If it is not, the
        result of the step has the error, and the remaining steps follow. A step that has not ended
        raises in any case: it may still change the device while the next guest has it.
        """
        level = Cleaning(task.cleaning or self._level(guard.name))
        is_required = (
            self._is_required(guard.name)
            if task.is_cleaning_required is None
            else task.is_cleaning_required
        )
        done: list[objects.Step] = []
        if level == Cleaning.NONE:
            return done
        for name, act in self._acts(guard, task, level):
            step = _timed(name, act)
            done.append(step)
            if step.error is None:
                continue
            if is_required or guard.is_hanging(task.device_key):
                raise _failure(step, done)
            LOG.warning(
                'Handle %s of %s was not cleaned by %s; cleaning is not required: %s',
                task.handle.uuid,
                task.device_key,
                name,
                step.error,
            )
        if not done and is_required:
            raise errors.CleaningFailed(
                f'Cleaning is required at the level {level}, but the driver {guard.name} has no '
                f'step for this handle, and there is no script in '
                f'{self._directory(guard.name)}.'
            )
        return done

    def versions(self, guard: Guard, task: objects.Task) -> dict[str, str]:
        """Return the known versions of firmware and kernel driver, for the record."""
        try:
            return guard.versions(task)
        except errors.CyborgError as error:
            LOG.warning('The versions of %s are not known: %s', task.device_key, error.faultstring)
            return {}

    def _acts(self, guard: Guard, task: objects.Task, level: Cleaning) -> Iterator[tuple[str, Act]]:
        for step in guard.steps_for(task.handle):
            # other guests may still use functions of the same region
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
            name = f'{directory.name}/{path.name}'
            yield name, functools.partial(self._run, guard, task, name, path, environment)

    def _do(self, guard: Guard, task: objects.Task, step: cleaning.Step) -> None:
        try:
            guard.clean(
                task,
                step.name,
                task.deployable_name.removeprefix(f'{self._hostname}_'),
                self._conf.step_timeout,
            )
        except errors.CyborgError as error:
            raise errors.DriverFailed(f'{error.faultstring} It needs {step.needs}.') from error

    def _run(
        self,
        guard: Guard,
        task: objects.Task,
        name: str,
        path: Path,
        environment: Mapping[str, str],
    ) -> None:
        _require_safe(path.parent.parent)
        _require_safe(path.parent)
        _require_safe(path)
        seconds = self._conf.script_timeout
        guard.run_script(task, name, functools.partial(run, path, environment, seconds), seconds)

    def _environment(self, driver_name: str, task: objects.Task, level: Cleaning) -> dict[str, str]:
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
                    why=f'[cleaning] {option} names {unknown[0]}, which is not a driver; known '
                    f'drivers: {", ".join(sorted(known))}.'
                )


def scripts(directory: Path) -> list[Path]:
    """Return the scripts of a directory in the order of their names; none if it does not exist."""
    try:
        names = sorted(os.listdir(directory))
    except FileNotFoundError:
        return []
    return [
        directory / name
        for name in names
        if SCRIPT.fullmatch(name) and not name.endswith(LEFT_BEHIND)
    ]


def _refuse(directory: Path, error: OSError) -> None:
    raise errors.CleaningFailed(
        f'{directory} cannot be read: {error.strerror or error}.'
    ) from error


def _require_safe(path: Path) -> None:
    """Raise CleaningFailed if another user could have written the file."""
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
    """Run a script. It is killed after ``seconds``; processes of its process group that it leaves
    are killed, too. This returns when all of them have ended.

    If the agent is killed, so is the script, but not the processes that it started: they go on,
    unless systemd or the container ends them, see ``sysfs.leashed``.
    """
    with sysfs.running(str(path)):
        try:
            # its own process group, so that killpg() finds everything it starts
            process = subprocess.Popen(
                sysfs.leashed([path]),
                cwd='/',
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise errors.CleaningFailed(
                f'{path} cannot be run: {error.strerror or error}.'
            ) from error
        output = tool_output.Output(process)
        try:
            is_ended = output.read_until_exit(seconds)
        finally:
            code = sysfs.end(process)
            output.read_rest()
        if is_ended and code == 0:
            return
        how = (
            f'did not end within {seconds:g} seconds'
            if not is_ended
            else f'ended with {code}'
            if code > 0
            else f'was ended by signal {-code}'
        )
        said = tool_output.last_lines(output.text)
        raise errors.CleaningFailed(f'{path} {how}{f": {said}" if said else "."}')


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
