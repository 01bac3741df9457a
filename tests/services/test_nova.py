# SPDX-License-Identifier: Apache-2.0
"""Servers with accelerators on a real Nova, as users and administrators ask for them.

After each test all servers are deleted, and Nova, Placement, Cyborg and the hosts must agree:
no allocation without a request, no request without a server, no attach handle lost.
"""

import errno
import time

import pytest

from tests.fixtures import nova
from tests.fixtures.cloud import eventually
from tests.fixtures.processes import PATIENCE

pytestmark = [
    pytest.mark.flaky(reruns=0),  # what is lost once in two runs is lost
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings('ignore::PendingDeprecationWarning'),  # of the SDK, by itself
]
#: device profiles, by name
PROFILES = {
    'one': [{'resources:VGPU': '1'}],
    'two': [{'resources:VGPU': '2'}],
    'all': [{'resources:VGPU': '8'}],
    'groups': [{'resources:VGPU': '1'}, {'resources:VGPU': '2'}, {'resources:CUSTOM_QAT': '1'}],
    'qat': [{'resources:CUSTOM_QAT': '1', 'trait:OWNER_CYBORG': 'required'}],
    'beside': [
        {'resources:VGPU': '1'},
        {'resources:CUSTOM_QAT': '1', 'accel:attach_target': 'none'},
    ],
    'offloaded': [
        {'resources:VGPU': '1'},
        {'resources:CUSTOM_QAT': '1', 'accel:attach_target': 'host'},
    ],
}


@pytest.fixture(scope='module')
def running(tmp_path_factory):
    with nova.running(tmp_path_factory.mktemp('cloud')) as made:
        for name, groups in PROFILES.items():
            made.profile(name, *groups)
        yield made


@pytest.fixture
def cloud(running):
    """It is the same for all tests; at the end of each it is empty and whole."""
    yield running
    running.delete(*running.servers().values())
    running.settle()


# -- the life of a server ---------------------------------------------------------------------


def test_a_server_keeps_its_accelerators_until_it_is_deleted(cloud):
    server = cloud.wait(cloud.boot('two'))
    accelerators = cloud.accelerators(server)
    assert len(accelerators) == 2
    cloud.settle()
    for act, status in (
        (cloud.user.stop_server, 'SHUTOFF'),
        (cloud.user.start_server, 'ACTIVE'),
        (lambda each: cloud.user.reboot_server(each, 'SOFT'), 'ACTIVE'),
        (lambda each: cloud.user.reboot_server(each, 'HARD'), 'ACTIVE'),
        (lambda each: cloud.user.rebuild_server(each, image=cloud.image), 'ACTIVE'),
    ):
        act(server)
        cloud.wait(server, status)
        assert cloud.accelerators(server) == accelerators
    cloud.settle()
    cloud.delete(server)
    assert cloud.arqs(instance=server.id) == []
    cloud.settle()


def test_servers_with_different_profiles_are_built_side_by_side(cloud):
    servers = [cloud.boot(profile) for profile in ('groups', 'qat', 'one', 'groups')]
    for server, count in zip(servers, (4, 1, 1, 4), strict=True):
        cloud.wait(server)
        assert len(cloud.accelerators(server)) == count
    cloud.settle()


@pytest.mark.parametrize('profile', ['beside', 'offloaded'])
def test_a_server_runs_beside_a_device_that_is_not_attached_to_it(cloud, profile):
    server = cloud.wait(cloud.boot(profile))
    types = [each['attach_handle_type'] for each in cloud.arqs(instance=server.id)]
    assert sorted(types) == ['MDEV', 'TEST_PCI']
    accelerators = cloud.accelerators(server)
    cloud.user.reboot_server(server, 'HARD')
    cloud.wait(server)
    assert cloud.accelerators(server) == accelerators
    cloud.settle()


