# SPDX-License-Identifier: Apache-2.0
"""The contract between the agent and a driver, and how drivers are found."""

import abc
import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, ClassVar

import stevedore
from oslo_config import cfg

from cyborg import errors, objects
from cyborg.accelerator import cleaning
from cyborg.accelerator.sysfs import Sysfs

NAMESPACE = 'cyborg.accelerator.driver'


class Driver(abc.ABC):
    """What a vendor writes. The agent may call any verb again at any time, after a crash too.

    ``attach`` and ``detach`` are called for handles with ``is_host_prepared`` only. Of all verbs
    one at a time is called on a device, but several at a time in threads for different devices.
    After a call that did not end in time none follows on its device until it has ended. What
    cannot be done is raised as errors.DriverFailed with a sentence for the operator.
    """

    #: as in [agent] enabled_drivers and in the entry point
    name: ClassVar[str]
    #: of its devices: GPU, FPGA, QAT…
    type: ClassVar[str]
    #: True: its devices are for operators to see, and nothing of them is for guests
    shows_only: ClassVar[bool] = False
    #: Attributes that it writes, below a device that it claims. A part of a path is a name or a
    #: pattern, which never reaches across a slash: ``mdev_supported_types/*/create``.
    writes: ClassVar[tuple[str, ...]] = ()
    #: Commands that it runs. A word is one, or a pattern: ``mdevctl undefine --uuid *``.
    runs: ClassVar[tuple[str, ...]] = ()
    #: How it cleans what a guest had, in the order in which the steps are done.
    clean_steps: ClassVar[tuple[cleaning.Step, ...]] = ()

    def __init__(self, conf: cfg.ConfigOpts, sysfs: Sysfs) -> None:
        self.conf = conf
        self.sysfs = sysfs

    @abc.abstractmethod
    def discover(self) -> Iterable[objects.Device]:
        """All devices that are there now; looking must not change anything."""

    def attach(self, handle: objects.AttachHandle, work: objects.Task) -> None:  # noqa: B027
        """Prepare what a guest is about to receive; done already is fine."""

    def is_attached(self, handle: objects.AttachHandle) -> bool:
        """Is a handle still as ``attach`` left it? If not, ``attach`` is called again.

        Asked at every look at the host, also while a verb runs; looking must not change
        anything. A driver that cannot tell says yes.
        """
        return True

    def detach(self, handle: objects.AttachHandle) -> None:  # noqa: B027
        """Undo ``attach``; undone already, or never done, is fine."""

    def steps_for(self, handle: objects.AttachHandle) -> Sequence[cleaning.Step]:
        """Those of ``clean_steps`` that concern a handle, in their order."""
        return self.clean_steps

    def clean(self, handle: objects.AttachHandle, step: str, deployable: str) -> None:
        """Do one of ``clean_steps``, by its name, on a handle that nobody has.

        Called after ``detach``, with a time limit of its own. Whatever was done of the steps
        before, they may all be done again; cleaning what is clean is fine.
        """
        raise errors.DriverFailed(
            name=self.name, why=f'{handle.key} of {deployable} cannot be cleaned by {step}.')

    def versions(self, handle: objects.AttachHandle) -> dict[str, str]:
        """What ran on a handle and beside it, for the record of its cleaning: the versions of
        firmware and kernel driver, where the host tells them."""
        return {}

    def program(self, deployable: str, image: Path, properties: Mapping[str, str]) -> None:
        """Load an image, fetched and checked by the agent, into a deployable nobody uses.

        ``properties`` are those of the image in Glance, as text. It is called for deployables
        with ``is_programmable`` only, never at the same time for two of one device; loading the
        same image again must be harmless. Its limit is ``[agent] program_timeout``.
        """
        raise errors.DriverFailed(name=self.name, why=f'{deployable} cannot be programmed.')

    def may_write(self, path: Path, text: str) -> bool:
        """Is this one of the attributes that it ``writes``, on a device that it claims?

        Root asks this before it writes the text for an agent that is not root. The path has no
        link in it.
        """
        return False

    def may_run(self, command: Sequence[str]) -> bool:
        """Is this one of the commands that it ``runs``? Root asks this, too."""
        return any(_fits(command, each.split()) for each in self.runs)


def is_one_of(place: PurePath, patterns: Iterable[str]) -> bool:
    """Does a place below a device fit one of the patterns of ``writes``, part by part?"""
    return any(_fits(place.parts, each.split('/')) for each in patterns)


def _fits(parts: Sequence[str], patterns: Sequence[str]) -> bool:
    return len(parts) == len(patterns) and all(map(fnmatch.fnmatchcase, parts, patterns))


def names_known() -> set[str]:
    """The names of all drivers that are installed."""
    manager: Any = stevedore.NamedExtensionManager(NAMESPACE, [])
    return {entry.name for entry in manager.list_entry_points()}


def load(names: Sequence[str], conf: cfg.ConfigOpts, sysfs: Sysfs) -> list[Driver]:
    """The drivers of these names, in this order. A mistake is one sentence."""
    manager: Any = stevedore.NamedExtensionManager(
        NAMESPACE, list(dict.fromkeys(names)), name_order=True,
        on_load_failure_callback=_refuse, on_missing_entrypoints_callback=None)
    known = names_known()
    for name in names:
        if name not in known:
            raise errors.DriverNotFound(name=name, known=', '.join(sorted(known)) or 'none')
    return [_build(extension.name, extension.plugin, conf, sysfs) for extension in manager]


def _build(name: str, cls: Any, conf: cfg.ConfigOpts, sysfs: Sysfs) -> Driver:
    try:
        driver = cls(conf, sysfs)
    except errors.ConfigError:
        raise
    except Exception as error:
        raise errors.ConfigError(why=f'Driver {name} does not start: {error!r}') from error
    if not isinstance(driver, Driver) or driver.name != name:
        # work is given back to a driver by its name
        raise errors.ConfigError(why=f'Driver {name} is not a driver of that name: {cls!r}')
    return driver


def _refuse(manager: Any, entry: Any, error: BaseException) -> None:
    raise errors.ConfigError(why=f'Driver {entry.name} does not load: {error!r}') from error
