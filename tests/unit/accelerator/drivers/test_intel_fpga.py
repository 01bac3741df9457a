# SPDX-License-Identifier: Apache-2.0
"""Intel FPGAs and their regions."""

import json

import pytest

from cyborg import errors
from cyborg.accelerator import pci

ADDRESS = '0000:5e:00.0'
REGION = '69528db6-eb31-577a-8c36-68f9faa081f6'
FUNCTION = 'd8424dc4-a4a3-c413-f89e-433683f9040b'
OTHER = '8568ab4e-6ba5-4616-bb65-2a578330a8eb'


def trait(noun, value):
    return f'CUSTOM_FPGA_INTEL_{noun}_{value.upper().replace("-", "_")}'


def give_to_guest(host, address):
    function = pci.Function.at(host.sysfs, address)
    function.write('driver_override', 'vfio-pci')
    (function / 'driver').write('unbind', address)
    host.sysfs.write('bus/pci/drivers_probe', address)


@pytest.fixture
def discover(load):
    return lambda: list(load('intel_fpga_driver').discover())


@pytest.fixture
def parts(discover):
    """The deployables of the only card, by name."""
    def parts():
        [device] = discover()
        return {deployable.name: deployable for deployable in device.deployables}
    return parts


class TestOneRegion:
    @pytest.fixture(autouse=True)
    def card(self, host):
        host.plug_in('8086:09c4', at=ADDRESS)

    def test_the_card_holds_its_region_and_nothing_else(self, discover, parts):
        [device] = discover()
        assert (device.type, device.model) == ('FPGA', 'Intel PAC Arria10')
        assert device.vendor_board_info == {'bitstream_id': '0x121000200000164'}
        root = parts()[ADDRESS]
        assert (root.resource_class, root.num_accelerators, root.attach_handles) == (None, 0, [])
        assert root.traits == ['CUSTOM_FPGA_INTEL_PAC_ARRIA10', 'CUSTOM_FPGA_INTEL']

    def test_a_region_is_what_is_scheduled(self, parts):
        region = parts()[f'{ADDRESS}_region0']
        assert (region.parent_name, region.resource_class) == (ADDRESS, 'FPGA')
        assert region.traits == ['CUSTOM_FPGA_INTEL_PAC_ARRIA10', 'CUSTOM_FPGA_INTEL',
                                 trait('REGION', REGION), trait('FUNCTION', FUNCTION)]
        assert {each.key: each.value for each in region.attributes} == {
            'region_type_uuid': REGION, 'function_uuid': FUNCTION}
        [handle] = region.attach_handles
        assert (handle.type, handle.key, handle.info['function']) == ('PCI', 'pf', '0')

    def test_another_bitstream_is_another_trait(self, host, parts):
        host.program(ADDRESS, 0, OTHER)
        traits = parts()[f'{ADDRESS}_region0'].traits
        assert trait('FUNCTION', OTHER) in traits
        assert trait('FUNCTION', FUNCTION) not in traits

    def test_old_profiles_find_the_names_they_ask_for(self, conf, parts):
        conf.set_override('legacy_traits', True, group='agent')
        traits = parts()[f'{ADDRESS}_region0'].traits
        assert f'CUSTOM_FPGA_REGION_INTEL_{REGION.replace("-", "").upper()}' in traits
        assert f'CUSTOM_FPGA_FUNCTION_ID_INTEL_{FUNCTION.replace("-", "").upper()}' in traits

    def test_its_region_stays_while_a_guest_has_the_card(self, host, parts):
        before = parts()
        give_to_guest(host, ADDRESS)
        after = parts()
        assert not pci.Function.at(host.sysfs, ADDRESS).has('fpga_region')
        assert after.keys() == before.keys()
        region = f'{ADDRESS}_region0'
        assert after[region].attach_handles[0].info == before[region].attach_handles[0].info

    def test_a_card_without_its_driver_offers_nothing(self, host, discover):
        (host.sysfs / f'bus/pci/devices/{ADDRESS}/driver').write('unbind', ADDRESS)
        [device] = discover()
        assert device.deployables == []
        assert 'not bound to a driver for FPGAs' in device.fault

    @pytest.mark.parametrize('text', ['', 'busy\n', 'ff' * 40, '\xff\xfe',
                                      # an empty region, and a card that no longer answers
                                      '0' * 32, 'f' * 32])
    def test_an_id_that_is_none_makes_no_trait(self, host, parts, text):
        [port] = (host.sysfs.path / 'devices').glob('**/afu_id')
        port.chmod(0o644)
        port.write_text(text)
        region = parts()[f'{ADDRESS}_region0']
        assert region.traits == ['CUSTOM_FPGA_INTEL_PAC_ARRIA10', 'CUSTOM_FPGA_INTEL',
                                 trait('REGION', REGION)]
        assert [each.key for each in region.attributes] == ['region_type_uuid']


