# SPDX-License-Identifier: Apache-2.0
"""What the kernel drivers of QuickAssist, FPGA and time cards show of a simulated card."""

import errno
import itertools

from cyborg.accelerator import pci
from cyborg.sim.bus import Bus, Facts, Feature, Function
from cyborg.sim.tree import refuse

SERVICES = frozenset({'sym', 'asym', 'dc', 'dcc', 'sym;asym', 'asym;sym', 'asym;dc', 'dc;asym',
                      'sym;dc', 'dc;sym'})


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
        self._tree.file(f'{path}/auto_reset', '0')

    def unbind(self, function: Function) -> None:
        self._tree.remove(f'{function.path}/qat')

    @staticmethod
    def recorded(function: pci.Function) -> Facts | None:
        services = function.read('qat/cfg_services')
        return {'services': services, 'state': function.read('qat/state')} if services else None

    def _switch(self, function: Function, state: str) -> None:
        if state not in ('up', 'down'):
            raise refuse(errno.EINVAL)
        if state == self._tree.text(f'{function.path}/qat/state'):
            return
        if any(part.driver == 'vfio-pci' for part in function.parts):
            raise refuse(errno.EBUSY)
        self._tree.file(f'{function.path}/qat/state', state)
        self._tree.emit('change', 'pci', function.address)

    def _set_up(self, function: Function, services: str) -> None:
        is_up = self._tree.text(f'{function.path}/qat/state') == 'up'
        if is_up or services not in SERVICES:
            raise refuse(errno.EINVAL)
        self._tree.file(f'{function.path}/qat/cfg_services', services)


class Dfl(Feature):
    """An FPGA as the kernel's own driver shows it: management on the card, a port a region.

    ``ports`` lists what each region is programmed with. The ports of a card with virtual
    functions are released, and sit on these.
    """

    key = 'dfl'

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus)
        self._regions, self._managers = itertools.count(), itertools.count()
        self._ports, self._parts = itertools.count(), itertools.count()
        self._places: dict[tuple[str, int], str] = {}

    def bind(self, function: Function) -> None:
        facts = function.card.facts['dfl']
        base = f'{function.path}/fpga_region/{self._region(function)}'
        self._tree.directory(base)
        if function.parent:
            self._show_port(function, base, function.number, facts['ports'][function.number])
            return
        self._show_manager(function, base)
        if 'sriov' not in function.facts:
            for number, programmed in enumerate(facts['ports']):
                self._show_port(function, base, number, programmed)

    def unbind(self, function: Function) -> None:
        for link in self._tree.path('class/fpga_region').glob('*'):
            if not link.resolve().exists() or link.resolve().is_relative_to(
                    self._tree.path(function.path)):
                self._tree.remove(f'class/fpga_region/{link.name}')
        self._tree.remove(f'{function.path}/fpga_region')
        for place in [each for each, path in self._places.items()
                      if path.startswith(f'{function.path}/')]:
            del self._places[place]

    def check_vfs(self, function: Function, count: int) -> None:
        if not function.parent and count != len(function.facts['dfl']['ports']):
            raise refuse(errno.EINVAL)

    def program(self, address: str, number: int, programmed: str) -> None:
        """Have another function in a region: what a bitstream does."""
        place = self._places[address, number]
        with self._tree.change():
            self._tree.file(f'{place}/afu_id', programmed.replace('-', ''))
            self._tree.emit('change', 'fpga_region', place.split('/')[-2])

    def _show_manager(self, function: Function, base: str) -> None:
        facts, manager = function.facts['dfl'], f'{base}/dfl-fme.{next(self._managers)}'
        self._tree.file(f'{manager}/ports_num', str(len(facts['ports'])))
        self._tree.file(f'{manager}/bitstream_id', facts['shell'])
        self._tree.file(f'{manager}/bitstream_metadata', '0x0')
        for _ in facts['ports']:
            part = f'{manager}/dfl-fme-region.{next(self._parts)}'
            region = f'{part}/fpga_region/{self._region(function, part)}'
            self._tree.file(f'{region}/compat_id', facts['region_type'].replace('-', ''))

    def _show_port(self, function: Function, base: str, number: int, programmed: str) -> None:
        port = f'{base}/dfl-port.{next(self._ports)}'
        self._tree.file(f'{port}/id', str(number))
        self._tree.file(f'{port}/power_state', '0')
        self._tree.file(f'{port}/afu_id', programmed.replace('-', ''))
        self._places[function.card.address, number] = port

    def _region(self, function: Function, below: str | None = None) -> str:
        """A name for a region; the kernel counts them host-wide."""
        name = f'region{next(self._regions)}'
        self._tree.link(f'class/fpga_region/{name}',
                        f'{below or function.path}/fpga_region/{name}')
        self._tree.emit('add', 'fpga_region', name)
        return name


class Timecard(Feature):
    """A card with a clock and a receiver."""

    key = 'timecard'

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus)
        self._count = itertools.count()

    def bind(self, function: Function) -> None:
        number, facts = next(self._count), function.facts['timecard']
        card, clock = f'{function.path}/timecard/ocp{number}', f'{function.path}/ptp/ptp{number}'
        for name, text in {'clock_name': 'ptp_ocp', 'max_adjustment': '8000000',
                           'n_vclocks': '0', 'n_programmable_pins': '4',
                           'pps_available': '1'}.items():
            self._tree.file(f'{clock}/{name}', text)
        for name, text in {'serialnum': facts['serial'], 'gnss_sync': facts.get('gnss', 'SYNC'),
                           'clock_source': 'PPS',
                           'available_clock_sources': 'NONE PPS TOD IRIG DCF'}.items():
            self._tree.file(f'{card}/{name}', text)
        self._tree.link(f'{card}/ptp', clock)
        self._tree.link(f'class/timecard/ocp{number}', card)
        self._tree.link(f'class/ptp/ptp{number}', clock)
        self._tree.emit('add', 'ptp', f'ptp{number}')
        self._tree.emit('add', 'timecard', f'ocp{number}')

    def unbind(self, function: Function) -> None:
        for kind in ('timecard', 'ptp'):
            for node in self._tree.path(f'{function.path}/{kind}').iterdir():
                self._tree.remove(f'class/{kind}/{node.name}')
                self._tree.emit('remove', kind, node.name)
            self._tree.remove(f'{function.path}/{kind}')
