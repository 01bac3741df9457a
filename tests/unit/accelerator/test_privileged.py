# SPDX-License-Identifier: Apache-2.0
"""Root does nothing but what a driver needs."""

import pytest

from cyborg.accelerator import privileged, sysfs


@pytest.fixture
def root(monkeypatch, tmp_path):
    """We are the daemon, and sysfs is a directory."""
    privileged.context.set_client_mode(False)
    monkeypatch.setattr(sysfs, 'ROOT', tmp_path)
    yield tmp_path
    privileged.context.set_client_mode(True)


def attribute(root, name):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('0')
    return path


def test_an_attribute_of_a_device_is_written(root):
    path = attribute(root, 'devices/pci0000:3a/0000:3b:00.0/sriov_numvfs')
    privileged.write(str(path), '4')
    assert path.read_text() == '4'


def test_a_link_is_followed_before_it_is_judged(root):
    path = attribute(root, 'devices/card/create')
    (root / 'bus').mkdir()
    (root / 'bus/card').symlink_to('../devices/card')
    privileged.write(str(root / 'bus/card/create'), 'x')
    assert path.read_text() == 'x'


@pytest.mark.parametrize('name', [
    'devices/card/config',  # not an attribute we write
    'power/state',  # the name fits, the place does not
    'kernel/mm/create',
    '../etc/remove',
    'devices/../../etc/remove',
])
def test_anything_else_is_refused(root, name):
    path = attribute(root, name)
    with pytest.raises(PermissionError):
        privileged.write(str(path), '1')
    assert path.read_text() == '0'


def test_a_link_out_of_sysfs_is_refused(root):
    path = attribute(root.parent, 'elsewhere/remove')
    (root / 'devices').mkdir()
    (root / 'devices/remove').symlink_to(path)
    with pytest.raises(PermissionError):
        privileged.write(str(root / 'devices/remove'), '1')
    assert path.read_text() == '0'


@pytest.mark.parametrize('command', [['sh', '-c', 'true'], ['/opt/mdevctl', 'list'],
                                     ['../bin/mdevctl']])
def test_only_tools_by_their_bare_names_are_run(root, command):
    with pytest.raises(PermissionError):
        privileged.run(command)


def test_open_devices_are_looked_up(root, monkeypatch):
    monkeypatch.setattr(sysfs, 'PROC', root / 'proc')
    process = root / 'proc/812'
    (process / 'fd').mkdir(parents=True)
    (process / 'comm').write_text('chronyd\n')
    (process / 'fd/5').symlink_to('/dev/ptp3')
    (process / 'fd/6').symlink_to('/dev/null')
    assert privileged.opened(['ptp3', 'ptp4']) == {'ptp3': 'chronyd'}
