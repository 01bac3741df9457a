# SPDX-License-Identifier: Apache-2.0
"""The whole way: a device appears, is scheduled, bound, announced and released."""

import uuid

import pytest

from tests.fixtures.cloud import eventually

INSTANCE = str(uuid.uuid4())
FPGA = {'resources:FPGA': '1', 'trait:CUSTOM_FAKE_DEVICE': 'required'}


@pytest.fixture
def host(cloud):
    return cloud.host()


def test_a_discovered_device_is_a_provider_below_its_compute_node(cloud, host):
    [(name, provider)] = cloud.providers().items()
    assert name == 'compute1_FakeDevice'
    assert provider['parent'] == 'compute1'
    assert provider['inventories']['FPGA']['total'] == 16
    assert provider['traits'] >= {'OWNER_CYBORG', 'CUSTOM_FAKE_DEVICE'}
    [deployable] = cloud.get('/deployables')['deployables']
    assert deployable['rp_uuid'] == provider['uuid']


def test_a_bound_arq_is_announced_to_nova_once(cloud, host):
    cloud.profile('one', FPGA)
    [arq] = cloud.request('one')
    assert arq['state'] == 'Initial'
    assert cloud.bind(arq, instance=INSTANCE).status_code == 202
    [bound] = cloud.arqs(instance=INSTANCE)
    assert bound['state'] == 'Bound'
    assert bound['attach_handle_type'] == 'TEST_PCI'
    assert cloud.nova.wait_for_events(1) == [
        {
            'name': 'accelerator-request-bound',
            'server_uuid': INSTANCE,
            'tag': arq['uuid'],
            'status': 'completed',
        }
    ]


def test_all_arqs_of_a_server_are_announced_in_one_request(cloud, host):
    cloud.profile('three', FPGA | {'resources:FPGA': '3'})
    arqs = cloud.request('three')
    assert cloud.bind(arqs).status_code == 202
    assert len(cloud.nova.wait_for_events(3)) == 3
    assert len(cloud.nova.requests) == 1


def test_a_repeated_bind_succeeds_and_is_not_announced_again(cloud, host):
    cloud.profile('one', FPGA)
    [arq] = cloud.request('one')
    assert cloud.bind(arq, instance=INSTANCE).status_code == 202
    assert cloud.bind(arq, instance=INSTANCE).status_code == 202
    cloud.nova.wait_for_events(1)
    eventually(lambda: not outbox(cloud))
    assert len(cloud.nova.events()) == 1


def outbox(cloud):
    with cloud.standalone.db.reader() as session:
        return session.connection().exec_driver_sql('SELECT * FROM nova_events').all()


def test_a_bind_is_all_or_nothing(cloud, host):
    cloud.profile('nine', FPGA | {'resources:FPGA': '9'})
    first, second = cloud.request('nine'), cloud.request('nine')
    assert cloud.bind(first).status_code == 202
    assert cloud.bind(second).status_code == 409
    assert {arq['state'] for arq in cloud.arqs()} == {'Bound', 'Initial'}
    assert sum(arq['state'] == 'Bound' for arq in cloud.arqs()) == 9


def test_an_unbound_handle_can_be_taken_again(cloud, host):
    cloud.profile('all', FPGA | {'resources:FPGA': '16'})
    first, second = cloud.request('all'), cloud.request('all')
    assert cloud.bind(first).status_code == 202
    assert cloud.unbind(*first).status_code == 202
    assert {arq['state'] for arq in cloud.arqs()} == {'Unbound', 'Initial'}
    assert cloud.bind(second).status_code == 202


def test_deleting_a_servers_arqs_frees_what_they_held(cloud, host):
    cloud.profile('all', FPGA | {'resources:FPGA': '16'})
    assert cloud.bind(cloud.request('all'), instance=INSTANCE).status_code == 202
    assert cloud.call('DELETE', f'/accelerator_requests?instance={INSTANCE}').status_code == 204
    assert cloud.arqs() == []
    assert cloud.bind(cloud.request('all')).status_code == 202


def test_a_bind_takes_nothing_from_a_running_server(cloud, host):
    cloud.profile('one', FPGA)
    [first], [second] = cloud.request('one'), cloud.request('one')
    for arq in (first, second):
        assert cloud.bind(arq, instance=INSTANCE).status_code == 202
    bound = cloud.arqs(instance=INSTANCE)
    assert {arq['uuid'] for arq in bound} == {first['uuid'], second['uuid']}
    assert {arq['state'] for arq in bound} == {'Bound'}


def leaves_one(cloud, old, new):
    assert [arq['uuid'] for arq in cloud.arqs(instance=INSTANCE)] == [new['uuid']]
    last = cloud.get(f'/accelerator_requests/{old["uuid"]}/history')['history'][-1]
    return last['event'] == 'delete' and 'Left over from an earlier attempt' in last['reason']


