# SPDX-License-Identifier: Apache-2.0
"""Reading never raises, writing tells the truth."""

import errno
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from cyborg.accelerator import privileged, sysfs, tool_output
from cyborg.accelerator.sysfs import Sysfs
from tests.fixtures.cloud import eventually


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
        assert card.number('vendor', 16) == 0x10DE
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

    @pytest.mark.parametrize('number', [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
    @pytest.mark.parametrize(
        'call, read',
        [
            ('builtins.open', lambda card: card.read('vendor')),
            ('os.stat', lambda card: card.exists()),
            ('os.stat', lambda card: card.has('vendor')),
            ('os.stat', lambda card: card.children('vendor')),
            ('os.scandir', lambda card: card.children()),
            ('os.scandir', lambda card: card.children('*/*')),
            ('os.readlink', lambda card: card.link('driver')),
            ('os.lstat', lambda card: card.real()),
            ('os.scandir', lambda card: sysfs.opened(Path('/proc'), ['null'])),
            ('os.readlink', lambda card: sysfs.opened(Path('/proc'), ['null'])),
        ],
    )
    def test_what_the_agent_itself_lacks_does_not_make_a_file_absent(
        self, card, monkeypatch, number, call, read
    ):
        def fail(*arguments, **options):
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(call, fail)
        with pytest.raises(OSError, match=re.escape(os.strerror(number))) as raised:
            read(card)
        monkeypatch.undo()
        assert raised.value.errno == number

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


HANGS = """
sleep 60 &
echo $$ $! > {here}/pids
echo "writing flash" >&2
wait
"""


@pytest.fixture
def make_tool(tmp_path):
    """A tool: a shell script."""

    def make_tool(text, name='tool'):
        tool = tmp_path / name
        tool.write_text(f'#!/bin/sh\n{text}\n'.replace('{here}', str(tmp_path)))
        tool.chmod(0o755)

    return make_tool


def is_running(pid):
    """One that has ended and waits for its parent to notice does not run."""
    try:
        status = Path(f'/proc/{pid}/stat').read_text()
    except OSError:
        return False
    return status.rpartition(')')[2].split()[0] != 'Z'


class TestTools:
    def test_a_host_that_is_not_this_one_has_none(self, root):
        with pytest.raises(FileNotFoundError):
            Sysfs(root).run('true')

    def test_what_a_tool_says_is_answered(self, make_tool, tmp_path):
        make_tool('echo "$@"')
        assert sysfs.run(['tool', 'a', 'b c'], path=str(tmp_path)) == 'a b c\n'

    def test_a_tool_that_fails_is_an_error_with_its_words(self, make_tool, tmp_path):
        make_tool('echo "no such card" >&2\nexit 3')
        with pytest.raises(OSError, match='tool ended with 3: no such card'):
            sysfs.run(['tool'], path=str(tmp_path))

    def test_of_many_words_the_last_lines_are_told(self, make_tool, tmp_path):
        make_tool('seq 1 100\nexit 1')
        with pytest.raises(OSError, match='ended with 1: 96 / 97 / 98 / 99 / 100$'):
            sysfs.run(['tool'], path=str(tmp_path))

    def test_a_long_line_of_a_tool_is_cut_and_can_be_stored(self, make_tool, tmp_path):
        make_tool("printf 'a\\0'; yes | head -c 100000 | tr -d '\\n'; exit 1")
        with pytest.raises(OSError, match='tool ended with 1: a\ufffdy+$') as raised:
            sysfs.run(['tool'], path=str(tmp_path))
        assert len(str(raised.value)) < 300

    @pytest.mark.parametrize('stream', [1, 2])
    def test_a_tool_that_prints_without_end_is_killed_and_does_not_fill_the_memory(
        self, make_tool, tmp_path, stream
    ):
        make_tool(f'exec yes >&{stream}')
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with pytest.raises(TimeoutError, match='and was killed: y / y / y / y / y$'):
            sysfs.run(['tool'], 1, path=f'{tmp_path}:{os.environ["PATH"]}')
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert grown < 64 * 1024  # KiB

    def test_of_a_long_output_the_end_is_answered(self, make_tool, tmp_path):
        make_tool('yes | head -c 5000000; yes | head -c 5000000 >&2; echo done')
        said = sysfs.run(['tool'], 60, path=str(tmp_path))
        assert said.endswith('y\ndone\n')
        assert len(said) <= 2 * tool_output.LONGEST_OUTPUT

    def test_a_tool_that_fails_without_a_word_says_so(self, make_tool, tmp_path):
        make_tool('exit 7')
        with pytest.raises(OSError, match='tool ended with 7 without output'):
            sysfs.run(['tool'], path=str(tmp_path))

    def test_a_tool_that_was_killed_is_told_from_one_that_ended(self, make_tool, tmp_path):
        make_tool('echo "half way" >&2\nkill -9 $$')
        with pytest.raises(OSError, match='tool was killed by SIGKILL: half way'):
            sysfs.run(['tool'], path=str(tmp_path))

    def test_a_tool_that_is_not_there_is_told_from_one_that_fails(self, tmp_path):
        with pytest.raises(sysfs.NotInstalled, match='tool is not installed: install it'):
            sysfs.run(['tool'], path=str(tmp_path))

    def test_a_tool_that_cannot_be_started_is_told_from_one_that_fails(self, make_tool, tmp_path):
        make_tool('')
        (tmp_path / 'tool').write_text('#!/nonexistent\n')
        with pytest.raises(sysfs.NotRun, match='tool cannot be started: No such file'):
            sysfs.run(['tool'], path=str(tmp_path))
        make_tool('echo "/dev/card: permission denied" >&2\nexit 1')
        with pytest.raises(OSError, match='permission denied') as raised:
            sysfs.run(['tool'], path=str(tmp_path))
        assert not isinstance(raised.value, sysfs.NotRun)

    @pytest.mark.parametrize(
        'why',
        [
            privileged.NotStarted('privsep helper command exited non-zero (1)'),
            FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), 'sudo'),
        ],
        ids=['not allowed', 'not there'],
    )
    def test_a_privileged_helper_that_does_not_start_runs_nothing(self, monkeypatch, why):
        def run(command, timeout):
            raise why

        monkeypatch.setattr(privileged, 'run', run)
        with pytest.raises(sysfs.NotAllowed, match='does not start .* helper_command'):
            sysfs._run_with_privilege(['tool'], None)

    def test_a_tool_of_ours_is_found_beside_the_interpreter(self, make_tool, tmp_path, monkeypatch):
        make_tool('echo ours', 'cyborg-tool')
        make_tool('echo not ours', 'tool')
        monkeypatch.setattr(sys, 'executable', str(tmp_path / 'python'))
        assert sysfs.run(['cyborg-tool'], path='/nonexistent') == 'ours\n'
        with pytest.raises(FileNotFoundError):
            sysfs.run(['tool'], path='/nonexistent')

    def test_a_tool_that_hangs_is_killed_with_its_children(self, make_tool, tmp_path):
        make_tool(HANGS)
        with pytest.raises(TimeoutError, match='within 1 seconds and was killed: writing flash'):
            sysfs.run(['tool'], 1, path=str(tmp_path))
        own, child = (tmp_path / 'pids').read_text().split()
        eventually(lambda: not is_running(own) and not is_running(child))

    def test_a_tool_ends_with_the_process_that_runs_it(self, make_tool, tmp_path):
        make_tool(f'echo $$ > {tmp_path}/pids\nexec sleep 60')
        agent = subprocess.Popen(
            [
                sys.executable,
                '-c',
                'import sys; from cyborg.accelerator import sysfs; '
                "sysfs.run(['tool'], path=f'{sys.argv[1]}:/usr/bin')",
                tmp_path,
            ]
        )
        eventually(lambda: (tmp_path / 'pids').exists() and (tmp_path / 'pids').read_text())
        agent.kill()
        agent.wait()
        [tool] = (tmp_path / 'pids').read_text().split()
        eventually(lambda: not is_running(tool))

    def test_a_child_that_left_its_group_does_not_hold_us_up(
        self, make_tool, tmp_path, monkeypatch
    ):
        monkeypatch.setattr(sysfs, 'GRACE', 0.2)
        make_tool(f'setsid sh -c "echo \\$\\$ > {tmp_path}/pids; exec sleep 60" &\nsleep 60')
        with pytest.raises(TimeoutError, match='within 0 seconds and was killed$'):
            sysfs.run(['tool'], 0.5, path=str(tmp_path))
        os.kill(int((tmp_path / 'pids').read_text()), signal.SIGKILL)


