# SPDX-License-Identifier: Apache-2.0
"""Fetches Debian's kernel and headers, unpacked and not installed, and builds a module for it."""

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tools.services import packages
from tools.services.packages import Missing

SERIES = '6.1.'  #: the kernel series that the module needs
BUILD = Path(__file__).parents[2] / 'build/kernel'
MODULE = Path(__file__).parent / 'module'
PROGRAMS = {
    'dpkg': 'dpkg',
    'make': 'make',
    'gcc': 'gcc',
    'kmod': 'depmod',
    'cpio': 'cpio',
    'gzip': 'gzip',
    'util-linux': 'setpriv',
    'xz-utils': 'xz',
}
#: The modules that the guest needs before it mounts this machine's files.
BOOT_MODULES = ('virtio_pci', '9pnet_virtio', '9p', 'overlay')


class Failed(Exception):
    """A command failed although all programs are installed; the message is its last output."""


class Kernel:
    """The newest kernel that apt offers, unpacked below a directory."""

    def __init__(self) -> None:
        if platform.machine() != 'x86_64':
            raise Missing(f'The guest is an x86_64; this machine is {platform.machine()}.')
        for package, program in PROGRAMS.items():
            packages.require(package, program)
        self.busybox = packages.require('busybox-static', 'busybox')
        self.qemu = packages.require('qemu-system-x86', 'qemu-system-x86_64')
        image = _depends('linux-image-amd64', 'linux-image-')
        self.version = image.removeprefix('linux-image-')
        if not self.version.startswith(SERIES):
            raise Missing(f'The test module is for Linux {SERIES}x; apt offers {self.version}.')
        self.directory = BUILD / self.version
        self.root = self.directory / 'root'
        if not (self.directory / 'complete').exists():
            self._fetch(image)

    @property
    def image(self) -> Path:
        return self.root / f'boot/vmlinuz-{self.version}'

    @property
    def modules(self) -> Path:
        """The module directory for modprobe, with the module that is built here."""
        return self.root / 'lib/modules' / self.version

    def _fetch(self, image: str) -> None:
        headers = f'linux-headers-{self.version}'
        wanted = [
            image,
            headers,
            _depends(headers, 'linux-headers-'),
            _depends(headers, 'linux-kbuild-'),
        ]
        shutil.rmtree(self.directory, ignore_errors=True)
        self.root.mkdir(parents=True)
        for package in wanted:
            _run('apt-get', 'download', '-qq', *packages.PATIENT, package, cwd=self.directory)
        for file in self.directory.glob('*.deb'):
            _run('dpkg', '-x', str(file), str(self.root))
            file.unlink()
        self._relocate(headers)
        (self.directory / 'complete').touch()

    def _relocate(self, headers: str) -> None:
        """Adapt the paths in the header files, which assume that they are installed."""
        if not (self.root / 'lib').exists():
            (self.root / 'lib').symlink_to('usr/lib')
        makefile = self.root / f'usr/src/{headers}/Makefile'
        makefile.write_text(
            re.sub(r'(?m)^(include\s+)/usr/src', rf'\1{self.root}/usr/src', makefile.read_text())
        )

    def build_module(self) -> Path:
        """Build the test's own module for this kernel if it is older than its source."""
        place = self.directory / 'module'
        place.mkdir(exist_ok=True)
        built = place / 'shared_card.ko'
        sources = list(MODULE.iterdir())
        if not built.exists() or any(
            source.stat().st_mtime > built.stat().st_mtime for source in sources
        ):
            for source in sources:
                shutil.copy2(source, place)
            headers = self.root / f'usr/src/linux-headers-{self.version}'
            try:
                _run('make', '-C', str(headers), f'M={place}', 'modules')
            except Missing as error:
                raise Failed(str(error)) from error
        if not (self.modules / 'modules.dep').exists():
            _run('depmod', '-b', str(self.root), self.version)
        return built

    def boot_modules(self) -> list[Path]:
        """Return the files of the first modules, each after its dependencies."""
        files: dict[Path, None] = {}
        for name in BOOT_MODULES:
            told = _run(
                'modprobe', '-S', self.version, '-d', str(self.root), '--show-depends', name
            )
            files |= {
                Path(line.split()[1]): None
                for line in told.splitlines()
                if line.startswith('insmod')
            }
        return list(files)


def _depends(package: str, prefix: str) -> str:
    """Return the package of that name on which another one depends."""
    for is_last in (os.geteuid() != 0, True):
        told = _run('apt-cache', 'depends', package, check=False)
        if found := re.search(rf'Depends: ({re.escape(prefix)}\S+)', told):
            return found[1]
        if not is_last:
            _run('apt-get', 'update', '-qq', *packages.PATIENT)
    raise Missing(
        f'apt knows no {package} that needs a {prefix}…: have an administrator run '
        "apt-get update, with Debian's packages among its sources."
    )


def _run(*command: str, cwd: Path | None = None, check: bool = True) -> str:
    path = f'{os.environ.get("PATH", os.defpath)}:/usr/sbin:/sbin'
    done = subprocess.run(
        command,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        text=True,
        capture_output=True,
        env=os.environ | {'PATH': path, 'LC_ALL': 'C'},
    )
    if done.returncode and check:
        raise Missing(_sentence(command, done.stderr or done.stdout))
    return done.stdout


def _sentence(command: Sequence[str], said: str) -> str:
    lines = said.strip().splitlines()
    return f'{" ".join(command[:3])} failed: {lines[-1] if lines else "it did not say why"}'
