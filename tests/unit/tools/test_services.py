# SPDX-License-Identifier: Apache-2.0
"""The private servers' harness: nothing of a server outlives its test, however that one ends."""

import os
import pathlib
import signal
import socket
import subprocess
import sys
import textwrap
import time

import pytest

from tools import services
from tools.services import __main__ as command_line
from tools.services import packages, server

ROOT = pathlib.Path(__file__).parents[3]
#: A server that counts its starts in its directory and leaves a daemon behind, as Erlang does.
PROGRAM = textwrap.dedent("""
    import os, pathlib, socket, subprocess, sys
    here = pathlib.Path(sys.argv[2])
    with (here / 'starts').open('a') as starts:
        starts.write('x')
    subprocess.Popen(['setsid', '--fork', 'sleep', '600.25'])
    listener = socket.create_server(('127.0.0.1', int(sys.argv[1])))
    while True:
        client, _ = listener.accept()
        client.sendall((here / 'starts').read_bytes())
        client.close()
""")


class Counter(services.Server):
    """Answers how often it was started."""

    name = 'counter'
    program = PROGRAM

    @property
    def url(self):
        return f'counter://127.0.0.1:{self.port}/'

    def find_programs(self):
        pass

    def prepare(self):
        self.run('sh', '-c', 'cat > greeting', text='hello')

    def command(self):
        return [sys.executable, '-c', self.program, str(self.port), str(self.directory)]

    def is_ready(self):
        return self.count() > 0

    def count(self):
        with socket.create_connection(('127.0.0.1', self.port), timeout=60) as client:
            return len(client.recv(100))


class Broken(Counter):
    """Ends at once, with a word on why."""

    program = 'import sys; sys.exit("no room for tables")'


@pytest.fixture
def restored_signals():
    """The command line takes over the signals to end; pytest wants them back."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def processes_in(directory):
    """The processes that work in a directory."""
    found = []
    for link in pathlib.Path('/proc').glob('[0-9]*/cwd'):
        try:
            if os.readlink(link).startswith(str(directory)):
                found.append(int(link.parent.name))
        except OSError:
            continue
    return found


def until(condition):
    """Wait for what must come; pytest's guard ends a wait in vain."""
    while not condition():
        time.sleep(0.02)


def test_a_server_and_its_daemons_are_gone_with_the_block():
    with Counter() as counter:
        assert counter.count() == 1
        assert (counter.directory / 'greeting').read_text() == 'hello'
        until(lambda: len(processes_in(counter.directory)) == 2)
    assert processes_in(counter.directory) == []
    assert not counter.directory.exists()


def test_a_test_that_fails_leaves_nothing_behind():
    with pytest.raises(ZeroDivisionError), Counter() as counter:
        1 / 0  # noqa: B018
    assert processes_in(counter.directory) == []
    assert not counter.directory.exists()


def test_a_server_that_does_not_start_says_why_and_leaves_nothing_behind():
    broken = Broken()
    with pytest.raises(services.Failed, match='no room for tables'), broken:
        pass
    assert not broken.directory.exists()


def test_a_helper_that_fails_is_reported_with_its_output():
    with Counter() as counter, pytest.raises(services.Failed, match='disk on fire'):
        counter.run('sh', '-c', 'echo disk on fire; exit 3')


@pytest.mark.parametrize('end', ['kill', 'stop'])
def test_a_server_that_was_ended_comes_back_with_its_port_and_data(end):
    with Counter() as counter:
        getattr(counter, end)()
        with pytest.raises(OSError):
            counter.count()
        assert processes_in(counter.directory) == []
        counter.start()
        assert counter.count() == 2


def test_a_server_cannot_be_started_twice_at_once():
    with Counter() as counter, pytest.raises(RuntimeError, match='runs already'):
        counter.start()


def test_a_server_is_of_no_use_outside_its_block():
    with pytest.raises(RuntimeError, match='outside its with block'):
        Counter().start()


