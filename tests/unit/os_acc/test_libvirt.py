# SPDX-License-Identifier: Apache-2.0
"""From requests, and from what plug() returns, to libvirt's elements and back."""

import doctest
from xml.etree import ElementTree

import hypothesis
import pytest
from hypothesis import strategies

import os_acc
from os_acc import libvirt
from os_acc.libvirt import MDEV, Hostdev

INFO = {'domain': '0000', 'bus': '3b', 'device': '00', 'function': '4'}
VGPU = INFO | {'asked_type': 'nvidia-222', 'vgpu_mark': 'nvidia-222_0'}
FUNCTION = {
    'uuid': 'a',
    'state': 'Bound',
    'attach_handle_type': 'PCI',
    'attach_handle_uuid': MDEV,
    'attach_handle_info': INFO,
}
#: a virtual function that NVIDIA's own driver hands to the guest
VENDORS = FUNCTION | {'attach_handle_info': INFO | {'asked_type': '1196'}}
MEDIATED = FUNCTION | {'attach_handle_type': 'MDEV', 'attach_handle_info': VGPU}
FAKE = FUNCTION | {'attach_handle_type': 'TEST_PCI'}
UNBOUND = FUNCTION | {'state': 'Initial', 'attach_handle_type': '', 'attach_handle_info': {}}
DOMAIN = '<domain><devices><disk type="file"/>{}</devices></domain>'


def test_its_examples_run():
    failed, tried = doctest.testmod(libvirt)
    assert not failed and tried


def test_a_function_is_passed_through_and_managed_by_libvirt():
    assert libvirt.hostdevs([FUNCTION]) == [Hostdev('0000:3b:00.4', is_managed=True)]
    assert libvirt.hostdevs([{'pci_id': '0000:3b:00.4'}]) == libvirt.hostdevs([FUNCTION])


def test_a_function_of_the_vendors_own_driver_stays_with_it():
    assert libvirt.hostdevs([VENDORS]) == [Hostdev('0000:3b:00.4')]
    plugged = {'pci_id': '0000:3b:00.4', 'asked_type': '1196'}
    assert libvirt.hostdevs([plugged]) == libvirt.hostdevs([VENDORS])


def test_a_mediated_device_is_attached_by_its_uuid():
    [vgpu] = libvirt.hostdevs([MEDIATED])
    element = ElementTree.fromstring(vgpu.to_xml())
    assert element.attrib == {
        'mode': 'subsystem',
        'type': 'mdev',
        'managed': 'no',
        'model': 'vfio-pci',
    }
    assert element.find('source/address').attrib == {'uuid': MDEV}
    plugged = {'pci_id': '0000:3b:00.0', 'mdev_uuid': MDEV, 'asked_type': 'nvidia-222'}
    assert libvirt.hostdevs([plugged]) == [vgpu]


def test_several_keep_their_order_and_those_of_the_fake_driver_are_left_out():
    assert [each.mdev_uuid for each in libvirt.hostdevs([MEDIATED, FAKE, FUNCTION])] == [MDEV, None]


@pytest.mark.parametrize(
    ('accelerator', 'why'),
    [
        (UNBOUND, 'no handle to attach; its state is Initial'),
        ({}, 'not a PCI address'),
        ({'pci_id': '3b:00.4'}, 'not a PCI address'),
        ({'pci_id': 7}, 'not a PCI address'),
        (FUNCTION | {'attach_handle_info': INFO | {'device': '20'}}, 'not the device of'),
        (FUNCTION | {'attach_handle_info': {'domain': '0000'}}, 'not the bus of'),
        (MEDIATED | {'attach_handle_uuid': None}, 'not the UUID'),
        ({'mdev_uuid': 'no'}, 'not the UUID'),
    ],
)
def test_what_cannot_be_attached_is_refused_with_a_sentence(accelerator, why):
    with pytest.raises(os_acc.InvalidArgument, match=why):
        libvirt.hostdevs([accelerator])


@pytest.mark.parametrize(
    'spelled',
    [
        {'domain': '0x0000', 'bus': '0x3b', 'device': '0x00', 'function': '0x4'},
        {'domain': '0', 'bus': '3B', 'device': '0', 'function': '4'},
    ],
)
def test_addresses_are_understood_in_every_spelling(spelled):
    assert libvirt.hostdevs([FUNCTION | {'attach_handle_info': spelled}]) == (
        libvirt.hostdevs([FUNCTION])
    )


@hypothesis.given(
    strategies.lists(
        strategies.one_of(
            strategies.builds(
                lambda parts, is_managed: Hostdev(
                    '{:04x}:{:02x}:{:02x}.{:x}'.format(*parts), is_managed=is_managed
                ),
                strategies.tuples(
                    *(strategies.integers(0, most) for most in libvirt.PARTS.values())
                ),
                strategies.booleans(),
            ),
            strategies.builds(lambda each: Hostdev(mdev_uuid=str(each)), strategies.uuids()),
        )
    )
)
def test_a_domain_tells_what_was_put_into_it(devices):
    domain = DOMAIN.format('\n'.join(each.to_xml() for each in devices))
    assert libvirt.from_xml(domain) == devices


def test_what_is_no_accelerator_is_left_out_of_what_a_domain_has():
    assert (
        libvirt.from_xml(
            DOMAIN.format(
                '<hostdev mode="subsystem" type="usb"><source><vendor id="0x1"/></source></hostdev>'
                '<hostdev mode="subsystem" type="usb"><source><address bus="1"/></source></hostdev>'
                '<hostdev mode="capabilities" type="misc">'
                '<source><char>/dev/x</char></source></hostdev>'
            )
        )
        == []
    )


def test_a_definition_that_is_no_xml_is_refused_with_a_sentence():
    with pytest.raises(os_acc.InvalidArgument, match='not XML'):
        libvirt.from_xml('<domain>')


@pytest.mark.parametrize(
    ('accel_info', 'tag'),
    [
        (None, 'COMPUTE'),
        ([], 'COMPUTE'),
        ([FUNCTION, VENDORS], 'COMPUTE'),
        ([MEDIATED | {'attach_handle_uuid': None}], 'COMPUTE'),
        ([MEDIATED | {'attach_handle_info': INFO}], 'COMPUTE'),
        ([FUNCTION, MEDIATED], 'ACCELERATOR'),
    ],
)
def test_mdevs_are_cyborgs_if_a_request_has_one(accel_info, tag):
    assert libvirt.get_mdev_tag(accel_info) == tag


def test_mdevs_of_both_owners_are_merged_without_doubles():
    other = MDEV.replace('9', '8')
    assert libvirt.merge_mdevs([other, MDEV], [MDEV.upper()]) == [other, MDEV]
    assert libvirt.merge_mdevs([], []) == []


class Connection:
    """libvirt, which notices a device only after a while."""

    def __init__(self, *looks):
        self.looks = list(looks)

    def listDevices(self, cap, flags=0):
        assert cap == 'mdev'
        return self.looks.pop(0) if self.looks else []


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(libvirt, 'LOOK_INTERVALS', (0, 0))


def test_a_node_device_is_waited_for():
    name = libvirt.node_device(MDEV, '0000:84:00.0')
    assert libvirt.wait_for_node_device(Connection([], ['mdev_x'], [name]), name, 60)


def test_an_old_libvirt_names_no_parent():
    name = libvirt.node_device(MDEV, '0000:84:00.0')
    assert libvirt.wait_for_node_device(Connection([f'mdev_{MDEV.replace("-", "_")}']), name, 60)


def test_a_node_device_that_never_comes_is_said():
    assert not libvirt.wait_for_node_device(Connection(), 'mdev_x', 0)
