# SPDX-License-Identifier: Apache-2.0
"""Whole actions on servers, call by call as Nova makes them, also those that fail half way.

After each the guest has what its server is said to have, and nobody else has any of it: on the
hosts, in the rows, in Placement.
"""

import datetime
import threading

import pytest
import sqlalchemy as sa

from cyborg.clients import keystone
from cyborg.clients.nova import Nova
from cyborg.clients.placement import Allocations
from cyborg.conductor import forget
from cyborg.conductor.audit import Audit
from cyborg.db.sqlalchemy import models
from tests.fixtures.cloud import Cloud, eventually
from tests.fixtures.hosts import SimHost
from tests.fixtures.servers import Failed, Server

CARD = '0000:3b:00.0'
#: what the host must prepare, and what it need not, in one server
GROUPS = (
    {'resources:VGPU': '2', 'trait:OWNER_CYBORG': 'required'},
    {'resources:FPGA': '1', 'trait:CUSTOM_FAKE_DEVICE': 'required'},
)
SETTINGS = '[gpu_devices]\nenabled_vgpu_types = nvidia-232\n[conductor]\nsweep_interval = 1\n'


class Compute(SimHost):
    """A host whose one card has room for two servers, and whose kernel may be slow to make
    virtual GPUs, or refuse to."""

    def __init__(self, name, directory):
        super().__init__(
            name,
            directory,
            [{'model': '10de:1eb8', 'at': CARD}],
            ('nvidia_gpu_driver', 'fake_driver'),
        )
        self.is_broken, self.goes_on, write = False, threading.Event(), self.sysfs.writer
        self.goes_on.set()

        def write_as_it_pleases(path, *args):
            if str(path).endswith('create'):
                self.goes_on.wait()
                if self.is_broken:
                    raise OSError(5, 'No power')
            write(path, *args)

        self.sysfs.writer = write_as_it_pleases


@pytest.fixture
def cloud(request, tmp_path):
    made = Cloud(tmp_path, more=SETTINGS + getattr(request, 'param', ''))
    made.start()
    for name in ('compute1', 'compute2'):
        made.host(name, Compute)
    made.profile('mixed', *GROUPS)
    yield made
    for host in made.hosts.values():
        host.goes_on.set()
    made.stop()


no_wait = pytest.mark.parametrize('cloud', ['[api]\nbind_wait = 0\n'], indirect=True)


@pytest.fixture
def server(cloud):
    return Server(cloud, 'mixed')


def rows(cloud, query):
    with cloud.standalone.db.reader() as session:
        return session.scalars(query).all()


def require_order(cloud, *servers):
    """Everybody has what he should have, and no more, once hosts have cleaned up."""
    for server in servers:
        assert {arq['state'] for arq in server.accelerators} == {'Bound'}
        assert [arq['attach_handle_type'] for arq in server.accelerators] == [
            'MDEV',
            'MDEV',
            'TEST_PCI',
        ]
        assert {arq['hostname'] for arq in server.accelerators} == {server.host}
    handle = models.AttachHandle
    eventually(
        lambda: (
            not rows(
                cloud,
                sa.select(handle.uuid).where(
                    handle.withheld.is_not(None),
                    handle.deployable.has(
                        models.Deployable.device.has(
                            models.Device.hostname.in_(cloud.standalone.agents)
                        )
                    ),
                ),
            )
        )
    )
    for name in cloud.standalone.agents:
        wanted = {
            arq['attach_handle_uuid']
            for server in servers
            for arq in server.accelerators
            if arq['attach_handle_type'] == 'MDEV' and server.host == name
        }
        eventually(lambda name=name, wanted=wanted: set(cloud.hosts[name].mdevs()) == wanted)
    given = {arq['attach_handle_uuid'] for server in servers for arq in server.accelerators}
    assert set(rows(cloud, sa.select(handle.uuid).where(handle.arq_id.is_not(None)))) == given
    assert {arq['uuid'] for arq in cloud.arqs()} == {
        arq['uuid'] for server in servers for arq in server.accelerators
    }
    eventually(lambda: not rows(cloud, sa.select(models.NovaEvent.id)))
    eventually(lambda: not findings(cloud))


def findings(cloud):
    nova = Nova(keystone.connect(cloud.standalone.conf, 'nova'))
    found = Audit(
        cloud.standalone.db, Allocations(cloud.standalone.placement), nova, datetime.timedelta(0)
    ).look()
    # what a host that is down has to clean is to be found
    return [each.what for each in found if 'waits for its clean-up' not in each.what]


