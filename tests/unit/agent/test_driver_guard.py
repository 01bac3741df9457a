# SPDX-License-Identifier: Apache-2.0
"""A driver that raises or hangs hurts nobody but its own devices."""

import functools
import os
import signal
import threading
from pathlib import Path

import pytest

from cyborg import errors, objects
from cyborg.accelerator import sysfs
from cyborg.accelerator.driver import Driver
from cyborg.agent import driver_guard
from tests.fixtures.cloud import eventually

HANDLE = '1b0ba0f3-4b5c-4b55-8a5c-8a5b7b0d1c00'


def device(key):
    return objects.Device(key=key, type='GPU', vendor='10de', driver_name='')


class Healthy(Driver):
    name, type = 'healthy', 'GPU'

    def __init__(self, *keys):
        self.keys = keys

    def discover(self):
        return (device(key) for key in self.keys)


class Other(Healthy):
    name = 'other'


class Raising(Healthy):
    name = 'raising'

    def discover(self):
        yield device('half')
        raise ZeroDivisionError('sysfs has a hole')


class Hanging(Healthy):
    name = 'hanging'

    def __init__(self):
        self.gate, self.begun = threading.Event(), 0

    def discover(self):
        self.begun += 1
        self.gate.wait(60)
        return [device('late')]

    def attach(self, handle, work):
        self.begun += 1
        self.gate.wait(60)


def guard(driver, timeout=0.05):
    return driver_guard.Guard(driver, timeout)


def test_what_healthy_drivers_find_is_found_beside_those_that_fail():
    hanging = Hanging()
    found, states = driver_guard.discover(
        [guard(Raising(), 60), guard(hanging), guard(Healthy('a', 'b'), 60)]
    )
    assert [each.key for each in found] == ['a', 'b']
    assert [(state.name, state.status) for state in states] == [
        ('raising', 'failed'),
        ('hanging', 'failed'),
        ('healthy', 'ok'),
    ]
    assert 'ZeroDivisionError' in states[0].error
    assert 'did not end within' in states[1].error
    hanging.gate.set()


class Exiting(Healthy):
    name = 'exiting'

    def discover(self):
        raise SystemExit('the library of the vendor gives up')


def test_a_driver_that_wants_to_end_the_agent_fails_alone():
    found, states = driver_guard.discover([guard(Exiting(), 60), guard(Healthy('a'), 60)])
    assert [each.key for each in found] == ['a']
    assert [state.status for state in states] == ['failed', 'ok']
    assert 'gives up' in states[0].error


class Quoting(Healthy):
    name = 'quoting'

    def discover(self):
        b'\xff'.join([b'\0' * 100_000] * 2).decode()

    def attach(self, handle, work):
        raise errors.DriverFailed(name=self.name, why='it prints \0 and ' + 'so on ' * 100_000)


def test_what_a_driver_says_can_be_stored():
    quoting = guard(Quoting(), 60)
    _, [state] = driver_guard.discover([quoting])
    with pytest.raises(errors.DriverFailed) as raised:
        quoting.attach(work())
    for error in state.error, raised.value.faultstring:
        assert len(error) <= errors.LONGEST
        assert '\0' not in error
    assert 'UnicodeDecodeError' in state.error
    assert raised.value.faultstring.startswith('Driver quoting failed: it prints')


@pytest.mark.parametrize('refused', ['healthy: discovery', 'Thread'], ids=['inner', 'outer'])
def test_a_driver_for_which_no_thread_can_be_started_fails_alone(monkeypatch, refused):
    start = threading.Thread.start

    def refusing(thread):
        if thread.name.startswith(refused):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, 'start', refusing)
    found, states = driver_guard.discover([guard(Healthy('a'), 60), guard(Other('b'), 60)])
    shown = [(state.name, state.status) for state in states]
    if refused == 'Thread':  # the drivers are called one after another
        assert [each.key for each in found] == ['a', 'b']
        assert shown == [('healthy', 'ok'), ('other', 'ok')]
    else:
        assert [each.key for each in found] == ['b']
        assert shown == [('healthy', 'failed'), ('other', 'ok')]
        assert "can't start new thread" in states[0].error


class Programming(Healthy):
    name = 'programming'

    def program(self, deployable, image, properties):
        pass


def test_what_only_refuses_to_load_images_is_known():
    assert guard(Programming()).can_program
    assert not guard(Healthy()).can_program


