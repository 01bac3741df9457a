# SPDX-License-Identifier: Apache-2.0
"""A simulated host as tests and the demo use it."""

import threading

import pytest
import yaml

from cyborg.accelerator import driver
from cyborg.agent import hotplug
from cyborg.sim import Host, catalogue

T4 = '0000:3b:00.0'
MDEV = '91ac1606-427e-44bb-8233-f4ff4bf3d241'


class TestCards:
    def test_one_is_there_until_it_is_pulled_out(self, host):
        host.plug_in('10de:1eb8', at=T4)
        assert host.cards == {T4: 'NVIDIA T4'}
        assert host.sysfs.has(f'bus/pci/devices/{T4}')
        host.pull_out(T4)
        assert host.cards == {}
        assert not host.sysfs.has(f'bus/pci/devices/{T4}')

    @pytest.mark.parametrize('model', sorted(catalogue.models()))
    def test_any_of_the_catalogue_leaves_nothing_behind(self, host, model):
        seen = []
        for _ in range(2):  # its slot and its driver stay
            host.plug_in(model, at='0000:5e:00.0')
            host.pull_out('0000:5e:00.0')
            seen.append(snapshot(host))
        assert seen[0] == seen[1]
        assert not [name for name in seen[0] if '0000:5e' in name]

    def test_one_of_any_other_id_is_just_a_card(self, host):
        host.plug_in('1234:5678', at=T4)
        assert host.sysfs.read(f'bus/pci/devices/{T4}/vendor') == '0x1234'

    @pytest.mark.parametrize('at', ['3b:00.0', '0000:3b:00.8', 'anywhere'])
    def test_a_slot_has_an_address(self, host, at):
        with pytest.raises(ValueError, match='not a PCI address'):
            host.plug_in('10de:1eb8', at=at)

    def test_a_slot_holds_one_card(self, host):
        host.plug_in('10de:1eb8', at=T4)
        with pytest.raises(ValueError, match='already'):
            host.plug_in('10de:1eb8', at=T4)

    @pytest.mark.parametrize(('model', 'count'), [('10de:1eb8', 1), ('8086:37c8', 17)])
    def test_a_card_has_no_more_functions_than_it_can(self, host, model, count):
        with pytest.raises(ValueError, match=f'cannot have {count} virtual functions'):
            host.plug_in(model, at=T4, vfs=count)
        assert host.cards == {}
        host.plug_in('10de:1eb8', at=T4, vfs=0)
        assert not host.sysfs.has(f'bus/pci/devices/{T4}/sriov_numvfs')

    def test_an_empty_slot_holds_none(self, host):
        with pytest.raises(ValueError, match='no card'):
            host.pull_out(T4)

    def test_two_of_a_kind_do_not_share_their_facts(self, host):
        host.plug_in('10de:20b5', at='0000:3b:00.0', vfs=1)
        host.plug_in('10de:20b5', at='0000:af:00.0')
        assert host.sysfs.read('bus/pci/devices/0000:3b:00.0/sriov_numvfs') == '1'
        assert host.sysfs.read('bus/pci/devices/0000:af:00.0/sriov_numvfs') == '16'


class TestReboot:
    def test_cards_stay_and_what_was_made_on_them_goes(self, host):
        host.plug_in('10de:1eb8', at=T4)
        host.plug_in('8086:4940', at='0000:6b:00.0', vfs=0)
        host.sysfs.write(f'bus/pci/devices/{T4}/mdev_supported_types/nvidia-223/create', MDEV)
        host.sysfs.write('bus/pci/devices/0000:6b:00.0/sriov_numvfs', '4')
        host.reboot()
        assert not host.sysfs.has(f'bus/mdev/devices/{MDEV}')
        assert host.sysfs.read('bus/pci/devices/0000:6b:00.0/sriov_numvfs') == '0'
        assert host.sysfs.has(f'bus/pci/devices/{T4}/driver')

    def test_virtual_functions_go_unless_a_rule_makes_them(self, host):
        host.plug_in('8086:4940', at='0000:6b:00.0', vfs=4)
        host.plug_in('8086:4940', at='0000:70:00.0', vfs=4, vfs_by_rule=True)
        host.plug_in('10de:20b5', at='0000:af:00.0')  # as many as the catalogue says
        for _ in range(2):
            host.reboot()
            assert [
                host.sysfs.read(f'bus/pci/devices/{address}/sriov_numvfs')
                for address in ('0000:6b:00.0', '0000:70:00.0', '0000:af:00.0')
            ] == ['0', '4', '0']
            assert not host.sysfs.has('bus/pci/devices/0000:6b:01.0')
            assert host.sysfs.has('bus/pci/devices/0000:70:01.0/driver')

    @pytest.mark.parametrize(('model', 'count'), [('10de:1eb8', None), ('8086:4940', 0)])
    def test_a_rule_makes_some_or_there_is_none(self, host, model, count):
        with pytest.raises(ValueError, match='no virtual functions that a rule could create'):
            host.plug_in(model, at=T4, vfs=count, vfs_by_rule=True)

    def test_a_host_starts_from_nothing(self, host):
        host.plug_in('10de:1eb8', at=T4)
        again = Host(host.sysfs.path)
        assert again.cards == {}
        assert not again.sysfs.has(f'bus/pci/devices/{T4}')

    def test_a_directory_that_holds_something_else_is_left_alone(self, tmp_path):
        (tmp_path / 'thesis').mkdir()
        with pytest.raises(ValueError, match='contains other files'):
            Host(tmp_path)
        assert (tmp_path / 'thesis').is_dir()


