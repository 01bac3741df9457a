# SPDX-License-Identifier: Apache-2.0
"""Intel FPGAs and their regions."""

import json

import pytest

from cyborg import errors
from cyborg.accelerator import fpga_images, pci

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
        assert region.traits == [
            'CUSTOM_FPGA_INTEL_PAC_ARRIA10',
            'CUSTOM_FPGA_INTEL',
            trait('REGION', REGION),
            trait('FUNCTION', FUNCTION),
        ]
        assert {each.key: each.value for each in region.attributes} == {
            'region_type_uuid': REGION,
            'function_uuid': FUNCTION,
        }
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

    @pytest.mark.parametrize(
        'text',
        [
            '',
            'busy\n',
            'ff' * 40,
            '\xff\xfe',
            # an empty region, and a card that no longer answers
            '0' * 32,
            'f' * 32,
        ],
    )
    def test_an_id_that_is_none_makes_no_trait(self, host, parts, text):
        [port] = (host.sysfs.path / 'devices').glob('**/afu_id')
        port.chmod(0o644)
        port.write_text(text)
        region = parts()[f'{ADDRESS}_region0']
        assert region.traits == [
            'CUSTOM_FPGA_INTEL_PAC_ARRIA10',
            'CUSTOM_FPGA_INTEL',
            trait('REGION', REGION),
        ]
        assert [each.key for each in region.attributes] == ['region_type_uuid']


class TestSeveralRegions:
    def test_each_has_a_virtual_function_of_its_own(self, host, parts):
        host.plug_in('8086:bcce', at=ADDRESS)
        found = parts()
        assert list(found) == [ADDRESS, f'{ADDRESS}_region0', f'{ADDRESS}_region1']
        assert [
            found[f'{ADDRESS}_region{number}'].attach_handles[0].info['function']
            for number in (0, 1)
        ] == ['1', '2']
        assert trait('FUNCTION', OTHER) in found[f'{ADDRESS}_region0'].traits
        assert trait('FUNCTION', FUNCTION) in found[f'{ADDRESS}_region1'].traits

    def test_the_product_is_told_by_the_subsystem(self, host, discover):
        host.plug_in('8086:bcce', at=ADDRESS)
        host.plug_in('8086:bcce', at='0000:5f:00.0', subsystem='8086:1770')
        host.plug_in('8086:bcce', at='0000:60:00.0', subsystem='8086:ffff')
        assert [device.model for device in discover()] == [
            'Intel N6001',
            'Intel N6000',
            'Intel DFL',
        ]

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
                    'fpga_region/region*/dfl-port.*'
                )
                with host.tree.change():
                    host.tree.file(f'{port.path.resolve().relative_to(host.sysfs.path)}/id', number)

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
            return {
                part.name.removeprefix(ADDRESS): (
                    '0000:{bus}:{device}.{function}'.format(**part.attach_handles[0].info),
                    part.is_programmable,
                )
                for part in device.deployables[1:]
            }

        return places

    def test_a_region_is_the_one_that_its_port_says(self, name_ports, places):
        name_ports('1', '0')
        assert places() == {'_region0': (self.PARTS[1], True), '_region1': (self.PARTS[0], True)}

    def test_a_region_keeps_its_number_while_a_guest_has_it(self, host, name_ports, places):
        name_ports('1', '0')
        before = places()
        for address in self.PARTS:
            give_to_guest(host, address)
        assert places() == before

    def test_a_function_that_never_told_is_none_of_those_that_did(self, host, name_ports, places):
        name_ports('1', '0')
        give_to_guest(host, self.PARTS[0])
        assert places() == {'_region0': (self.PARTS[1], True), '_region1': (self.PARTS[0], True)}

    def test_a_region_that_may_be_another_one_is_not_programmed(self, name_ports, driver, tmp_path):
        name_ports('', '')
        with pytest.raises(errors.DriverFailed, match='does not show which region it is'):
            driver.program(
                f'{ADDRESS}_region0', write_image(tmp_path / 'image', interface=self.INTERFACE), {}
            )

    def test_two_functions_of_one_region_are_not_given_out(self, name_ports, driver):
        name_ports('1', '1')
        [device] = driver.discover()
        assert device.deployables == []
        assert 'both say that they are port 1' in device.fault


