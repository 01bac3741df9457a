# SPDX-License-Identifier: Apache-2.0
"""A real kernel obeys the laws of the simulated one, and our drivers serve it as they serve that.

One guest is booted for all of these.
"""

import sys

import pytest

from cyborg.accelerator import mdev, pci
from cyborg.sim import Host, conformance
from cyborg.sim.conformance.testbed import comparable
from tests.kernel import laws, shared_card, simulated
from tools import kernel

#: Fetching a kernel and booting it, twice if need be, takes its time.
pytestmark = pytest.mark.timeout(2400)
#: How QEMU's monitor plugs the spare card in and pulls it out.
ORDERS = {
    'plug_in': ('device_add', {'driver': 'nvme', 'id': 'spare', 'bus': 'port1', 'serial': 'spare'}),
    'pull_out': ('device_del', {'id': 'spare'}),
}


class Told:
    """What the program in the guest found."""

    def __init__(self):
        self.clear()

    def clear(self):
        self.laws, self.facts, self.requirements = {}, {}, {}
        self.recorded = self.found = self.trouble = None
        self.is_complete = False

    def take(self, guest, told):
        if 'ask' in told:
            order, arguments = ORDERS[told['ask']]
            guest.order(order, **arguments)
        elif 'law' in told:
            self.laws[told['law']] = told['failure']
        elif 'fact' in told:
            self.facts[told['fact']] = told['value']
        elif 'requirement' in told:
            self.requirements[told['requirement']] = told['failure'], told['skipped']
        elif 'recorded' in told:
            self.recorded, self.found = told['recorded'], told['found']
        elif told['told'] == 'start':
            self.clear()  # of an attempt that did not come to its end
        elif told['told'] == 'broken':
            self.trouble = told['why']
        elif told['told'] == 'end':
            self.is_complete = True


@pytest.fixture(scope='module')
def guest():
    try:
        booted = kernel.Kernel()
        module = booted.build_module()
    except kernel.Missing as why:
        pytest.skip(str(why))
    told = Told()
    printed = kernel.run(
        booted,
        [sys.executable, '-W', 'ignore', '-m', 'tests.kernel.program', str(module)],
        told.take,
    )
    assert told.is_complete, told.trouble or printed
    return told


@pytest.fixture(scope='module')
def host(tmp_path_factory):
    """A simulated one with the same kind of card, in the same state."""
    host = Host(tmp_path_factory.mktemp('host') / 'sys')
    host.plug_in(**simulated.CARD | {'vfs': 1})
    [part] = pci.Function.at(host.sysfs, laws.Machine.card).virtual_functions.values()
    host.sysfs.write(
        f'{pci.DEVICES}/{part.address}/mdev_supported_types/nvidia-468/create', laws.UUIDS[0]
    )
    return host


@pytest.mark.parametrize('law', [law.__name__ for law in laws.LAWS])
def test_a_law_holds(guest, law):
    assert guest.laws[law] is None


@pytest.mark.parametrize(
    'check',
    conformance.DISCOVERY_CHECKS + conformance.ATTACH_CHECKS,
    ids=lambda check: check.function.__name__,
)
def test_a_driver_meets_the_requirement(guest, check):
    failure, skipped = guest.requirements[check.requirement]
    assert failure is None
    if skipped:
        assert skipped == 'it needs a simulated host'
        pytest.skip(skipped)


#: counters of functions with advanced error reporting, which the emulated card does not have
AER = {'aer_dev_correctable', 'aer_dev_fatal', 'aer_dev_nonfatal'}


class TestTheSimulatorShowsNothingElse:
    def names(self, node):
        return {each.name for each in node.children()} - AER

    def test_of_a_card(self, guest, host):
        card = pci.Function.at(host.sysfs, laws.Machine.card)
        assert self.names(card) <= set(guest.facts['card'])

    def test_of_a_virtual_function(self, guest, host):
        [part] = pci.Function.at(host.sysfs, laws.Machine.card).virtual_functions.values()
        real = set(guest.facts['part'])
        assert self.names(part) - {laws.UUIDS[0]} <= real

    def test_of_a_type(self, guest, host):
        [part] = pci.Function.at(host.sysfs, laws.Machine.card).virtual_functions.values()
        kind = mdev.types(part)['nvidia-468']
        assert self.names(kind) == set(guest.facts['kind'])

    def test_of_a_mediated_device(self, guest, host):
        device = host.sysfs / mdev.DEVICES / laws.UUIDS[0]
        assert self.names(device) <= set(guest.facts['mediated'])
        assert device.read('uevent') == guest.facts['mediated uevent']

    def test_of_a_clock(self, guest, tmp_path):
        host = Host(tmp_path / 'sys')
        host.plug_in('1d9b:0400', at='0000:85:00.0')
        clock = host.sysfs / 'class/ptp/ptp0'
        assert all(clock.has(name) for name in guest.facts['clock'])
        assert None not in guest.facts['clock'].values()


class TestUdev:
    def test_it_lists_what_it_lists_of_a_simulated_host(self, guest):
        assert guest.facts['listed mdev'] == [laws.UUIDS[0]]
        assert guest.facts['listed ptp'] == ['ptp0']
        assert guest.facts['listed mdev_bus'] == []  # links are not devices

    def test_a_parent_says_that_it_is_one(self, guest):
        assert guest.facts['states'] == ['registered']


def test_what_was_recorded_there_looks_the_same_here(guest, tmp_path):
    host = Host.described(tmp_path / 'sys', guest.recorded)
    drivers = shared_card.load(shared_card.configure(), host.sysfs)
    found = [comparable(device) for each in drivers for device in each.discover()]
    assert len(found) >= len(drivers)
    assert found == guest.found
