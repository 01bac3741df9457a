# SPDX-License-Identifier: Apache-2.0
"""The steps and scripts by which a handle is cleaned, and what becomes of failures."""

import errno
import os
import resource
import signal
import threading
import time

import pytest
from oslo_config import cfg

from cyborg import conf as options
from cyborg import errors, objects
from cyborg.accelerator import cleaning, sysfs
from cyborg.accelerator.driver import Driver
from cyborg.agent.cleaning import Cleaner, scripts
from cyborg.agent.driver_guard import Guard
from tests.fixtures.cloud import eventually

UUID = '1b0ba0f3-4b5c-4b55-8a5c-8a5b7b0d1c00'
INFO = {'domain': '0000', 'bus': '3b', 'device': '00', 'function': '1'}


class Washing(Driver):
    """Notes what it does, fails at some step, or hangs there."""

    name, type = 'washing', 'GPU'
    clean_steps = (cleaning.RESET, cleaning.FORMAT, cleaning.VERIFY)

    def __init__(self, fails=(), hangs=None):
        self.done, self._fails, self._hangs, self.gate = [], fails, hangs, threading.Event()

    def discover(self):
        return [
            objects.Device(
                key='d',
                type='GPU',
                vendor='10de',
                driver_name='',
                deployables=[
                    objects.Deployable(
                        name='d',
                        num_accelerators=1,
                        traits=[],
                        attach_handles=[objects.AttachHandle(key='k', type='TEST_PCI', info=INFO)],
                    )
                ],
            )
        ]

    def clean(self, handle, step, deployable):
        self.done.append((step, handle.uuid, deployable))
        if step == self._hangs:
            self.gate.wait(60)
        if step in self._fails:
            raise errors.DriverFailed(name=self.name, why='it is busy.')

    def versions(self, handle):
        if 'versions' in self._fails:
            raise ZeroDivisionError
        return {'kernel_driver': 'vfio-pci'}


class Plain(Washing):
    name = 'plain'
    clean_steps = ()


@pytest.fixture
def conf(tmp_path):
    conf = cfg.ConfigOpts()
    options.register(conf)
    conf([], default_config_files=[], default_config_dirs=[])
    conf.set_override('enabled_drivers', ['washing', 'plain'], 'agent')
    conf.set_override('scripts_directory', str(tmp_path / 'clean.d'), 'cleaning')
    conf.set_override('level', 'full', 'cleaning')
    return conf


@pytest.fixture
def cleaner(conf):
    return Cleaner(conf, 'compute1')


@pytest.fixture
def script(tmp_path):
    """Write one for a driver."""

    def script(name, text, driver='washing', mode=0o755):
        path = tmp_path / 'clean.d' / driver / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'#!/bin/sh\n{text}\n')
        path.chmod(mode)
        return path

    return script


def task(**facts):
    handle = objects.AttachHandle(uuid=UUID, key='k', type='PCI', info=INFO)
    return objects.Task(
        uuid=UUID,
        kind='clean',
        generation=1,
        driver_name='washing',
        device_key='d',
        deployable_name='d_region0',
        deployable_uuid=UUID,
        handle=handle,
        **facts,
    )


def names(steps):
    return [step.name for step in steps]


def failure(cleaner, driver, **facts):
    with pytest.raises(errors.CleaningFailed) as caught:
        cleaner.clean(Guard(driver, 60), task(**facts))
    return caught.value


# -- steps ---------------------------------------------------------------------------------------


def test_the_steps_of_the_level_are_done_in_their_order(cleaner):
    driver = Washing()
    steps = cleaner.clean(Guard(driver, 60), task())
    assert names(steps) == ['reset', 'format', 'verify']
    assert driver.done == [(name, UUID, 'd_region0') for name in names(steps)]
    assert all(step.error is None and 0 <= step.seconds < 60 for step in steps)


def test_a_lower_level_leaves_steps_out(cleaner):
    assert names(cleaner.clean(Guard(Washing(), 60), task(cleaning='reset'))) == ['reset', 'verify']


def test_at_the_level_none_nothing_is_done_though_there_are_scripts(cleaner, script):
    script('10-fail', 'exit 1')
    assert cleaner.clean(Guard(Washing(), 60), task(cleaning='none')) == []


def test_options_of_a_driver_come_before_those_for_all(conf):
    conf.set_override('driver_levels', {'washing': 'reset'}, 'cleaning')
    assert names(Cleaner(conf, 'compute1').clean(Guard(Washing(), 60), task())) == [
        'reset',
        'verify',
    ]


