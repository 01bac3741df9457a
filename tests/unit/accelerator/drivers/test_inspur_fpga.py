# SPDX-License-Identifier: Apache-2.0
"""Inspur FPGAs."""

import pytest

from cyborg import errors

ADDRESS = '0000:5e:00.0'


@pytest.fixture
def discover(load):
    return lambda: list(load('inspur_fpga_driver').discover())


def test_a_card_holds_one_region(host, discover):
    host.plug_in('1bd4:0911', at=ADDRESS)
    [device] = discover()
    assert (device.type, device.model) == ('FPGA', 'Inspur F10A')
    card, region = device.deployables
    assert (card.name, card.resource_class) == (ADDRESS, None)
    assert (region.parent_name, region.resource_class) == (ADDRESS, 'FPGA')
    assert region.traits == [
        'CUSTOM_FPGA_INSPUR_F10A',
        'CUSTOM_FPGA_PRODUCT_ID_0911',
        'CUSTOM_FPGA_INSPUR',
    ]
    assert region.attach_handles[0].info['bus'] == '5e'


def test_other_ids_are_known_by_their_class(host, discover):
    host.plug_in('1bd4:a115', at=ADDRESS, **{'class': '120000'})
    host.plug_in('1bd4:1001', at='0000:60:00.0')  # a disk
    assert [device.model for device in discover()] == ['Inspur FPGA']


class TestManager:
    """A kernel that shows a manager for the card, which loads files."""

    ADDRESS = '0000:5e:00.0'
    RAW = {'bitstream_type': 'raw'}
    IMAGE = bytes.fromhex('aa995566') + b'bits'

    @pytest.fixture(autouse=True)
    def card(self, host):
        host.plug_in('1bd4:0911', at=self.ADDRESS, driver='manager', fpga_manager={})

    @pytest.fixture
    def driver(self, load):
        return load('inspur_fpga_driver')

    @pytest.fixture
    def program(self, driver, tmp_path):
        def program(content=self.IMAGE, properties=self.RAW):
            image = tmp_path / 'image'
            image.write_bytes(content)
            driver.program(f'{self.ADDRESS}_region0', image, properties)

        return program

    def test_it_programs_the_card(self, host, driver, program):
        commands, tool = [], host.tools['cyborg-fpga-load']
        host.tools['cyborg-fpga-load'] = lambda *words: commands.append(words) or tool(*words)
        program()
        program(properties=self.RAW | {'partial_reconfiguration': 'true'})
        assert [words[:3] for words in commands] == [
            ('manager', 'fpga0', 'full'),
            ('manager', 'fpga0', 'partial'),
        ]
        assert all(driver.may_run(['cyborg-fpga-load', *words]) for words in commands)
        assert not driver.may_run(['cyborg-fpga-load', 'manager', 'fpga1', 'full', '/image'])
        [device] = driver.discover()
        assert [part.is_programmable for part in device.deployables] == [False, True]

    def test_a_file_of_no_known_type_needs_a_word_in_glance(self, program):
        with pytest.raises(errors.DriverFailed, match='bitstream_type in Glance is not raw'):
            program(properties={})

    def test_an_image_of_the_operator_empties_the_region(self, host, configure, load, tmp_path):
        # given an image whose beginning and suffix are those of no known type
        image = tmp_path / 'blank.bin'
        image.write_bytes(self.IMAGE)
        configure(f'[fpga]\nblank_images = inspur_fpga_driver:{image}\n')
        commands, tool = [], host.tools['cyborg-fpga-load']
        host.tools['cyborg-fpga-load'] = lambda *words: commands.append(words) or tool(*words)
        load('inspur_fpga_driver').blank(f'{self.ADDRESS}_region0')
        assert commands == [('manager', 'fpga0', 'full', str(image))]

    def test_an_image_of_the_operator_with_another_suffix_is_refused(
        self, configure, load, tmp_path
    ):
        image = tmp_path / 'blank.gbs'
        image.write_bytes(self.IMAGE)
        configure(f'[fpga]\nblank_images = inspur_fpga_driver:{image}\n')
        with pytest.raises(errors.DriverFailed, match=f'{image} is not recognized') as told:
            load('inspur_fpga_driver').blank(f'{self.ADDRESS}_region0')
        assert 'Glance' not in told.value.faultstring

    def test_a_card_that_was_half_written_has_a_fault_until_it_is_written(self, driver, program):
        with pytest.raises(errors.DriverFailed, match='state is "write error"'):
            program(b'noise')
        [device] = driver.discover()
        assert 'says "write error": load an image anew' in device.fault
        assert len(device.deployables) == 2
        program()
        assert next(iter(driver.discover())).fault is None

    def test_a_mainline_kernel_programs_nothing(self, host, driver, program):
        host.pull_out(self.ADDRESS)
        host.plug_in('1bd4:0911', at=self.ADDRESS, driver='x', fpga_manager={'firmware': False})
        [device] = driver.discover()
        assert not any(part.is_programmable for part in device.deployables)
        with pytest.raises(errors.DriverFailed, match='it takes no image'):
            program()
