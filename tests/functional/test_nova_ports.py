# SPDX-License-Identifier: Apache-2.0
"""Ports of Neutron with device profiles: Nova's own code makes the calls, and the binding profiles
of the ports."""

import uuid

import pytest

from tests.fixtures import novas_code
from tests.fixtures.cloud import Cloud
from tests.fixtures.hosts import SimHost
from tests.fixtures.identity import Served

pytestmark = novas_code.needs_nova
FIRST, SECOND = '0000:18:00.0', '0000:3b:00.0'
OPTIONS = """
[nic_devices]
enabled_nic_types = nics
[nics]
physical_device_mappings = physnet1:ens1f0, physnet2:ens2f0
"""
CARDS = [
    {'model': '8086:1572', 'at': FIRST, 'net': {'name': 'ens1f0', 'up': True}},
    {'model': '8086:1572', 'at': SECOND, 'net': {'name': 'ens2f0', 'up': True}},
]

#: Reads what to do; writes what came of it. Only the way to the API is ours.
SCRIPT = """
import json, sys
from keystoneauth1 import adapter, noauth, session
from nova import conf, objects
from nova.accelerator import cyborg
from nova.conductor import manager

objects.register_all()
conf.CONF([], project='nova', default_config_files=[])
given = json.load(sys.stdin)
client = cyborg._CyborgClient(None)
client._adapter = adapter.Adapter(
    session.Session(auth=noauth.NoAuth()), endpoint_override=given['url'], raise_exc=False)


def groups(name, owner):
    found = client.get_device_request_groups(client.get_device_profile_groups(name), owner)
    return {each.requester_id: [each.resources, sorted(each.required_traits)] for each in found}


def boot():
    conductor = object.__new__(manager.ComputeTaskManager)
    networks = [
        objects.NetworkRequest(port_id=port, device_profile=name)
        for port, name in given['ports'].items()]
    place = given['host'], given['mapping']
    bindings = conductor._create_and_bind_arqs(
        client, given['server'], {'accel:device_profile': given['flavor']}, *place)
    bindings.update(
        conductor._create_arqs_for_ports(client, given['server'], networks, *place))
    client.bind_arqs(bindings)
    return {each.port_id: each.arq_uuid for each in networks}


def profiles():
    found = client.get_arqs_for_instance(given['server'], only_resolved=True)
    wanted = given['arqs'].values()
    return {
        each['uuid']: cyborg.get_arq_pci_device_profile(each)
        for each in found if each['uuid'] in wanted}


actions = {
    'groups': lambda: {
        port: groups(name, port) for port, name in given['ports'].items()},
    'boot': boot,
    'profiles': profiles,
    'unbind port': lambda: client.delete_arqs_by_uuid([given['arq']]),
    'delete': lambda: client.delete_arqs_for_instance(given['server']),
}
print(json.dumps(actions[given['do']]()))
"""


@pytest.fixture(scope='module')
def cloud(tmp_path_factory):
    """A host with two network cards on two networks, and a fake device."""
    made = Cloud(tmp_path_factory.mktemp('cloud'), more=OPTIONS)
    made.start()
    drivers = ('intel_nic_driver', 'fake_driver')
    made.host('compute1', lambda name, path: SimHost(name, path, CARDS, drivers))
    made.profile('fpga', {'resources:FPGA': '1'})
    for network in ('physnet1', 'physnet2'):
        trait = f'trait:CUSTOM_{network.upper()}'
        made.profile(network, {'resources:CUSTOM_NIC': '1', trait: 'required'})
    with Served(made) as served:
        made.served = served
        yield made
    made.stop()


class Server:
    """One that Nova builds: its flavor has a device profile, and so has each of its ports."""

    def __init__(self, cloud):
        self._cloud = cloud
        self.uuid = str(uuid.uuid4())
        self.ports = {str(uuid.uuid4()): name for name in ('physnet1', 'physnet2')}
        self.arqs = {}

    def ask(self, what, **more):
        """What Nova makes of it."""
        given = {
            'do': what,
            'url': self._cloud.served.url,
            'host': 'compute1',
            'server': self.uuid,
            'flavor': 'fpga',
            'ports': self.ports,
            'arqs': self.arqs,
        }
        return novas_code.run(SCRIPT, given | more)


def provider(cloud, name):
    """Of a class, or with a trait."""
    return next(
        each['uuid']
        for each in cloud.providers().values()
        if name in each['inventories'] or name in each['traits']
    )


def test_each_port_gets_a_function_of_its_network(cloud):
    server = Server(cloud)
    # given what Nova asks Placement for: a group for each port
    wanted = server.ask('groups')
    assert wanted == {
        port: {f'device_profile_0{port}': [{'CUSTOM_NIC': 1}, [f'CUSTOM_{network.upper()}']]}
        for port, network in server.ports.items()
    }
    # when it builds a server on the providers that Placement has chosen
    mapping = {'device_profile_0': [provider(cloud, 'FPGA')]} | {
        requester: [provider(cloud, traits[0])]
        for groups in wanted.values()
        for requester, (_, traits) in groups.items()
    }
    server.arqs = server.ask('boot', mapping=mapping)
    assert {each['state'] for each in cloud.arqs(instance=server.uuid)} == {'Bound'}
    # then the binding profiles of the ports name the function, and its network
    profiles = server.ask('profiles')
    for (port, network), card in zip(server.ports.items(), (FIRST, SECOND), strict=True):
        profile = profiles[server.arqs[port]]
        assert profile['physical_network'] == network
        # a virtual function of the card of that network
        assert profile['pci_slot'].startswith(card[: -len('00.0')])
        assert profile['pci_slot'] != card
    # and Nova hears of all three requests
    tags = {each['uuid'] for each in cloud.arqs(instance=server.uuid)}
    assert len(tags) == 3
    cloud.nova.wait_for(lambda events: tags <= {each['tag'] for each in events})
    # and when a port is unbound, the server keeps the others
    port = next(iter(server.ports))
    server.ask('unbind port', arq=server.arqs[port])
    left = {each['uuid'] for each in cloud.arqs(instance=server.uuid)}
    assert left == tags - {server.arqs[port]}
    # and with the server the others go
    server.ask('delete')
    assert cloud.arqs(instance=server.uuid) == []
    # and what was deleted already is no obstacle
    server.ask('unbind port', arq=server.arqs[port])
    server.ask('delete')
