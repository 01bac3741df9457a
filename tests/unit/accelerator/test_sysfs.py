# SPDX-License-Identifier: Apache-2.0
"""Reading never raises, writing tells the truth."""

import errno
import os
import stat
from pathlib import Path

import pytest

from cyborg.accelerator import sysfs
from cyborg.accelerator.sysfs import Sysfs


@pytest.fixture
def root(tmp_path):
    device = tmp_path / 'devices/card'
    device.mkdir(parents=True)
    (device / 'vendor').write_text('0x10de\n')
    (device / 'numa_node').write_text('-1\n')
    (device / 'noise').write_bytes(b'\xff\xfe\x00')
    (device / 'empty').write_text('')
    (device / 'driver').symlink_to('../../bus/nvidia')
    (device / 'dangling').symlink_to('../gone')
    (device / 'circle').symlink_to('circle')
    (tmp_path / 'bus/nvidia').mkdir(parents=True)
    return tmp_path


@pytest.fixture
def card(root):
    return Sysfs(root) / 'devices/card'


class TestReading:
    def test_text_comes_without_its_newline(self, card):
        assert card.read('vendor') == '0x10de'
        assert (card / 'vendor').read() == '0x10de'

    @pytest.mark.parametrize('name', ['absent', 'dangling', 'circle', 'vendor/below', 'x\0y', '.'])
    def test_what_cannot_be_read_is_absent(self, card, name):
        assert card.read(name) is None

    def test_what_is_not_text_is_still_no_error(self, card):
        assert card.read('noise') == '\ufffd\ufffd\ufffd'  # no database takes a NUL
        assert card.read('empty') == ''

    def test_a_file_without_end_is_cut(self, root):
        assert len(Sysfs(root).read('/dev/zero')) == sysfs.LONGEST

    def test_numbers_are_numbers_or_absent(self, card):
        assert card.number('numa_node') == -1
        assert card.number('vendor', 16) == 0x10de
        assert [card.number(name) for name in ('vendor', 'noise', 'empty', 'absent')] == [None] * 4

    def test_children_come_in_order(self, card, root):
        for name in ('b', 'a', 'c'):
            (root / 'devices/card/types' / name).mkdir(parents=True)
        assert [child.name for child in card.children('types/*')] == ['a', 'b', 'c']
        assert card.children('none/*') == []
        assert (card / 'vendor').children() == []

    def test_a_link_leads_somewhere_or_is_absent(self, card):
        assert card.link('driver').name == 'nvidia'
        for name in ('dangling', 'circle', 'vendor', 'absent'):
            assert card.link(name) is None

    def test_a_child_that_goes_meanwhile_takes_no_other_along(self, card, root, monkeypatch):
        for name in ('a', 'b', 'c'):
            (root / 'devices/card' / name / 'devices/disk').mkdir(parents=True)
        scan = os.scandir

        def scan_once_it_went(place):
            if Path(place).name == 'b':
                os.rename(place, root / 'elsewhere')
            return scan(place)
        monkeypatch.setattr(os, 'scandir', scan_once_it_went)
        found = [child.path.parent.parent.name for child in card.children('*/dev*/*')]
        assert found == ['a', 'c']

    def test_a_link_that_goes_while_it_is_followed_is_absent(self, card, monkeypatch):
        def gone(path, **options):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        monkeypatch.setattr(os, 'readlink', gone)
        assert card.link('driver') is None
        assert (card / 'driver').real() is None

    def test_it_says_what_is_there(self, card):
        assert card.exists()
        assert card.has('vendor')
        assert not card.has('absent')
        assert not card.has('dangling')
        assert not (card / 'absent').exists()


class TestWriting:
    def test_a_simulated_host_brings_its_own_hand(self, root):
        written = []
        node = Sysfs(root, writer=lambda path, text: written.append((path, text)))
        (node / 'devices/card').write('vendor', 'x')
        assert written == [(root / 'devices/card/vendor', 'x')]

    def test_an_attribute_is_written_in_place(self, card, root):
        card.write('vendor', 'new')
        assert (root / 'devices/card/vendor').read_text().startswith('new')

    def test_nothing_is_ever_created(self, card, root):
        with pytest.raises(FileNotFoundError):
            card.write('absent', '1')
        assert not (root / 'devices/card/absent').exists()

    def test_what_the_kernel_has_against_it_rises(self, root):
        def refuse(path, text):
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        with pytest.raises(OSError) as caught:
            Sysfs(root, writer=refuse).write('sriov_numvfs', '4')
        assert caught.value.errno == errno.EBUSY


class TestTools:
    def test_a_host_that_is_not_this_one_has_none(self, root):
        with pytest.raises(FileNotFoundError):
            Sysfs(root).run('true')

    def test_what_a_tool_says_is_answered(self, tmp_path):
        tool = tmp_path / 'tool'
        tool.write_text('#!/bin/sh\necho "$@"\n')
        tool.chmod(tool.stat().st_mode | stat.S_IEXEC)
        assert sysfs.run(['tool', 'a', 'b c'], path=str(tmp_path)) == 'a b c\n'

    def test_a_tool_that_fails_is_an_error_with_its_words(self, tmp_path):
        tool = tmp_path / 'tool'
        tool.write_text('#!/bin/sh\necho "no such card" >&2\nexit 3\n')
        tool.chmod(tool.stat().st_mode | stat.S_IEXEC)
        with pytest.raises(OSError, match='tool ended with 3: no such card'):
            sysfs.run(['tool'], path=str(tmp_path))

    def test_a_tool_that_is_not_there_is_told_from_one_that_fails(self, tmp_path):
        with pytest.raises(FileNotFoundError):
            sysfs.run(['tool'], path=str(tmp_path))


class TestPrivilege:
    """Which hand writes depends on whose sysfs it is and who we are."""

    @pytest.mark.parametrize(('root', 'user', 'expected'), [
        ('/sys', 0, sysfs.write),
        ('/sys', 1000, sysfs._write_with_privilege),
        ('simulated', 0, sysfs.write),
        ('simulated', 1000, sysfs.write),
    ])
    def test_it_is_raised_for_the_real_sysfs_only(self, monkeypatch, tmp_path, root, user,
                                                  expected):
        monkeypatch.setattr(os, 'geteuid', lambda: user)
        monkeypatch.chdir(tmp_path)
        assert Sysfs(root).writer is expected