def write_image(
    path, interface=REGION, function=OTHER, magic=b'XeonFPGA\xb7GBSv001', more=(), before=b''
):
    description = json.dumps(
        {
            'version': 1,
            'afu-image': {
                'interface-uuid': interface,
                'accelerator-clusters': [
                    {'accelerator-type-uuid': each} for each in (function, *more)
                ],
            },
        }
    ).encode()
    path.write_bytes(
        before + magic + len(description).to_bytes(4, 'little') + description + b'bits'
    )
    return path


def signature(kind, subtype=0):
    """How a signed image begins."""
    return (bytes.fromhex('19fdeab6') + bytes(4) + bytes([kind, subtype])).ljust(1024, b'\0')


class TestProgramming:
    @pytest.fixture
    def program(self, load, tmp_path):
        def program(deployable=f'{ADDRESS}_region0', properties=None, **image):
            path = write_image(tmp_path / 'image.gbs', **image)
            load('intel_fpga_driver').program(deployable, path, properties or {})

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

    @pytest.mark.parametrize(
        ('image', 'sentence'),
        [
            ({'interface': OTHER}, f'the image is for {OTHER}, the region takes {REGION}'),
            ({'interface': 'x'}, 'the image is not recognized'),
            ({'interface': None}, 'the image is not recognized'),
            ({'magic': b'#!/bin/sh -eux  '}, 'the image is not recognized'),
            ({'magic': b''}, 'the image is not recognized'),
            ({'deployable': f'{ADDRESS}_region1'}, 'it is not present'),
            ({'deployable': '0000:5f:00.0_region0'}, 'it is not present'),
            ({'deployable': 'region0'}, 'it is not present'),
            ({'deployable': f'{ADDRESS}_region0x'}, 'it is not present'),
        ],
    )
    def test_what_does_not_fit_is_refused(self, host, parts, program, image, sentence):
        host.plug_in('8086:09c4', at=ADDRESS)
        with pytest.raises(errors.DriverFailed, match=sentence):
            program(**image)
        assert trait('FUNCTION', FUNCTION) in parts()[f'{ADDRESS}_region0'].traits

    @pytest.mark.parametrize('content', [b'\xff', b'['], ids=['no text', 'without end'])
    def test_an_image_whose_description_is_none_is_not_quoted(self, host, load, tmp_path, content):
        host.plug_in('8086:09c4', at=ADDRESS)
        image = tmp_path / 'image'
        length = fpga_images.LONGEST_DESCRIPTION
        image.write_bytes(fpga_images.GBS_MAGIC + length.to_bytes(4, 'little') + content * length)
        with pytest.raises(errors.DriverFailed, match='its description is not JSON') as refusal:
            load('intel_fpga_driver').program(f'{ADDRESS}_region0', image, {})
        assert len(refusal.value.faultstring) < 200

    def test_an_image_that_is_gone_is_refused(self, host, load, tmp_path):
        host.plug_in('8086:09c4', at=ADDRESS)
        with pytest.raises(errors.DriverFailed, match='not recognized'):
            load('intel_fpga_driver').program(f'{ADDRESS}_region0', tmp_path / 'gone', {})

    def test_a_region_that_a_guest_has_is_left_alone(self, host, program):
        host.plug_in('8086:bcce', at=ADDRESS)
        interface = '7cb96dc4-a1b2-5c3d-9e0f-4b3a2c1d0e9f'
        give_to_guest(host, '0000:5e:00.1')
        with pytest.raises(errors.DriverFailed, match='a guest has it'):
            program(interface=interface)
        program(f'{ADDRESS}_region1', interface=interface)  # is another one's, and free

    def test_every_region_of_a_card_can_be_programmed(self, host, parts, program, load):
        host.plug_in('8086:bcce', at=ADDRESS)
        commands, tool = [], host.tools['cyborg-fpga-load']
        host.tools['cyborg-fpga-load'] = lambda *words: commands.append(words) or tool(*words)
        program(f'{ADDRESS}_region1', interface='7cb96dc4-a1b2-5c3d-9e0f-4b3a2c1d0e9f')
        assert trait('FUNCTION', OTHER) in parts()[f'{ADDRESS}_region1'].traits
        [words] = commands
        assert words[:3] == ('port', '/dev/dfl-fme.0', '1')
        driver = load('intel_fpga_driver')
        assert driver.may_run(['cyborg-fpga-load', *words])
        for wrong in (
            ('port', '/dev/dfl-fme.1', '1'),
            ('port', '/dev/dfl-fme.0', '2'),
            ('manager', 'fpga0', 'full'),
        ):
            assert not driver.may_run(['cyborg-fpga-load', *wrong, words[3]])

    def test_with_the_older_driver_only_the_first_region_can(self, host, parts, program):
        facts = {'shell': '0x1', 'region_type': REGION, 'ports': [FUNCTION, FUNCTION]}
        host.plug_in(
            '8086:0b2b',
            at=ADDRESS,
            opae=facts,
            sriov={
                'total': 2,
                'enabled': 2,
                'offset': 1,
                'vf': {'device': '0b2c', 'driver': 'intel-fpga-pci', 'opae': facts},
            },
        )
        assert [part.is_programmable for part in parts().values()] == [False, True, False]
        with pytest.raises(errors.DriverFailed, match='it takes no image'):
            program(f'{ADDRESS}_region1')

    def test_what_was_loaded_is_there_when_a_guest_has_gone(self, host, parts, program):
        host.plug_in('8086:09c4', at=ADDRESS)
        program()
        give_to_guest(host, ADDRESS)
        function = pci.Function.at(host.sysfs, ADDRESS)
        (function / 'driver').write('unbind', ADDRESS)
        function.write('driver_override', '\n')
        host.sysfs.write('bus/pci/drivers_probe', ADDRESS)
        assert trait('FUNCTION', OTHER) in parts()[f'{ADDRESS}_region0'].traits

    def test_a_signed_image_is_loaded_by_the_tool_for_those(self, host, load, parts, program):
        host.plug_in('8086:09c4', at=ADDRESS)
        del host.tools['fpgaconf']
        program(before=signature(kind=2))
        assert trait('FUNCTION', OTHER) in parts()[f'{ADDRESS}_region0'].traits
        assert load('intel_fpga_driver').may_run(['fpgasupdate', '/image', ADDRESS])
        assert not load('intel_fpga_driver').may_run(['fpgasupdate', '/image', '0000:5f:00.0'])

    @pytest.mark.parametrize(
        ('image', 'sentence'),
        [
            ({'before': signature(kind=0)}, 'is of type fim, and it takes gbs or signed_gbs'),
            ({'before': signature(kind=1)}, 'firmware of a board controller'),
            ({'before': signature(kind=2, subtype=1)}, 'changes the keys of a card'),
            ({'before': signature(kind=2), 'magic': b''}, 'signed, but no GBS is in it'),
            ({'before': signature(kind=2), 'interface': OTHER}, f'the image is for {OTHER}'),
            ({'properties': {'bitstream_type': 'xclbin'}}, 'of type xclbin, but it is of type gbs'),
            ({'deployable': ADDRESS}, 'it takes no image'),
        ],
    )
    def test_an_image_for_something_else_is_refused(self, host, parts, program, image, sentence):
        host.plug_in('8086:09c4', at=ADDRESS)
        with pytest.raises(errors.DriverFailed, match=sentence):
            program(**image)
        assert trait('FUNCTION', FUNCTION) in parts()[f'{ADDRESS}_region0'].traits

    def test_a_tool_that_fails_or_is_not_there_is_named(self, host, program):
        host.plug_in('8086:09c4', at=ADDRESS)
        del host.tools['fpgaconf']
        # nothing was run, so the region has what it had
        with pytest.raises(errors.NotLoaded, match='fpgaconf is not installed: install it'):
            program()

        def fail(*words):
            raise OSError('fpgaconf ended with 1: /dev/intel-fpga-fme.0: permission denied')

        host.tools['fpgaconf'] = fail
        with pytest.raises(errors.DriverFailed, match='permission denied') as caught:
            program()
        assert not isinstance(caught.value, errors.NotLoaded)


