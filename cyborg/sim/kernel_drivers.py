# SPDX-License-Identifier: Apache-2.0
"""The attributes that the kernel drivers of QuickAssist, time, network and DSA cards show."""

import errno
import functools
import itertools
import re
from collections.abc import Callable

from cyborg.accelerator import pci
from cyborg.sim.bus import Bus, Facts, Feature, Function
from cyborg.sim.tree import kernel_error

SERVICES = frozenset(
    {'sym', 'asym', 'dc', 'dcc', 'sym;asym', 'asym;sym', 'asym;dc', 'dc;asym', 'sym;dc', 'dc;sym'}
)

#: The attributes of a clock that is not in use.
CLOCK = {
    'clock_name': 'ptp_ocp',
    'max_adjustment': '8000000',
    'max_vclocks': '20',
    'n_vclocks': '0',
    'n_alarms': '0',
    'n_external_timestamps': '6',
    'n_periodic_outputs': '5',
    'n_programmable_pins': '4',
    'pps_available': '1',
}
CLOCKS = 249  #: the major device number of clocks
FIRST_PROCESS = 800  #: the lowest id of a process that has a clock open
RECEIVER = {
    'clock_source': 'PPS',
    'clock_status_drift': '0',
    'clock_status_offset': '0',
    'available_clock_sources': 'NONE TOD IRIG PPS PTP RTC DCF REGS EXT',
    'utc_tai_offset': '37',
}


class Qat(Feature):
    """A QuickAssist card of the fourth generation: its state and its services."""

    key = 'qat'

    def bind(self, function: Function) -> None:
        path, facts = f'{function.path}/qat', function.facts['qat']
        self._tree.file(
            f'{path}/state', facts.get('state', 'up'), lambda text: self._switch(function, text)
        )
        self._tree.file(
            f'{path}/cfg_services',
            facts.get('services', 'sym;asym'),
            lambda text: self._set_up(function, text),
        )
        self._tree.file(f'{path}/num_rps', '64')
        self._tree.file(f'{path}/pm_idle_enabled', '1')
        self._tree.file(f'{path}/auto_reset', '0')

    def unbind(self, function: Function) -> None:
        self._tree.remove(f'{function.path}/qat')

    @staticmethod
    def recorded(function: pci.Function) -> Facts | None:
        services = function.read('qat/cfg_services')
        return {'services': services, 'state': function.read('qat/state')} if services else None

    def _switch(self, function: Function, state: str) -> None:
        if any(part.driver == 'vfio-pci' for part in function.parts):
            raise kernel_error(errno.EBUSY)  # whatever the new state is
        if state not in ('up', 'down'):
            raise kernel_error(errno.EINVAL)
        self._tree.file(f'{function.path}/qat/state', state)  # the kernel emits no event

    def _set_up(self, function: Function, services: str) -> None:
        is_up = self._tree.text(f'{function.path}/qat/state') == 'up'
        if is_up or services not in SERVICES:
            raise kernel_error(errno.EINVAL)
        self._tree.file(f'{function.path}/qat/cfg_services', services)


class Timecard(Feature):
    """A card with a clock and a GNSS receiver. ``opened_by`` names a program of the host that has
    the clock open."""

    key = 'timecard'

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus)
        self._count = itertools.count()

    def bind(self, function: Function) -> None:
        number, facts = next(self._count), function.facts['timecard']
        card, clock = f'{function.path}/timecard/ocp{number}', f'{function.path}/ptp/ptp{number}'
        for name, text in CLOCK.items():
            self._tree.file(f'{clock}/{name}', text)
        self._tree.file(f'{clock}/dev', f'{CLOCKS}:{number}')
        self._tree.file(
            f'{clock}/uevent',
            f'MAJOR={CLOCKS}\nMINOR={number}\nDEVNAME=ptp{number}',
            lambda text: self._tree.synthesize(text, 'ptp', f'ptp{number}'),
        )
        receiver = {'serialnum': facts['serial'], 'gnss_sync': facts.get('gnss', 'SYNC')}
        for name, text in (RECEIVER | receiver).items():
            self._tree.file(f'{card}/{name}', text)
        self._tree.link(f'{card}/ptp', clock)
        self._tree.link(f'class/timecard/ocp{number}', card)
        self._tree.link(f'class/ptp/ptp{number}', clock)
        if program := facts.get('opened_by'):
            process = f'proc/{FIRST_PROCESS + number}'
            self._tree.file(f'{process}/comm', program)
            self._tree.link(f'{process}/fd/3', f'dev/ptp{number}')
        self._tree.emit('add', 'ptp', f'ptp{number}')
        self._tree.emit('add', 'timecard', f'ocp{number}')

    def unbind(self, function: Function) -> None:
        for kind in ('timecard', 'ptp'):
            for node in self._tree.path(f'{function.path}/{kind}').iterdir():
                self._tree.remove(f'class/{kind}/{node.name}')
                # the clock is gone, and with it the process that had it open
                self._tree.remove(f'proc/{FIRST_PROCESS + int(node.name[3:])}')
                self._tree.emit('remove', kind, node.name)
            self._tree.remove(f'{function.path}/{kind}')


