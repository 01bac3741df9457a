# SPDX-License-Identifier: Apache-2.0
"""The guest's harness, without a guest: what is missing, what hangs, what says nonsense."""

import os
import platform
import sys
import types

import pytest

from tools import kernel
from tools.kernel import debian, guest

APT = '#!/bin/sh\necho "{package}"\necho "  Depends: {depends}"\n'
#: Speaks as QEMU does, on the sockets that its arguments name.
QEMU = """#!{python}
import json, re, socket, sys, time
words = ' '.join(sys.argv)
def serve(pattern):
    server = socket.socket(socket.AF_UNIX)
    server.bind(re.search(pattern, words)[1])
    server.listen()
    return server
answers, monitor = serve('path=([^,]*/answers)'), serve('unix:([^,]*/monitor)')
answer = answers.accept()[0]
control = monitor.accept()[0].makefile('rw')
print(json.dumps({{'QMP': {{}}}}), file=control, flush=True)
def obey(how):
    order = json.loads(control.readline())
    for each in ({{'event': 'SOMETHING'}}, how):
        print(json.dumps(each), file=control, flush=True)
    return order
def tell(*lines):
    answer.sendall(''.join(line + '\\n' for line in lines).encode())
END = '{{"ended": 0}}'
obey({{'return': {{}}}})
{story}
"""


@pytest.fixture
def programs(monkeypatch, tmp_path):
    """A directory that is all of PATH; every program that is needed is there."""
    for name in (*debian.PROGRAMS.values(), 'busybox', 'qemu-system-x86_64'):
        program(tmp_path / name, '#!/bin/sh\n')
    monkeypatch.setenv('PATH', str(tmp_path))
    monkeypatch.setattr(platform, 'machine', lambda: 'x86_64')
    monkeypatch.setattr(os, 'geteuid', lambda: 1000)
    return tmp_path


def program(path, text):
    path.write_text(text)
    path.chmod(0o755)


class TestWhatIsMissing:
    def test_another_machine(self, programs, monkeypatch):
        monkeypatch.setattr(platform, 'machine', lambda: 'aarch64')
        with pytest.raises(kernel.Missing, match='this machine is aarch64'):
            kernel.Kernel()

    def test_a_program(self, programs):
        (programs / 'cpio').unlink()
        with pytest.raises(kernel.Missing, match='install --no-install-recommends cpio'):
            kernel.Kernel()

    def test_a_kernel(self, programs):
        program(programs / 'apt-cache', '#!/bin/sh\necho "E: No packages found" >&2\nexit 100\n')
        with pytest.raises(kernel.Missing, match='apt knows no linux-image-amd64'):
            kernel.Kernel()

    def test_the_right_kernel(self, programs):
        program(
            programs / 'apt-cache',
            APT.format(package='linux-image-amd64', depends='linux-image-6.12.9-amd64'),
        )
        with pytest.raises(kernel.Missing, match='apt offers 6.12.9-amd64'):
            kernel.Kernel()

    def test_its_packages(self, programs, monkeypatch):
        monkeypatch.setattr(debian, 'BUILD', programs / 'build')
        program(
            programs / 'apt-cache',
            '#!/bin/sh\necho "  Depends: linux-image-6.1.0-9-amd64"\n'
            'echo "  Depends: linux-headers-6.1.0-9-common"\n'
            'echo "  Depends: linux-kbuild-6.1"\n',
        )
        program(programs / 'apt-get', '#!/bin/sh\necho "E: 404" >&2\nexit 100\n')
        with pytest.raises(kernel.Missing, match='apt-get download -qq failed: E: 404'):
            kernel.Kernel()
        assert not (programs / 'build/6.1.0-9-amd64/complete').exists()


@pytest.fixture
def boot(monkeypatch, tmp_path):
    """Run a command in a guest that a few lines of Python play."""
    monkeypatch.setattr(guest, '_make_initramfs', lambda kernel, directory: None)

    def boot(story, on_told=lambda guest, told: None):
        # the path of a socket must be short
        machine = types.SimpleNamespace(
            version='6.1.0-9-amd64',
            directory=tmp_path,
            image='vmlinuz',
            modules=tmp_path,
            qemu=str(tmp_path / 'qemu'),
        )
        program(tmp_path / 'qemu', QEMU.format(python=sys.executable, story=story))
        return guest.run(machine, ['true'], on_told)

    return boot


class TestAGuest:
    def test_what_it_tells_is_passed_on_and_what_it_prints_answered(self, boot):
        told = []
        printed = boot(
            "tell('{\"a\": 1}', 'noise', '{\"b\": 2}', END); print('done')",
            lambda guest, each: told.append(each),
        )
        assert told == [{'a': 1}, {'b': 2}]
        assert printed == 'done\n'

    def test_it_is_given_orders(self, boot):
        story = "tell('{\"ask\": 1}'); print(json.dumps(obey({'return': {}}))); tell(END)"
        printed = boot(story, lambda guest, told: guest.order('device_del', id='spare'))
        assert '"execute": "device_del", "arguments": {"id": "spare"}' in printed

    def test_an_order_that_is_refused_is_a_failure(self, boot):
        story = "tell('{\"ask\": 1}'); obey({'error': {'desc': 'no such device'}})"
        with pytest.raises(kernel.Failed, match='does not device_del: no such device'):
            boot(story, lambda guest, told: guest.order('device_del', id='spare'))

    @pytest.mark.parametrize('end', ['sys.exit(1)', 'sys.exit(0)', 'tell(END); sys.exit(1)'])
    def test_one_that_ends_badly_says_its_last_words(self, boot, end):
        with pytest.raises(kernel.Failed, match='(?s)was ended.*panic'):
            boot(f"print('panic'); {end}")

    def test_one_that_is_silent_is_started_once_more(self, boot, monkeypatch, tmp_path):
        monkeypatch.setattr(guest, 'LIMIT', 5)
        count = tmp_path / 'count'
        with pytest.raises(kernel.Failed, match='timed out'):
            boot(f"open({str(count)!r}, 'a').write('x'); time.sleep(60)")
        assert count.read_text() == 'xx'

    def test_nothing_is_left_of_it(self, boot, tmp_path):
        boot('tell(END)')
        assert not list(tmp_path.glob('guest-*'))
