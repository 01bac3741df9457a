# SPDX-License-Identifier: Apache-2.0
"""Runs in the guest: judges its kernel by our laws, our drivers by what that kernel shows.

Everything is told on file descriptor 3, one object of JSON a line; ``ask`` is for the host.
"""

import json
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from typing import Any

# Libraries look whether it is there, which nobody here needs and this guest has no time for.
sys.modules['eventlet'] = None  # type: ignore[assignment]

import pyudev  # noqa: E402

from cyborg.accelerator import mdev, pci  # noqa: E402
from cyborg.accelerator.sysfs import Sysfs  # noqa: E402
from cyborg.agent import hotplug  # noqa: E402
from cyborg.sim import conformance, recorder  # noqa: E402
from cyborg.sim.conformance.testbed import comparable  # noqa: E402
from tests.kernel import laws, shared_card  # noqa: E402

ANSWERS = open(3, 'w', buffering=1)


class Guest(laws.Machine):
    """This machine, whose slots the host can reach."""

    def __init__(self) -> None:
        super().__init__(Sysfs())
        [self.card] = [
            each.address
            for each in pci.functions(self.sysfs)
            if each.vendor == shared_card.VENDOR and each.number('sriov_totalvfs')
        ]
        domain, bus, _ = self.card.split(':')
        self.spare = f'{domain}:{int(bus, 16) + 1:02x}:00.0'  # the next port
        self._monitor = hotplug.UdevMonitor(self.heard.append, laws.SUBSYSTEMS)
        self._monitor.start()

    def plug_in(self) -> None:
        tell(ask='plug_in')

    def pull_out(self) -> None:
        tell(ask='pull_out')
        laws._until(lambda: not pci.Function.at(self.sysfs, self.spare).exists())


def tell(**facts: Any) -> None:
    print(json.dumps(facts), file=ANSWERS, flush=True)


def main(module: str) -> None:
    subprocess.run(['modprobe', '-a', 'vfio-pci', 'mdev', 'e1000e'], check=True)
    subprocess.run(['insmod', module], check=True)
    machine = Guest()
    tell(told='start', uptime=time.monotonic())
    for law in laws.LAWS:
        tell(law=law.__name__, failure=laws.judge(machine, law))
    machine.reset()
    tell(told='laws', uptime=time.monotonic())
    for name, fact in _facts(machine):
        tell(fact=name, value=fact)
    tell(told='facts', uptime=time.monotonic())
    machine.pf.write('sriov_numvfs', '3')
    conf = shared_card.configure()
    make_testbed = conformance.on_real_host(
        lambda sysfs: shared_card.SharedCardDriver(conf, sysfs), machine.sysfs
    )
    for result in conformance.run(
        make_testbed, conformance.DISCOVERY_CHECKS + conformance.ATTACH_CHECKS
    ):
        tell(requirement=result.requirement, failure=result.failure, skipped=result.skipped)
    tell(told='requirements', uptime=time.monotonic())
    drivers = shared_card.load(conf, machine.sysfs)
    tell(
        recorded=recorder.record(machine.sysfs, drivers),
        found=[comparable(device) for each in drivers for device in each.discover()],
    )
    tell(told='end', uptime=time.monotonic())


def _facts(machine: Guest) -> Iterator[tuple[str, Any]]:
    """What the simulator shows in its own way, to be compared by the host."""
    context = pyudev.Context()
    monitor = pyudev.Monitor.from_netlink(context, source='kernel')
    monitor.start()
    machine.pf.write('sriov_numvfs', '1')
    told = list(iter(lambda: monitor.poll(machine.quiet), None))
    yield 'states', [each['MDEV_STATE'] for each in told if 'MDEV_STATE' in each.properties]
    [part] = machine.pf.virtual_functions.values()
    for name, node in (('card', machine.pf), ('part', part)):
        yield name, sorted(each.name for each in node.children())
    kind = next(iter(mdev.types(part).values()))
    yield 'kind', sorted(each.name for each in kind.children())
    kind.write('create', laws.UUIDS[0])
    device = machine.sysfs / mdev.DEVICES / laws.UUIDS[0]
    yield 'mediated', sorted(each.name for each in device.children())
    yield 'mediated uevent', device.read('uevent')
    for subsystem in ('pci', 'mdev', 'mdev_bus', 'ptp'):
        yield (
            f'listed {subsystem}',
            [each.sys_name for each in context.list_devices(subsystem=subsystem)],
        )
    clock = (machine.sysfs / 'class/ptp').children()[0]
    yield (
        'clock',
        {
            name: clock.read(name)
            for name in (
                'clock_name',
                'max_adjustment',
                'n_vclocks',
                'n_programmable_pins',
                'pps_available',
            )
        },
    )
    device.write('remove', '1')
    machine.pf.write('sriov_numvfs', '0')


if __name__ == '__main__':
    try:
        main(*sys.argv[1:])
    except Exception:
        tell(told='broken', why=traceback.format_exc())
