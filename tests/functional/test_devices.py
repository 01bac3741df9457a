# SPDX-License-Identifier: Apache-2.0
"""Changes of devices by operators are kept, whatever the hosts report later."""

import datetime

import sqlalchemy as sa

from cyborg.db.sqlalchemy import clock, models
from tests.fixtures.cloud import PATIENCE, eventually
from tests.fixtures.hosts import SimHost


def reserved(cloud):
    """Of each of our providers: (reserved, total) by class."""
    return {
        name: {
            kind: (each['reserved'], each['total'])
            for kind, each in provider['inventories'].items()
        }
        for name, provider in cloud.providers().items()
    }


def report_again(cloud):
    """The last report of an agent, and what it publishes then."""
    inventory = cloud.agent().inventory
    inventory.stop()
    inventory.wake(must_report=True)
    inventory.sync()


def test_a_disabled_device_stays_reserved_over_later_reports(cloud):
    cloud.host('compute1')
    [device] = cloud.get('/devices')['devices']
    assert reserved(cloud) == {'compute1_FakeDevice': {'FPGA': (0, 16)}}

    assert cloud.call('POST', f'/devices/{device["uuid"]}/disable').status_code == 204
    eventually(lambda: reserved(cloud) == {'compute1_FakeDevice': {'FPGA': (16, 16)}})
    report_again(cloud)
    assert reserved(cloud) == {'compute1_FakeDevice': {'FPGA': (16, 16)}}
    # also over a restart of the agent
    cloud.standalone.remove_host('compute1')
    agent = cloud.standalone.add_host(cloud.hosts['compute1'])
    assert agent.inventory.is_ready.wait(PATIENCE)
    assert reserved(cloud) == {'compute1_FakeDevice': {'FPGA': (16, 16)}}
    assert cloud.get(f'/devices/{device["uuid"]}')['status'] == 'maintaining'

    assert cloud.call('POST', f'/devices/{device["uuid"]}/enable').status_code == 204
    eventually(lambda: reserved(cloud) == {'compute1_FakeDevice': {'FPGA': (0, 16)}})
    assert cloud.get('/devices?status=enabled')['devices'][0]['uuid'] == device['uuid']


def test_a_bound_request_outlives_the_maintenance_of_its_device(cloud):
    cloud.host('compute1')
    [device] = cloud.get('/devices')['devices']
    cloud.profile('one', {'resources:FPGA': '1'})
    [arq] = cloud.request('one')
    assert cloud.bind(arq).status_code == 202
    assert cloud.call('POST', f'/devices/{device["uuid"]}/disable').status_code == 204
    eventually(lambda: reserved(cloud) == {'compute1_FakeDevice': {'FPGA': (16, 16)}})
    [after] = cloud.arqs()
    assert (after['state'], after['attach_handle_type']) == ('Bound', 'TEST_PCI')


def test_what_operators_note_on_a_deployable_survives_reports(cloud):
    cloud.host('compute1')
    [deployable] = cloud.get('/deployables')['deployables']

    def add(key, parent=None):
        response = cloud.call(
            'POST',
            '/attributes',
            json={
                'deployable_id': deployable['uuid'],
                'key': key,
                'value': 'v',
                'parent_uuid': parent,
            },
        )
        assert response.status_code == 201, response.text
        return response.json()['uuid']

    # one of their own, one below it, and one below what a driver says
    top = add('shelf')
    [driven] = cloud.get('/attributes?key=traits1')['attributes']
    below = [add('row', top), add('note', driven['uuid'])]
    # even where it says the same as a driver, it is not the driver's
    add('rc')
    report_again(cloud)
    mine = cloud.get('/attributes?nested=true&key=shelf')['attributes']
    assert [each['uuid'] for each in mine] == [top]
    assert [each['uuid'] for each in mine[0]['children']] == below[:1]
    assert len(cloud.get('/attributes?key=rc')['attributes']) == 2
    assert cloud.get(f'/attributes/{below[1]}')['parent_uuid'] == driven['uuid']
    assert reserved(cloud) == {'compute1_FakeDevice': {'FPGA': (0, 16)}}