class TestSeveralRegions:
    def test_each_has_a_virtual_function_of_its_own(self, host, parts):
        host.plug_in('8086:bcce', at=ADDRESS)
        found = parts()
        assert list(found) == [ADDRESS, f'{ADDRESS}_region0', f'{ADDRESS}_region1']
        assert [found[f'{ADDRESS}_region{number}'].attach_handles[0].info['function']
                for number in (0, 1)] == ['1', '2']
        assert trait('FUNCTION', OTHER) in found[f'{ADDRESS}_region0'].traits
        assert trait('FUNCTION', FUNCTION) in found[f'{ADDRESS}_region1'].traits

    def test_the_product_is_told_by_the_subsystem(self, host, discover):
        host.plug_in('8086:bcce', at=ADDRESS)
        host.plug_in('8086:bcce', at='0000:5f:00.0', subsystem='8086:1770')
        host.plug_in('8086:bcce', at='0000:60:00.0', subsystem='8086:ffff')
        assert [device.model for device in discover()] == [
            'Intel N6001', 'Intel N6000', 'Intel DFL']

    def test_without_virtual_functions_they_cannot_be_told_apart(self, host, discover):
        host.plug_in('8086:bcce', at=ADDRESS, vfs=0)
        [device] = discover()
        assert device.deployables == []
        assert 'has 2 regions but no virtual functions' in device.fault

    def test_one_in_use_leaves_the_others_alone(self, host, parts):
        host.plug_in('8086:bcce', at=ADDRESS)
        before = parts()
        give_to_guest(host, '0000:5e:00.1')
        after = parts()
        assert after.keys() == before.keys()
        other = f'{ADDRESS}_region1'
        assert after[other].obj_to_primitive() == before[other].obj_to_primitive()


class TestPortIds:
    """The virtual functions of a card of two regions, and which of these each is."""

    PARTS = ('0000:5e:00.1', '0000:5e:00.2')
    INTERFACE = '7cb96dc4-a1b2-5c3d-9e0f-4b3a2c1d0e9f'

    @pytest.fixture(autouse=True)
    def card(self, host):
        host.plug_in('8086:bcce', at=ADDRESS)

    @pytest.fixture
    def name_ports(self, host):
        def name_ports(*ids):
            for address, number in zip(self.PARTS, ids, strict=True):
                [port] = pci.Function.at(host.sysfs, address).children(
                    'fpga_region/region*/dfl-port.*')
                with host.tree.change():
                    host.tree.file(
                        f'{port.path.resolve().relative_to(host.sysfs.path)}/id', number)
        return name_ports

    @pytest.fixture
    def driver(self, load):
        return load('intel_fpga_driver')

    @pytest.fixture
    def places(self, driver):
        """Region -> the address of its function, and whether it can be programmed."""
        def places():
            [device] = driver.discover()
            assert device.fault is None
            return {part.name.removeprefix(ADDRESS): (
                '0000:{bus}:{device}.{function}'.format(**part.attach_handles[0].info),
                part.is_programmable) for part in device.deployables[1:]}
        return places

    def test_a_region_is_the_one_that_its_port_says(self, name_ports, places):
        name_ports('1', '0')
        assert places() == {'_region0': (self.PARTS[1], True), '_region1': (self.PARTS[0], False)}

    def test_a_region_keeps_its_number_while_a_guest_has_it(self, host, name_ports, places):
        name_ports('1', '0')
        before = places()
        for address in self.PARTS:
            give_to_guest(host, address)
        assert places() == before

    def test_a_function_that_never_told_is_none_of_those_that_did(self, host, name_ports,
                                                                 places):
        name_ports('1', '0')
        give_to_guest(host, self.PARTS[0])
        assert places() == {'_region0': (self.PARTS[1], True), '_region1': (self.PARTS[0], False)}

    def test_a_region_that_may_be_another_one_is_not_programmed(self, name_ports, driver,
                                                                tmp_path):
        name_ports('', '')
        with pytest.raises(errors.DriverFailed, match='does not tell which region it is'):
            driver.program(f'{ADDRESS}_region0', write_image(
                tmp_path / 'image', interface=self.INTERFACE))

    def test_two_functions_of_one_region_are_not_given_out(self, name_ports, driver):
        name_ports('1', '1')
        [device] = driver.discover()
        assert device.deployables == []
        assert 'both say that they are port 1' in device.fault


def write_image(path, interface=REGION, function=OTHER, magic=b'XeonFPGA\xb7GBSv001'):
    description = json.dumps({'version': 1, 'afu-image': {
        'interface-uuid': interface,
        'accelerator-clusters': [{'accelerator-type-uuid': function}]}}).encode()
    path.write_bytes(magic + len(description).to_bytes(4, 'little') + description + b'bits')
    return path


