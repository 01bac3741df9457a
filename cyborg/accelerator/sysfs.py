# SPDX-License-Identifier: Apache-2.0
"""Reads sysfs below any root. Every change of a host is made here, too.

Devices may be removed while they are read, and files of vendors may hold anything. So a file that
cannot be read counts as absent and raises nothing. Changes raise, with the kernel's errno. So does
reading if the agent itself lacks file descriptors or memory: the file may well be there.
"""

import contextlib
import dataclasses
import errno
import fnmatch
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from cyborg.accelerator.tool_output import Output

ROOT = Path('/sys')
PROC = Path('/proc')
#: Bytes of an attribute that are read. Most attributes fit into a page.
LONGEST = 64 * 1024
#: Errors of the agent itself, which say nothing about the file.
OWN_ERRORS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})

#: Seconds within which a tool must end after it was killed.
GRACE = 5.0
#: Seconds after which we look again at processes that were killed: at first, and at most.
PAUSE, LONGEST_PAUSE = 0.05, 10.0

Writer = Callable[[Path, str], None]
#: A command, and the seconds after which it is killed; None: never.
Runner = Callable[[Sequence[str], float | None], str]


class NotRun(OSError):
    """Raised if a tool was not even started, so that it has changed nothing."""


class NotInstalled(NotRun, FileNotFoundError):
    @classmethod
    def of(cls, tool: str) -> 'NotInstalled':
        return cls(f'{tool} is not installed: install it on the host')


class NotAllowed(NotRun, PermissionError):
    """Raised if the privileged helper refuses to run a tool, or does not start itself."""


@dataclasses.dataclass
class Limit:
    """The time limit of a call of a driver. A tool that the call runs is killed at the limit."""

    end: float  #: as time.monotonic() has it
    tool: str | None = None  #: the tool that is running, or being killed, under this limit

    @property
    def rest(self) -> float:
        return max(0.0, self.end - time.monotonic())


_limits = threading.local()


@contextlib.contextmanager
def limited(limit: Limit) -> Iterator[None]:
    """Set the limit for all tools that this thread runs."""
    _limits.current = limit
    try:
        yield
    finally:
        _limits.current = None


@contextlib.contextmanager
def running(tool: str) -> Iterator[None]:
    """Name the tool that this thread runs, for the error if the tool does not end."""
    limit: Limit | None = getattr(_limits, 'current', None)
    if limit is not None:
        limit.tool = tool
    try:
        yield
    finally:
        if limit is not None:
            limit.tool = None


class Node:
    """A directory, file or link of sysfs."""

    def __init__(self, path: Path, host: 'Sysfs') -> None:
        self.path = path
        self.host = host

    @property
    def name(self) -> str:
        return self.path.name

    def __truediv__(self, name: str) -> 'Node':
        return Node(self.path / name, self.host)

    def __str__(self) -> str:
        return str(self.path)

    def __repr__(self) -> str:
        return f'{type(self).__name__}({str(self.path)!r})'

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Node) and self.path == other.path

    def __hash__(self) -> int:
        return hash(self.path)

    def exists(self) -> bool:
        return _exists(self.path)

    def has(self, name: str) -> bool:
        return _exists(self.path / name)

    def read(self, name: str = '', longest: int = LONGEST) -> str | None:
        """Returns the text of an attribute without its newline; None if it cannot be read. Bytes
        that are not text are replaced, so that the text can be stored and shown."""
        try:
            with open(self.path / name, 'rb') as attribute:
                text = attribute.read(longest)
        except (OSError, ValueError) as error:
            raise_own(error)
            return None
        return text.decode(errors='replace').replace('\0', '\ufffd').strip()

    def number(self, name: str, base: int = 10) -> int | None:
        """Returns the number in an attribute; None if it holds anything else."""
        try:
            return int(self.read(name) or '', base)
        except ValueError:
            return None

    def children(self, pattern: str = '*') -> list['Node']:
        """Returns the entries that match the pattern, in the order of their names."""
        # not pathlib's glob, which hides errors of the agent itself, depending on its release
        first, *rest = pattern.split('/')
        paths = [self.path / name for name in _names(self.path, first)]
        for part in rest:
            directories = [path for path in paths if os.path.isdir(str(path))]
            paths = [path / name for path in directories for name in _names(path, part)]
        self.host.on_listed(paths)
        return [Node(path, self.host) for path in sorted(paths)]

    def link(self, name: str) -> 'Node | None':
        """Returns the target of a link; None if there is no link or no target."""
        node = self / name
        try:
            os.readlink(node.path)
        except (OSError, ValueError) as error:
            raise_own(error)
            return None
        place = node.real()
        return Node(place, self.host) if place else None

    def real(self) -> Path | None:
        """Returns the path without any link in it; None if the path does not exist."""
        try:
            return self.path.resolve(strict=True)
        except (OSError, RuntimeError) as error:
            raise_own(error)
            return None

    def write(self, name: str, text: str) -> None:
        """Write an attribute. Raises OSError if the kernel refuses."""
        self.host.writer(self.path / name, text)