def test_a_note_stays_when_the_fact_above_it_goes(cloud):
    cloud.host('compute1')
    [driven] = cloud.get('/attributes?key=traits1')['attributes']
    response = cloud.call(
        'POST',
        '/attributes',
        json={
            'deployable_id': driven['deployable_uuid'],
            'key': 'note',
            'value': 'v',
            'parent_uuid': driven['uuid'],
        },
    )
    note = response.json()['uuid']
    with cloud.standalone.db.writer() as session:  # as if the driver had said something else
        session.execute(
            sa.update(models.Attribute)
            .where(models.Attribute.key == 'traits1')
            .values(key='traits0')
        )
    report_again(cloud)
    assert cloud.get('/attributes?key=traits0')['attributes'] == []
    assert cloud.get(f'/attributes/{note}')['parent_uuid'] is None


def test_a_silent_host_is_told_from_a_living_one(cloud):
    cloud.host('compute1')
    cloud.host('compute2')
    cloud.standalone.remove_host('compute2')
    with cloud.standalone.db.writer() as session:
        session.execute(
            sa.update(models.Agent)
            .where(models.Agent.hostname == 'compute2')
            .values(last_heartbeat=clock.now() - datetime.timedelta(days=1))
        )
    agents = {each['hostname']: each['alive'] for each in cloud.get('/agents')['agents']}
    assert agents == {'compute1': True, 'compute2': False}
    [silent] = cloud.get('/agents?alive=false')['agents']
    assert silent['hostname'] == 'compute2'
    assert cloud.get(f'/agents/{silent["uuid"]}') == silent
    [living] = cloud.get('/agents?alive=true&sort_key=last_heartbeat')['agents']
    assert living['hostname'] == 'compute1'


def test_a_host_whose_drivers_nobody_named_offers_nothing_and_says_so(cloud, caplog):
    # given a configuration that says nothing of drivers
    unset = cloud.standalone.conf.agent.enabled_drivers
    # when a host starts with it
    cloud.host(drivers=unset)
    # then it is ready, and has nothing to give
    assert cloud.get('/devices') == {'devices': []}
    assert cloud.providers() == {}
    assert '[agent] enabled_drivers names no driver' in caplog.text


def test_a_card_that_went_by_its_parts_does_not_come_back_whole(cloud):
    host = cloud.host(
        make=SimHost,
        drivers=('intel_qat_driver',),
        cards=[{'model': '8086:37c8', 'at': '0000:6b:00.0', 'vfs': 4}],
    )
    name, card = 'compute1_0000:6b:00.0', host.sysfs / 'bus/pci/devices/0000:6b:00.0'
    eventually(lambda: reserved(cloud) == {name: {'CUSTOM_QAT': (0, 4)}})
    # when it is removed and comes back by a rescan: without virtual functions
    card.write('remove', '1')
    eventually(lambda: cloud.get('/devices')['devices'] == [])
    host.sysfs.write('bus/pci/rescan', '1')
    [device] = eventually(lambda: cloud.get('/devices')['devices'])
    assert 'was given out by its virtual functions' in device['fault']
    report_again(cloud)  # and so it is at later looks
    [device] = cloud.get('/devices')['devices']
    assert 'was given out by its virtual functions' in device['fault']
    assert not any(reserved(cloud).values())
    # until the operator has made them anew
    card.write('sriov_numvfs', '4')
    report_again(cloud)
    assert reserved(cloud) == {name: {'CUSTOM_QAT': (0, 4)}}
    assert cloud.get('/devices')['devices'][0]['fault'] is None


def test_another_card_in_the_place_of_one_that_went_by_its_parts_is_offered(cloud):
    host = cloud.host(
        make=SimHost,
        drivers=('intel_qat_driver',),
        cards=[{'model': '8086:37c8', 'at': '0000:6b:00.0', 'vfs': 4}],
    )
    host.pull_out('0000:6b:00.0')
    eventually(lambda: cloud.get('/devices')['devices'] == [])
    host.plug_in('8086:4940', at='0000:6b:00.0', vfs=0)
    eventually(lambda: reserved(cloud) == {'compute1_0000:6b:00.0': {'CUSTOM_QAT': (0, 1)}})
