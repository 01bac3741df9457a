# SPDX-License-Identifier: Apache-2.0
"""Xilinx Alveo."""

import uuid

import pytest

from cyborg import errors
from cyborg.accelerator import fpga_tools, pci

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
        'CUSTOM_FPGA_XILINX_ALVEO_U200',
        'CUSTOM_FPGA_PRODUCT_ID_5001',
        'CUSTOM_FPGA_XILINX',
        trait('REGION', SHELL),
        trait('FUNCTION', PROGRAMMED),
        'CUSTOM_FPGA_PRODUCT_ID_5000',
    ]
    facts = {
        each.key: (each.value, {child.key: child.value for child in each.children})
        for each in region.attributes
    }
    assert facts == {
        'region_type_uuid': (SHELL, {}),
        'bitstream_id': (PROGRAMMED, {}),
        'function_uuid': (PROGRAMMED, {'clock0_mhz': '300', 'clock1_mhz': '500'}),
    }
    # which image of Glance that is, the hardware does not know
    assert (region.bitstream_id, region.content) == (None, {'function': PROGRAMMED})


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
    assert 'bitstream_id' not in [each.key for each in region.attributes]


def test_a_shell_may_take_images_of_several_kinds(host, discover):
    host.plug_in(
        '10ee:5000',
        at=MANAGEMENT,
        driver_files={'interface_uuids': f'{SHELL.replace("-", "")}\n{PROGRAMMED}\nnone\n'},
    )
    host.plug_in('10ee:5001', at=USER, driver_files={})
    region = discover()[0].deployables[1]
    assert {trait('REGION', SHELL), trait('REGION', PROGRAMMED)} <= set(region.traits)
    assert [(each.key, each.value) for each in region.attributes] == [
        ('region_type_uuid', SHELL),
        ('region_type_uuid1', PROGRAMMED),
    ]


def test_without_their_drivers_it_is_a_card_all_the_same(host, discover):
    host.plug_in('10ee:5001', at=USER, driver=None)
    [device] = discover()
    assert device.deployables[1].num_accelerators == 1
    assert device.control_paths == []  # its manager is not there


@pytest.mark.parametrize(
    ('model', 'sentence'),
    [('10ee:d000', 'has no shell: flash one'), ('10ee:5000', 'has no function for users')],
)
def test_a_card_that_users_cannot_reach_says_why(host, discover, model, sentence):
    host.plug_in(model, at=MANAGEMENT)
    [device] = discover()
    [card] = device.deployables  # to be seen, and nothing else
    assert (device.key, card.name) == ('0000:5e:00', MANAGEMENT)
    assert (card.resource_class, card.attach_handles, card.is_programmable) == (None, [], False)
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
    assert device.fault_if_changed is None  # so that nobody takes it for one that was divided


OTHER = '0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0'


def write_xclbin(path, function=OTHER, interface=SHELL, magic=b'xclbin2\0', missing=0):
    """A container as XRT's tools make it, with nothing to run in it."""
    header = bytearray(456)
    header[:8] = magic
    header[304:312] = (len(header) + 100 + missing).to_bytes(8, 'little')
    header[336:352] = uuid.UUID(interface).bytes
    header[416:432] = uuid.UUID(function).bytes
    path.write_bytes(bytes(header) + b'b' * 100)
    return path


def give_to_guest(host, address):
    function = pci.Function.at(host.sysfs, address)
    function.write('driver_override', 'vfio-pci')
    (function / 'driver').write('unbind', address)
    host.sysfs.write('bus/pci/drivers_probe', address)


class TestProgramming:
    REGION = f'{USER}_region0'

    @pytest.fixture
    def program(self, load, tmp_path):
        def program(deployable=self.REGION, properties=None, **image):
            load('xilinx_fpga_driver').program(
                deployable, write_xclbin(tmp_path / 'image', **image), properties or {}
            )

        return program

    @pytest.fixture
    def commands(self, host):
        """All commands that are run."""
        seen = []

        def noted(name, tool):
            def run(*words):
                seen.append([name, *words])
                return tool(*words)

            return run

        host.tools |= {name: noted(name, tool) for name, tool in host.tools.items()}
        return seen

    def test_users_get_what_the_image_does(self, card, discover, program, commands, load):
        program()
        program()
        region = discover()[0].deployables[1]
        assert region.is_programmable
        assert trait('FUNCTION', OTHER) in region.traits
        assert trait('FUNCTION', PROGRAMMED) not in region.traits
        assert commands == [['xbutil', 'program', '--device', USER, '--user', commands[0][-1]]] * 2
        assert all(load('xilinx_fpga_driver').may_run(each) for each in commands)

    def test_without_the_users_driver_the_manager_loads_it(
        self, host, card, discover, program, commands, load
    ):
        (host.sysfs / f'bus/pci/devices/{USER}/driver').write('unbind', USER)
        program()
        assert commands == [
            ['xbmgmt', 'program', '--device', MANAGEMENT, '--user', commands[0][-1]]
        ]
        assert load('xilinx_fpga_driver').may_run(commands[0])
        host.sysfs.write('bus/pci/drivers_probe', USER)
        assert trait('FUNCTION', OTHER) in discover()[0].deployables[1].traits

    def test_an_image_need_not_tell_here_which_shell_it_is_for(self, card, discover, program):
        program(interface=str(uuid.UUID(int=0)))
        assert trait('FUNCTION', OTHER) in discover()[0].deployables[1].traits

    @pytest.mark.parametrize(
        ('image', 'sentence'),
        [
            ({'interface': OTHER}, f'the image is for {OTHER}, the region takes {SHELL}'),
            ({'magic': b'#!/bin/x'}, 'the image is not recognized'),
            ({'missing': 7}, 'should have 563 bytes, but has 556'),
            ({'properties': {'bitstream_type': 'gbs'}}, 'is of type gbs, but it is of type xclbin'),
            ({'properties': {'name': 'aes.gbs'}}, 'is of type gbs, but it is of type xclbin'),
            ({'properties': {'bitstream_type': 'xsabin'}}, 'of type xsabin, and it takes xclbin'),
            ({'properties': {'bitstream_type': 'jpeg'}}, 'bitstream_type is jpeg, not one of gbs'),
            ({'deployable': USER}, 'it takes no image'),
            ({'deployable': f'{USER}_region1'}, 'it is not present'),
            ({'deployable': f'{MANAGEMENT}_region0'}, 'it is not present'),
        ],
    )
    def test_what_does_not_fit_is_refused(self, card, discover, program, image, sentence):
        with pytest.raises(errors.DriverFailed, match=sentence):
            program(**image)
        assert trait('FUNCTION', PROGRAMMED) in discover()[0].deployables[1].traits

    def test_a_card_that_a_guest_has_is_left_alone(self, host, card, program, commands):
        give_to_guest(host, USER)
        with pytest.raises(errors.DriverFailed, match='a guest has it'):
            program()
        assert commands == []

    def test_root_runs_nothing_on_cards_of_others(self, card, host, load):
        driver = load('xilinx_fpga_driver')
        command = ['xbutil', 'program', '--device', USER, '--user', '/image']
        assert driver.may_run(command)
        for wrong in ('0000:5f:00.1', '0000:00:1f.0'):
            assert not driver.may_run([*command[:3], wrong, *command[4:]])
        assert not driver.may_run([*command, '--force'])
        assert not driver.may_run(
            ['xbmgmt', 'program', '--device', MANAGEMENT, '--base', '--image', '/image', '--force']
        )


