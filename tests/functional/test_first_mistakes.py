# SPDX-License-Identifier: Apache-2.0
"""Mistakes of a new user end with a clear message, and leave nothing behind."""

import fcntl
import pathlib
import signal
import socket
import subprocess
import sys

import pytest

from cyborg import errors
from cyborg.cmd import standalone, startup

pytestmark = pytest.mark.embedded
BIN = pathlib.Path(sys.executable).parent
#: runs a command that does not ignore SIGINT, as processes in the background of a shell do
INTERRUPTIBLE = (
    'import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); '
    'os.execv(sys.argv[1], sys.argv[1:])'
)


def test_a_port_in_use_is_told_before_anything_is_written(tmp_path):
    with socket.create_server(('127.0.0.1', 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(errors.ConfigError, match=f'Port {port} cannot be used: Address'):
            standalone.run(standalone.Settings(tmp_path / 'data', port))
    assert not (tmp_path / 'data').exists()


@pytest.mark.parametrize(
    ('facts', 'sentence'),
    [
        ({'drivers': ['fake_driver', 'acme_driver']}, 'There is no driver acme_driver. There are '),
        ({'descriptions': [pathlib.Path('none.yaml')]}, 'none.yaml cannot be read: No such file'),
        ({'config_files': [pathlib.Path('none.conf')]}, 'There is no file none.conf.'),
    ],
    ids=['driver', 'description', 'options'],
)
def test_a_host_that_cannot_be_built_is_told_before_anything_is_written(tmp_path, facts, sentence):
    with pytest.raises(errors.ConfigError, match=sentence):
        standalone.run(standalone.Settings(tmp_path / 'data', 0, **facts))
    assert not (tmp_path / 'data').exists()


def test_a_directory_serves_one_process_at_a_time(tmp_path):
    with standalone.owned(tmp_path):
        pid = (tmp_path / 'pid').read_text().strip()
        with (
            pytest.raises(errors.ConfigError, match=f'Process {pid} uses {tmp_path}'),
            standalone.owned(tmp_path),
        ):
            pass
    with standalone.owned(tmp_path):
        pass


def test_a_directory_of_a_process_that_was_killed_can_be_used(tmp_path):
    (tmp_path / 'pid').write_text('4711\n')
    with standalone.owned(tmp_path), (tmp_path / 'pid').open() as lock:
        assert lock.read() != '4711\n'
        with pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_directory_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / 'file').touch()
    with (
        pytest.raises(errors.ConfigError, match='cannot hold data: .* Choose another --state-dir'),
        standalone.owned(tmp_path / 'file' / 'data'),
    ):
        pass


@pytest.mark.parametrize('port', ['abc', '65536', '-1'])
def test_a_port_that_is_none_is_told(port, monkeypatch, capsys):
    monkeypatch.setattr(sys, 'argv', ['cyborg-standalone', 'run', f'--port={port}'])
    with pytest.raises(SystemExit):
        standalone.main()
    assert 'is not a port: name one from 0 to 65535' in capsys.readouterr().err


def test_the_demo_ends_quietly_when_it_is_interrupted(tmp_path):
    demo = subprocess.Popen(
        [sys.executable, '-c', INTERRUPTIBLE, BIN / 'cyborg-standalone', 'demo'],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={'TMPDIR': str(tmp_path), 'PYTHONUNBUFFERED': '1'},
    )
    demo.stdout.readline()
    demo.send_signal(signal.SIGINT)
    output, error = demo.communicate()
    assert demo.returncode == 128 + signal.SIGINT
    assert output.endswith('The demo was interrupted; nothing of it is left.\n')
    assert 'Traceback' not in error
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_value_is_told_with_its_file(tmp_path):
    path = tmp_path / 'cyborg.conf'
    path.write_text('[api]\nport = 99999\n')
    done = subprocess.run(
        [BIN / 'cyborg-api', '--config-file', path], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stderr == (
        f'cyborg-api: Value for option port in {path} is not valid: '
        'Should be less than or equal to 65535\n'
    )


def test_a_name_with_a_quote_is_told_as_it_is():
    assert (
        startup._readable(
            ValueError(
                'Value for option port from LocationInfo(location=<Locations.user: (4, True)>, '
                'detail="/it\'s/cyborg.conf") is not valid'
            )
        )
        == "Value for option port in /it's/cyborg.conf is not valid"
    )