class Sysfs(Node):
    """The root of sysfs: the host that drivers read and change.

    A simulated host has its own ``writer``, which does what a kernel does, and its own ``runner``
    for the vendors' tools.
    """

    def __init__(
        self, root: Path | str = ROOT, writer: Writer | None = None, runner: Runner | None = None
    ) -> None:
        super().__init__(Path(root), self)
        self.is_real = self.path.resolve() == ROOT
        #: /proc; a simulated host has it in its own tree
        self.proc = Node(PROC if self.is_real else self.path / 'proc', self)
        self._needs_help = self.is_real and os.geteuid() != 0
        self.writer = writer or (_write_with_privilege if self._needs_help else write)
        self._runner = runner or (
            _run_with_privilege if self._needs_help else run if self.is_real else _run_nothing
        )
        self._asker = runner or (run if self.is_real else _run_nothing)

    def __truediv__(self, name: str) -> Node:
        return Node(self.path / name, self)

    def on_listed(self, paths: Sequence[Path]) -> None:
        """Called with the entries that ``children`` returns. An observer replaces this."""

    def run(self, *command: str) -> str:
        """Run a tool and return its output.

        Raises NotRun if it could not be started (NotInstalled if there is none), TimeoutError if it
        was killed at the limit of the current call, and OSError with its last lines if it failed.
        """
        return _within_limit(self._runner, command)

    def ask(self, *command: str) -> str:
        """Run a tool that changes nothing and needs no privilege, and return what it said; raises
        the same errors."""
        return _within_limit(self._asker, command)

    def opened(self, names: Collection[str]) -> dict[str, str]:
        """Returns those of the devices (ptp0 for /dev/ptp0) that are open: name -> a program that
        has it open."""
        if self._needs_help:
            return _opened_with_privilege(names)
        return opened(self.proc.path, names)


def raise_own(error: Exception) -> None:
    """Raise an error of the agent itself. Others mean that a file is absent."""
    if isinstance(error, OSError) and error.errno in OWN_ERRORS:
        raise error


def _exists(path: Path) -> bool:
    try:
        os.stat(path)
    except (OSError, ValueError) as error:
        raise_own(error)
        return False
    return True


def _names(directory: Path, pattern: str) -> list[str]:
    """Returns the names in a directory that match a pattern; none if it cannot be read."""
    if not set('*?[').intersection(pattern):
        return [pattern] if _exists(directory / pattern) else []
    try:
        with os.scandir(directory) as entries:
            return [each.name for each in entries if fnmatch.fnmatchcase(each.name, pattern)]
    except (OSError, ValueError) as error:
        raise_own(error)
        return []


def _within_limit(runner: Runner, command: Sequence[str]) -> str:
    limit: Limit | None = getattr(_limits, 'current', None)
    with running(command[0]):
        return runner(command, limit.rest if limit else None)


def write(path: Path, text: str) -> None:
    """Write an attribute with one write(2): the kernel acts upon each write by itself."""
    attribute = os.open(path, os.O_WRONLY)  # never creates
    try:
        os.write(attribute, text.encode())
    finally:
        os.close(attribute)


