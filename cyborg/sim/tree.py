# SPDX-License-Identifier: Apache-2.0
"""A directory that behaves like sysfs: files can be read, and writes have effects."""

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

from cyborg.agent.hotplug import UdevEvent

Store = Callable[[str], None]
ACTIONS = ('add', 'remove', 'change', 'move', 'online', 'offline', 'bind', 'unbind')
#: A link with such a name leads to a device.
DEVICE = re.compile('(?:bus/([^/]+)/devices|class/([^/]+))/[^/]+')


@dataclasses.dataclass(frozen=True)
class Uevent:
    """An event that the kernel sends to all listeners."""

    event: UdevEvent
    path: str  #: the device's directory, without links
    properties: Mapping[str, str]


OnUevent = Callable[[Uevent], None]


def kernel_error(number: int) -> OSError:
    """Return the error of a system call that the kernel refuses."""
    return OSError(number, os.strerror(number))


class Tree:
    """The files below a root directory. All names are relative to it."""

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
        self._last_known: dict[tuple[str, str], tuple[str, dict[str, str]]] = {}
        if any(self.root.iterdir()) and not self._scratch.is_dir():
            raise ValueError(f'{root} contains other files, which are not overwritten')
        for entry in self.root.iterdir():
            shutil.rmtree(entry)
        self._scratch.mkdir()

    @contextlib.contextmanager
    def change(self) -> Iterator[None]:
        """Serialize changes. The events of a change are sent at its end, without the lock."""
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

    def emit(
        self, action: str, subsystem: str, device: str, path: str | None = None, **properties: str
    ) -> None:
        """Send an event of a device. Its path and the properties in its ``uevent`` file are read
        from the tree, or remembered from the last event if the device is gone."""
        place, facts = self._last_known.get((subsystem, device), (f'devices/{device}', {}))
        for link in (f'bus/{subsystem}/devices/{device}', f'class/{subsystem}/{device}'):
            if self.path(f'{link}/uevent').exists():
                place = self.real(link)
                lines = self.text(f'{place}/uevent').splitlines()
                facts = dict(line.split('=', 1) for line in lines if '=' in line)
        self._last_known[subsystem, device] = path or place, facts
        self._events.append(
            Uevent(UdevEvent(action, subsystem, device), path or place, facts | properties)
        )

    def synthesize(self, text: str, subsystem: str, device: str) -> None:
        """Send the event that was written to the ``uevent`` file of a device."""
        action = text.split()[0] if text else ''
        if action not in ACTIONS:
            raise kernel_error(errno.EINVAL)
        self.emit(action, subsystem, device)

    def subscribe(self, listener: OnUevent) -> Callable[[], None]:
        """Call a listener for each event, in the thread that caused it. Returns a function that
        ends the subscription."""
        self._listeners.append(listener)

        def unsubscribe() -> None:
            with contextlib.suppress(ValueError):
                self._listeners.remove(listener)

        return unsubscribe

    def path(self, name: str) -> Path:
        return self.root / name

    def real(self, name: str) -> str:
        """Return the name of the same file without links in the path."""
        return os.path.relpath(os.path.realpath(self.path(name)), self.root)

    def directory(self, name: str) -> None:
        self.path(name).mkdir(parents=True, exist_ok=True)

    def file(
        self, name: str, text: str | bytes, store: Store | None = None, mode: int | None = None
    ) -> None:
        """Create an attribute or change its text. ``store`` makes it writable and is called with
        what is written."""
        path, store = self.path(name), store or self._stores.get(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = self._scratch / 'file'  # so that no reader sees an incomplete text
        scratch.write_bytes(text if isinstance(text, bytes) else f'{text}\n'.encode())
        scratch.chmod(mode or (0o644 if store else 0o444))
        scratch.replace(path)
        if store:
            self._stores[name] = store

    def set_text(self, name: str, text: str) -> None:
        """Change the text of an attribute and keep its mode; create it if it is missing."""
        path = self.path(name)
        self.file(name, text, mode=path.stat().st_mode & 0o777 if path.exists() else None)

    def trigger(self, name: str, store: Store, mode: int = 0o200) -> None:
        """Create an attribute that can only be written."""
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
        """Add the two files without which libudev does not recognize a device."""
        if not self.path(f'{target}/subsystem').is_symlink():
            self.link(f'{target}/subsystem', f'bus/{bus}' if bus else f'class/{kind}')
        if not self.path(f'{target}/uevent').exists():
            self.file(
                f'{target}/uevent',
                b'',
                lambda text: self.synthesize(text, str(bus or kind), device),
            )

    def remove(self, name: str) -> None:
        """Remove a file, a link, or a directory with its content."""
        path = self.path(name)
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        below = f'{name}/'
        for each in [each for each in self._stores if each == name or each.startswith(below)]:
            del self._stores[each]

    def fault(self, name: str, number: int | None = None, seconds: float = 0) -> None:
        """Make writes fail with an error number, or delay them. Reads fail only if the tree is
        served as a file system: reading the plain files does not pass through here."""
        self._faults[self.real(name)] = number, seconds

    def clear_fault(self, name: str) -> None:
        """Remove the fault of a file."""
        self._faults.pop(self.real(name), None)

    def _apply_fault(self, name: str) -> None:
        number, seconds = self._faults.get(name, (None, 0))
        time.sleep(seconds)
        if number:
            raise kernel_error(number)

    def read(self, name: str) -> bytes:
        """Read a file as read(2) does."""
        self._apply_fault(self.real(name))
        return self.path(name).read_bytes()

    def write(self, path: Path, text: str) -> None:
        """Write to a file as write(2) does; the ``writer`` of a simulated host's Sysfs."""
        self._apply_fault(self.real(str(path)))
        with self.change():
            real = Path(os.path.realpath(path))
            if not real.is_relative_to(self.root) or not real.exists():
                raise kernel_error(errno.ENOENT)
            store = self._stores.get(str(real.relative_to(self.root)))
            if store is None:
                raise kernel_error(errno.EISDIR if real.is_dir() else errno.EACCES)
            if text:  # sysfs does not call the driver for an empty write
                store(text.strip())


@contextlib.contextmanager
def scratch_directory() -> Iterator[Path]:
    """Create a temporary directory, in memory if possible: hosts have thousands of files."""
    memory = '/dev/shm'
    with tempfile.TemporaryDirectory(
        prefix='cyborg-sim-', dir=memory if os.access(memory, os.W_OK) else None
    ) as name:
        yield Path(name)
