# SPDX-License-Identifier: Apache-2.0
"""Cards that are there but ill."""

import pytest

from cyborg.accelerator import health, pci

ADDRESS = '0000:6b:00.0'
COUNTERS = 'Undefined 0\nDLP 0\nTLP {count}\nTOTAL_ERR_{name} {count}'


@pytest.fixture
def card(host):
    host.plug_in('8086:4940', at=ADDRESS, vfs=2)
    return pci.Function.at(host.sysfs, ADDRESS)


@pytest.fixture
def show(host, card):
    """Have the card's directory hold something."""
    def show(name, text):
        host.tree.file(f'{host.tree.real(pci.DEVICES)}/{ADDRESS}/{name}', text)
    return show


@pytest.fixture
def discover(load):
    return lambda: list(load('intel_qat_driver').discover())


def test_one_that_is_well_has_no_fault(card, show, discover):
    show('aer_dev_fatal', COUNTERS.format(name='FATAL', count=0))
    show('aer_dev_nonfatal', COUNTERS.format(name='NONFATAL', count=3))
    assert discover()[0].fault is None


def test_one_that_had_a_fatal_error_keeps_its_place_and_says_so(card, show, discover):
    [before] = discover()
    show('aer_dev_fatal', COUNTERS.format(name='FATAL', count=1))
    [after] = discover()
    assert 'more than 0 fatal PCI errors' in after.fault
    assert ([each.obj_to_primitive() for each in after.deployables]
            == [each.obj_to_primitive() for each in before.deployables])


def test_what_is_tolerated_is_the_operators(conf, card, show, discover):
    show('aer_dev_fatal', COUNTERS.format(name='FATAL', count=2))
    show('aer_dev_nonfatal', COUNTERS.format(name='NONFATAL', count=20))
    conf.set_override('tolerated_fatal_errors', 2, group='health')
    assert discover()[0].fault is None
    conf.set_override('tolerated_nonfatal_errors', 19, group='health')
    assert 'more than 19 non-fatal PCI errors' in discover()[0].fault


def test_one_that_does_not_answer_any_more_says_so(card, show, discover):
    show('config', b'\xff' * 64)
    assert 'does not answer any more' in discover()[0].fault


def test_one_that_sleeps_is_let_sleep(card, show):
    show('config', b'\xff' * 64)
    show('power_state', 'D3cold')
    assert not health.is_silent(card)


@pytest.mark.parametrize('noise', ['', 'TOTAL_ERR_FATAL', 'TOTAL_ERR_FATAL many', '\xff\xfe',
                                   'TOTAL_ERR_FATAL ' + '9' * 40])
def test_noise_is_no_error(card, show, noise):
    show('aer_dev_fatal', noise)
    assert health.errors_counted(card, 'fatal') == 0


def test_a_guest_cannot_spoil_the_card_for_others(host, card, discover):
    part = host.tree.real(f'{pci.DEVICES}/0000:6b:01.0')
    host.tree.file(f'{part}/aer_dev_fatal', COUNTERS.format(name='FATAL', count=9))
    assert discover()[0].fault is None
