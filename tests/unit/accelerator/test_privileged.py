# SPDX-License-Identifier: Apache-2.0
"""Root does nothing but what an enabled driver declares, on a device that it claims."""

import json
import os
import shlex
import subprocess
import sys
import uuid

import pytest
from oslo_config import cfg

from cyborg.accelerator import mdev, pci, privileged, sysfs

T4, L40S, QAT, FPGA = '0000:3b:00.0', '0000:17:00.0', '0000:85:00.0', '0000:5e:00.0'
TYPE = 'mdev_supported_types/nvidia-222'
UUID = str(uuid.UUID(int=7))
PYTHON = [sys.executable, '-W', 'ignore', '-c']
#: The helper as it is installed, but for where its sysfs is.
HELPER = """
import pathlib, sys
from oslo_privsep import daemon
from cyborg.accelerator import sysfs
sysfs.ROOT = pathlib.Path(sys.argv.pop(1))
daemon.helper_main()
"""
#: An agent that has one thing after the other done, and tells why each was refused, or null.
AGENT = """
import json, sys
from oslo_config import cfg
from cyborg.accelerator import privileged
helper, deeds = json.loads(sys.argv[1])
cfg.CONF.set_override('helper_command', helper, privileged.context.cfg_section)
for verb, *arguments in deeds:
    try:
        getattr(privileged, verb)(*arguments)
        print('null')
    except OSError as error:
        print(json.dumps(f'{type(error).__name__}: {error}'))
privileged.context.stop()
"""
#: An agent with hanging calls, as many as there are CPUs, that has another attribute written.
HANGING_AGENT = """
import json, os, sys, threading, time
from oslo_config import cfg
from cyborg.accelerator import privileged
helper, hanging, other = json.loads(sys.argv[1])
cfg.CONF.set_override('helper_command', helper, privileged.context.cfg_section)
privileged.opened([])  # starts the helper
for _ in range(os.cpu_count()):
    threading.Thread(target=privileged.write, args=(hanging, 'x'), daemon=True).start()
time.sleep(1)
privileged.write(other, 'x')
os._exit(0)
"""


@pytest.fixture
def host(host):
    """GPUs of two kinds, and cards of others."""
    host.plug_in('10de:1eb8', at=T4)
    host.plug_in('10de:26b9', at=L40S)
    host.plug_in('8086:37c8', at=QAT)
    host.plug_in('8086:09c4', at=FPGA)
    host.sysfs.write(f'{pci.DEVICES}/{T4}/{TYPE}/create', UUID)
    return host


@pytest.fixture
def root(monkeypatch, host, conf):
    """We are the daemon, and sysfs is a directory."""
    privileged.context.set_client_mode(False)
    monkeypatch.setattr(sysfs, 'ROOT', host.sysfs.path.resolve())
    monkeypatch.setattr(cfg, 'CONF', conf)
    privileged._load.cache_clear()
    conf.set_override('enabled_drivers', ['nvidia_gpu_driver', 'intel_fpga_driver'], 'agent')
    yield host.sysfs
    privileged._load.cache_clear()
    privileged.context.set_client_mode(True)


@pytest.fixture
def tools(monkeypatch, tmp_path):
    """Where root looks for tools: they tell how they were called."""
    for name in ('mdevctl', 'fpgaconf', 'sh'):
        tool = tmp_path / 'bin' / name
        tool.parent.mkdir(exist_ok=True)
        tool.write_text('#!/bin/sh\necho "$@"\n')
        tool.chmod(0o755)
    monkeypatch.setattr(privileged, 'TOOL_PATH', str(tmp_path / 'bin'))


def below(address, name):
    return f'{pci.DEVICES}/{address}/{name}'


def part_of(address, name):
    """An attribute of the first virtual function."""
    return below(address, f'virtfn0/{name}')


WANTED = [
    below(T4, f'{TYPE}/create'),
    f'{mdev.DEVICES}/{UUID}/remove',
    part_of(L40S, 'nvidia/current_vgpu_type'),
    part_of(L40S, 'nvidia/gpu_instance_id'),
]