class DriverFiles(Feature):
    """Read-only files of a driver that is not simulated otherwise."""

    key = 'driver_files'

    def bind(self, function: Function) -> None:
        for name, text in function.facts[self.key].items():
            self._tree.file(f'{function.path}/{name}', str(text))

    def unbind(self, function: Function) -> None:
        for name in function.facts[self.key]:
            self._tree.remove(f'{function.path}/{name.split("/")[0]}')


class DriverSettings(DriverFiles):
    """Files of a driver that is not simulated otherwise. Each keeps the text that is written."""

    key = 'driver_settings'

    def bind(self, function: Function) -> None:
        super().bind(function)
        for name, text in function.facts[self.key].items():
            path = f'{function.path}/{name}'
            self._tree.file(path, str(text), functools.partial(self._tree.file, path))


class Net(Feature):
    """A network interface, which has the name that udev gives it; ``up`` if the host uses it."""

    key = 'net'

    def bind(self, function: Function) -> None:
        facts, (_, bus, device, number) = function.facts['net'], re.split('[:.]', function.address)
        name = facts.get('name', f'enp{int(bus, 16)}s{int(device, 16)}f{number}')
        path, is_up = f'{function.path}/net/{name}', facts.get('up', False)
        for attribute, text in {
            'address': f'02:00:00:{bus}:{device}:0{number}',
            'mtu': '1500',
            'operstate': 'up' if is_up else 'down',
            'flags': '0x1003' if is_up else '0x1002',
        }.items():
            self._tree.file(f'{path}/{attribute}', text)
        self._tree.link(f'{path}/device', function.path)
        self._tree.link(f'class/net/{name}', path)

    def unbind(self, function: Function) -> None:
        for interface in self._tree.path(f'{function.path}/net').iterdir():
            self._tree.remove(f'class/net/{interface.name}')
        self._tree.remove(f'{function.path}/net')


class Idxd(Feature):
    """A DSA or IAX accelerator. Drivers of the dsa bus are bound to it and its work queues."""

    key = 'idxd'

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus)
        self._count = itertools.count()
        self._places: dict[str, str] = {}
        for driver in ('idxd', 'user', 'dmaengine'):
            for verb, state in (('bind', 'enabled'), ('unbind', 'disabled')):
                self._tree.trigger(f'bus/dsa/drivers/{driver}/{verb}', self._switch(driver, state))

    def bind(self, function: Function) -> None:
        facts = function.facts['idxd']
        number = next(self._count)
        name = f'{facts["kind"]}{number}'
        path = f'{function.path}/{name}'
        self._show(
            name,
            path,
            {
                'version': '0x100',
                'state': 'disabled',
                'max_groups': '4',
                'max_engines': '4',
                'max_work_queues': '8',
                'max_work_queues_size': '128',
                'configurable': '1',
                'errors': '0',
                'pasid_enabled': '1',
                'cdev_major': '511',
                'numa_node': '0',
                'max_batch_size': '1024',
                'max_transfer_size': '2147483648',
                'cmd_status': '0x0',
                'op_cap': '00000000,' * 7 + '003f03ff',
            },
        )
        for kind, facts_of_kind in (
            ('group', {'engines': '', 'work_queues': ''}),
            ('engine', {'group_id': '-1'}),
        ):
            for place in range(4):
                self._show(
                    f'{kind}{number}.{place}', f'{path}/{kind}{number}.{place}', facts_of_kind
                )
        for queue in range(facts.get('queues', 8)):
            self._show(
                f'wq{number}.{queue}',
                f'{path}/wq{number}.{queue}',
                {
                    'state': 'disabled',
                    'mode': 'dedicated',
                    'type': 'none',
                    'name': '',
                    'driver_name': '',
                    'size': '0',
                    'priority': '0',
                    'group_id': '-1',
                    'threshold': '0',
                    'block_on_fault': '0',
                    'cdev_minor': '-1',
                    'occupancy': '0',
                    'max_batch_size': '1024',
                    'ats_disable': '0',
                },
            )
        self._tree.emit('add', 'dsa', name)

    def unbind(self, function: Function) -> None:
        for name in [
            name for name, path in self._places.items() if path.startswith(f'{function.path}/')
        ]:
            self._tree.remove(f'bus/dsa/devices/{name}')
            self._tree.remove(self._places.pop(name))
            self._tree.emit('remove', 'dsa', name)

    def _show(self, name: str, path: str, attributes: dict[str, str]) -> None:
        for attribute, text in attributes.items():
            self._tree.file(f'{path}/{attribute}', text)
        self._tree.link(f'bus/dsa/devices/{name}', path)
        self._places[name] = path

    def _switch(self, driver: str, state: str) -> Callable[[str], None]:
        def switch(name: str) -> None:
            if name not in self._places or name.startswith('wq') is (driver == 'idxd'):
                raise kernel_error(errno.ENODEV)
            card = self._places[name].rpartition('/')[0]
            if name.startswith('wq') and self._tree.text(f'{card}/state') != 'enabled':
                raise kernel_error(errno.EPERM)
            self._tree.set_text(f'{self._places[name]}/state', state)
            self._tree.emit('bind' if state == 'enabled' else 'unbind', 'dsa', name)

        return switch