def test_while_a_look_hangs_no_other_is_begun():
    hanging = Hanging()
    guarded = guard(hanging)
    for _ in range(3):
        with pytest.raises(errors.DriverFailed):
            guarded.discover()
    eventually(lambda: hanging.begun)
    assert hanging.begun == 1
    hanging.gate.set()


def test_a_driver_that_comes_back_is_asked_again():
    hanging = Hanging()
    guarded = guard(hanging, 60)
    hanging.gate.set()
    assert [each.key for each in guarded.discover()] == ['late']
    assert [each.key for each in guarded.discover()] == ['late']


def order(card, kind='prepare'):
    return objects.Task(
        uuid=HANDLE,
        generation=1,
        deployable_uuid=HANDLE,
        kind=kind,
        driver_name='hanging',
        device_key=card,
        deployable_name='n',
        handle=objects.AttachHandle(uuid=HANDLE, key='k', type='PCI', info={}),
    )


def test_while_a_call_hangs_on_a_card_no_other_is_begun_there():
    hanging = Hanging()
    guarded = guard(hanging)
    for _ in range(20):
        with pytest.raises(errors.DriverFailed, match='preparing k'):
            guarded.attach(order('a'))
    with pytest.raises(errors.DriverFailed, match='preparing k still hangs'):
        guarded.detach(order('a', 'release'))
    eventually(lambda: hanging.begun)
    assert hanging.begun == 1
    guarded._timeout = 60
    guarded.detach(order('b', 'release'))
    hanging.gate.set()
    eventually(lambda: not guarded._hanging('a'))
    guarded.detach(order('a', 'release'))


def test_a_card_on_which_a_call_hangs_is_shown_with_a_fault():
    hanging = Hanging()
    guarded = guard(hanging)
    with pytest.raises(errors.DriverFailed):
        guarded.attach(order('late'))
    guarded._timeout, hanging.discover = 60, lambda: [device('late'), device('other')]
    assert [each.given('fault') for each in guarded.discover()] == ['Preparing k hangs.', None]
    hanging.gate.set()
    eventually(lambda: not guarded._hanging('late'))
    assert [each.given('fault') for each in guarded.discover()] == [None, None]


def test_a_device_that_two_drivers_know_belongs_to_the_first():
    found, _ = driver_guard.discover([guard(Healthy('a'), 60), guard(Other('a', 'b'), 60)])
    assert [(each.key, each.driver_name) for each in found] == [('a', 'healthy'), ('b', 'other')]


class Noting(Healthy):
    name = 'noting'

    def __init__(self, fails=False):
        self.called, self._fails = [], fails

    def detach(self, handle):
        self.called.append(('detach', handle.uuid))
        if self._fails:
            raise errors.DriverFailed(name=self.name, why='it is busy.')


def work():
    handle = objects.AttachHandle(uuid=HANDLE, key='k', type='PCI', info={})
    return objects.Task(
        uuid=HANDLE,
        generation=1,
        deployable_uuid=HANDLE,
        kind='release',
        deployable_name='n',
        handle=handle,
        driver_name='noting',
        device_key='d',
    )


def test_what_is_detached_is_not_cleaned_at_the_same_time():
    driver = Noting()
    guard(driver, timeout=60).detach(work())
    assert driver.called == [('detach', HANDLE)]


def test_what_cannot_be_detached_is_told():
    with pytest.raises(errors.DriverFailed, match='it is busy'):
        guard(Noting(fails=True), timeout=60).detach(work())


class Foreign(Driver):
    """Says things that Placement does not take."""

    name, type = 'foreign', 'GPU'

    def __init__(self):
        pass

    def discover(self):
        for key, trait, resource_class in (
            ('plain', 'fast card', 'turbo'),
            ('odd', '日本', 'VGPU'),
            ('odder', 'fast', '~'),
        ):
            found = device(key)
            found.deployables = [
                objects.Deployable(
                    name=key,
                    traits=[trait, 'HW_CPU_X86_AVX2'],
                    resource_class=resource_class,
                    num_accelerators=0,
                )
            ]
            yield found


