# SPDX-License-Identifier: Apache-2.0
"""Runs where /sys is a simulated host: prints what libvirt makes of it, as JSON."""

import glob
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

DRIVERS = ('/usr/lib/*/libvirt/connection-driver', '/usr/lib*/libvirt/connection-driver')
DRIVER = 'libvirt_driver_nodedev.so'
URI = 'nodedev:///system'
CONF = """
unix_sock_group = "root"
unix_sock_dir = "{directory}"
auth_unix_rw = "none"
auth_unix_ro = "none"
"""


def main() -> None:
    # the namespace is ours: nothing of the machine's own libvirt is seen or changed
    for place in ('/run', '/var/lib', '/var/cache'):
        subprocess.run(['mount', '-t', 'tmpfs', 'tmpfs', place], check=True)
    directory = Path(tempfile.mkdtemp(dir='/run'))
    (directory / 'drivers').mkdir()
    [library, *_] = [each for place in DRIVERS for each in glob.glob(f'{place}/{DRIVER}')]
    (directory / 'drivers' / DRIVER).symlink_to(library)
    conf = directory / 'libvirtd.conf'
    conf.write_text(CONF.format(directory=directory))
    with (directory / 'log').open('wb') as log:
        daemon = subprocess.Popen(
            ['setpriv', '--pdeathsig', 'KILL', 'libvirtd', '-f', conf, '-p', directory / 'pid'],
            stdout=log, stderr=log,
            env=os.environ | {'LIBVIRT_DRIVER_DIR': str(directory / 'drivers')})
    try:
        socket = directory / 'libvirt-sock'
        while not socket.exists():
            if daemon.poll() is not None:
                sys.exit((directory / 'log').read_text())
            time.sleep(0.05)
        read(f'{URI}?socket={socket}')
    finally:
        daemon.terminate()
        daemon.wait()


def read(uri: str) -> None:
    names = virsh(uri, 'nodedev-list').split()
    print(json.dumps({name: virsh(uri, f'nodedev-dumpxml {name}') for name in names
                      if name.startswith(('pci_', 'mdev_'))}))


def virsh(uri: str, command: str) -> str:
    return subprocess.run(['virsh', '-c', uri, *command.split()], check=True, text=True,
                          stdout=subprocess.PIPE).stdout


if __name__ == '__main__':
    main()