def test_the_first_step_that_fails_ends_it(cleaner):
    driver = Washing(fails=['format'])
    told = failure(cleaner, driver)
    assert told.faultstring == (
        'Step format failed: Driver washing failed: it is busy. It needs nvme-cli on the host, '
        'and a disk that can be formatted or sanitized.'
    )
    assert [(step.name, bool(step.error)) for step in told.steps] == [
        ('reset', False),
        ('format', True),
    ]
    assert [name for name, *_ in driver.done] == ['reset', 'format']


def test_a_failure_is_noted_where_cleaning_is_not_required(cleaner):
    driver = Washing(fails=['reset'])
    steps = cleaner.clean(Guard(driver, 60), task(is_cleaning_required=False))
    assert [bool(step.error) for step in steps] == [True, False, False]


def test_an_option_says_that_cleaning_is_not_required(conf):
    conf.set_override('driver_required', {'washing': False}, 'cleaning')
    cleaner = Cleaner(conf, 'compute1')
    assert len(cleaner.clean(Guard(Washing(fails=['verify']), 60), task())) == 3
    # and a profile that it is
    assert failure(cleaner, Washing(fails=['verify']), is_cleaning_required=True)


def test_a_step_has_a_time_limit_of_its_own(conf):
    conf.set_override('step_timeout', 1, 'cleaning')
    driver = Washing(hangs='reset')
    told = failure(Cleaner(conf, 'compute1'), driver)
    assert 'cleaning k (reset) did not end within 1 seconds' in told.faultstring
    driver.gate.set()


def test_a_step_that_has_not_ended_fails_although_cleaning_is_not_required(conf):
    # given a disk whose format hangs, and a step before it that fails
    conf.set_override('step_timeout', 1, 'cleaning')
    driver = Washing(fails=['reset'], hangs='format')
    cleaner, guard = Cleaner(conf, 'compute1'), Guard(driver, 60)
    # when a handle is cleaned, then the format is the failure
    with pytest.raises(errors.CleaningFailed, match='Step format failed: .* did not end') as told:
        cleaner.clean(guard, task(is_cleaning_required=False))
    assert names(told.value.steps) == ['reset', 'format']
    # when it has ended, then the handle can be cleaned
    driver.gate.set()
    eventually(lambda: not guard.is_hanging('d'))
    assert len(cleaner.clean(guard, task(is_cleaning_required=False))) == 3


def test_a_driver_may_take_longer_to_clean_than_for_other_calls(cleaner):
    class Slow(Washing):
        def clean(self, handle, step, deployable):
            time.sleep(0.05)

    assert len(cleaner.clean(Guard(Slow(), 0.001), task())) == 3


def test_cleaning_that_is_required_and_cannot_be_done_fails(cleaner, tmp_path):
    told = failure(cleaner, Plain())
    assert 'required at the level full' in told.faultstring
    assert str(tmp_path / 'clean.d/plain') in told.faultstring
    assert told.steps == ()


def test_cleaning_that_is_not_required_and_cannot_be_done_is_nothing(cleaner):
    assert cleaner.clean(Guard(Plain(), 60), task(is_cleaning_required=False)) == []


# -- scripts -------------------------------------------------------------------------------------


def test_scripts_are_run_after_the_steps_in_the_order_of_their_names(cleaner, script, tmp_path):
    for name in ('20-second', '10-first.sh'):
        script(name, f'echo $0 >> {tmp_path}/ran')
    assert names(cleaner.clean(Guard(Washing(), 60), task())) == [
        'reset',
        'format',
        'verify',
        'washing/10-first.sh',
        'washing/20-second',
    ]
    assert [line.rpartition('/')[2] for line in (tmp_path / 'ran').read_text().split()] == [
        '10-first.sh',
        '20-second',
    ]


def test_a_script_alone_can_clean_what_a_driver_cannot(cleaner, script):
    script('10-wash', 'exit 0', driver='plain')
    assert names(cleaner.clean(Guard(Plain(), 60), task())) == ['plain/10-wash']


@pytest.mark.parametrize(
    'name', ['README', '10-wash~', '10-wash.bak', '10-wash.rpmnew', 'wash', '.10-wash.swp']
)
def test_other_files_are_no_scripts(script, name):
    assert scripts(script(name, 'exit 1').parent) == []


