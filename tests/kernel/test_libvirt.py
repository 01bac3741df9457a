# SPDX-License-Identifier: Apache-2.0
"""libvirt, which knows nothing of us, reads simulated hosts and takes our handles."""

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path
from xml.etree import ElementTree

import pytest
import stevedore
import yaml
from oslo_config import cfg

from cyborg import conf as options
from cyborg.accelerator import driver, mdev, pci
from cyborg.accelerator.drivers.nvidia_gpu import NvidiaGpuDriver
from cyborg.sim import Host, conformance, namespace
from cyborg.sim.conformance.testbed import handles
from os_acc.libvirt import Hostdev, from_xml, hostdevs, node_device

pytestmark = pytest.mark.timeout(900)
READER = Path(__file__).parent / 'reader.py'
T4, A100, QAT = '0000:3b:00.0', '0000:af:00.0', '0000:6b:00.0'
MDEV = str(uuid.UUID(int=7, version=4))
#: the first is there, the second is not, and the third is elsewhere
WAITED_FOR = f'{MDEV}@{T4}', f'{uuid.UUID(int=8, version=4)}@{T4}', f'{MDEV}@{QAT}'
FACTS = {
    'cards': [
        {'model': '10de:1eb8', 'at': T4, 'numa_node': 1},
        {'model': '10de:20b5', 'at': A100, 'vfs': 2},
        {'model': '8086:4940', 'at': QAT, 'vfs': 2, 'iommu': False},
        {'model': '10de:10f8', 'at': '0000:3b:00.1', 'class': '040300'},
    ],
    'groups': {T4: 7, '0000:3b:00.1': 7},
    'bound': {'0000:af:00.5': 'vfio-pci'},
    'mediated': {MDEV: {'at': T4, 'type': 'nvidia-222'}},
}
DOMAIN = """
<domain type='test'>
  <name>guest</name>
  <memory>65536</memory>
  <os><type>hvm</type></os>
  <devices>{devices}</devices>
</domain>
"""
#: what QEMU would run, in software
QEMU_DOMAIN = DOMAIN.replace("'test'", "'qemu'").replace('<type>', "<type arch='x86_64'>")
#: one of each kind, all of them on the host
GUEST = hostdevs(
    [
        {'pci_id': T4, 'mdev_uuid': MDEV, 'asked_type': 'nvidia-222'},
        {'pci_id': '0000:6b:00.1'},
        {'pci_id': '0000:af:00.4', 'asked_type': '1196'},
    ]
)
PCI = """
<hostdev mode='subsystem' type='pci' managed='yes'><source>
  <address domain='0x{domain}' bus='0x{bus}' slot='0x{device}' function='0x{function}'/>
</source></hostdev>
"""
MEDIATED = """
<hostdev mode='subsystem' type='mdev' model='vfio-pci'><source><address uuid='{uuid}'/></source>
</hostdev>
"""


@pytest.fixture(scope='module')
def virsh(need):
    return need('libvirt-clients', 'virsh')


@pytest.fixture(scope='module')
def told(virsh, need, need_namespaces, tmp_path_factory):
    """What libvirt says of a simulated host, and what the agent hears from it."""
    need('libvirt-daemon', 'libvirtd')
    need('qemu-system-x86', 'qemu-system-x86_64')
    path = tmp_path_factory.mktemp('host') / 'host.yaml'
    path.write_text(yaml.safe_dump(FACTS))
    domain = path.with_name('guest.xml')
    domain.write_text(QEMU_DOMAIN.format(devices='\n'.join(each.to_xml() for each in GUEST)))
    done = subprocess.run(
        namespace.command_line(path, [sys.executable, str(READER), str(domain), *WAITED_FOR]),
        text=True,
        capture_output=True,
        env=os.environ | {'PYTHONPATH': str(Path(__file__).parents[2])},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope='module')
def seen(told):
    """What libvirt says of each device: name -> XML."""
    return {name: ElementTree.fromstring(text) for name, text in told['devices'].items()}


@pytest.fixture(scope='module')
def host(tmp_path_factory):
    return Host.described(tmp_path_factory.mktemp('host') / 'sys', FACTS)


