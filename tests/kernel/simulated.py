# SPDX-License-Identifier: Apache-2.0
"""Simulated machines for the laws: in this process, and as the /sys of this process."""

from pathlib import Path

import yaml

from cyborg.accelerator.sysfs import Sysfs
from cyborg.agent import hotplug
from cyborg.sim import Host
from tests.kernel import laws

#: Shared by its virtual functions.
CARD = {'model': '10de:20b5', 'at': laws.Machine.card, 'vfs': 0}
#: Shared by itself.
SPARE = {
    'model': '10de:1eb8',
    'at': laws.Machine.spare,
    'mdev': {
        'types': {
            468: {'name': 'NVIDIA A100-4C', 'max_instance': 10},
            471: {'name': 'NVIDIA A100-20C', 'max_instance': 2},
        }
    },
}


class Simulated(laws.Machine):
    """Without any privilege."""

    quiet = 0
    has_modes = False

    def __init__(self, path: Path) -> None:
        self.host = Host(path)
        super().__init__(self.host.sysfs)
        self.host.plug_in(**CARD)
        self.host.subscribe(self.heard.append)

    def plug_in(self) -> None:
        self.host.plug_in(**SPARE)

    def pull_out(self) -> None:
        self.host.pull_out(self.spare)


class Mounted(laws.Machine):
    """The machine on which this process believes to be, by way of cyborg-sim mount."""

    quiet = 0.05

    def __init__(self) -> None:
        super().__init__(Sysfs())
        self._monitor = hotplug.UdevMonitor(self.heard.append, laws.SUBSYSTEMS)
        self._monitor.start()

    def plug_in(self) -> None:
        self.sysfs.write('kernel/cyborg_sim/plug_in', yaml.safe_dump(SPARE))

    def pull_out(self) -> None:
        self.sysfs.write('kernel/cyborg_sim/pull_out', self.spare)


def main() -> None:
    """Print one line a law."""
    machine = Mounted()
    for law in laws.LAWS:
        print(law.__name__, laws.judge(machine, law) or 'holds')


if __name__ == '__main__':
    main()
