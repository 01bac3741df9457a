# SPDX-License-Identifier: Apache-2.0
"""Xilinx Alveo."""

import pytest

from cyborg.accelerator import pci

MANAGEMENT, USER = '0000:5e:00.0', '0000:5e:00.1'
SHELL = '862c7020-a250-293e-3203-6f19956669e5'
PROGRAMMED = '8a8f2b1e-6a39-4f6e-9c5d-0b7a4a4f3d21'


@pytest.fixture
def discover(load):
    return lambda: list(load('xilinx_fpga_driver').discover())


@pytest.fixture
def card(host):
    host.plug_in('10ee:5000', at=MANAGEMENT)
    host.plug_in('10ee:5001', at=USER)


def trait(noun, value):
    return f'CUSTOM_FPGA_XILINX_{noun}_{value.upper().replace("-", "_")}'


def test_two_functions_are_one_card_of_which_users_get_theirs(card, discover):
    [device] = discover()
    assert (device.key, device.model) == ('0000:5e:00', 'Xilinx Alveo U200')
    root, region = device.deployables
    assert (root.name, root.resource_class) == (USER, None)
    assert (region.parent_name, region.resource_class) == (USER, 'FPGA')
    [handle] = region.attach_handles
    assert handle.info['function'] == '1'
    # and the host manages it by the other one
    [control] = device.control_paths
    assert control.info['function'] == '0'


def test_it_tells_its_shell_and_what_it_is_programmed_with(card, discover):
    region = discover()[0].deployables[1]
    assert region.traits == [
        'CUSTOM_FPGA_XILINX_ALVEO_U200', 'CUSTOM_FPGA_PRODUCT_ID_5001', 'CUSTOM_FPGA_XILINX',
        trait('REGION', SHELL), trait('FUNCTION', PROGRAMMED), 'CUSTOM_FPGA_PRODUCT_ID_5000']
    facts = {each.key: (each.value, {child.key: child.value for child in each.children})
             for each in region.attributes}
    assert facts == {
        'region_type_uuid': (SHELL, {}),
        'function_uuid': (PROGRAMMED, {'clock0_mhz': '300', 'clock1_mhz': '500'})}
    assert region.bitstream_id == PROGRAMMED


def test_the_order_of_the_functions_does_not_matter(host, discover):
    host.plug_in('10ee:5001', at=MANAGEMENT)
    host.plug_in('10ee:5000', at=USER)
    [device] = discover()
    assert device.key == '0000:5e:00'
    assert device.deployables[1].attach_handles[0].info['function'] == '0'
    assert [path.info['function'] for path in device.control_paths] == ['1']


def test_the_shell_is_known_while_a_guest_has_the_card(host, card, discover):
    function = pci.Function.at(host.sysfs, USER)
    function.write('driver_override', 'vfio-pci')
    (function / 'driver').write('unbind', USER)
    host.sysfs.write('bus/pci/drivers_probe', USER)
    [device] = discover()
    assert device.key == '0000:5e:00'
    region = device.deployables[1]
    assert trait('REGION', SHELL) in region.traits
    assert [each.key for each in region.attributes] == ['region_type_uuid']


def test_a_card_that_is_programmed_with_nothing_has_no_function(host, discover):
    host.plug_in('10ee:5001', at=USER, driver_files={'xclbinuuid': '0' * 32})
    region = discover()[0].deployables[1]
    assert not [each for each in region.traits if 'FUNCTION' in each]
    assert region.bitstream_id is None


def test_a_shell_may_take_images_of_several_kinds(host, discover):
    host.plug_in('10ee:5000', at=MANAGEMENT, driver_files={
        'interface_uuids': f'{SHELL.replace("-", "")}\n{PROGRAMMED}\nnone\n'})
    host.plug_in('10ee:5001', at=USER, driver_files={})
    region = discover()[0].deployables[1]
    assert {trait('REGION', SHELL), trait('REGION', PROGRAMMED)} <= set(region.traits)
    assert [(each.key, each.value) for each in region.attributes] == [
        ('region_type_uuid', SHELL), ('region_type_uuid1', PROGRAMMED)]


def test_without_their_drivers_it_is_a_card_all_the_same(host, discover):
    host.plug_in('10ee:5001', at=USER, driver=None)
    [device] = discover()
    assert device.deployables[1].num_accelerators == 1
    assert device.control_paths == []  # its manager is not there


@pytest.mark.parametrize(('model', 'sentence'), [
    ('10ee:d000', 'has no shell: flash one'), ('10ee:5000', 'has no function for users')])
def test_a_card_that_users_cannot_reach_says_why(host, discover, model, sentence):
    host.plug_in(model, at=MANAGEMENT)
    [device] = discover()
    assert (device.key, device.deployables) == ('0000:5e:00', [])
    assert sentence in device.fault


def test_old_profiles_find_the_names_they_ask_for(card, conf, discover):
    conf.set_override('legacy_traits', True, group='agent')
    traits = discover()[0].deployables[1].traits
    assert f'CUSTOM_FPGA_REGION_XILINX_{SHELL.replace("-", "").upper()}' in traits
    assert f'CUSTOM_FPGA_FUNCTION_ID_XILINX_{PROGRAMMED.replace("-", "").upper()}' in traits


def test_the_function_of_users_goes_whole_also_if_it_could_have_virtual_ones(host, discover):
    host.plug_in('10ee:5000', at=MANAGEMENT)
    host.plug_in('10ee:5001', at=USER, sriov={'total': 4, 'offset': 8, 'vf': {'device': 'ffff'}})
    [device] = discover()
    assert device.deployables[1].num_accelerators == 1
    assert device.doubt is None  # so that nobody takes it for one that was divided
