# SPDX-License-Identifier: Apache-2.0
"""The simulated tools refuse what the real ones refuse."""

import pytest

from cyborg.accelerator import pci
from tests.fixtures.fpga import FUNCTION, REGION_TYPE, gbs
from tests.unit.accelerator.drivers.test_xilinx_fpga import write_xclbin

ADDRESS = '0000:5e:00.0'
PLACE = ('-B', '0x5e', '-D', '0x00', '-F', '0x0')


def give_to_guest(host, address):
    function = pci.Function.at(host.sysfs, address)
    function.write('driver_override', 'vfio-pci')
    (function / 'driver').write('unbind', address)
    host.sysfs.write('bus/pci/drivers_probe', address)


@pytest.fixture
def image(tmp_path):
    def image(content=None):
        path = tmp_path / 'image'
        path.write_bytes(gbs() if content is None else content)
        return str(path)

    return image


class TestOpae:
    @pytest.fixture(autouse=True)
    def card(self, host):
        host.plug_in('8086:09c4', at=ADDRESS)

    @staticmethod
    def function(host):
        [port] = (host.sysfs / f'bus/pci/devices/{ADDRESS}').children(
            'fpga_region/region*/dfl-port.*'
        )
        return port.read('afu_id')

    def test_a_region_does_what_its_image_says(self, host, image):
        host.sysfs.run('fpgaconf', *PLACE, image())
        assert self.function(host) == FUNCTION.replace('-', '')

    def test_a_card_that_is_pulled_forgets_its_image_and_one_that_is_found_again_does_not(
        self, host, image
    ):
        first = self.function(host)
        host.sysfs.run('fpgaconf', *PLACE, image())
        host.sysfs.write(f'bus/pci/devices/{ADDRESS}/remove', '1')
        host.sysfs.write('bus/pci/rescan', '1')
        assert self.function(host) == FUNCTION.replace('-', '')
        host.pull_out(ADDRESS)
        host.plug_in('8086:09c4', at=ADDRESS)
        assert self.function(host) == first

    @pytest.mark.parametrize(
        ('words', 'content', 'sentence'),
        [
            ((), None, 'No suitable slots found'),  # there is nothing at 0000:00:00.0
            (('-B', '0x5f'), None, 'No suitable slots found'),
            (('-S', '0x0', *PLACE), None, 'unrecognized option'),
            ((*PLACE, '/more'), None, '1 arguments are expected, not 2'),
            (('-B', 'x'), None, 'x is not a number'),
            (PLACE, b'noise', 'Invalid bitstream'),
            (PLACE, gbs(interface=FUNCTION), 'interface id mismatch'),
            (PLACE, gbs(interface='x'), 'Invalid bitstream metadata'),
            (PLACE, gbs('x'), 'Invalid bitstream metadata'),
            (PLACE, gbs()[:-4000], 'no data'),
        ],
    )
    def test_what_is_wrong_is_refused(self, host, image, words, content, sentence):
        with pytest.raises(OSError, match=f'fpgaconf ended with 1: .*{sentence}'):
            host.sysfs.run('fpgaconf', *words, image(content))

    def test_an_image_that_is_not_there_is_named(self, host):
        with pytest.raises(OSError, match='/gone: No such file'):
            host.sysfs.run('fpgaconf', *PLACE, '/gone')

    def test_what_a_guest_has_is_busy(self, host, image):
        host.plug_in('8086:bcce', at='0000:6e:00.0')
        give_to_guest(host, '0000:6e:00.2')
        content = gbs(interface='7cb96dc4-a1b2-5c3d-9e0f-4b3a2c1d0e9f')
        with pytest.raises(OSError, match='resource busy'):
            host.sysfs.run('cyborg-fpga-load', 'port', '/dev/dfl-fme.1', '1', image(content))
        host.sysfs.run('cyborg-fpga-load', 'port', '/dev/dfl-fme.1', '0', image(content))

    @pytest.mark.parametrize(
        'words',
        [
            ('port', '/dev/dfl-fme.7', '0'),
            ('port', '/dev/null', '0'),
            ('port', '/dev/dfl-fme.0', '9'),
            ('card', '/dev/dfl-fme.0', '0'),
            ('manager', 'fpga0', 'half'),
        ],
    )
    def test_what_is_not_there_is_refused(self, host, image, words):
        with pytest.raises(OSError, match='cyborg-fpga-load ended with 1'):
            host.sysfs.run('cyborg-fpga-load', *words, image())

    @pytest.mark.parametrize(
        ('content', 'address', 'sentence'),
        [
            (gbs(), ADDRESS, 'not signed'),
            (bytes.fromhex('19fdeab6') + bytes(1020), '0000:00:00.0', 'not an FPGA device'),
            (
                bytes.fromhex('19fdeab6') + bytes(1020) + b'noise',
                ADDRESS,
                'does not match its hash',
            ),
            (bytes.fromhex('19fdeab60000000001') + bytes(1015), ADDRESS, 'not supported'),
        ],
    )
    def test_the_flash_takes_signed_images_only(self, host, image, content, address, sentence):
        with pytest.raises(OSError, match=f'fpgasupdate ended with 1: .*{sentence}'):
            host.sysfs.run('fpgasupdate', image(content), address)

    def test_a_card_that_is_a_guest_s_is_not_there(self, host, image):
        give_to_guest(host, ADDRESS)
        with pytest.raises(OSError, match='No suitable slots found'):
            host.sysfs.run('fpgaconf', *PLACE, image())