class TestBlanking:
    REGION = f'{USER}_region0'

    @pytest.fixture(autouse=True)
    def blanks(self, configure, card, tmp_path):
        path = write_xclbin(tmp_path / 'blank.xclbin')
        configure(f'[fpga]\nblank_images = {SHELL}:{path}\n')

    def test_a_region_is_emptied_when_it_is_cleaned(self, host, discover, load, stored):
        [handle] = discover()[0].deployables[1].attach_handles
        handle = stored(handle)
        host.have_guest_use(USER)
        driver = load('xilinx_fpga_driver')
        steps = [step.name for step in driver.steps_for(handle)]
        assert 'blank' in steps
        for step in steps:
            driver.clean(handle, step, self.REGION)
        region = discover()[0].deployables[1]
        assert trait('FUNCTION', OTHER) in region.traits
        assert host.traces(USER) == []

    def test_a_failure_of_the_tool_is_told(self, host, discover, load):
        def program(*words):
            raise OSError('xbutil ended with 1: ERROR: Failed to download xclbin')

        host.tools['xbutil'] = program
        [handle] = discover()[0].deployables[1].attach_handles
        with pytest.raises(errors.DriverFailed, match='Failed to download'):
            load('xilinx_fpga_driver').clean(handle, 'blank', self.REGION)
        assert trait('FUNCTION', PROGRAMMED) in discover()[0].deployables[1].traits


class TestFlash:
    """What goes into the flash counts when the host was switched off and on."""

    XSABIN = {'bitstream_type': 'xsabin'}

    @pytest.fixture(autouse=True)
    def allowed(self, conf, tmp_path):
        conf.set_override('flash_cards', True, 'fpga')
        conf.set_override('state_path', str(tmp_path))

    @pytest.fixture
    def flash(self, load, tmp_path):
        def flash(deployable, properties=self.XSABIN):
            load('xilinx_fpga_driver').program(
                deployable, write_xclbin(tmp_path / 'shell'), properties
            )

        return flash

    def test_a_card_without_a_shell_gets_one(self, host, discover, flash):
        host.plug_in('10ee:d000', at=MANAGEMENT)
        [card] = discover()[0].deployables
        assert card.is_programmable
        flash(MANAGEMENT)
        [device] = discover()
        assert 'switch the host off and on' in device.fault
        assert 'has no shell' not in device.fault
        host.power_cycle()
        [device] = discover()
        assert device.fault is None
        assert [part.name for part in device.deployables] == [USER, f'{USER}_region0']

    def test_what_is_left_to_do_is_known_after_a_restart_of_the_agent(
        self, host, card, discover, flash
    ):
        flash(USER)
        [device] = discover()  # a new driver
        assert 'The flash of 0000:5e:00.1 was written' in device.fault
        assert len(device.deployables) == 2  # who has them keeps them
        host.reboot()
        assert discover()[0].fault is None

    def test_only_an_image_for_the_flash_goes_there(self, card, flash):
        with pytest.raises(errors.DriverFailed, match='of type xclbin, and it takes xsabin'):
            flash(USER, {})

    def test_a_card_in_use_is_left_alone(self, host, card, flash):
        give_to_guest(host, USER)
        with pytest.raises(errors.DriverFailed, match='a guest has it'):
            flash(USER)

    def test_root_runs_it_only_if_it_is_allowed(self, card, conf, load):
        command = [
            'xbmgmt',
            *fpga_tools.XBMGMT_BASE.words(
                fpga_tools.Target(pci.Function.at(load('xilinx_fpga_driver').sysfs, MANAGEMENT)),
                fpga_tools.Image('/image', 'xsabin'),
            ),
        ]
        assert load('xilinx_fpga_driver').may_run(command)
        conf.set_override('flash_cards', False, 'fpga')
        assert not load('xilinx_fpga_driver').may_run(command)