def test_left_over_arqs_of_a_shelved_server_make_way_for_its_new_ones(cloud, host):
    cloud.profile('one', FPGA)
    [old], [new] = cloud.request('one'), cloud.request('one')
    assert cloud.bind(old, instance=INSTANCE).status_code == 202
    cloud.nova.offloaded.add(INSTANCE)
    assert cloud.bind(new, instance=INSTANCE).status_code == 202
    assert leaves_one(cloud, old, new)


def test_arqs_of_a_server_on_another_host_make_way_for_its_new_ones(cloud, host):
    cloud.host('compute2')
    cloud.profile('one', FPGA)
    [old], [new] = cloud.request('one'), cloud.request('one')
    assert cloud.bind(old, instance=INSTANCE).status_code == 202
    assert cloud.bind(new, 'compute2', instance=INSTANCE).status_code == 202
    assert leaves_one(cloud, old, new)


def test_what_a_server_holds_is_kept_when_nova_cannot_tell_whether_it_runs(cloud, host):
    cloud.profile('one', FPGA)
    assert cloud.bind(cloud.request('one'), instance=INSTANCE).status_code == 202
    cloud.nova.stop()
    assert cloud.bind(cloud.request('one'), instance=INSTANCE).status_code == 202
    assert len(cloud.arqs(instance=INSTANCE)) == 2


def test_an_unknown_provider_changes_nothing(cloud, host):
    cloud.profile('one', FPGA)
    [arq] = cloud.request('one')
    assert cloud.bind(arq, rp=str(uuid.uuid4())).status_code == 404
    assert cloud.bind(arq, host='elsewhere', rp=cloud.rp()).status_code == 404
    [after] = cloud.arqs()
    assert after['state'] == 'Initial' and after['instance_uuid'] is None


def test_an_event_that_nova_refuses_is_sent_again(cloud, host):
    cloud.nova.code = 503
    cloud.profile('one', FPGA)
    [arq] = cloud.request('one')
    assert cloud.bind(arq).status_code == 202
    eventually(lambda: cloud.nova.requests)
    cloud.nova.code = 200
    cloud.standalone.conductors[0].outbox.wake()
    assert eventually(lambda: cloud.standalone.conductors[0].outbox.wake() or cloud.nova.events())


def test_each_event_is_sent_again_for_its_own_answer(cloud, host):
    cloud.profile('two', FPGA | {'resources:FPGA': '2'})
    arqs = cloud.request('two')
    refused, taken = (arq['uuid'] for arq in arqs)
    cloud.nova.codes = {refused: 400}
    assert cloud.bind(arqs, instance=INSTANCE).status_code == 202
    eventually(lambda: [event.arq_uuid for event in outbox(cloud)] == [refused])
    cloud.nova.codes = {}
    eventually(lambda: cloud.standalone.conductors[0].outbox.wake() or not outbox(cloud))
    assert [event['tag'] for event in cloud.nova.events()] == [taken, refused]


def test_a_server_whose_events_nova_fails_over_delays_nobody_elses(cloud, host):
    cloud.profile('one', FPGA)
    first, last = sorted(str(uuid.uuid4()) for _ in range(2))
    cloud.nova.codes = {first: 500}
    for server in (first, last):
        assert cloud.bind(cloud.request('one'), instance=server).status_code == 202
    assert [event['server_uuid'] for event in cloud.nova.wait_for_events(1)] == [last]
    assert cloud.standalone.conductors[0].outbox._circuit.wait == 0
    eventually(lambda: [event.instance_uuid for event in outbox(cloud)] == [first])
    cloud.nova.codes = {}
    eventually(lambda: cloud.standalone.conductors[0].outbox.wake() or not outbox(cloud))
    assert [event['server_uuid'] for event in cloud.nova.events()] == [last, first]


@pytest.mark.parametrize('code', [404, 422])
def test_an_event_that_nova_has_no_use_for_is_forgotten(cloud, host, code):
    cloud.nova.code = code
    cloud.profile('one', FPGA)
    [arq] = cloud.request('one')
    assert cloud.bind(arq).status_code == 202
    eventually(lambda: cloud.nova.requests)
    eventually(lambda: not outbox(cloud))


def test_an_unchanged_host_costs_one_timestamp_and_no_call_to_placement(cloud, host):
    cloud.rest()
    agent = cloud.agent()
    agent.inventory.stop()
    calls = []
    placement = cloud.standalone.placement
    send = placement.session.session.send
    placement.session.session.send = lambda *args, **kwargs: (
        calls.append(args) or send(*args, **kwargs)
    )
    with cloud.statements() as statements:
        agent.inventory.sync()
        agent.inventory.beat()
        eventually(lambda: statements)
    assert len(statements) == 1 and statements[0].startswith('UPDATE agents')
    assert calls == []
