# SPDX-License-Identifier: Apache-2.0
"""The contract between the agent and a driver, and how drivers are found."""

import abc
import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, ClassVar

import stevedore
from oslo_config import cfg
from oslo_log import log

from cyborg import errors, objects
from cyborg.accelerator import cleaning
from cyborg.accelerator.sysfs import Sysfs

LOG = log.getLogger(__name__)

NAMESPACE = 'cyborg.accelerator.driver'


class Driver(abc.ABC):
    """The base class of all drivers.

    A driver declares on its class everything that other parts need to know of it: options, udev
    subsystems, attributes that root writes for it, tools that root runs for it. No other file
    names it but the entry point of its package.

    The agent may call any method again at any time, also after a crash. It calls ``attach`` and
    ``detach`` only for handles with ``is_host_prepared``. It calls one method at a time on a
    device, but calls methods on different devices at the same time, in threads. After a call
    that does not end in time, the agent calls nothing on that device until the call has ended.
    A method that cannot do its work raises errors.DriverFailed with a sentence for the operator.
    """

    #: the name in [agent] enabled_drivers and of the entry point
    name: ClassVar[str]
    #: the type of its devices: GPU, FPGA, QAT…
    type: ClassVar[str]
    #: True: operators see its devices, but these cannot be attached to guests
    shows_only: ClassVar[bool] = False
    #: Options of the group that has the name of the driver.
    options: ClassVar[Sequence[cfg.Opt]] = ()
    #: Options of other groups: group -> options. Drivers that share an option declare the same
    #: object.
    option_groups: ClassVar[Mapping[str, Sequence[cfg.Opt]]] = {}
    #: udev subsystems whose events report that its devices are added, removed or changed
    subsystems: ClassVar[tuple[str, ...]] = ()
    #: Attributes that it writes, as paths below a device that it claims. Each part of a path is
    #: a name or a pattern, which never matches a slash: ``mdev_supported_types/*/create``.
    writes: ClassVar[tuple[str, ...]] = ()
    #: Commands that it runs. Each word is a word or a pattern: ``mdevctl undefine --uuid *``.
    runs: ClassVar[tuple[str, ...]] = ()
    #: How it cleans what a guest had, in the order in which the steps are done.
    clean_steps: ClassVar[tuple[cleaning.Step, ...]] = ()

    def __init__(self, conf: cfg.ConfigOpts, sysfs: Sysfs) -> None:
        self.register_options(conf)
        self.conf = conf
        self.sysfs = sysfs

    @classmethod
    def declared_options(cls) -> dict[str, list[cfg.Opt]]:
        """Returns all options that the class declares, by group."""
        declared = {cls.name: list(cls.options)} if cls.options else {}
        for group, options in cls.option_groups.items():
            declared.setdefault(group, []).extend(options)
        return declared

    @classmethod
    def register_options(cls, conf: cfg.ConfigOpts) -> None:
        """Register the options of the class. Options that are registered already are kept."""
        for group, options in cls.declared_options().items():
            conf.register_opts(options, group=group)

    @classmethod
    def chosen_options(cls, conf: cfg.ConfigOpts) -> Mapping[str, Sequence[cfg.Opt]]:
        """Returns the options of groups that exist because of the values of declared options, which
        are registered."""
        return {}

    @abc.abstractmethod
    def discover(self) -> Iterable[objects.Device]:
        """Returns all devices that are present now. It must not change anything."""

    def attach(self, handle: objects.AttachHandle, task: objects.Task) -> None:  # noqa: B027
        """Prepare a handle for a guest. If that is done already, do nothing."""

    def is_attached(self, handle: objects.AttachHandle) -> bool:
        """Returns whether a handle is still as ``attach`` left it. If not, the agent calls
        ``attach`` again.

        The agent calls this in every round of the inventory, also while another method runs. It
        must not change anything. A driver that cannot know returns True.
        """
        return True

    def detach(self, handle: objects.AttachHandle) -> None:  # noqa: B027
        """Undo ``attach``. If there is nothing to undo, do nothing."""

    def steps_for(self, handle: objects.AttachHandle) -> Sequence[cleaning.Step]:
        """Returns those of ``clean_steps`` that apply to a handle, in their order."""
        return self.clean_steps

    def clean(self, handle: objects.AttachHandle, step: str, deployable: str) -> None:
        """Do one of ``clean_steps``, by its name, on a handle that no guest has.

        The agent calls this after ``detach``, with a time limit of its own. It may repeat all
        steps, whichever of them were done before.
        """
        raise errors.DriverFailed(
            name=self.name, why=f'{handle.key} of {deployable} cannot be cleaned by {step}.'
        )

    def versions(self, handle: objects.AttachHandle) -> dict[str, str]:
        """Returns the versions of firmware and kernel driver, as far as the host shows them, for
        the record of a handle's cleaning."""
        return {}

    def program(self, deployable: str, image: Path, properties: Mapping[str, str]) -> None:
        """Load an image into a deployable that nobody uses. The agent has fetched the image and
        checked its hash.

        ``properties`` are those of the image in Glance, as text. The agent calls this only for
        deployables with ``is_programmable``, and for one deployable of a device at a time. It
        may load the same image again. The time limit is ``[agent] program_timeout``.

        Raises errors.NotLoaded if it refuses the image before it changes anything. After any other
        error the content of the deployable counts as unknown, and its device has a fault until the
        next report.
        """
        raise errors.NotLoaded(name=self.name, why=f'{deployable} cannot be programmed.')

    def may_write(self, path: Path, text: str) -> bool:
        """Returns whether this is one of the attributes that it ``writes``, on a device that it
        claims.

        The privileged helper asks this before it writes the text for an agent that is not root.
        The path has no link in it.
        """
        return False

    def may_run(self, command: Sequence[str]) -> bool:
        """Returns whether this is one of the commands that it ``runs``. The privileged helper asks
        this before it runs the command."""
        return any(_fits(command, each.split()) for each in self.runs)