# -- create, delete, and what leaves a server where it is ------------------------------------


def test_a_server_is_created_used_and_deleted(cloud, server):
    server.create('compute1')
    require_order(cloud, server)
    first = server.accelerators
    server.reboot()
    server.rebuild()
    assert server.accelerators == first
    require_order(cloud, server)
    server.delete()
    require_order(cloud)


def test_two_servers_of_one_request_share_a_card(cloud):
    servers = Server(cloud, 'mixed'), Server(cloud, 'mixed')
    for each in servers:
        each.create('compute1')
    require_order(cloud, *servers)
    with pytest.raises(Failed, match='No valid host'):
        Server(cloud, 'mixed').create('compute1')
    require_order(cloud, *servers)


def test_a_guest_that_does_not_start_is_built_on_another_host(cloud, server):
    server.create('compute1', 'compute2', broken=['compute1'])
    assert server.host == 'compute2'
    require_order(cloud, server)


def test_a_guest_that_starts_nowhere_leaves_nothing_behind(cloud, server):
    with pytest.raises(Failed, match='no host is left'):
        server.create('compute1', 'compute2', broken=['compute1', 'compute2'])
    require_order(cloud)


def test_a_bind_that_fails_fails_the_server_and_can_be_had_again(cloud, server):
    cloud.hosts['compute1'].is_broken = True
    with pytest.raises(Failed, match='No power'):
        server.create('compute1')
    assert cloud.arqs() == []
    server.delete()  # which frees what it still holds in Placement
    cloud.hosts['compute1'].is_broken = False
    require_order(cloud)
    again = Server(cloud, 'mixed')
    again.create('compute1')
    require_order(cloud, again)


def later(action):
    """Have something happen while the test goes on."""
    threading.Timer(0.5, action).start()


@no_wait
def test_a_host_that_takes_its_time_is_waited_for_by_nova(cloud, server):
    cloud.hosts['compute1'].goes_on.clear()
    later(cloud.hosts['compute1'].goes_on.set)
    server.create('compute1')
    require_order(cloud, server)


@no_wait
def test_a_host_that_fails_after_it_took_its_time_fails_the_server(cloud, server):
    cloud.hosts['compute1'].is_broken = True
    cloud.hosts['compute1'].goes_on.clear()
    later(cloud.hosts['compute1'].goes_on.set)
    with pytest.raises(Failed, match='binding failed|no requests'):
        server.create('compute1')
    require_order(cloud)


def test_a_server_on_a_host_that_is_down_is_deleted_at_once(cloud, server):
    server.create('compute1')
    cloud.standalone.remove_host('compute1')
    server.delete()
    assert len(cloud.hosts['compute1'].mdevs()) == 2
    require_order(cloud)
    cloud.standalone.add_host(cloud.hosts['compute1'])
    require_order(cloud)


def test_a_server_whose_host_restarts_has_the_same_devices(cloud, server):
    server.create('compute1')
    first = server.accelerators
    cloud.standalone.remove_host('compute1')
    cloud.hosts['compute1'].reboot()
    agent = cloud.standalone.add_host(cloud.hosts['compute1'])
    eventually(agent.inventory.is_ready.is_set)
    eventually(lambda: {arq['state'] for arq in cloud.arqs()} == {'Bound'})
    server.reboot()
    assert [arq['attach_handle_uuid'] for arq in server.accelerators] == [
        arq['attach_handle_uuid'] for arq in first
    ]
    require_order(cloud, server)


# -- shelve and unshelve ---------------------------------------------------------------------


@pytest.mark.parametrize('host', ['compute1', 'compute2'])
def test_a_shelved_server_holds_nothing_and_gets_its_devices_when_it_is_unshelved(
    cloud, server, host
):
    server.create('compute1')
    server.shelve()
    require_order(cloud)
    server.unshelve(host)
    require_order(cloud, server)


def test_what_a_server_had_when_it_was_shelved_it_can_have_again_at_once(cloud, server):
    neighbour = Server(cloud, 'mixed')
    neighbour.create('compute1')
    server.create('compute1')
    server.shelve()
    server.unshelve('compute1')  # the host is still cleaning, and has nothing else
    require_order(cloud, server, neighbour)


@pytest.mark.parametrize('host', ['compute1', 'compute2'])
def test_an_unshelve_that_fails_late_does_not_stand_in_the_way_of_the_next(cloud, server, host):
    server.create('compute1')
    server.shelve()
    with pytest.raises(Failed, match='did not start'):
        server.unshelve('compute1', can_spawn=False)
    assert len(cloud.arqs()) == 3  # nobody deletes them
    server.unshelve(host)
    require_order(cloud, server)