def run(command: Sequence[str], timeout: float | None = None, path: str | None = None) -> str:
    """Run a tool and return its output. It is killed with all its children after ``timeout``
    seconds. This returns when they have ended, see ``end``."""
    name = command[0]
    tool = shutil.which(name, path=path) or _own_tool(name)
    if tool is None:
        raise NotInstalled.of(name)
    try:
        # in a process group of its own, so that its children can be killed with it
        process = subprocess.Popen(
            leashed([tool, *command[1:]], path),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise NotRun(f'{name} cannot be started: {error.strerror}') from error
    output = Output(process)
    try:
        output.read(timeout)
    except subprocess.TimeoutExpired:
        raise TimeoutError(
            f'{name} did not end within {timeout:.0f} seconds and {_kill(process, output)}'
        ) from None
    except BaseException:
        _kill(process, output)
        raise
    if process.returncode < 0:
        raise OSError(f'{name} was killed by {_signal(-process.returncode)}{output.quoted}')
    if process.returncode:
        raise OSError(f'{name} ended with {process.returncode}{output.quoted}')
    return output.text


def leashed(command: Sequence[str | Path], path: str | None = None) -> list[str | Path]:
    """Returns a command that the kernel kills when the thread that started it ends. If the agent
    runs as root, this is so when it is killed; otherwise the next agent would work on the device
    beside the command.

    Two things outlive a killed agent: processes that the command itself starts, and the tools that
    the privileged daemon runs for an agent that is not root. The daemon ends after its tools, which
    have the time limit of their call. Without setpriv on the host the command goes on, too.
    """
    setpriv = shutil.which('setpriv', path=path)  # of util-linux
    return [setpriv, '--pdeathsig', 'KILL', *command] if setpriv else list(command)


def _own_tool(name: str) -> str | None:
    """Returns the path of a tool of this package, which is installed beside the interpreter; None
    if it is not such a tool."""
    return (
        shutil.which(name, path=str(Path(sys.executable).parent))
        if (name.startswith('cyborg-') and '/' not in name)
        else None
    )


def _kill(process: 'subprocess.Popen[bytes]', output: Output) -> str:
    """Kill a tool and its children. Returns that it has ended, with its last lines."""
    said = ''
    _kill_group(process)
    try:
        output.read(GRACE)
        said = output.quoted
    except subprocess.TimeoutExpired:
        # it is blocked in the kernel, or a child that left its process group holds the pipes
        output.close()
    finally:
        end(process)
    return f'was killed{said}'


def end(process: 'subprocess.Popen[Any]') -> int:
    """Kill a process and its process group. Returns its code when all of them have ended.

    One that is blocked in the kernel may never end. Then this does not return: the device must not
    count as idle.
    """
    _kill_group(process)
    code, pause = process.wait(), PAUSE
    while _runs(process.pid):
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)
    return code


def _kill_group(process: 'subprocess.Popen[Any]') -> None:
    if process.returncode is None:  # else the kernel may have reused its id
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _runs(group: int) -> bool:
    """Returns whether a process of the group runs. One that has ended counts as a member until its
    parent has noticed, which some parents never do."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    try:
        return any(
            _is_member(f'{PROC}/{process}/task/{thread}', group)
            for process in _names(PROC, '[0-9]*')
            for thread in _names(PROC / process / 'task', '*')
        )
    except OSError:
        return True  # not known at present


def _is_member(thread: str, group: int) -> bool:
    try:
        with open(f'{thread}/stat', errors='replace') as file:
            state, _, member = file.read().rpartition(')')[2].split()[:3]
    except (OSError, ValueError) as error:  # it has ended
        raise_own(error)
        return False
    return int(member) == group and state not in 'ZX'


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f'signal {number}'


def opened(proc: Path, names: Collection[str]) -> dict[str, str]:
    """Returns those of the devices that are open in a process: name -> the program."""
    found: dict[str, str] = {}
    for process in _names(proc, '[0-9]*'):
        for file in _names(proc / process / 'fd', '*'):
            try:
                name = os.readlink(f'{proc}/{process}/fd/{file}').rpartition('/dev/')[2]
                if name in names:
                    program = proc / process / 'comm'
                    found[name] = program.read_text('utf-8', 'replace').strip()
            except OSError as error:  # the process has ended, or closed the file
                raise_own(error)
    return found


def _run_nothing(command: Sequence[str], timeout: float | None) -> str:
    # a tool would change this host and not the simulated one
    raise NotInstalled.of(command[0])


def _write_with_privilege(path: Path, text: str) -> None:
    # imported here: only an agent that is not root needs it, and it imports a lot
    from cyborg.accelerator import privileged

    privileged.write(str(path), text)


def _run_with_privilege(command: Sequence[str], timeout: float | None) -> str:
    from cyborg.accelerator import privileged

    try:
        said: str = privileged.run(list(command), timeout)
    except NotRun:
        raise
    except (privileged.NotStarted, FileNotFoundError) as error:
        raise NotAllowed(
            f'the privileged helper does not start ({error}): correct [cyborg_sys_admin] '
            'helper_command'
        ) from error
    return said


def _opened_with_privilege(names: Collection[str]) -> dict[str, str]:
    from cyborg.accelerator import privileged

    found: dict[str, str] = privileged.opened(sorted(names))
    return found