def test_a_server_is_active_when_its_host_has_prepared_the_device(cloud):
    with cloud.hanging():
        server = cloud.boot('one')
        eventually(lambda: cloud.show(server).compute_host, PATIENCE)
        time.sleep(1)
        assert cloud.show(server).status == 'BUILD'
    cloud.wait(server)
    cloud.settle()


def test_an_offloaded_server_holds_nothing_and_gets_accelerators_when_unshelved(cloud):
    server = cloud.wait(cloud.boot('groups'))
    cloud.user.shelve_server(server)
    cloud.wait(server, 'SHELVED_OFFLOADED')
    assert cloud.arqs(instance=server.id) == [] and cloud.allocations(server) == {}
    cloud.settle()
    cloud.user.unshelve_server(server)
    cloud.wait(server)
    assert len(cloud.accelerators(server)) == 4
    cloud.settle()


def test_an_evacuated_server_gets_accelerators_on_another_host(cloud):
    server = cloud.wait(cloud.boot('two', compute='compute1'))
    with cloud.failed('compute1'):
        cloud.admin.evacuate_server(server)
        cloud.wait(server)
        eventually(lambda: cloud.show(server).compute_host == 'compute2', PATIENCE)
        assert {each['hostname'] for each in cloud.arqs(instance=server.id)} == {'compute2'}
    # the devices of the host that comes back are cleaned, and free
    cloud.settle()
    cloud.wait(cloud.boot('all', compute='compute1'))
    cloud.settle()


def test_a_server_on_a_failed_host_is_deleted_at_once(cloud):
    server = cloud.wait(cloud.boot('two', compute='compute1'))
    with cloud.failed('compute1'):
        cloud.delete(server)
        assert cloud.arqs(instance=server.id) == []
    cloud.settle()


def test_several_servers_are_created_at_once(cloud):
    cloud.boot('two', min_count=3, max_count=3)
    servers = cloud.servers().values()
    assert len(servers) == 3
    for each in servers:
        cloud.wait(each)
        assert len(cloud.accelerators(each)) == 2
    cloud.settle()


# -- what is not built ------------------------------------------------------------------------


def test_a_server_for_which_no_host_has_room_leaves_nothing(cloud):
    for _ in nova.COMPUTES:
        cloud.wait(cloud.boot('all'))
    server = cloud.wait(cloud.boot('one'), 'ERROR')
    assert 'No valid host' in server.fault['message']
    assert cloud.arqs(instance=server.id) == [] and cloud.allocations(server) == {}
    cloud.settle()


def test_servers_that_do_not_fit_together_leave_nothing(cloud):
    cloud.boot('all', min_count=3, max_count=3)
    for each in cloud.servers().values():
        cloud.wait(each, 'ERROR')
        assert cloud.arqs(instance=each.id) == [] and cloud.allocations(each) == {}
    cloud.settle()


def test_a_server_whose_bind_is_refused_is_in_error_and_leaves_nothing(cloud):
    for each in cloud.kernels.values():
        each.fault = errno.EIO
    try:
        server = cloud.wait(cloud.boot('two'), 'ERROR')
    finally:
        for each in cloud.kernels.values():
            each.fault = None
    assert cloud.arqs(instance=server.id) == []
    cloud.delete(server)
    cloud.settle()
    cloud.wait(cloud.boot('two'))


@pytest.mark.parametrize('moment', ['bound', 'awaited'])
def test_a_server_that_is_deleted_while_it_is_built_leaves_nothing(cloud, moment):
    with cloud.hanging():
        server = cloud.boot('two')
        eventually(cloud.is_preparing, PATIENCE)
        if moment == 'awaited':  # by nova-compute, which waits for the event
            eventually(lambda: cloud.show(server).compute_host, PATIENCE)
        cloud.user.delete_server(server)
        time.sleep(1)
    eventually(lambda: cloud.admin.find_server(server.id) is None, PATIENCE)
    cloud.settle()