class TestLimits:
    """A call into a driver has a limit, which is the limit of its tools."""

    @pytest.fixture
    def seen(self):
        return []

    @pytest.fixture
    def host(self, root, seen):
        return Sysfs(root, runner=lambda command, timeout: seen.append(timeout) or '')

    def test_without_one_a_tool_has_all_the_time(self, host, seen):
        host.run('tool')
        assert seen == [None]

    def test_tools_share_the_time_of_the_call(self, host, seen):
        with sysfs.limited(sysfs.Limit(time.monotonic() + 60)):
            host.run('tool')
            time.sleep(0.01)
            host.run('tool')
        host.run('tool')
        assert 59 < seen[1] < seen[0] <= 60
        assert seen[2] is None

    def test_it_is_that_of_its_own_thread_only(self, host, seen):
        with sysfs.limited(sysfs.Limit(time.monotonic() + 60)):
            thread = threading.Thread(target=host.run, args=('tool',))
            thread.start()
            thread.join()
        assert seen == [None]

    def test_a_call_that_is_late_runs_no_tool_for_long(self, host, seen):
        with sysfs.limited(sysfs.Limit(time.monotonic() - 1)):
            host.run('tool')
        assert seen == [0]


class TestPrivilege:
    """Which hand writes depends on whose sysfs it is and who we are."""

    @pytest.mark.parametrize(
        ('root', 'user', 'expected'),
        [
            ('/sys', 0, sysfs.write),
            ('/sys', 1000, sysfs._write_with_privilege),
            ('simulated', 0, sysfs.write),
            ('simulated', 1000, sysfs.write),
        ],
    )
    def test_it_is_raised_for_the_real_sysfs_only(
        self, monkeypatch, tmp_path, root, user, expected
    ):
        monkeypatch.setattr(os, 'geteuid', lambda: user)
        monkeypatch.chdir(tmp_path)
        assert Sysfs(root).writer is expected