class TestProgramming:
    @pytest.fixture
    def program(self, load, tmp_path):
        def program(deployable=f'{ADDRESS}_region0', **image):
            path = write_image(tmp_path / 'image.gbs', **image)
            load('intel_fpga_driver').program(deployable, path)
        return program

    def test_a_region_does_what_its_image_says(self, host, parts, program):
        host.plug_in('8086:09c4', at=ADDRESS)
        program()
        program()
        assert trait('FUNCTION', OTHER) in parts()[f'{ADDRESS}_region0'].traits

    @pytest.mark.parametrize('address', [ADDRESS, '10000:5e:00.0'])
    def test_what_it_runs_is_declared(self, host, load, program, address):
        host.plug_in('8086:09c4', at=address)
        commands = []
        host.tools['fpgaconf'] = lambda *words: commands.append(['fpgaconf', *words])
        program(f'{address}_region0')
        assert [load('intel_fpga_driver').may_run(each) for each in commands] == [True]

    @pytest.mark.parametrize(('image', 'sentence'), [
        ({'interface': OTHER}, f'the image is for {OTHER}, the region takes {REGION}'),
        ({'interface': 'x'}, 'the image is for nothing we know'),
        ({'interface': None}, 'the image is for nothing we know'),
        ({'magic': b'#!/bin/sh -eux  '}, 'the image is for nothing we know'),
        ({'magic': b''}, 'the image is for nothing we know'),
        ({'deployable': f'{ADDRESS}_region1'}, 'it is not there'),
        ({'deployable': '0000:5f:00.0_region0'}, 'it is not there'),
        ({'deployable': ADDRESS}, 'it is not there'),
    ])
    def test_what_does_not_fit_is_refused(self, host, parts, program, image, sentence):
        host.plug_in('8086:09c4', at=ADDRESS)
        with pytest.raises(errors.DriverFailed, match=sentence):
            program(**image)
        assert trait('FUNCTION', FUNCTION) in parts()[f'{ADDRESS}_region0'].traits

    def test_an_image_that_is_gone_is_refused(self, host, load, tmp_path):
        host.plug_in('8086:09c4', at=ADDRESS)
        with pytest.raises(errors.DriverFailed, match='nothing we know'):
            load('intel_fpga_driver').program(f'{ADDRESS}_region0', tmp_path / 'gone')

    def test_a_region_that_a_guest_has_is_left_alone(self, host, program):
        host.plug_in('8086:bcce', at=ADDRESS)
        interface = '7cb96dc4-a1b2-5c3d-9e0f-4b3a2c1d0e9f'
        give_to_guest(host, '0000:5e:00.1')
        with pytest.raises(errors.DriverFailed, match='a guest has it'):
            program(interface=interface)
        with pytest.raises(errors.DriverFailed, match='reaches the first region only'):
            program(f'{ADDRESS}_region1', interface=interface)

    def test_a_tool_that_fails_or_is_not_there_is_named(self, host, program):
        host.plug_in('8086:09c4', at=ADDRESS)
        del host.tools['fpgaconf']
        with pytest.raises(errors.DriverFailed, match='fpgaconf is not installed'):
            program()


class TestOlderHostDriver:
    """The one beside the kernel has other names for the same things."""

    @pytest.fixture(autouse=True)
    def card(self, host):
        host.plug_in('8086:09c4', at=ADDRESS, driver='intel-fpga-pci', dfl=None, opae={
            'shell': '0x63000023b637277', 'region_type': REGION, 'ports': [FUNCTION]})

    def test_the_card_looks_the_same(self, discover, parts):
        [device] = discover()
        assert device.vendor_board_info == {'bitstream_id': '0x63000023b637277'}
        region = parts()[f'{ADDRESS}_region0']
        assert region.traits == ['CUSTOM_FPGA_INTEL_PAC_ARRIA10', 'CUSTOM_FPGA_INTEL',
                                 trait('REGION', REGION), trait('FUNCTION', FUNCTION)]

    def test_its_region_may_be_on_a_virtual_function(self, host, parts):
        host.pull_out(ADDRESS)
        host.plug_in('8086:0b2b', at=ADDRESS)
        region = parts()[f'{ADDRESS}_region0']
        assert region.attach_handles[0].key == 'vf'
        assert trait('FUNCTION', FUNCTION) in region.traits
        assert len([each for each in region.traits if '_REGION_' in each]) == 1

    def test_another_image_is_another_function(self, host, parts):
        other = '8568ab4e-6ba5-4616-bb65-2a578330a8eb'
        host.program(ADDRESS, 0, other)
        assert trait('FUNCTION', other) in parts()[f'{ADDRESS}_region0'].traits


def test_cards_of_another_maker_with_the_same_layout_are_known(host, discover):
    host.plug_in('8086:09c4', at=ADDRESS, vendor='1c2c', device='1001')
    [device] = discover()
    assert (device.vendor, device.model) == ('1c2c', 'Silicom N5011')