@pytest.mark.parametrize('name', WANTED)
def test_what_a_driver_declares_is_written_on_its_devices(root, name):
    privileged.write(str(root.path / name), 'x')
    assert root.read(name).startswith('x')


REFUSED = [
    # not declared, on a device of its own
    below(T4, 'driver_override'),
    below(T4, 'remove'),
    part_of(L40S, 'driver_override'),
    below(L40S, 'sriov_numvfs'),
    below(T4, f'{TYPE}/{TYPE}/create'),
    below(T4, 'create'),
    # declared, on another device
    below(QAT, f'{TYPE}/create'),
    below(QAT, 'nvidia/current_vgpu_type'),
    f'{QAT}/create',
    below(QAT, f'{UUID}/remove'),
    part_of(QAT, 'nvidia/current_vgpu_type'),
    # what lies within a device of another, which lies within its own
    below(T4, f'{QAT}/{TYPE}/create'),
    # no device of the bus, though it looks like one
    f'devices/{T4}/{TYPE}/create',
    f'kernel/{T4}/{UUID}/remove',
    # elsewhere
    'power/state',
    'drivers_probe',
    'bus/pci/drivers_probe',
    'bus/pci/drivers/vfio-pci/bind',
    f'../{T4}/{UUID}/remove',
    below(T4, f'../../../../../etc/{UUID}/remove'),
]