def test_a_deleted_server_leaves_nothing_although_the_conductor_is_killed(cloud):
    [conductor] = [each for each in cloud.processes if each.name == 'conductor1']
    # given a server that is deleted before its requests are bound
    with cloud.hanging():
        server = cloud.boot('two')
        eventually(cloud.is_preparing, PATIENCE)
        cloud.user.delete_server(server)
        eventually(lambda: cloud.admin.find_server(server.id) is None, PATIENCE)
    eventually(lambda: cloud.is_bound(server), PATIENCE)
    # when the conductor is killed before it has asked Nova for the server
    conductor.kill()
    conductor.start()
    # then the next one asks
    cloud.settle()


# -- cards that go and come -------------------------------------------------------------------


def offered(cloud):
    """What a host offers in Placement: (provider, class) -> units."""
    return {
        (name, resource_class): inventory['total'] - inventory['reserved']
        for name, each in cloud.providers('compute1').items()
        for resource_class, inventory in each['inventories'].items()
    }


def test_servers_are_built_on_a_host_whose_card_is_pulled_and_plugged(cloud):
    # given a nova-compute that knows the providers of its host
    cloud.wait(cloud.boot('groups', compute='compute1'))
    cloud.delete(*cloud.servers().values())
    before = offered(cloud)
    host = cloud.kernels['compute1'].host
    # when a card is pulled while servers are built
    first = [cloud.boot('qat', compute='compute1')]
    host.pull_out(nova.GPU)
    eventually(lambda: offered(cloud) != before, PATIENCE)
    first.append(cloud.boot('qat', compute='compute1'))
    for each in first:
        cloud.wait(each)
    # and plugged while others are
    cloud.delete(*first)
    second = [cloud.boot('qat', compute='compute1')]
    host.plug_in('10de:1eb8', at=nova.GPU)
    eventually(lambda: offered(cloud) == before, PATIENCE)
    second.append(cloud.boot('groups', compute='compute1'))
    # then all are built
    for each in second:
        cloud.wait(each)
    cloud.settle()


def test_a_server_whose_card_is_pulled_while_it_is_bound_is_in_error_and_leaves_nothing(cloud):
    before = offered(cloud)
    host = cloud.kernels['compute1'].host
    with cloud.hanging():
        server = cloud.boot('one', compute='compute1')
        eventually(cloud.is_preparing, PATIENCE)
        host.pull_out(nova.GPU)
    try:
        cloud.wait(server, 'ERROR')
        assert cloud.arqs(instance=server.id) == []
        cloud.delete(server)
    finally:
        host.plug_in('10de:1eb8', at=nova.GPU)
    eventually(lambda: offered(cloud) == before, PATIENCE)
    cloud.settle()
    cloud.wait(cloud.boot('all', compute='compute1'))


# -- services that die ------------------------------------------------------------------------


def build_while_killed(cloud, victim):
    """Returns a server that was being built when a service was killed; it is back."""
    [process] = [each for each in cloud.processes if each.name == victim]
    with cloud.hanging():
        server = cloud.boot('two', compute='compute1')
        eventually(cloud.is_preparing, PATIENCE)
        process.kill()
    process.start()
    eventually(cloud.answers, PATIENCE)
    return server


@pytest.mark.parametrize('victim', ['conductor1', 'compute1'])
def test_a_server_is_built_although_a_service_is_killed_meanwhile(cloud, victim):
    server = cloud.wait(build_while_killed(cloud, victim))
    assert len(cloud.accelerators(server)) == 2
    cloud.settle()
    cloud.delete(server)
    cloud.settle()
    cloud.wait(cloud.boot('all', compute='compute1'))


def test_an_api_that_is_killed_while_a_server_is_built_loses_nothing(cloud):
    server = build_while_killed(cloud, 'api')
    # Nova gets no answer to its bind, and may give up
    eventually(lambda: cloud.at_rest(server), PATIENCE)
    cloud.delete(server)
    cloud.settle()
    cloud.wait(cloud.boot('all', compute='compute1'))