class TestXrt:
    MANAGER, USER = ADDRESS, '0000:5e:00.1'

    @pytest.fixture(autouse=True)
    def card(self, host):
        host.plug_in('10ee:5000', at=self.MANAGER)
        host.plug_in('10ee:5001', at=self.USER)

    @pytest.mark.parametrize(
        'words',
        [
            ('xbutil', 'program', '--device', '{manager}', '--user', '{image}'),
            ('xbutil', 'program', '--device', '0000:5f:00.1', '--user', '{image}'),
            ('xbutil', 'program', '--user', '{image}'),
            ('xbutil', 'program', '--device', '{user}'),
            ('xbutil', 'examine', '--device', '{user}', '--user', '{image}'),
            ('xbutil', 'program', '--device', '{user}', '--base', '{image}'),
            ('xbmgmt', 'program', '--device', '{user}', '--user', '{image}'),
            ('xbmgmt', 'program', '--device', '{manager}', '--base', '--image', '{image}'),
            ('xbmgmt', 'program', '--device', '{manager}', '--base', '--force'),
        ],
    )
    def test_what_is_wrong_is_refused(self, host, tmp_path, words):
        image = write_xclbin(tmp_path / 'image')
        command = [each.format(manager=self.MANAGER, user=self.USER, image=image) for each in words]
        with pytest.raises(OSError, match=f'{words[0]} ended with 1'):
            host.sysfs.run(*command)

    @pytest.mark.parametrize(
        ('image', 'sentence'),
        [
            ({'magic': b'xclbin1\0'}, 'Bad binary version'),
            ({'missing': 1}, 'truncated'),
            ({'interface': REGION_TYPE}, 'does not match the shell'),
        ],
    )
    def test_an_image_that_does_not_fit_is_refused(self, host, tmp_path, image, sentence):
        path = str(write_xclbin(tmp_path / 'image', **image))
        for tool, address in (('xbutil', self.USER), ('xbmgmt', self.MANAGER)):
            with pytest.raises(OSError, match=sentence):
                host.sysfs.run(tool, 'program', '--device', address, '--user', path)

    def test_what_a_guest_has_is_busy(self, host, tmp_path):
        give_to_guest(host, self.USER)
        with pytest.raises(OSError, match='busy'):
            host.sysfs.run(
                'xbmgmt',
                'program',
                '--device',
                self.MANAGER,
                '--user',
                str(write_xclbin(tmp_path / 'image')),
            )