class TestOlderHostDriver:
    """The one beside the kernel has other names for the same things."""

    @pytest.fixture(autouse=True)
    def card(self, host):
        host.plug_in(
            '8086:09c4',
            at=ADDRESS,
            driver='intel-fpga-pci',
            dfl=None,
            opae={'shell': '0x63000023b637277', 'region_type': REGION, 'ports': [FUNCTION]},
        )

    def test_the_card_looks_the_same(self, discover, parts):
        [device] = discover()
        assert device.vendor_board_info == {'bitstream_id': '0x63000023b637277'}
        region = parts()[f'{ADDRESS}_region0']
        assert region.traits == [
            'CUSTOM_FPGA_INTEL_PAC_ARRIA10',
            'CUSTOM_FPGA_INTEL',
            trait('REGION', REGION),
            trait('FUNCTION', FUNCTION),
        ]

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


class TestSharedRegion:
    """Two virtual functions reach one region, and different things in it."""

    PARTS = ('0000:5e:00.1', '0000:5e:00.2')
    THIRD = '11111111-2222-3333-4444-555555555555'
    NAME = f'{ADDRESS}_region0'

    @pytest.fixture(autouse=True)
    def card(self, host):
        facts = {'shell': '0x1', 'region_type': REGION, 'ports': [[FUNCTION, OTHER]]}
        host.plug_in(
            '8086:bcce',
            at=ADDRESS,
            dfl=facts,
            sriov={
                'total': 2,
                'enabled': 2,
                'offset': 1,
                'vf': {'device': 'bccf', 'driver': 'dfl-pci', 'dfl': facts},
            },
        )

    @pytest.fixture
    def driver(self, load):
        return load('intel_fpga_driver')

    @pytest.fixture
    def tree(self, driver):
        """Name of a deployable -> its parent, its functions by trait, its handles."""

        def tree():
            [device] = driver.discover()
            assert device.fault is None
            return {
                part.name: (
                    part.parent_name,
                    [
                        each
                        for each in (FUNCTION, OTHER, self.THIRD)
                        if trait('FUNCTION', each) in part.traits
                    ],
                    {each.key: each.info['function'] for each in part.attach_handles},
                )
                for part in device.deployables
            }

        return tree

    @pytest.fixture
    def program(self, driver, tmp_path):
        def program(*functions):
            driver.program(
                self.NAME,
                write_image(tmp_path / 'image', function=functions[0], more=functions[1:]),
                {},
            )

        return program

    def test_each_thing_is_scheduled_by_itself(self, tree):
        assert tree() == {
            ADDRESS: (None, [], {}),
            self.NAME: (ADDRESS, [], {}),
            f'{self.NAME}_{FUNCTION}': (self.NAME, [FUNCTION], {'vf0': '1'}),
            f'{self.NAME}_{OTHER}': (self.NAME, [OTHER], {'vf1': '2'}),
        }

    def test_the_region_tells_all_that_is_in_it(self, driver):
        [device] = driver.discover()
        region = device.deployables[1]
        assert [(each.key, each.value) for each in region.attributes] == [
            ('region_type_uuid', REGION),
            ('function_uuid', FUNCTION),
            ('function_uuid1', OTHER),
        ]
        assert region.content['function'] == f'{FUNCTION} {OTHER}'
        assert (region.resource_class, region.is_programmable) == (None, True)
        assert [part.is_programmable for part in device.deployables[2:]] == [False, False]

    def test_two_of_the_same_are_two_accelerators(self, tree, program):
        program(self.THIRD, self.THIRD)
        assert tree()[f'{self.NAME}_{self.THIRD}'] == (
            self.NAME,
            [self.THIRD],
            {'vf0': '1', 'vf1': '2'},
        )
        assert len(tree()) == 3

    def test_an_image_with_less_in_it_leaves_less_to_give_out(self, tree, program):
        program(self.THIRD)
        assert tree() == {
            ADDRESS: (None, [], {}),
            self.NAME: (ADDRESS, [], {}),
            f'{self.NAME}_{self.THIRD}': (self.NAME, [self.THIRD], {'vf0': '1'}),
        }

    def test_an_empty_region_is_given_out_itself(self, tree, host):
        host.program(ADDRESS, 0, ['0' * 32, '0' * 32])
        assert tree() == {
            ADDRESS: (None, [], {}),
            self.NAME: (ADDRESS, [], {'vf0': '1', 'vf1': '2'}),
        }

    def test_all_stays_where_it_is_while_guests_have_it(self, host, tree):
        before = tree()
        give_to_guest(host, self.PARTS[1])
        assert tree() == before
        give_to_guest(host, self.PARTS[0])
        assert tree() == before

    def test_what_never_told_is_given_to_nobody(self, host, tree):
        give_to_guest(host, self.PARTS[1])
        assert tree() == {
            ADDRESS: (None, [], {}),
            self.NAME: (ADDRESS, [], {}),
            f'{self.NAME}_{FUNCTION}': (self.NAME, [FUNCTION], {'vf0': '1'}),
        }
        give_to_guest(host, self.PARTS[0])
        assert tree()[f'{self.NAME}_{FUNCTION}'] == (self.NAME, [FUNCTION], {'vf0': '1'})

    def test_a_driver_that_never_saw_it_free_gives_nothing_of_it_out(self, host, tree):
        for address in self.PARTS:
            give_to_guest(host, address)
        assert tree() == {ADDRESS: (None, [], {}), self.NAME: (ADDRESS, [], {})}

    def test_it_is_not_programmed_while_a_guest_has_a_part(self, host, program, tree):
        tree()
        give_to_guest(host, self.PARTS[1])
        with pytest.raises(errors.DriverFailed, match='a guest has it'):
            program(self.THIRD)


