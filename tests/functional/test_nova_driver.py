# SPDX-License-Identifier: Apache-2.0
"""Nova's own libvirt driver makes of our requests what os_acc.libvirt makes of them."""

import uuid

import pytest

import os_acc
from os_acc import libvirt
from tests.fixtures import novas_code
from tests.fixtures.cloud import Cloud
from tests.fixtures.hosts import SimHost

pytestmark = novas_code.needs_nova
GPU, QAT = '0000:3b:00.0', '0000:6b:00.0'
GROUPS = {'resources:VGPU': '2'}, {'resources:CUSTOM_QAT': '1'}, {'resources:FPGA': '1'}

#: Reads requests and the names of libvirt's node devices; writes the guest's XML, the node
#: devices that Nova would make, and what it warns of. Only libvirt itself is a stand-in.
SCRIPT = """
import json, logging, sys, types
from nova import conf, objects
from nova.virt.libvirt import config, driver, host

objects.register_all()
conf.CONF([], project='nova', default_config_files=[])
conf.CONF.set_override('virt_type', 'kvm', 'libvirt')


class libvirtError(Exception):
    def get_error_code(self):
        return libvirt.VIR_ERR_NO_NODE_DEVICE


libvirt = types.SimpleNamespace(VIR_ERR_NO_NODE_DEVICE=23, libvirtError=libvirtError)
driver.libvirt = host.libvirt = libvirt
requests, shown = json.load(sys.stdin)
made, warnings = [], []


class Connection:
    def nodeDeviceLookupByName(self, name):
        if name not in shown:
            raise libvirtError(name)
        return name


class Host(host.Host):
    def __init__(self):
        pass

    def get_connection(self):
        return Connection()

    def device_create(self, node_device):
        made.append(node_device.to_xml())

    def device_define(self, node_device):
        return None

    def device_set_autostart(self, *args, **kwargs):
        pass


class Handler(logging.Handler):
    def emit(self, record):
        warnings.append(record.getMessage())


logging.getLogger('nova.virt.libvirt').addHandler(Handler(logging.WARNING))
nova = object.__new__(driver.LibvirtDriver)
nova._host, nova.pgpu_type_mapping, nova.pgpu_type_default = Host(), {}, None
guest = config.LibvirtConfigGuest()
guest.virt_type, guest.memory, guest.os_type = 'kvm', 65536, 'hvm'
mdevs = nova._allocate_cyborg_mdevs(requests)
nova._guest_add_accel_pci_devices(
    guest, [each for each in requests if each['attach_handle_type'] == 'PCI'])
nova._guest_add_mdevs(guest, mdevs)
print(json.dumps({'xml': guest.to_xml(), 'made': made, 'warnings': warnings}))
"""


@pytest.fixture(scope='module')
def cloud(tmp_path_factory):
    """A host with a shared GPU, functions that are passed through, and fake ones."""
    made = Cloud(
        tmp_path_factory.mktemp('cloud'), more='[gpu_devices]\nenabled_vgpu_types = nvidia-222\n'
    )
    made.start()
    cards = [{'model': '10de:1eb8', 'at': GPU}, {'model': '8086:4940', 'at': QAT, 'vfs': 2}]
    drivers = ('nvidia_gpu_driver', 'intel_qat_driver', 'fake_driver')
    made.host('compute1', lambda name, path: SimHost(name, path, cards, drivers))
    made.profile('all', *GROUPS)
    yield made
    made.stop()


@pytest.fixture(scope='module')
def plugged(cloud):
    """What an instance with one of each has: by the library, and by REST."""
    os_acc.initialize(cloud.standalone.conf, host='compute1', transport=cloud.standalone.transport)
    instance = {'uuid': str(uuid.uuid4()), 'name': 'vm', 'project_id': 'p1', 'image_uuid': None}
    classes = [next(iter(group)).removeprefix('resources:') for group in GROUPS]
    chosen = {
        f'device_profile_{number}': [provider(cloud, name)] for number, name in enumerate(classes)
    }
    attachments = os_acc.plug(instance, chosen, {'accel:device_profile': 'all'})
    return attachments, cloud.arqs(instance=instance['uuid'])


def provider(cloud, resource_class):
    """One that has units of a class."""
    return next(
        each['uuid']
        for each in cloud.providers('compute1').values()
        if resource_class in each['inventories']
    )


def nova(requests, shown):
    """What Nova makes of requests while libvirt shows these node devices."""
    return novas_code.run(SCRIPT, [requests, shown])


def node_devices(requests):
    return [
        libvirt.node_device(arq['attach_handle_uuid'], GPU)
        for arq in requests
        if arq['attach_handle_type'] == 'MDEV'
    ]


def test_nova_attaches_what_the_library_would_attach(plugged):
    attachments, requests = plugged
    answer = nova(requests, node_devices(requests))
    found = libvirt.from_xml(answer['xml'])
    assert len(found) == len(requests) - 1  # all but the fake one
    assert set(found) == set(libvirt.hostdevs(requests)) == set(libvirt.hostdevs(attachments))
    assert {(each.mdev_uuid is None, each.is_managed) for each in found} == {
        (True, True),
        (False, False),
    }
    assert answer['warnings'] == []


def test_nova_finds_the_mediated_devices_that_the_agent_made_under_our_names(plugged):
    _, requests = plugged
    assert len(node_devices(requests)) == 2
    assert nova(requests, node_devices(requests))['made'] == []


def test_nova_would_make_those_once_more_that_libvirt_has_not_noticed(plugged):
    """Which is why the agent waits for libvirt."""
    _, requests = plugged
    first, second = node_devices(requests)
    [made] = nova(requests, [first])['made']
    assert '<parent>pci_0000_3b_00_0</parent>' in made
    assert '<type id="nvidia-222"/>' in made
