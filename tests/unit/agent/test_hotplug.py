# SPDX-License-Identifier: Apache-2.0
"""Hearing the kernel's events. They are real ones, in a network namespace of the test's own."""

import shutil
import subprocess
import sys
import textwrap

import pytest

from cyborg.agent import hotplug

ENTER = ['unshare', '--user', '--map-root-user', '--net']

#: Sends an event as the kernel would; needs no privilege beyond its own namespace.
PROLOGUE = """
import os, socket, struct, threading
from cyborg.agent import hotplug

def send(action, subsystem, name):
    facts = [f'{action}@/devices/{name}', f'ACTION={action}', f'DEVPATH=/devices/{name}',
             f'SUBSYSTEM={subsystem}']
    body = b''.join(fact.encode() + bytes(1) for fact in facts)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 15) as kernel:
        kernel.bind((0, 0))
        kernel.sendto(struct.pack('=IHHII', 16 + len(body), 16, 5, 0, 0) + body, (0, 0))
        assert struct.unpack('=i', kernel.recv(4096)[16:20]) == (0,)
"""


@pytest.fixture
def play():
    """Run lines of Python in a namespace where only they send events; answers what they said."""
    if (
        not shutil.which('unshare')
        or subprocess.run([*ENTER, 'true'], capture_output=True).returncode
    ):
        pytest.skip('this machine does not let its users make namespaces')

    def play(text):
        script = PROLOGUE + textwrap.dedent(text)
        finished = subprocess.run(
            [*ENTER, sys.executable, '-W', 'ignore', '-c', script], capture_output=True, text=True
        )
        assert finished.returncode == 0, finished.stderr
        return finished.stdout.splitlines(), finished.stderr

    return play


def test_events_of_accelerators_are_heard_and_others_are_not(play):
    said, _ = play("""
        heard, last = [], threading.Event()
        def hear(event):
            heard.append(event)
            if event.device == 'last':
                last.set()
        monitor = hotplug.UdevMonitor(hear, ['pci', 'mdev'])
        monitor.start()
        send('add', 'pci', '0000:3b:00.0')
        send('add', 'net', 'eth0')
        send('remove', 'mdev', 'last')
        assert last.wait(60)
        monitor.stop()
        for event in heard:
            print(event.action, event.subsystem, event.device)
        """)
    assert said == ['add pci 0000:3b:00.0', 'remove mdev last']


def test_a_flood_of_events_is_survived_and_told(play):
    said, log = play("""
        listen = hotplug._listen
        def listen_with_one_ear(subsystems):
            monitor = listen(subsystems)
            with socket.socket(fileno=os.dup(monitor.fileno())) as end:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            return monitor
        hotplug._listen = listen_with_one_ear
        go_on, lost, last = threading.Event(), threading.Event(), threading.Event()
        def hear(event):
            go_on.wait()
            if event == hotplug.LOST:
                lost.set()
            if event.device == 'last':
                last.set()
        monitor = hotplug.UdevMonitor(hear, ['pci', 'mdev'])
        monitor.start()
        for number in range(500):
            send('add', 'pci', f'card{number}')
        go_on.set()
        assert lost.wait(60)
        # the flood may have filled the new socket, too
        for _ in range(600):
            send('remove', 'pci', 'last')
            if last.wait(0.1):
                break
        assert last.is_set()
        monitor.stop()
        print('heard again')
        """)
    assert said == ['heard again']
    assert 'Events of devices were lost' in log


def test_listening_again_is_tried_until_it_works(play):
    said, _ = play("""
        hotplug.backoff.pause = lambda failures, longest: 0.01 * failures
        listen, failures, heard = hotplug._listen, [], []
        def fail_twice(subsystems):
            if heard and len(failures) < 2:
                failures.append(True)
                raise OSError(24, 'Too many open files')
            return listen(subsystems)
        hotplug._listen = fail_twice
        lost, last = threading.Event(), threading.Event()
        def hear(event):
            heard.append(event)
            if event == hotplug.LOST and len(failures) == 2:
                lost.set()
            if event.device == 'last':
                last.set()
        monitor = hotplug.UdevMonitor(hear, ['pci'])
        monitor.start()
        poll = monitor._observer.monitor.poll
        def overflow(timeout=None):
            raise OSError(105, 'No buffer space available')
        monitor._observer.monitor.poll = overflow
        send('add', 'pci', 'first')
        assert lost.wait(60)
        assert heard == [hotplug.LOST] * 2, heard
        send('remove', 'pci', 'last')
        assert last.wait(60)
        monitor.stop()
        print('heard again')
        """)
    assert said == ['heard again']


def test_one_that_cannot_listen_again_can_be_stopped(play):
    said, _ = play("""
        listen, lost = hotplug._listen, threading.Event()
        monitor = hotplug.UdevMonitor(lambda event: lost.set(), ['pci'])
        monitor.start()
        def fail(*arguments, **options):
            raise OSError(24, 'Too many open files')
        hotplug._listen = monitor._observer.monitor.poll = fail
        send('add', 'pci', 'first')
        assert lost.wait(60)
        monitor.stop()
        print('stopped')
        """)
    assert said == ['stopped']


def test_a_listener_that_fails_hears_the_next_event(play):
    said, _ = play("""
        last = threading.Event()
        def hear(event):
            if event.device == 'last':
                last.set()
            else:
                raise RuntimeError('not now')
        monitor = hotplug.UdevMonitor(hear, ['pci', 'mdev'])
        monitor.start()
        send('add', 'pci', 'first')
        send('add', 'pci', 'last')
        assert last.wait(60)
        monitor.stop()
        print('heard')
        """)
    assert said == ['heard']


@pytest.mark.parametrize(
    'error', [ImportError('No library named udev'), PermissionError(1, 'Operation not permitted')]
)
def test_without_udev_the_agent_is_told_once_and_goes_on(monkeypatch, caplog, error):
    def fail(*arguments, **options):
        raise error

    monkeypatch.setattr(hotplug.pyudev, 'Context', fail)
    monitor = hotplug.UdevMonitor(lambda event: None, ['pci'])
    monitor.start()
    monitor.stop()
    assert [record.getMessage() for record in caplog.records] == [
        f'udev is not available ({error}): changes of the hardware are found by the regular '
        'rounds only, see [agent] resync_interval.'
    ]


def test_stopping_what_was_never_started_is_fine():
    hotplug.UdevMonitor(lambda event: None, ['pci']).stop()


def test_a_monitor_of_no_subsystem_hears_nothing(monkeypatch):
    # a netlink monitor without a filter would hear all subsystems
    monkeypatch.setattr(hotplug.pyudev, 'Context', lambda: pytest.fail('it listens'))
    monitor = hotplug.UdevMonitor(lambda event: None, [])
    monitor.start()
    monitor.stop()