class TestFlash:
    FIM = json.dumps({'ports': [FUNCTION], 'shell': '0x2'}).encode()

    @pytest.fixture(autouse=True)
    def card(self, host, conf, tmp_path):
        conf.set_override('flash_cards', True, 'fpga')
        conf.set_override('state_path', str(tmp_path))
        host.plug_in(
            '8086:09c4', at=ADDRESS, dfl={'shell': '0x1', 'region_type': REGION, 'ports': []}
        )

    def test_a_card_without_regions_gets_them_with_its_next_image(
        self, host, load, discover, parts, tmp_path
    ):
        [device] = discover()
        assert 'has no region: flash an image' in device.fault
        [card] = device.deployables
        assert (card.name, card.attach_handles, card.is_programmable) == (ADDRESS, [], True)
        image = tmp_path / 'image'
        image.write_bytes(signature(kind=0) + self.FIM)
        load('intel_fpga_driver').program(ADDRESS, image, {'bitstream_type': 'fim'})
        assert 'switch the host off and on' in discover()[0].fault
        host.power_cycle()
        assert discover()[0].fault is None
        assert list(parts()) == [ADDRESS, f'{ADDRESS}_region0']

    def test_nothing_else_goes_into_its_flash(self, load, tmp_path):
        with pytest.raises(errors.DriverFailed, match='of type gbs, and it takes fim'):
            load('intel_fpga_driver').program(ADDRESS, write_image(tmp_path / 'image'), {})

    def test_a_region_that_is_not_there_yet_is_not_programmed(self, load, tmp_path):
        with pytest.raises(errors.DriverFailed, match='it is not present: .* has no region'):
            load('intel_fpga_driver').program(
                f'{ADDRESS}_region0', write_image(tmp_path / 'image'), {}
            )