def test_a_script_is_told_what_it_cleans_and_nothing_else(cleaner, script, tmp_path, monkeypatch):
    monkeypatch.setenv('OS_PASSWORD', 'secret')
    script('10-env', f'env > {tmp_path}/env; pwd >> {tmp_path}/env')
    cleaner.clean(Guard(Washing(), 60), task(arq_uuid=UUID, project_id='p1', cleaning='full'))
    told = (tmp_path / 'env').read_text().splitlines()
    assert {line for line in told if line.startswith('CYBORG_')} == {
        'CYBORG_ADDRESS=0000:3b:00.1',
        f'CYBORG_HANDLE_UUID={UUID}',
        'CYBORG_DEVICE_KEY=d',
        'CYBORG_DEPLOYABLE=d_region0',
        'CYBORG_DRIVER=washing',
        f'CYBORG_ARQ_UUID={UUID}',
        'CYBORG_PROJECT_ID=p1',
        'CYBORG_HOST=compute1',
        'CYBORG_LEVEL=full',
    }
    assert not any('secret' in line for line in told)
    assert told[-1] == '/'


def test_a_script_that_fails_tells_its_last_lines(cleaner, script):
    script('10-noisy', 'seq 100; echo the disk is stuck >&2; exit 3')
    told = failure(cleaner, Washing())
    assert told.faultstring.endswith(
        '10-noisy ended with 3: 97 / 98 / 99 / 100 / the disk is stuck'
    )
    assert names(told.steps)[-1] == 'washing/10-noisy'


def test_a_script_that_prints_without_end_fills_neither_disk_nor_memory(conf, script):
    conf.set_override('script_timeout', 2, 'cleaning')
    script('10-noisy', 'test -p /proc/self/fd/1 || exit 3\nexec yes')
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    told = failure(Cleaner(conf, 'compute1'), Washing())
    assert told.faultstring.endswith('did not end within 2 seconds: y / y / y / y / y')
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024  # KiB


def test_a_process_that_a_script_leaves_may_keep_its_output(cleaner, script, tmp_path):
    script('10-daemon', f'echo begun; setsid sleep 600 & echo $! > {tmp_path}/child; exit 1')
    assert failure(cleaner, Washing()).faultstring.endswith('10-daemon ended with 1: begun')
    os.kill(int((tmp_path / 'child').read_text()), signal.SIGKILL)


def test_a_script_that_a_signal_ends_has_failed(cleaner, script):
    script('10-killed', 'kill -TERM $$')
    assert 'was ended by signal 15.' in failure(cleaner, Washing()).faultstring


def test_a_script_is_killed_at_its_limit_with_its_children(conf, script, tmp_path):
    conf.set_override('script_timeout', 1, 'cleaning')
    script('10-slow', f'sleep 600 & echo $! > {tmp_path}/child; echo waiting; wait')
    begun = time.monotonic()
    told = failure(Cleaner(conf, 'compute1'), Washing())
    assert time.monotonic() - begun < 60
    assert told.faultstring.endswith('10-slow did not end within 1 seconds: waiting')
    eventually(lambda: is_gone(int((tmp_path / 'child').read_text())))


def test_what_a_script_leaves_running_is_killed(cleaner, script, tmp_path):
    script('10-daemon', f'sleep 600 & echo $! > {tmp_path}/child')
    cleaner.clean(Guard(Washing(), 60), task())
    eventually(lambda: is_gone(int((tmp_path / 'child').read_text())))


def test_a_script_that_survives_its_kill_keeps_its_card_back(conf, script, tmp_path, monkeypatch):
    # given a script that hangs in the kernel, so that SIGKILL does not end it
    real = os.killpg
    monkeypatch.setattr(os, 'killpg', lambda group, number: number or real(group, 0))
    monkeypatch.setattr(sysfs, 'GRACE', 0.1)
    conf.set_override('script_timeout', 1, 'cleaning')
    path = script('10-stuck', f'echo $$ >> {tmp_path}/pids; exec sleep 600', 'plain')
    cleaner, guard = Cleaner(conf, 'compute1'), Guard(Plain(), 60)
    # when a handle is cleaned, twice
    for sentence in (f'{path} was killed, but is still there', 'plain/10-stuck. still hangs'):
        with pytest.raises(errors.CleaningFailed, match=sentence):
            cleaner.clean(guard, task())
    # then it was run once, and the card has a fault
    [pid] = (tmp_path / 'pids').read_text().split()
    assert [each.fault for each in guard.discover()] == ['Cleaning k (plain/10-stuck) hangs.']
    # until it has ended
    real(int(pid), signal.SIGKILL)
    eventually(lambda: [each.given('fault') for each in guard.discover()] == [None])


