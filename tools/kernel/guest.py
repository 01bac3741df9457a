# SPDX-License-Identifier: Apache-2.0
"""A guest in QEMU that runs one command on this machine's files, and receives its messages."""

import contextlib
import json
import shlex
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tools.kernel.debian import Failed, Kernel

ROOT = Path(__file__).parents[2]
INIT = Path(__file__).parent / 'init.sh'
APPLETS = ('sh', 'mount', 'insmod', 'mkdir', 'cat', 'switch_root')
#: Seconds without a message after which a guest counts as hanging and is started again. It
#: imports many modules before its first message, on a machine that may be busy.
LIMIT = 300
STARTING = 300  #: seconds until QEMU listens
TRIES = 2
MEMORY = 1024
#: A card with virtual functions behind one port, an empty slot behind the next, a network card
#: with a clock, an IOMMU.
DEVICES = (
    'intel-iommu,intremap=on',
    'nvme-subsys,id=subsystem',
    'pcie-root-port,id=port0,chassis=1,slot=1',
    'nvme,id=card,serial=feed,subsys=subsystem,bus=port0,sriov_max_vfs=4,sriov_vq_flexible=8,'
    'sriov_vi_flexible=4,max_ioqpairs=12,msix_qsize=13',
    'pcie-root-port,id=port1,chassis=2,slot=2',
    'e1000e,id=net',
)

#: On a busy machine the kernel takes a slow timer for a broken one and panics.
WORDS = 'console=ttyS0 quiet panic=-1 intel_iommu=on no_timer_check nowatchdog'

Told = Mapping[str, Any]


class Guest:
    """A running guest. It writes JSON objects to its second serial port."""

    def __init__(self, answers: socket.socket, monitor: socket.socket) -> None:
        self._answers = answers.makefile('r', errors='replace')
        self._monitor = monitor.makefile('rw')
        self._monitor.readline()
        self.order('qmp_capabilities')

    def close(self) -> None:
        self._answers.close()
        self._monitor.close()

    def order(self, command: str, **arguments: Any) -> None:
        """Execute a QMP command."""
        print(
            json.dumps({'execute': command, 'arguments': arguments}), file=self._monitor, flush=True
        )
        for line in self._monitor:
            answer = json.loads(line)
            if 'error' in answer:
                raise Failed(f'QEMU does not {command}: {answer["error"]["desc"]}')
            if 'return' in answer:
                return

    def listen(self) -> Iterator[Told]:
        """Yield its messages until it ends."""
        for line in self._answers:
            with contextlib.suppress(ValueError):
                yield json.loads(line)


def run(kernel: Kernel, command: Sequence[str], on_told: Callable[[Guest, Told], None]) -> str:
    """Boot, run the command and pass on its messages; try again if the command does not end.
    Returns its output."""
    for attempt in range(1, TRIES + 1):
        try:
            return _run_once(kernel, command, on_told)
        except Failed:
            if attempt == TRIES:
                raise
    raise AssertionError('not reached')


def _run_once(
    kernel: Kernel, command: Sequence[str], on_told: Callable[[Guest, Told], None]
) -> str:
    with tempfile.TemporaryDirectory(prefix='guest-', dir=kernel.directory) as name:
        directory = Path(name)
        _make_initramfs(kernel, directory)
        _make_script(kernel, command, directory / 'run')
        with (directory / 'console').open('wb') as console:
            running = subprocess.Popen(
                _qemu(kernel, directory), stdin=subprocess.DEVNULL, stdout=console, stderr=console
            )
        try:
            with (
                _connect(directory / 'answers') as answers,
                _connect(directory / 'monitor') as monitor,
                contextlib.closing(Guest(answers, monitor)) as guest,
            ):
                told: Told = {}
                for told in guest.listen():
                    if 'ended' not in told:
                        on_told(guest, told)
            if running.wait(LIMIT) or 'ended' not in told:
                raise OSError('it was ended')
            return (directory / 'console').read_text(errors='replace')
        except (OSError, ValueError, subprocess.TimeoutExpired) as error:
            words = (directory / 'console').read_text(errors='replace').strip()
            raise Failed(f'The guest did not end well ({error}): …{words[-2000:]}') from error
        finally:
            running.kill()
            running.wait()


def _make_script(kernel: Kernel, command: Sequence[str], path: Path) -> None:
    modules = kernel.modules
    path.write_text(f"""\
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/run
echo guest > /proc/sys/kernel/hostname
mkdir -p /lib/modules
ln -sfn {shlex.quote(str(modules))} /lib/modules/{kernel.version}
exec 3>/dev/ttyS1
stty -F /dev/ttyS1 raw -echo
cd {shlex.quote(str(ROOT))}
{shlex.join(command)}
echo "{{\\"ended\\": $?}}" >&3
exec 3>&-
""")


def _make_initramfs(kernel: Kernel, directory: Path) -> None:
    root = directory / 'initramfs'
    for name in ('bin', 'dev', 'proc', 'sys', 'merged', 'lib'):
        (root / name).mkdir(parents=True)
    shutil.copy2(kernel.busybox, root / 'bin/busybox')
    for applet in APPLETS:
        (root / 'bin' / applet).symlink_to('busybox')
    names = []
    for file in kernel.boot_modules():
        names.append(f'/lib/{file.name.removesuffix(".xz")}')
        data = file.read_bytes()
        if file.suffix == '.xz':
            data = subprocess.run(['xz', '-dc'], input=data, capture_output=True, check=True).stdout
        (root / names[-1][1:]).write_bytes(data)
    (root / 'modules').write_text('\n'.join(names) + '\n')
    shutil.copy2(INIT, root / 'init')
    (root / 'init').chmod(0o755)
    with (directory / 'initramfs.gz').open('wb') as packed:
        subprocess.run(
            'find . | cpio --quiet -o -H newc | gzip -1',
            shell=True,
            cwd=root,
            stdout=packed,
            check=True,
        )


def _qemu(kernel: Kernel, directory: Path) -> list[str]:
    command = [
        # the guest ends with this process
        'setpriv',
        '--pdeathsig',
        'KILL',
        kernel.qemu,
        '-machine',
        'q35,accel=tcg,kernel-irqchip=split',
        '-cpu',
        'max',
        '-smp',
        '1',
        '-m',
        str(MEMORY),
        '-display',
        'none',
        '-nodefaults',
        '-no-reboot',
        '-kernel',
        str(kernel.image),
        '-initrd',
        str(directory / 'initramfs.gz'),
        '-append',
        f'{WORDS} run={directory / "run"}',
        '-serial',
        'stdio',
        '-qmp',
        f'unix:{directory}/monitor,server=on,wait=off',
        '-chardev',
        f'socket,id=answers,path={directory}/answers,server=on,wait=on',
        '-serial',
        'chardev:answers',
        '-virtfs',
        'local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap',
    ]
    return command + [word for device in DEVICES for word in ('-device', device)]


def _connect(path: Path) -> socket.socket:
    deadline = time.monotonic() + STARTING
    while True:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(str(path))
            connection.settimeout(LIMIT)
            return connection
        except OSError:
            connection.close()
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
