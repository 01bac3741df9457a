# SPDX-License-Identifier: Apache-2.0
"""Runs where /sys is a simulated host, with a libvirtd of its own: prints as JSON what libvirt
makes of the host, and of the domain in the file that is its first argument, which QEMU would run,
and whether the agent finds there the mediated devices of the further arguments:
<uuid>@<address of the parent>."""

import glob
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from oslo_config import cfg

from cyborg import errors, objects
from cyborg.accelerator.sysfs import Sysfs
from cyborg.agent.node_devices import NodeDevices
from cyborg.conf import agent

DRIVERS = ('/usr/lib/*/libvirt/connection-driver', '/usr/lib*/libvirt/connection-driver')
NODEDEV, QEMU = 'libvirt_driver_nodedev.so', 'libvirt_driver_qemu.so'
CONF = """
unix_sock_group = "root"
unix_sock_dir = "{directory}"
auth_unix_rw = "none"
auth_unix_ro = "none"
"""
QEMU_CONF = """
user = "root"
group = "root"
security_driver = "none"
"""
#: a user that Debian's package of the daemon's configuration brings
ACCOUNTS = {'passwd': 'libvirt-qemu:x:0:0::/:/bin/false', 'group': 'libvirt-qemu:x:0:\nkvm:x:0:'}


def main() -> None:
    # the namespace is ours: nothing of the machine's own libvirt is seen or changed
    for place in ('/run', '/var/lib', '/var/cache', '/var/log', '/etc/libvirt'):
        if Path(place).is_dir():
            subprocess.run(['mount', '-t', 'tmpfs', 'tmpfs', place], check=True)
    directory = Path(tempfile.mkdtemp(dir='/run'))
    (directory / 'drivers').mkdir()
    for name in (NODEDEV, QEMU):
        [library, *_] = [each for place in DRIVERS for each in glob.glob(f'{place}/{name}')]
        (directory / 'drivers' / name).symlink_to(library)
    add_accounts(directory)
    Path('/etc/libvirt').mkdir(exist_ok=True)
    Path('/etc/libvirt/qemu.conf').write_text(QEMU_CONF)
    conf = directory / 'libvirtd.conf'
    conf.write_text(CONF.format(directory=directory))
    with (directory / 'log').open('wb') as log:
        daemon = subprocess.Popen(
            ['setpriv', '--pdeathsig', 'KILL', 'libvirtd', '-f', conf, '-p', directory / 'pid'],
            stdout=log,
            stderr=log,
            env=os.environ | {'LIBVIRT_DRIVER_DIR': str(directory / 'drivers')},
        )
    try:
        socket = directory / 'libvirt-sock'
        while not socket.exists():
            if daemon.poll() is not None:
                sys.exit((directory / 'log').read_text())
            time.sleep(0.05)
        read(f'nodedev:///system?socket={socket}', f'qemu:///system?socket={socket}')
    finally:
        daemon.terminate()
        daemon.wait()


def add_accounts(directory: Path) -> None:
    """To what is known in this namespace."""
    for name, lines in ACCOUNTS.items():
        known = Path('/etc') / name
        (directory / name).write_text(f'{known.read_text()}{lines}\n')
        subprocess.run(['mount', '--bind', directory / name, known], check=True)


def read(uri: str, qemu: str) -> None:
    names = virsh(uri, 'nodedev-list').split()
    found = {
        name: virsh(uri, f'nodedev-dumpxml {name}')
        for name in names
        if name.startswith(('pci_', 'mdev_'))
    }
    domain, *mdevs = sys.argv[1:]
    virsh(qemu, f'define --validate {domain}')
    print(
        json.dumps(
            {
                'devices': found,
                'domain': virsh(qemu, 'dumpxml guest'),
                'waits': {each: wait(uri, each) for each in mdevs},
            }
        )
    )


def wait(uri: str, mdev: str) -> str:
    """What the agent says of a mediated device that it waits for; nothing if it is there."""
    conf = cfg.ConfigOpts()
    conf.register_opts(agent.OPTS, agent.GROUP)
    conf([], project='cyborg', default_config_files=[], default_config_dirs=[])
    conf.set_override('libvirt_uri', uri, agent.GROUP.name)
    conf.set_override('libvirt_timeout', 1, agent.GROUP.name)
    uuid, _, address = mdev.partition('@')
    domain, bus, device, function = address.replace('.', ':').split(':')
    info = {'domain': domain, 'bus': bus, 'device': device, 'function': function}
    handle = objects.AttachHandle(uuid=uuid, type=objects.HandleType.MDEV, info=info)
    try:
        NodeDevices(conf, Sysfs()).wait_for(handle)
    except errors.DriverFailed as error:
        return error.faultstring
    return ''


def virsh(uri: str, command: str) -> str:
    return subprocess.run(
        ['virsh', '-q', '-c', uri, *command.split()], check=True, text=True, stdout=subprocess.PIPE
    ).stdout


if __name__ == '__main__':
    main()