def test_a_script_that_cannot_be_waited_for_is_killed(cleaner, script, tmp_path, monkeypatch):
    def fail(process):
        eventually(lambda: (tmp_path / 'pid').exists() and (tmp_path / 'pid').read_text())
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, 'pidfd_open', fail)
    script('10-slow', f'echo $$ > {tmp_path}/pid; exec sleep 600')
    assert 'Too many open files' in failure(cleaner, Washing()).faultstring
    assert is_gone(int((tmp_path / 'pid').read_text()))


def is_gone(process):
    try:
        with open(f'/proc/{process}/stat') as file:
            return file.read().rpartition(')')[2].split()[0] == 'Z'
    except FileNotFoundError:
        return True


@pytest.mark.parametrize(
    'spoil, why',
    [
        (lambda path: path.chmod(0o775), 'can be written by other users'),
        (lambda path: path.chmod(0o757), 'can be written by other users'),
        (lambda path: path.chmod(0o644), 'cannot be executed'),
        (lambda path: (path.unlink(), path.symlink_to('/bin/true')), 'is not a regular file'),
        (lambda path: (path.unlink(), path.mkdir()), 'is not a regular file'),
        (lambda path: path.parent.chmod(0o777), 'can be written by other users'),
        (lambda path: path.parent.parent.chmod(0o777), 'can be written by other users'),
        (lambda path: path.write_text('#!/nonexistent/shell\n'), 'No such file or directory'),
    ],
)
def test_a_script_that_is_not_safe_is_not_run(cleaner, script, spoil, why):
    spoil(script('10-wash', 'exit 0'))
    assert why in failure(cleaner, Washing()).faultstring


@pytest.mark.skipif(os.geteuid() != 0, reason='only root can give a file away')
def test_a_script_of_another_user_is_not_run(cleaner, script):
    os.chown(script('10-wash', 'exit 0'), 65534, 65534)
    assert 'belongs neither to root nor' in failure(cleaner, Washing()).faultstring


def test_a_directory_that_is_none_is_told(cleaner, tmp_path):
    (tmp_path / 'clean.d').mkdir()
    (tmp_path / 'clean.d/washing').write_text('')
    assert (
        'clean.d/washing cannot be read: Not a directory' in failure(cleaner, Washing()).faultstring
    )


# -- what is reported ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    'options, driver, expected',
    [
        ({}, Washing, 'full'),
        ({'level': 'none'}, Washing, 'none'),
        ({'level': 'reset', 'driver_levels': {'plain': 'full'}}, Washing, 'reset'),
        # what is required and cannot be done is tried, and told
        ({}, Plain, 'full'),
        ({'required': False}, Plain, 'none'),
        ({'required': False}, Washing, 'full'),
    ],
)
def test_handles_are_reported_with_their_level(conf, options, driver, expected):
    for name, value in options.items():
        conf.set_override(name, value, 'cleaning')
    guard = Guard(driver(), 60, level_of=Cleaner(conf, 'compute1').level_of)
    [device] = guard.discover()
    assert device.deployables[0].attach_handles[0].cleaning == expected


def test_a_directory_of_scripts_makes_handles_clean(conf, script):
    conf.set_override('required', False, 'cleaning')
    script('10-wash', 'exit 0', driver='plain')
    assert Cleaner(conf, 'compute1').level_of('plain', ()) == 'full'


def test_nothing_is_cleaned_by_default():
    [device] = Guard(Washing(), 60).discover()
    assert device.deployables[0].attach_handles[0].cleaning == 'none'


@pytest.mark.parametrize('option', ['driver_levels', 'driver_required'])
def test_a_driver_that_is_not_known_is_a_mistake(conf, option):
    conf.set_override(option, {'nvme': 'full' if option == 'driver_levels' else True}, 'cleaning')
    with pytest.raises(errors.ConfigError, match=f'{option} names nvme, which is not a driver'):
        Cleaner(conf, 'compute1')


def test_versions_are_recorded_if_they_are_told(cleaner):
    assert cleaner.versions(Guard(Washing(), 60), task()) == {'kernel_driver': 'vfio-pci'}
    assert cleaner.versions(Guard(Washing(fails=['versions']), 60), task()) == {}
