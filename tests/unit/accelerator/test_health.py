# SPDX-License-Identifier: Apache-2.0
"""Cards that are there but ill."""

import pytest

from cyborg import objects
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
    assert 'had fatal PCI errors since it was found' in after.fault
    assert [each.obj_to_primitive() for each in after.deployables] == [
        each.obj_to_primitive() for each in before.deployables
    ]


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


@pytest.mark.parametrize(
    'noise',
    ['', 'TOTAL_ERR_FATAL', 'TOTAL_ERR_FATAL many', '\xff\xfe', 'TOTAL_ERR_FATAL ' + '9' * 40],
)
def test_noise_is_no_error(card, show, noise):
    show('aer_dev_fatal', noise)
    assert health.errors_counted(card, 'fatal') == 0


def test_a_guest_cannot_spoil_the_card_for_others(host, card, discover):
    part = host.tree.real(f'{pci.DEVICES}/0000:6b:01.0')
    host.tree.file(f'{part}/aer_dev_fatal', COUNTERS.format(name='FATAL', count=9))
    assert discover()[0].fault is None


@pytest.fixture
def options(configure):
    configure(
        '[nic_devices]\nenabled_nic_types = x710\n'
        f'[x710]\nphysical_device_mappings = physnet1:{ADDRESS}\n'
        '[pci]\npassthrough_whitelist = {"address": "0000:6b:*"}\n'
    )


#: of each driver that gives out virtual functions
SHARED = {
    'intel_qat_driver': '8086:4940',
    'amd_gpu_driver': '1002:74a1',
    'intel_gpu_driver': '8086:56c0',
    'intel_nic_driver': '8086:1572',
    'nvme_driver': '144d:a80a',
    'pci_driver': '8086:37c8',
    'intel_fpga_driver': '8086:09c4',
}
SRIOV = {'total': 4, 'offset': 8, 'vf': {'device': 'ffff'}}


@pytest.mark.parametrize('name', SHARED)
def test_whole_cards_that_could_have_parts_say_what_ails_them_if_they_had(
    host, load, options, name
):
    host.plug_in(SHARED[name], at=ADDRESS, sriov=SRIOV)

    def look():
        [device] = load(name).discover()
        assert device.deployables and not device.fault
        return device.fault_if_changed

    assert 'has none now: make them anew' in look()
    host.sysfs.write(f'{pci.DEVICES}/{ADDRESS}/driver_override', 'vfio-pci')
    host.sysfs.write(f'{pci.DEVICES}/{ADDRESS}/driver/unbind', ADDRESS)
    if name != 'intel_fpga_driver':  # which says that it does not know its regions then
        assert 'as no driver is bound to it' in look()
    host.sysfs.write('bus/pci/drivers_probe', ADDRESS)
    assert look() is None


@pytest.mark.parametrize('name', sorted(SHARED.keys() - {'intel_fpga_driver'}))
def test_operators_can_have_cards_go_by_their_parts_only(conf, host, load, options, name):
    conf.set_override('whole_cards', False, group=name)
    host.plug_in(SHARED[name], at=ADDRESS, sriov=SRIOV)
    [device] = load(name).discover()
    assert device.deployables == []
    assert 'whole_cards' in device.fault
    host.sysfs.write(f'{pci.DEVICES}/{ADDRESS}/sriov_numvfs', '4')
    [device] = load(name).discover()
    assert (device.fault, device.deployables[0].num_accelerators) == (None, 4)


def test_fpgas_can_be_kept_from_going_whole_too(conf, host, load):
    conf.set_override('whole_cards', False, group='intel_fpga_driver')
    host.plug_in('8086:09c4', at=ADDRESS, sriov=SRIOV)
    [device] = load('intel_fpga_driver').discover()
    assert device.deployables == [] and 'whole_cards' in device.fault


def test_cards_that_cannot_have_parts_go_whole_anyway(conf, host, load):
    conf.set_override('whole_cards', False, group='amd_gpu_driver')
    host.plug_in('1002:74a0', at=ADDRESS)
    [device] = load('amd_gpu_driver').discover()
    assert (device.fault, device.deployables[0].num_accelerators) == (None, 1)


def test_cards_that_have_their_parts_or_never_had_any_leave_no_doubt(host, card, load):
    host.plug_in('19e5:d802', at='0000:70:00.0')
    [shared] = load('intel_qat_driver').discover()
    [whole] = load('huawei_ascend_driver').discover()
    assert (shared.fault_if_changed, whole.fault_if_changed) == (None, None)


def test_of_nvidia_cards_the_options_say_whether_they_go_whole(host, load):
    host.plug_in('10de:20b5', at=ADDRESS, vfs=0)
    [device] = load('nvidia_gpu_driver').discover()
    assert (device.fault, device.fault_if_changed) == (None, None)


def test_parts_that_sit_on_the_card_itself_are_not_the_whole_of_it(conf, host):
    class Shared(pci.Driver):
        name, type = 'shared_driver', 'AICHIP'
        catalogue = (pci.Model('1234', '5678', 'Acme', 'CUSTOM_NPU'),)

        def slice(self, card, model):
            yield self.deployable(
                card.address,
                model,
                [objects.AttachHandle(key='0', type='MDEV', info=card.attach_info)],
            )

    host.plug_in('1234:5678', at=ADDRESS, sriov=SRIOV)
    [device] = Shared(conf, host.sysfs).discover()
    assert device.fault_if_changed is None