@pytest.mark.parametrize('number', [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_harness_that_is_killed_leaves_nothing_behind(number):
    script = textwrap.dedent("""
        import signal, time
        from tests.unit.tools import test_services
        # a shell has its background jobs, and so perhaps these tests, ignore it
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with test_services.Counter() as counter:
            print(counter.directory, flush=True)
            time.sleep(600)
    """)
    owner = subprocess.Popen(
        [sys.executable, '-c', script],
        stdout=subprocess.PIPE,
        text=True,
        stderr=subprocess.DEVNULL,
        cwd=ROOT,
    )
    with owner.stdout:
        directory = pathlib.Path(owner.stdout.readline().strip())
    assert directory.is_dir()
    owner.send_signal(number)
    owner.wait()
    until(lambda: not directory.exists())
    assert processes_in(directory) == []


def test_two_servers_do_not_meet():
    with Counter() as one, Counter() as other:
        one.kill()
        assert other.count() == 1


def test_no_port_is_given_out_twice(monkeypatch):
    monkeypatch.setattr(server, 'PORTS', range(21000, 21200))
    ports = [server.free_port() for _ in range(50)]
    assert len(set(ports)) == len(ports)


def test_ports_are_free_and_outside_the_range_of_outgoing_connections():
    first_outgoing = int(
        pathlib.Path('/proc/sys/net/ipv4/ip_local_port_range').read_text().split()[0]
    )
    port = server.free_port()
    assert port < first_outgoing
    with socket.create_server(('127.0.0.1', port)):
        pass


def test_the_command_learns_of_every_server_and_of_the_database_named_first():
    found = command_line.variables({'rabbitmq': 'r', 'postgresql': 'p', 'mariadb': 'm'})
    assert found == {
        'CYBORG_TEST_TRANSPORT_URL': 'r',
        'CYBORG_TEST_POSTGRESQL_URL': 'p',
        'CYBORG_TEST_MYSQL_URL': 'm',
        'CYBORG_TEST_DATABASE_URL': 'p',
    }


def test_without_a_database_no_database_is_announced():
    assert command_line.variables({'rabbitmq': 'r'}) == {'CYBORG_TEST_TRANSPORT_URL': 'r'}


def test_servers_without_a_command_are_refused(capsys):
    with pytest.raises(SystemExit):
        command_line.main(['mariadb'])
    assert 'after --' in capsys.readouterr().err


def test_an_unknown_server_is_answered_with_the_known_ones(capsys):
    with pytest.raises(SystemExit):
        command_line.main(['oracle', '--', 'true'])
    assert 'oracle is none of rabbitmq, mariadb, postgresql' in capsys.readouterr().err


@pytest.mark.parametrize(
    'command, status', [(['sh', '-c', 'exit 7'], 7), (['sh', '-c', 'kill -9 $$'], 128 + 9)]
)
def test_the_commands_status_is_ours(command, status, restored_signals):
    assert command_line.main(['--need', 'sh', '--', *command]) == status


def test_a_command_that_is_not_there_is_one_sentence(capsys, restored_signals):
    assert command_line.main(['--', 'no-such-command']) == 1
    assert capsys.readouterr().err == 'no-such-command does not run: No such file or directory.\n'


def test_the_newest_version_of_a_program_is_found(tmp_path):
    for version in ('9.6', '10', '15'):
        program = tmp_path / version / 'bin' / 'postgres'
        program.parent.mkdir(parents=True)
        program.touch(0o755)
    assert packages.find('postgres', f'{tmp_path}/*/bin') == str(tmp_path / '15/bin/postgres')


def test_a_missing_program_that_cannot_be_installed_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setenv('PATH', str(tmp_path))  # no apt-get here
    with pytest.raises(services.Missing, match='apt-get install --no-install-recommends gadget'):
        packages.require('gadget', 'no-such-program')
