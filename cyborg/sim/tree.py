# SPDX-License-Identifier: Apache-2.0
"""A directory that behaves like sysfs: plain files to read, and writes that have effects."""

import contextlib
import dataclasses
import errno
import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from cyborg.agent.hotplug import Event

Store = Callable[[str], None]
ACTIONS = ('add', 'remove', 'change', 'move', 'online', 'offline', 'bind', 'unbind')
#: What is linked here is a device.
DEVICE = re.compile('(?:bus/([^/]+)/devices|class/([^/]+))/[^/]+')


@dataclasses.dataclass(frozen=True)
class Uevent:
    """What the kernel tells everybody who listens."""

    event: Event
    path: str  #: the device's real directory
    properties: Mapping[str, str]


OnUevent = Callable[[Uevent], None]


def refuse(number: int) -> OSError:
    """What the kernel answers to a write that it does not like."""
    return OSError(number, os.strerror(number))


class Tree:
    """All paths are relative to the root."""

    def __init__(self, root: Path) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.root = root.resolve()
        self._scratch = self.root / '.scratch'
        self._stores: dict[str, Store] = {}
        self._lock = threading.RLock()
        self._depth = 0
        self._events: list[Uevent] = []
        self._listeners: list[OnUevent] = []
        self._faults: dict[str, tuple[int | None, float]] = {}
        self._known: dict[tuple[str, str], tuple[str, dict[str, str]]] = {}
        if any(self.root.iterdir()) and not self._scratch.is_dir():
            raise ValueError(f'{root} holds something else: it will not be overwritten')
        for entry in self.root.iterdir():
            shutil.rmtree(entry)
        self._scratch.mkdir()

    @contextlib.contextmanager
    def change(self) -> Iterator[None]:
        """One change at a time. Its events go out at its end, when others may change again."""
        events: list[Uevent] = []
        try:
            with self._lock:
                self._depth += 1
                try:
                    yield
                finally:
                    self._depth -= 1
                    if not self._depth:
                        events, self._events = self._events, []
        finally:
            for event in events:
                for listener in list(self._listeners):
                    listener(event)

    def emit(self, action: str, subsystem: str, device: str, path: str | None = None,
             **properties: str) -> None:
        """Tell that something happened to a device. Where it is, and what its ``uevent`` says,
        is looked up; of one that is gone already it is remembered."""
        place, facts = self._known.get((subsystem, device), (f'devices/{device}', {}))
        for link in (f'bus/{subsystem}/devices/{device}', f'class/{subsystem}/{device}'):
            if self.path(f'{link}/uevent').exists():
                place = self.real(link)
                lines = self.text(f'{place}/uevent').splitlines()
                facts = dict(line.split('=', 1) for line in lines if '=' in line)
        self._known[subsystem, device] = path or place, facts
        self._events.append(Uevent(Event(action, subsystem, device), path or place,
                                   facts | properties))

    def synthesize(self, text: str, subsystem: str, device: str) -> None:
        """What a write to ``uevent`` does."""
        action = text.split()[0] if text else ''
        if action not in ACTIONS:
            raise refuse(errno.EINVAL)
        self.emit(action, subsystem, device)

    def subscribe(self, listener: OnUevent) -> Callable[[], None]:
        """Call a listener with each event, in the thread that caused it; answers how to stop."""
        self._listeners.append(listener)

        def unsubscribe() -> None:
            with contextlib.suppress(ValueError):
                self._listeners.remove(listener)
        return unsubscribe

    def path(self, name: str) -> Path:
        return self.root / name

    def real(self, name: str) -> str:
        """The name of the same thing without any link in it."""
        return os.path.relpath(os.path.realpath(self.path(name)), self.root)

    def directory(self, name: str) -> None:
        self.path(name).mkdir(parents=True, exist_ok=True)

    def file(self, name: str, text: str | bytes, store: Store | None = None,
             mode: int | None = None) -> None:
        """Make an attribute or change its text; with a ``store`` it can be written ever after."""
        path, store = self.path(name), store or self._stores.get(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = self._scratch / 'file'  # nobody ever sees half a text
        scratch.write_bytes(text if isinstance(text, bytes) else f'{text}\n'.encode())
        scratch.chmod(mode or (0o644 if store else 0o444))
        scratch.replace(path)
        if store:
            self._stores[name] = store

    def retell(self, name: str, text: str) -> None:
        """Change the text of an attribute and nothing else of it; make it, if it is not there."""
        path = self.path(name)
        self.file(name, text, mode=path.stat().st_mode & 0o777 if path.exists() else None)

    def trigger(self, name: str, store: Store, mode: int = 0o200) -> None:
        """An attribute that can only be written."""
        self.file(name, b'', store, mode)

    def text(self, name: str) -> str:
        return self.path(name).read_text().strip()

    def link(self, name: str, target: str) -> None:
        path = self.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.symlink_to(os.path.relpath(self.path(target), path.parent))
        if device := DEVICE.fullmatch(name):
            self._complete(target, path.name, *device.groups())

    def _complete(self, target: str, device: str, bus: str | None, kind: str | None) -> None:
        """libudev takes nothing for a device that lacks these two."""
        if not self.path(f'{target}/subsystem').is_symlink():
            self.link(f'{target}/subsystem', f'bus/{bus}' if bus else f'class/{kind}')
        if not self.path(f'{target}/uevent').exists():
            self.file(f'{target}/uevent', b'',
                      lambda text: self.synthesize(text, str(bus or kind), device))

    def remove(self, name: str) -> None:
        """Take away a file, a link or a directory with all that is in it."""
        path = self.path(name)
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        below = f'{name}/'
        for each in [each for each in self._stores if each == name or each.startswith(below)]:
            del self._stores[each]

    def fault(self, name: str, number: int | None = None, seconds: float = 0) -> None:
        """Have writes fail with an error number or come late; reads too, where the tree is
        served as a file system: who reads plain files asks nobody."""
        self._faults[self.real(name)] = number, seconds

    def mend(self, name: str) -> None:
        """Undo that."""
        self._faults.pop(self.real(name), None)

    def _suffer(self, name: str) -> None:
        number, seconds = self._faults.get(name, (None, 0))
        time.sleep(seconds)
        if number:
            raise refuse(number)

    def read(self, name: str) -> bytes:
        """What read(2) does."""
        self._suffer(self.real(name))
        return self.path(name).read_bytes()

    def write(self, path: Path, text: str) -> None:
        """What write(2) does: this is the ``writer`` of a simulated host's Sysfs."""
        self._suffer(self.real(str(path)))
        with self.change():
            real = Path(os.path.realpath(path))
            if not real.is_relative_to(self.root) or not real.exists():
                raise refuse(errno.ENOENT)
            store = self._stores.get(str(real.relative_to(self.root)))
            if store is None:
                raise refuse(errno.EISDIR if real.is_dir() else errno.EACCES)
            if text:  # of nothing, sysfs does not even tell the driver
                store(text.strip())


@contextlib.contextmanager
def scratch_directory() -> Iterator[Path]:
    """One in memory, where there is such a place: hosts have thousands of files."""
    memory = '/dev/shm'
    with tempfile.TemporaryDirectory(
            prefix='cyborg-sim-', dir=memory if os.access(memory, os.W_OK) else None) as name:
        yield Path(name)