def is_one_of(place: PurePath, patterns: Iterable[str]) -> bool:
    """Returns whether a path below a device matches one of the patterns of ``writes``."""
    return any(_fits(place.parts, each.split('/')) for each in patterns)


def _fits(parts: Sequence[str], patterns: Sequence[str]) -> bool:
    return len(parts) == len(patterns) and all(map(fnmatch.fnmatchcase, parts, patterns))


def names_known() -> set[str]:
    """Returns the names of all drivers that are installed."""
    manager: Any = stevedore.NamedExtensionManager(NAMESPACE, [])
    return {entry.name for entry in manager.list_entry_points()}


def installed() -> list[type[Driver]]:
    """Returns the classes of all drivers that are installed, by name.

    A driver that cannot be imported is left out, with a warning: it may be installed on a host
    that does not enable it.
    """
    manager: Any = stevedore.NamedExtensionManager(
        NAMESPACE, sorted(names_known()), name_order=True, on_load_failure_callback=_warn
    )
    return [
        extension.plugin
        for extension in manager
        if isinstance(extension.plugin, type) and issubclass(extension.plugin, Driver)
    ]


def load(names: Sequence[str], conf: cfg.ConfigOpts, sysfs: Sysfs) -> list[Driver]:
    """Returns the drivers of these names, in this order.

    Raises DriverNotFound if one is not installed, and ConfigError if one cannot be imported or
    built, or if one of its options has a value that is not valid.
    """
    manager: Any = stevedore.NamedExtensionManager(
        NAMESPACE,
        list(dict.fromkeys(names)),
        name_order=True,
        on_load_failure_callback=_refuse,
        on_missing_entrypoints_callback=None,
    )
    known = names_known()
    for name in names:
        if name not in known:
            raise errors.DriverNotFound(name=name, known=', '.join(sorted(known)) or 'none')
    return [_build(extension.name, extension.plugin, conf, sysfs) for extension in manager]


def _build(name: str, cls: Any, conf: cfg.ConfigOpts, sysfs: Sysfs) -> Driver:
    if not (isinstance(cls, type) and issubclass(cls, Driver)) or cls.name != name:
        # tasks refer to their driver by its name
        raise errors.ConfigError(why=f'Driver {name} is not a Driver class with that name: {cls!r}')
    _read_options(cls, conf)
    try:
        return cls(conf, sysfs)
    except errors.ConfigError:
        raise
    except Exception as error:
        raise errors.ConfigError(why=f'Driver {name} does not start: {error!r}') from error


def _read_options(cls: type[Driver], conf: cfg.ConfigOpts) -> None:
    """Register and read the options of a driver now, so that a mistake does not raise later in
    a thread."""
    try:
        cls.register_options(conf)
        for group, options in cls.declared_options().items():
            for option in options:
                conf[group][option.dest]
    except cfg.Error as error:
        raise errors.ConfigError(
            why=f'Driver {cls.name} cannot read its options: {error}'
        ) from error


def _refuse(manager: Any, entry: Any, error: BaseException) -> None:
    raise errors.ConfigError(why=f'Driver {entry.name} does not load: {error!r}') from error


def _warn(manager: Any, entry: Any, error: BaseException) -> None:
    LOG.warning('Driver %s does not load, so its options are not known: %r', entry.name, error)