class TestEvents:
    def test_a_card_that_comes_or_goes_is_told(self, host, events):
        host.plug_in('8086:37c8', at='0000:6b:00.0', vfs=0)
        assert events[-2:] == [('add', 'pci', '0000:6b:00.0'), ('bind', 'pci', '0000:6b:00.0')]
        events.clear()
        host.pull_out('0000:6b:00.0')
        assert events == [('unbind', 'pci', '0000:6b:00.0'), ('remove', 'pci', '0000:6b:00.0')]

    def test_they_come_when_the_change_is_complete_and_others_may_act(self, host):
        seen = []

        def look(event):
            if event == hotplug.UdevEvent('add', 'pci', T4):
                seen.append(host.sysfs.has(f'bus/pci/devices/{T4}/mdev_supported_types'))
                other = threading.Thread(target=host.plug_in, args=('8086:37c8', '0000:6b:00.0'))
                other.start()
                other.join()

        host.subscribe(look)
        host.plug_in('10de:1eb8', at=T4)
        assert seen == [True]
        assert len(host.cards) == 2

    def test_a_monitor_hears_between_start_and_stop(self, host):
        heard = []
        monitor = host.monitor(heard.append, ['pci'])
        host.plug_in('10de:1eb8', at=T4)
        assert heard == []
        monitor.start()
        monitor.start()
        host.pull_out(T4)
        assert heard.count(hotplug.UdevEvent('remove', 'pci', T4)) == 1
        monitor.stop()
        monitor.stop()
        count = len(heard)
        host.plug_in('10de:1eb8', at=T4)
        assert len(heard) == count

    def test_a_monitor_hears_only_the_subsystems_that_it_names(self, host):
        heard = []
        host.monitor(heard.append, ['mdev']).start()
        host.plug_in('10de:1eb8', at=T4)
        types = f'bus/pci/devices/{T4}/mdev_supported_types/nvidia-222'
        host.sysfs.write(f'{types}/create', MDEV)
        assert {each.subsystem for each in heard} == {'mdev'}

    def test_only_subsystems_that_some_driver_declares_are_told(self, host, events):
        for number, model in enumerate(catalogue.models()):
            host.plug_in(model, at=f'0000:{0x10 + 2 * number:02x}:00.0')
        assert {subsystem for _, subsystem, _ in events} <= {
            subsystem for cls in driver.installed() for subsystem in cls.subsystems
        }


class TestDescriptions:
    def test_the_demo_has_five_families_and_spares(self, tmp_path):
        host = Host.described(tmp_path / 'sys')
        assert sorted(host.cards.values()) == [
            'Intel N6001',
            'Intel QAT 4xxx',
            'Meta Time Card',
            'NVIDIA A100',
            'NVIDIA T4',
        ]
        for name in host.spares:
            host.plug_in_spare(name)
        assert len(host.cards) == 5 + len(host.spares)

    def test_a_host_of_ones_own(self, tmp_path):
        path = tmp_path / 'host.yaml'
        path.write_text(yaml.safe_dump({'cards': [{'model': '10de:1eb8', 'at': T4}]}))
        assert Host.described(tmp_path / 'sys', path).cards == {T4: 'NVIDIA T4'}


def test_a_tool_is_there_if_the_host_has_it(host):
    with pytest.raises(FileNotFoundError):
        host.sysfs.run('mdevctl', 'list')
    host.tools['mdevctl'] = lambda *options: ' '.join(options)
    assert host.sysfs.run('mdevctl', 'list') == 'list'


def test_changes_from_many_threads_do_not_mix(host):
    def swap(bus):
        for _ in range(3):
            host.plug_in('8086:37c8', at=f'0000:{bus:02x}:00.0', vfs=2)
            host.pull_out(f'0000:{bus:02x}:00.0')

    threads = [threading.Thread(target=swap, args=(bus,)) for bus in range(0x10, 0x18, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert host.cards == {}
    assert not [name for name in snapshot(host) if name.endswith('/physfn')]


def snapshot(host):
    root = host.sysfs.path
    return {str(path.relative_to(root)) for path in root.glob('**/*')}
