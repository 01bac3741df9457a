# SPDX-License-Identifier: Apache-2.0
"""cyborg-sim as people use it."""

import sys
import uuid
from pathlib import Path

import pytest
import yaml

from cyborg.cmd import sim
from cyborg.sim import Host

FPGA = '0000:5e:00.0'
CARD = {'model': '8086:37c8', 'at': '0000:6b:00.0', 'vfs': 2}


@pytest.fixture
def described(tmp_path):
    path = tmp_path / 'host.yaml'
    path.write_text(yaml.safe_dump({'cards': [CARD]}))
    return path


@pytest.fixture
def run(monkeypatch, capsys):
    """The exit status, and what was printed."""

    def run(*arguments):
        monkeypatch.setattr(sys, 'argv', ['cyborg-sim', *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            sim.main()
        told = capsys.readouterr()
        if isinstance(left.value.code, str):
            return 1, left.value.code
        return left.value.code, told.out + told.err

    return run


class TestImage:
    REGION, FUNCTION = '69528db6-eb31-577a-8c36-68f9faa081f6', str(uuid.uuid4())

    def test_an_image_can_be_loaded_into_a_simulated_card(self, run, tmp_path):
        as_in_the_trait = self.REGION.upper().replace('-', '_')
        code, text = run(
            *('image', tmp_path / 'image.gbs', '--region-type', as_in_the_trait),
            *('--function', self.FUNCTION),
        )
        assert (code, self.REGION in text, self.FUNCTION in text) == (0, True, True)
        host = Host.described(tmp_path / 'sys', {'cards': [{'model': '8086:09c4', 'at': FPGA}]})
        place = '-B', '0x5e', '-D', '0x00', '-F', '0x0'
        host.sysfs.run('fpgaconf', *place, str(tmp_path / 'image.gbs'))
        found = [path.read_text().strip() for path in tmp_path.glob('sys/**/afu_id')]
        assert self.FUNCTION.replace('-', '') in found

    def test_a_wrong_uuid_is_refused(self, run, tmp_path):
        code, text = run('image', tmp_path / 'x', '--region-type', 'gzip', '--function', 'gzip')
        assert (code, 'gzip is not a uuid' in text) == (2, True)
        assert not (tmp_path / 'x').exists()


class TestBuild:
    def test_a_tree_is_made(self, run, described, tmp_path):
        assert run('build', described, tmp_path / 'sys') == (
            0,
            f'{tmp_path}/sys is the sysfs of a host with Intel QAT C62x.\n',
        )
        assert (tmp_path / 'sys/bus/pci/devices/0000:6b:00.0/vendor').read_text() == '0x8086\n'

    def test_it_can_be_made_again(self, run, described, tmp_path):
        for _ in range(2):
            assert run('build', described, tmp_path / 'sys')[0] == 0

    @pytest.mark.parametrize('name', ['absent.yaml', '.'])
    def test_a_mistake_is_one_sentence(self, run, tmp_path, name):
        code, text = run('build', tmp_path / name, tmp_path / 'sys')
        assert code == 1
        assert text.startswith('cyborg-sim: ')
        assert text.count('\n') == 0

    def test_nothing_is_overwritten(self, run, described, tmp_path):
        code, text = run('build', described, tmp_path)
        assert (code, 'contains other files' in text) == (1, True)
        code, text = run('build', described, described)
        assert (code, text) == (1, f'cyborg-sim: {described}: File exists.')


class TestRecord:
    @pytest.fixture
    def root(self, described, tmp_path):
        return Host.described(tmp_path / 'sys', described).sysfs.path

    def test_a_file_is_a_description(self, run, root, tmp_path):
        assert run('record', tmp_path / 'out.yaml', '--root', root) == (0, '')
        copy = Host.described(tmp_path / 'copy', tmp_path / 'out.yaml')
        assert copy.cards == {'0000:6b:00.0': 'Intel QAT C62x'}
        assert copy.sysfs.read('bus/pci/devices/0000:6b:00.0/sriov_numvfs') == '2'

    def test_a_directory_is_a_tree(self, run, root, tmp_path):
        assert run('record', tmp_path / 'out', '--root', root) == (0, '')
        assert run('build', tmp_path / 'out', tmp_path / 'copy')[0] == 0
        for name in ('out', 'copy'):
            assert (tmp_path / name / 'bus/pci/devices/0000:6b:00.0/virtfn1').exists()

    def test_it_can_go_to_standard_output(self, run, root):
        code, text = run('record', '-', '--root', root)
        assert code == 0
        assert yaml.safe_load(text)['cards'][0]['at'] == '0000:6b:00.0'

    def test_how_the_root_is_spelled_does_not_matter(self, run, root, tmp_path, monkeypatch):
        Host(root).plug_in('1d9b:0400', at='0000:85:00.0')
        expected = run('record', '-', '--root', root)
        assert 'serialnum' in expected[1]
        monkeypatch.chdir(tmp_path)
        Path('link').symlink_to(root)
        for each in ('sys', './sys/../sys', 'link'):
            assert run('record', '-', '--root', each) == expected

    def test_what_is_no_sysfs_is_refused(self, run, tmp_path):
        assert run('record', '-', '--root', tmp_path) == (
            1,
            f'cyborg-sim: {tmp_path} is not a sysfs: it has no bus/pci/devices.',
        )

    def test_this_very_machine_can_be_recorded(self, run, tmp_path):
        code, text = run('record', tmp_path / 'out.yaml')
        if 'no sysfs' in text:
            pytest.skip('There is no sysfs here.')
        assert code == 0
        Host.described(tmp_path / 'copy', tmp_path / 'out.yaml')


class TestCheck:
    def test_each_check_is_a_line(self, run, described):
        code, text = run('check', 'intel_qat_driver', '--description', described)
        lines = text.splitlines()
        assert code == 0
        assert all(line.startswith(('ok    ', 'skip  ')) for line in lines[:-1])
        assert len(lines) > 20
        skipped = sum(line.startswith('skip') for line in lines)
        performed = len(lines) - 1 - skipped
        assert lines[-1] == (
            f'intel_qat_driver passes all {performed} checks that were performed; '
            f'{skipped} were skipped.'
        )

    def test_a_broken_one_is_told_and_fails(self, run, described):
        code, text = run('check', 'time_sync_driver', '--description', described)
        assert code == 1
        assert 'FAIL  Discovery finds a device' in text
        assert text.splitlines()[-1].startswith('time_sync_driver fails ')

    @pytest.mark.parametrize('name', ['intel_nic_driver', 'nvmf_spdk_driver'])
    def test_a_driver_that_needs_options_is_given_some(self, run, name):
        code, text = run('check', name)
        assert code == 0
        assert text.startswith('The driver is checked with sample options and cards')

    def test_a_recorded_host_will_do(self, run, described, tmp_path):
        Host.described(tmp_path / 'sys', described)
        assert run('check', 'intel_qat_driver', '--root', tmp_path / 'sys')[0] == 0

    def test_options_of_drivers_are_read(self, run, described, tmp_path):
        path = tmp_path / 'cyborg.conf'
        path.write_text('[intel_qat_driver]\nresource_class = npu\n')
        code, text = run(
            'check', 'intel_qat_driver', '--description', described, '--config-file', path
        )
        assert (code, 'npu' in text) == (1, True)

    @pytest.mark.parametrize(
        ('arguments', 'why'),
        [
            (['check', 'no_such_driver'], 'There is no driver no_such_driver; known drivers: '),
            (['check', 'fake_driver', '--config-file', '/nonexistent'], '/nonexistent'),
            (['check', 'fake_driver', '--description', '/nonexistent'], 'cannot be read'),
            (['check', 'fake_driver', '--root', '/nonexistent'], 'is not a sysfs'),
        ],
    )
    def test_a_mistake_is_one_sentence(self, run, arguments, why):
        code, text = run(*arguments)
        assert code == 1
        assert text.startswith('cyborg-sim: ')
        assert why in text