def test_an_unshelve_that_failed_where_all_was_taken_can_be_repeated_there(cloud, server):
    neighbour = Server(cloud, 'mixed')
    neighbour.create('compute1')
    for _ in range(3):
        with pytest.raises(Failed, match='did not start'):
            server.unshelve('compute1', can_spawn=False)
    server.unshelve('compute1')
    require_order(cloud, server, neighbour)


def test_an_unshelve_whose_bind_fails_succeeds_on_another_host(cloud, server):
    server.create('compute1')
    server.shelve()
    cloud.hosts['compute1'].is_broken = True
    with pytest.raises(Failed, match='No power'):
        server.unshelve('compute1')
    server.unshelve('compute2')
    require_order(cloud, server)


def is_unshelved(server, host):
    try:
        server.unshelve(host)
    except Failed:
        return False
    return True


@pytest.mark.parametrize('cloud', ['[api]\nbind_wait = 2\n'], indirect=True)
def test_an_unshelve_that_is_too_slow_for_nova_succeeds_on_another_host(cloud, server):
    """No event reaches a server without a host, so Nova hears nothing of what comes late."""
    server.create('compute1')
    server.shelve()
    require_order(cloud)
    cloud.hosts['compute1'].goes_on.clear()
    server.patience = 1
    with pytest.raises(Failed, match='nothing was heard'):
        server.unshelve('compute1')
    # should this machine be too busy to bind while it is waited for, so is the next
    eventually(lambda: is_unshelved(server, 'compute2'))
    cloud.hosts['compute1'].goes_on.set()
    require_order(cloud, server)


def test_a_server_that_is_deleted_after_a_failed_unshelve_leaves_nothing_behind(cloud, server):
    server.create('compute1')
    server.shelve()
    with pytest.raises(Failed, match='did not start'):
        server.unshelve('compute2', can_spawn=False)
    server.delete()
    require_order(cloud)


# -- evacuate --------------------------------------------------------------------------------


@pytest.fixture
def evacuated(cloud, server):
    """A server whose host went down, and which is on another now."""
    server.create('compute1')
    cloud.standalone.remove_host('compute1')
    server.evacuate('compute2')
    assert len(cloud.hosts['compute1'].mdevs()) == 2
    require_order(cloud, server)
    return server


@pytest.mark.parametrize('restart', ['its agent', 'the host'])
def test_a_source_that_comes_back_is_cleaned_and_the_server_left_alone(cloud, evacuated, restart):
    before = evacuated.accelerators
    if restart == 'the host':
        cloud.hosts['compute1'].reboot()
    cloud.standalone.add_host(cloud.hosts['compute1'])
    evacuated.source_is_back('compute1')
    require_order(cloud, evacuated)
    evacuated.reboot()
    assert evacuated.accelerators == before
    # and what it had there is for others, when the agent has published it
    where = '/device_profiles/mixed/availability?hostname=compute1'
    eventually(lambda: cloud.get(where)['fits'] >= 2)
    for each in (other := [Server(cloud, 'mixed'), Server(cloud, 'mixed')]):
        each.create('compute1')
    require_order(cloud, evacuated, *other)


def test_a_source_that_never_comes_back_can_be_forgotten(cloud, evacuated):
    forget.forget(cloud.standalone.db, 'compute1')
    require_order(cloud, evacuated)


def test_an_evacuation_that_fails_can_be_repeated(cloud, server):
    server.create('compute1')
    cloud.standalone.remove_host('compute1')
    cloud.hosts['compute2'].is_broken = True
    with pytest.raises(Failed, match='No power'):
        server.evacuate('compute2')
    assert cloud.arqs() == []
    cloud.hosts['compute2'].is_broken = False
    server.evacuate('compute2')
    require_order(cloud, server)
    cloud.standalone.add_host(cloud.hosts['compute1'])
    server.source_is_back('compute1')
    require_order(cloud, server)


def test_a_server_that_is_evacuated_there_and_back_has_one_set_of_devices(cloud, evacuated):
    cloud.standalone.add_host(cloud.hosts['compute1'])
    evacuated.source_is_back('compute1')
    cloud.standalone.remove_host('compute2')
    evacuated.evacuate('compute1')
    require_order(cloud, evacuated)
    cloud.standalone.add_host(cloud.hosts['compute2'])
    evacuated.source_is_back('compute2')
    require_order(cloud, evacuated)