class TestBlanking:
    @pytest.fixture(autouse=True)
    def card(self, host):
        host.plug_in('8086:09c4', at=ADDRESS)

    @pytest.fixture
    def blank(self, configure, load, tmp_path):
        def blank(name, deployable=f'{ADDRESS}_region0', **image):
            path = write_image(tmp_path / 'blank.gbs', **image)
            configure(f'[fpga]\nblank_images = {name}:{path}\n')
            load('intel_fpga_driver').blank(deployable)

        return blank

    @pytest.mark.parametrize('name', [REGION, 'intel_fpga_driver'])
    def test_the_image_of_the_operator_is_loaded(self, blank, parts, name):
        blank(name)
        blank(name)
        assert trait('FUNCTION', OTHER) in parts()[f'{ADDRESS}_region0'].traits

    def test_a_region_is_emptied_when_it_is_cleaned(
        self, configure, load, parts, stored, host, tmp_path
    ):
        path = write_image(tmp_path / 'blank.gbs')
        configure(f'[fpga]\nblank_images = {REGION}:{path}\n')
        handle = stored(parts()[f'{ADDRESS}_region0'].attach_handles[0])
        place = '{domain}:{bus}:{device}.{function}'.format(**handle.info)
        host.have_guest_use(place)
        driver = load('intel_fpga_driver')
        steps = [step.name for step in driver.steps_for(handle)]
        assert steps == ['reset', 'blank', 'verify']
        for step in steps:
            driver.clean(handle, step, f'{ADDRESS}_region0')
        assert trait('FUNCTION', OTHER) in parts()[f'{ADDRESS}_region0'].traits
        assert host.traces(place) == []

    def test_without_any_image_the_step_fails_and_says_what_to_set(self, load, parts, stored):
        name = f'{ADDRESS}_region0'
        handle = stored(parts()[name].attach_handles[0])
        driver = load('intel_fpga_driver')
        steps = [step.name for step in driver.steps_for(handle)]
        assert steps == ['reset', 'blank', 'verify']
        with pytest.raises(errors.DriverFailed, match=rf'\[fpga\] blank_images for {REGION}'):
            driver.clean(handle, 'blank', name)
        assert trait('FUNCTION', FUNCTION) in parts()[name].traits

    def test_with_an_image_the_step_empties_the_region(self, configure, load, parts, tmp_path):
        name = f'{ADDRESS}_region0'
        [handle] = parts()[name].attach_handles
        path = write_image(tmp_path / 'blank.gbs')
        configure(f'[fpga]\nblank_images = {REGION}:{path}\n')
        driver = load('intel_fpga_driver')
        assert 'blank' in [each.name for each in driver.steps_for(handle)]
        driver.clean(handle, 'blank', name)
        assert trait('FUNCTION', OTHER) in parts()[name].traits

    def test_what_is_in_a_region_is_emptied_with_it(self, blank, parts):
        blank(REGION, f'{ADDRESS}_region0_{FUNCTION}')
        assert trait('FUNCTION', OTHER) in parts()[f'{ADDRESS}_region0'].traits

    def test_without_an_image_for_it_a_region_cannot_be_emptied(self, blank, parts):
        with pytest.raises(errors.DriverFailed, match=f'blank_images for {REGION}'):
            blank(OTHER)
        assert trait('FUNCTION', FUNCTION) in parts()[f'{ADDRESS}_region0'].traits

    def test_one_that_does_not_fit_is_refused(self, blank):
        with pytest.raises(errors.DriverFailed, match=f'the image is for {OTHER}'):
            blank(REGION, interface=OTHER)

    def test_a_card_cannot_be_emptied(self, blank):
        with pytest.raises(errors.DriverFailed, match='only a region can be emptied'):
            blank(REGION, ADDRESS)

    def test_what_a_guest_has_is_left_alone(self, blank, host):
        give_to_guest(host, ADDRESS)
        with pytest.raises(errors.DriverFailed, match='a guest has it'):
            blank('intel_fpga_driver')

    @pytest.mark.parametrize('line', ['x', 'x:', ':/image', f'{REGION}:image'])
    def test_a_mistake_is_one_sentence(self, configure, load, line):
        configure(f'[fpga]\nblank_images = {line}\n')
        with pytest.raises(errors.ConfigError, match='blank_images has'):
            load('intel_fpga_driver')
