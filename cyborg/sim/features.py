# SPDX-License-Identifier: Apache-2.0
"""What the kernel drivers of QuickAssist and time cards show of a simulated card."""

import errno
import itertools

from cyborg.accelerator import pci
from cyborg.sim.bus import Bus, Facts, Feature, Function
from cyborg.sim.tree import refuse

SERVICES = frozenset({'sym', 'asym', 'dc', 'dcc', 'sym;asym', 'asym;sym', 'asym;dc', 'dc;asym',
                      'sym;dc', 'dc;sym'})

#: What a clock can do, and that nobody uses it.
CLOCK = {'clock_name': 'ptp_ocp', 'max_adjustment': '8000000', 'max_vclocks': '20',
         'n_vclocks': '0', 'n_alarms': '0', 'n_external_timestamps': '6',
         'n_periodic_outputs': '5', 'n_programmable_pins': '4', 'pps_available': '1'}
CLOCKS = 249  #: the number of their driver
FIRST_PROCESS = 800  #: of those that have a clock open
RECEIVER = {'clock_source': 'PPS', 'clock_status_drift': '0', 'clock_status_offset': '0',
            'available_clock_sources': 'NONE TOD IRIG PPS PTP RTC DCF REGS EXT',
            'utc_tai_offset': '37'}


class Qat(Feature):
    """A card of the fourth generation: up or down, and set up for some services."""

    key = 'qat'

    def bind(self, function: Function) -> None:
        path, facts = f'{function.path}/qat', function.facts['qat']
        self._tree.file(f'{path}/state', facts.get('state', 'up'),
                        lambda text: self._switch(function, text))
        self._tree.file(f'{path}/cfg_services', facts.get('services', 'sym;asym'),
                        lambda text: self._set_up(function, text))
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
            raise refuse(errno.EBUSY)  # whatever is asked for
        if state not in ('up', 'down'):
            raise refuse(errno.EINVAL)
        self._tree.file(f'{function.path}/qat/state', state)  # no event tells of it

    def _set_up(self, function: Function, services: str) -> None:
        is_up = self._tree.text(f'{function.path}/qat/state') == 'up'
        if is_up or services not in SERVICES:
            raise refuse(errno.EINVAL)
        self._tree.file(f'{function.path}/qat/cfg_services', services)


class Timecard(Feature):
    """A card with a clock and a receiver. ``opened_by`` names a program of the host that keeps the
    clock open."""

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
        self._tree.file(f'{clock}/uevent', f'MAJOR={CLOCKS}\nMINOR={number}\nDEVNAME=ptp{number}',
                        lambda text: self._tree.synthesize(text, 'ptp', f'ptp{number}'))
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
                # a program that has the clock open keeps nothing but a dead file
                self._tree.remove(f'proc/{FIRST_PROCESS + int(node.name[3:])}')
                self._tree.emit('remove', kind, node.name)
            self._tree.remove(f'{function.path}/{kind}')