def put(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('0')
    return path


@pytest.mark.parametrize('name', REFUSED)
def test_anything_else_is_refused(root, name):
    path = put(root.path / name)
    with pytest.raises(PermissionError, match='writes'):
        privileged.write(str(path), '1')
    assert path.read_text() == '0'


def test_a_link_is_followed_before_it_is_judged(root):
    elsewhere = [put(root.path / below(QAT, 'remove')), put(root.path.parent / 'elsewhere/remove')]
    link = root.path / below(T4, UUID)
    for path in elsewhere:
        (link / 'remove').unlink()
        (link / 'remove').symlink_to(path.resolve())
        with pytest.raises(PermissionError):
            privileged.write(str(link / 'remove'), '1')
        assert path.read_text() == '0'


@pytest.mark.parametrize('enabled', [[], ['intel_qat_driver', 'fake_driver']])
def test_a_driver_that_is_not_enabled_counts_for_nothing(root, conf, tools, enabled):
    conf.set_override('enabled_drivers', enabled, 'agent')
    with pytest.raises(PermissionError, match=', '.join(enabled) or 'none'):
        privileged.write(str(root.path / WANTED[0]), '1')
    with pytest.raises(PermissionError):
        privileged.run(['mdevctl', 'undefine', '--uuid', UUID])


PLACE = ['-B', '0x5e', '-D', '0x00', '-F', '0x0']


@pytest.mark.parametrize(
    'command',
    [
        ['mdevctl', 'undefine', '--uuid', UUID],
        ['mdevctl', 'list', '--defined', '--uuid', UUID],
        ['fpgaconf', *PLACE, '/var/lib/cyborg/image'],
    ],
)
def test_what_a_driver_declares_is_run(root, tools, command):
    assert privileged.run(command).split() == command[1:]


@pytest.mark.parametrize(
    'command',
    [
        [],
        ['sh', '-c', 'true'],
        ['mdevctl'],
        ['mdevctl', 'start', '--uuid', UUID],
        ['mdevctl', 'undefine', '--uuid', UUID, '--parent', T4],
        ['/opt/mdevctl', 'undefine', '--uuid', UUID],
        ['../bin/mdevctl', 'undefine', '--uuid', UUID],
        ['fpgaconf', *PLACE, '--force'],
        ['fpgaconf', '/var/lib/cyborg/image'],
        ['fpgaconf', '-B', '0x85', *PLACE[2:], '/var/lib/cyborg/image'],  # not an FPGA
    ],
)
def test_no_other_command_is_run(root, tools, command):
    with pytest.raises(PermissionError, match='runs'):
        privileged.run(command)


def test_a_tool_that_hangs_is_killed_by_root_too(root, tools, tmp_path):
    (tmp_path / 'bin/fpgaconf').write_text('#!/bin/sh\necho "region 0" >&2\nexec sleep 60\n')
    with pytest.raises(TimeoutError, match='fpgaconf did not end .* was killed: region 0'):
        privileged.run(['fpgaconf', *PLACE, '/var/lib/cyborg/image'], 0.5)


def test_open_devices_are_looked_up(root, monkeypatch, tmp_path):
    monkeypatch.setattr(sysfs, 'PROC', tmp_path / 'proc')
    process = tmp_path / 'proc/812'
    (process / 'fd').mkdir(parents=True)
    (process / 'comm').write_text('chronyd\n')
    (process / 'fd/5').symlink_to('/dev/ptp3')
    (process / 'fd/6').symlink_to('/dev/null')
    assert privileged.opened(['ptp3', 'ptp4']) == {'ptp3': 'chronyd'}


class TestInAProcessOfItsOwn:
    """Agent and helper are two processes; the helper has a configuration file."""

    @pytest.fixture
    def helper(self, host, tmp_path):
        """The command of a helper; only these drivers are in its file."""

        def helper(enabled):
            # the files are ours: no privilege is needed, nor is it to be had everywhere
            file = tmp_path / 'cyborg.conf'
            file.write_text(
                f'[agent]\nenabled_drivers = {enabled}\n'
                f'[{privileged.context.cfg_section}]\ncapabilities =\n'
            )
            return shlex.join(
                [*PYTHON, HELPER, str(host.sysfs.path.resolve()), '--config-file', str(file)]
            )

        return helper

    @pytest.fixture
    def ask(self, helper):
        """Why each of these was refused, or None; only these drivers are in the file."""

        def ask(enabled, *deeds):
            told = subprocess.run(
                [*PYTHON, AGENT, json.dumps([helper(enabled), deeds])],
                text=True,
                check=True,
                stdout=subprocess.PIPE,
            ).stdout
            return [json.loads(line) for line in told.splitlines()]

        return ask

    def test_the_helper_does_what_the_drivers_in_its_file_declare(self, host, ask):
        override = host.sysfs.path / below(T4, 'driver_override')
        before = override.read_text()
        *allowed, write, run = ask(
            'nvidia_gpu_driver',
            *(('write', str(host.sysfs.path / name), 'x') for name in WANTED),
            ('write', str(override), 'x'),
            ('run', ['fpgaconf', *PLACE, '/image']),
        )
        assert allowed == [None] * len(WANTED)
        assert all(host.sysfs.read(name).startswith('x') for name in WANTED)
        assert '(nvidia_gpu_driver) writes' in write
        assert '(nvidia_gpu_driver) runs fpgaconf' in run
        assert run.startswith('NotAllowed: ')
        assert override.read_text() == before

    def test_a_tool_that_is_not_there_is_told_from_one_that_fails(self, ask):
        [failure] = ask('intel_fpga_driver', ('run', ['fpgaconf', *PLACE, '/image']))
        assert failure == 'NotInstalled: fpgaconf is not installed: install it on the host'

    def test_it_does_nothing_for_others(self, host, ask):
        [refusal] = ask('intel_qat_driver', ('write', str(host.sysfs.path / WANTED[0]), 'x'))
        assert '(intel_qat_driver) writes' in refusal

    def test_calls_that_hang_on_one_card_do_not_stop_those_of_another(self, host, helper):
        # given an attribute whose writers hang
        hanging, other = (host.sysfs.path / name for name in (WANTED[0], WANTED[2]))
        hanging.unlink()
        os.mkfifo(hanging)
        words = json.dumps([helper('nvidia_gpu_driver'), str(hanging), str(other)])
        try:
            subprocess.run([*PYTHON, HANGING_AGENT, words], check=True, timeout=30)
        finally:
            os.close(os.open(hanging, os.O_RDONLY | os.O_NONBLOCK))  # lets the writers go on
        assert other.read_text().startswith('x')
