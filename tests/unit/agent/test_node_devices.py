# SPDX-License-Identifier: Apache-2.0
"""Mediated devices are waited for until libvirt shows them, where libvirt is."""

import pytest
from oslo_config import cfg

from cyborg import conf as options
from cyborg import errors, objects
from cyborg.accelerator.sysfs import Sysfs
from cyborg.agent.node_devices import NodeDevices
from os_acc import libvirt

PARENT = {'domain': '0000', 'bus': '84', 'device': '00', 'function': '0'}
NAME = libvirt.node_device(libvirt.MDEV, '0000:84:00.0')


class Virsh:
    """Says one thing after the other, the last one for ever."""

    def __init__(self, *answers):
        self.answers, self.commands = list(answers), []

    def __call__(self, command, timeout):
        assert timeout is not None, 'a virsh that hangs must be killed'
        self.commands.append(list(command))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def wait(virsh, tmp_path, timeout=5, type='MDEV', info=PARENT, uri=None):
    conf = cfg.ConfigOpts()
    options.register(conf)
    conf([], project='cyborg', default_config_files=[], default_config_dirs=[])
    conf.set_override('libvirt_timeout', timeout, 'agent')
    if uri:
        conf.set_override('libvirt_uri', uri, 'agent')
    handle = objects.AttachHandle(uuid=libvirt.MDEV, type=type, info=info)
    NodeDevices(conf, Sysfs(tmp_path, runner=virsh)).wait_for(handle)
    return virsh.commands


def test_it_is_asked_until_the_device_is_shown(tmp_path):
    commands = wait(Virsh('', 'mdev_other\n', f'mdev_other\n{NAME}\n'), tmp_path)
    assert len(commands) == 3
    assert commands[0] == [
        *('virsh', '--readonly', '--quiet', '--connect', 'qemu:///system'),
        *('nodedev-list', '--cap', 'mdev'),
    ]


def test_another_libvirt_can_be_named(tmp_path):
    [command] = wait(Virsh(NAME), tmp_path, uri='test:///default')
    assert 'test:///default' in command


def test_a_device_that_is_never_shown_fails_the_bind(tmp_path, monkeypatch):
    monkeypatch.setattr(libvirt, 'LOOK_INTERVALS', (0.4, 0.4))
    with pytest.raises(errors.DriverFailed, match=f'does not list {NAME} 1 seconds after'):
        wait(Virsh('mdev_other'), tmp_path, timeout=1)


@pytest.mark.parametrize(
    'answer',
    [FileNotFoundError('virsh is not installed'), OSError('virsh ended with 1: no connection')],
    ids=['no libvirt', 'a libvirt that does not answer'],
)
def test_without_libvirt_nothing_is_waited_for(tmp_path, answer):
    assert len(wait(Virsh(answer), tmp_path)) == 1


@pytest.mark.parametrize(
    'given', [{'timeout': 0}, {'type': 'PCI'}, {'type': 'TEST_PCI'}], ids=['off', 'pci', 'fake']
)
def test_nobody_is_asked_about_other_handles_or_if_it_is_switched_off(tmp_path, given):
    assert wait(Virsh(''), tmp_path, **given) == []