class TestHosts:
    def of(self, seen, address):
        device = seen['pci_' + address.replace(':', '_').replace('.', '_')]
        return device, device.find('capability')

    def test_it_lists_all_functions(self, seen, host):
        assert {name for name in seen if name.startswith('pci_')} == {
            'pci_' + each.address.replace(':', '_').replace('.', '_')
            for each in pci.functions(host.sysfs)
        }

    def test_it_reads_of_each_what_our_toolkit_reads(self, seen, host):
        for function in pci.functions(host.sysfs):
            device, card = self.of(seen, function.address)
            assert device.findtext('path') == (
                f'/sys/{function.path.resolve().relative_to(host.sysfs.path)}'
            )
            assert device.findtext('driver/name') == function.driver
            assert card.findtext('class') == f'0x{function.class_code}'
            assert card.find('vendor').get('id') == f'0x{function.vendor}'
            assert card.find('product').get('id') == f'0x{function.device}'
            node = card.find('numa')
            assert (node.get('node') if node is not None else None) == (
                str(function.numa_node) if function.numa_node is not None else None
            )

    def test_it_finds_the_members_of_groups(self, seen, host):
        for function in pci.functions(host.sysfs):
            _, card = self.of(seen, function.address)
            group = card.find('iommuGroup')
            assert (group.get('number') if group is not None else None) == function.iommu_group
        _, card = self.of(seen, T4)
        assert sorted(address(each) for each in card.find('iommuGroup')) == [T4, '0000:3b:00.1']

    def test_it_knows_who_belongs_to_whom(self, seen, host):
        for parent in (A100, QAT):
            _, card = self.of(seen, parent)
            [parts] = [
                each for each in card.findall('capability') if each.get('type') == 'virt_functions'
            ]
            found = pci.Function.at(host.sysfs, parent)
            assert int(parts.get('maxCount')) == found.number('sriov_totalvfs')
            assert [address(each) for each in parts] == [
                each.address for each in found.virtual_functions.values()
            ]
            for each in found.virtual_functions.values():
                _, part = self.of(seen, each.address)
                [above] = [
                    one for one in part.findall('capability') if one.get('type') == 'phys_function'
                ]
                assert address(above[0]) == parent

    def test_it_sees_types_with_the_same_room(self, seen, host):
        for function in pci.functions(host.sysfs):
            _, card = self.of(seen, function.address)
            told = {
                kind.get('id'): (
                    kind.findtext('name'),
                    kind.findtext('deviceAPI'),
                    int(kind.findtext('availableInstances')),
                )
                for kind in card.findall("capability[@type='mdev_types']/type")
            }
            assert told == {
                name: (kind.title, 'vfio-pci', kind.available)
                for name, kind in mdev.types(function).items()
            }
        assert [
            name
            for name in ('0000:3b:00.0', '0000:af:00.4')
            if not self.of(seen, name)[1].findall("capability[@type='mdev_types']")
        ] == []

    def test_it_sees_a_mediated_device(self, seen):
        [name] = [name for name in seen if name.startswith('mdev_')]
        kind = seen[name].find('capability')
        assert kind.findtext('uuid') == MDEV
        assert kind.find('type').get('id') == 'nvidia-222'
        # as Nova looks it up
        assert name == node_device(MDEV, T4)

    def test_the_agent_waits_for_a_mediated_device_that_it_does_not_see(self, told):
        there, absent, elsewhere = (told['waits'][each] for each in WAITED_FOR)
        assert there == ''
        assert 'does not list mdev_' in absent
        assert 'does not list mdev_' in elsewhere


def test_a_guest_of_qemu_has_what_the_library_put_into_its_domain(told):
    assert [(each.mdev_uuid is None, each.is_managed) for each in GUEST] == [
        (False, False),
        (True, True),
        (True, False),
    ]
    assert from_xml(told['domain']) == GUEST


def address(element):
    """How we spell what libvirt says in four numbers."""
    domain, bus, slot, function = (
        int(element.get(name), 16) for name in ('domain', 'bus', 'slot', 'function')
    )
    return f'{domain:04x}:{bus:02x}:{slot:02x}.{function:x}'


class TestHandles:
    @pytest.fixture
    def define(self, virsh, tmp_path):
        """What libvirt has against a guest with these devices; None if nothing."""

        def define(devices):
            path = tmp_path / 'guest.xml'
            path.write_text(DOMAIN.format(devices=devices))
            done = subprocess.run(
                [virsh, '-q', '-c', 'test:///default', 'define', '--validate', path],
                text=True,
                capture_output=True,
                env={'HOME': str(tmp_path), 'LC_ALL': 'C'},
            )
            return done.stderr.strip() if done.returncode else None

        return define

    def test_those_of_all_drivers_make_a_guest(self, define, tmp_path):
        conf = cfg.ConfigOpts()
        options.register(conf)
        NvidiaGpuDriver.register_options(conf)
        conf([], project='cyborg', default_config_files=[], default_config_dirs=[])
        conf.set_override('enabled_vgpu_types', ['nvidia-222'], 'gpu_devices')
        kinds = set()
        for name in stevedore.ExtensionManager(driver.NAMESPACE).entry_points_names():
            make = conformance.by_name(name, conf)
            host = Host.described(tmp_path / name, conformance.default_host(make))
            devices = hostdevs(
                [arq(handle) for _, _, handle in handles(make(host.sysfs).discover())]
            )
            kinds |= {(each.mdev_uuid is None, each.is_managed) for each in devices}
            assert define('\n'.join(each.to_xml() for each in devices)) is None
        assert kinds == {(True, True), (False, False)}

    def test_one_of_a_vendors_own_driver_does_too(self, define):
        assert define(Hostdev('0000:af:00.4').to_xml()) is None

    @pytest.mark.parametrize(
        'device',
        [
            PCI.format(domain='0000', bus='0x3b', device='00', function='0'),
            PCI.format(domain='0000', bus='3b', device='00', function='9'),
            MEDIATED.format(uuid='no-uuid'),
        ],
    )
    def test_one_that_is_spelled_otherwise_does_not(self, define, device):
        assert define(device)


def arq(handle):
    """The request that holds a handle, as Nova gets it."""
    return {
        'attach_handle_type': handle.type,
        'attach_handle_info': handle.info,
        'attach_handle_uuid': str(uuid.uuid4()),
    }