def test_names_become_what_placement_takes_or_the_fault_of_their_device():
    plain, odd, odder = guard(Foreign(), 60).discover()
    [part] = plain.deployables
    assert (part.traits, part.resource_class, plain.given('fault')) == (
        ['CUSTOM_FAST_CARD', 'HW_CPU_X86_AVX2'],
        'CUSTOM_TURBO',
        None,
    )
    for other, name in ((odd, '日本'), (odder, '~')):
        assert f"'{name}' does not name a trait or resource class" in other.fault
        assert (other.deployables[0].traits, other.deployables[0].resource_class) == ([], None)


class RunsTools(Driver):
    """Programs with a tool, as a driver of FPGAs does."""

    name, type = 'tools', 'FPGA'

    def discover(self):
        return []

    def program(self, deployable, image, properties):
        try:
            self.sysfs.run('flash', str(image))
        except OSError as error:
            raise errors.DriverFailed(name=self.name, why=f'{error}.') from error


class TestTools:
    """What a tool does reaches the operator, and no process is left."""

    @pytest.fixture
    def program(self, tmp_path):
        def program(script, timeout=60, program_timeout=60):
            tool = tmp_path / 'flash'
            if script:
                tool.write_text(f'#!/bin/sh\n{script}\n')
                tool.chmod(0o755)
            host = sysfs.Sysfs(tmp_path, runner=functools.partial(sysfs.run, path=str(tmp_path)))
            driver_guard.Guard(RunsTools(None, host), timeout, program_timeout).program(
                'card', 'region', tmp_path / 'image'
            )

        return program

    def test_one_that_hangs_is_killed_at_the_limit_of_programming(self, program, tmp_path):
        script = f'sleep 60 &\necho $$ $! > {tmp_path}/pids\necho "at 12 %"\nwait'
        with pytest.raises(
            errors.DriverFailed, match='flash did not end within 1 seconds and was killed: at 12 %'
        ):
            program(script, program_timeout=1)
        pids = (tmp_path / 'pids').read_text().split()
        eventually(lambda: not any(map(is_running, pids)))

    @pytest.mark.parametrize(
        'script',
        # its child holds none of its pipes
        ['exec sleep 60', 'sleep 60 >/dev/null 2>&1 &\nexec sleep 1'],
        ids=['tool', 'child'],
    )
    def test_while_one_survives_its_kill_no_other_is_run_on_its_card(
        self, tmp_path, monkeypatch, script
    ):
        # given a tool that hangs in the kernel, or a child of it, which SIGKILL does not end
        real, pids, tool = os.killpg, tmp_path / 'pids', tmp_path / 'flash'
        monkeypatch.setattr(os, 'killpg', lambda group, number: number or real(group, 0))
        monkeypatch.setattr(sysfs, 'GRACE', 1)
        tool.write_text(f'#!/bin/sh\necho $$ >> {pids}\n{script}\n')
        tool.chmod(0o755)
        host = sysfs.Sysfs(tmp_path, runner=functools.partial(sysfs.run, path=str(tmp_path)))
        driver = RunsTools(None, host)
        guarded = driver_guard.Guard(driver, 60, 0.5)
        # then the error names it
        with pytest.raises(errors.DriverFailed, match='flash was killed, but is still there'):
            guarded.program('card', 'region', tmp_path / 'image')
        # and no other begins, and the card has a fault
        with pytest.raises(errors.DriverFailed, match='programming region still hangs'):
            guarded.program('card', 'region', tmp_path / 'image')
        [pid] = pids.read_text().split()
        driver.discover = lambda: [device('card')]
        assert [each.fault for each in guarded.discover()] == ['Programming region hangs.']
        # until it has ended
        real(int(pid), signal.SIGKILL)
        eventually(lambda: not guarded._hanging('card'))
        assert [each.given('fault') for each in guarded.discover()] == [None]

    def test_programming_may_take_longer_than_other_calls(self, program):
        program('sleep 0.3', timeout=0.05)

    @pytest.mark.parametrize(
        ('script', 'sentence'),
        [
            ('echo "wrong card" >&2; exit 2', 'flash ended with 2: wrong card'),
            ('kill -15 $$', 'flash was killed by SIGTERM without output'),
            (None, 'flash is not installed'),
        ],
    )
    def test_one_that_fails_says_why(self, program, script, sentence):
        with pytest.raises(errors.DriverFailed, match=sentence):
            program(script)


def is_running(pid):
    """One that has ended and waits for its parent to notice does not run."""
    try:
        status = Path(f'/proc/{pid}/stat').read_text()
    except OSError:
        return False
    return status.rpartition(')')[2].split()[0] != 'Z'
