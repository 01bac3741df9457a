# SPDX-License-Identifier: Apache-2.0
"""Warnings for operators, and the commands with which they act on them."""

import argparse
import logging
import uuid

import pytest
import requests
import sqlalchemy as sa
from keystoneauth1 import noauth as none
from keystoneauth1 import session

from cyborg import errors
from cyborg.clients import keystone
from cyborg.cmd import manage_audit, manage_hosts, status
from cyborg.db.sqlalchemy import models
from tests.fixtures.cloud import PATIENCE, Cloud, eventually
from tests.fixtures.fpga import ADDRESS, FpgaHost
from tests.fixtures.hosts import SimHost
from tools.services.server import free_port

FPGA = {'resources:FPGA': '1', 'trait:CUSTOM_FAKE_DEVICE': 'required'}
QAT = '0000:6b:00.0'


@pytest.fixture
def port():
    return free_port()


@pytest.fixture
def cloud(tmp_path, port):
    made = Cloud(
        tmp_path,
        more=f'[conductor]\nsweep_interval = 1\naudit_interval = 1\nmetrics_port = {port}\n',
    )
    made.start()
    made.host()
    made.profile('one', FPGA)
    assert made.bind(made.request('one')).status_code == 202
    yield made
    made.stop()


@pytest.fixture
def manage(cloud, monkeypatch, capsys):
    """cyborg-manage with these words: how it ended, and what it said."""
    connect = keystone.connect
    monkeypatch.setattr(
        keystone,
        'connect',
        lambda conf, section: cloud.placement if section == 'placement' else connect(conf, section),
    )
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers()
    for topic in (manage_audit, manage_hosts):
        topic.add_commands(commands)

    def run(*words):
        capsys.readouterr()
        options = parser.parse_args(words)
        return options.function(cloud.standalone.conf, options), capsys.readouterr().out

    return run


def lose_handles(cloud):
    """Have rows disagree, as nothing of ours ever makes them."""
    with cloud.standalone.db.writer() as session:
        session.execute(sa.update(models.AttachHandle).values(arq_id=None))


def test_a_disagreement_is_in_the_log_the_metrics_and_the_status(cloud, port, caplog):
    caplog.set_level(logging.WARNING)

    def is_scraped(what):
        text = requests.get(f'http://127.0.0.1:{port}/metrics', timeout=PATIENCE).text
        return what in text

    eventually(lambda: is_scraped('cyborg_audit_findings 0.0'))
    assert status.Checks()._agreement().code == status.CODE.SUCCESS

    lose_handles(cloud)

    eventually(lambda: 'without a handle. Remedy: unbind the request' in caplog.text)
    eventually(lambda: is_scraped('cyborg_audit_findings 1.0'))
    told = status.Checks()._agreement()
    assert told.code == status.CODE.WARNING and 'without a handle' in told.details
    # looking changes nothing
    assert [arq['state'] for arq in cloud.arqs()] == ['Bound']


def test_an_audit_tells_and_mends_on_demand(cloud, manage):
    assert manage('audit') == (0, 'Everything agrees.\n')
    lose_handles(cloud)
    code, said = manage('audit')
    assert code == 1 and 'remedy: unbind the request' in said
    assert said.splitlines()[-1] == '1 disagreements, of which --fix repairs 1.'
    code, said = manage('audit', '--fix')
    assert code == 0 and said.splitlines()[-1] == '1 of 1 repaired.'
    assert manage('audit')[0] == 0
    assert [arq['state'] for arq in cloud.arqs()] == ['Unbound']


def test_an_audit_does_not_believe_a_nova_that_hides_servers(cloud, manage):
    cloud.nova.hides_others = True
    code, said = manage('audit', '--fix')
    assert code == 0 and 'cannot see the servers of all projects' in said
    assert [arq['state'] for arq in cloud.arqs()] == ['Bound']


def test_a_host_that_is_gone_is_forgotten(cloud, manage):
    cloud.standalone.remove_host('compute1')
    code, said = manage('host', 'forget', 'compute1', '--force')
    assert code == 0
    assert said.splitlines() == [
        '1 requests unbound',
        '1 devices forgotten',
        f'Its resource providers are deleted. {manage_hosts.REMEMBERED}',
    ]
    assert 'Restart nova-compute afterwards if it runs there' in said
    assert cloud.get('/devices')['devices'] == [] and cloud.providers() == {}
    [arq] = cloud.arqs()
    steps = cloud.get(f'/accelerator_requests/{arq["uuid"]}/history')['history']
    assert (steps[-1]['actor'], steps[-1]['to_state'], steps[-1]['reason']) == (
        'operator',
        'Unbound',
        'Host compute1 is gone.',
    )
    assert manage('audit')[0] == 0


def allocate(cloud, provider):
    """Have a server hold a unit of a provider in Placement; returns the path of its allocation."""
    [resource_class] = provider['inventories']
    path = f'/allocations/{uuid.uuid4()}'
    assert cloud.placement.put(
        path,
        json={
            'allocations': {provider['uuid']: {'resources': {resource_class: 1}}},
            'project_id': 'project',
            'user_id': 'user',
            'consumer_generation': None,
            'consumer_type': 'INSTANCE',
        },
        headers={'OpenStack-API-Version': 'placement 1.39'},
    ).ok
    return path


def test_forgetting_goes_on_when_the_last_server_is_gone(cloud, manage):
    # given a host that is gone, and a server that holds a unit in Placement
    [provider] = cloud.providers().values()
    held = allocate(cloud, provider)
    cloud.standalone.remove_host('compute1')
    code, said = manage('host', 'forget', 'compute1', '--force')
    assert code == 1 and said.endswith('then run this again.\n')
    # when that is deleted, the same command deletes the provider
    assert cloud.placement.delete(held).ok
    code, said = manage('host', 'forget', 'compute1')
    assert code == 0 and 'Its resource providers are deleted.' in said
    assert cloud.providers() == {}
    # and then there is nothing to forget
    with pytest.raises(errors.NotFound, match='There is no host compute1'):
        manage('host', 'forget', 'compute1')


@pytest.mark.parametrize('words', [(), ('--force',)], ids=['', 'forced'])
def test_a_host_of_which_nothing_is_known_is_not_said_to_be_forgotten(cloud, manage, words):
    with pytest.raises(errors.NotFound, match='There is no host compute9'):
        manage('host', 'forget', 'compute9', *words)


def test_nothing_is_forgotten_while_placement_does_not_answer(cloud, manage, monkeypatch):
    cloud.standalone.remove_host('compute1')
    monkeypatch.setattr(cloud.placement, 'endpoint_override', f'http://127.0.0.1:{free_port()}')
    monkeypatch.setattr(cloud.placement, 'session', session.Session(none.NoAuth()))
    with pytest.raises(errors.PlacementUnavailable):
        manage('host', 'forget', 'compute1', '--force')
    assert [arq['state'] for arq in cloud.arqs()] == ['Bound']


def test_what_devices_left_in_placement_is_listed_and_deleted(cloud, manage):
    # given a host whose card was pulled out, beside one that stays
    host = cloud.host('compute2', make=SimHost, drivers=['intel_qat_driver'])
    for address in (QAT, '0000:70:00.0'):
        host.plug_in('8086:4940', at=address)
    eventually(lambda: len(cloud.providers('compute2')) == 2)
    host.pull_out(QAT)
    eventually(lambda: len(cloud.providers('compute2')) == 1)
    # when the operator asks, nothing happens yet
    code, said = manage('host', 'tidy', 'compute2')
    assert code == 0 and f'compute2_{QAT}' in said
    assert '1 resource providers belong to devices that are gone' in said
    assert manage('host', 'tidy', 'compute2')[1] == said
    # and when he says so, it is deleted
    code, said = manage('host', 'tidy', 'compute2', '--yes')
    assert code == 0 and said.startswith('1 resource providers deleted. Restart nova-compute')
    assert manage('host', 'tidy', 'compute2') == (0, 'There are no leftover resource providers\n')
    # the card comes back as if it had never been there
    host.plug_in('8086:4940', at=QAT)
    eventually(lambda: len(cloud.providers('compute2')) == 2)


def test_a_provider_that_a_server_holds_is_not_tidied_away(cloud, manage):
    host = cloud.host('compute2', make=SimHost, drivers=['intel_qat_driver'])
    host.plug_in('8086:4940', at=QAT)
    eventually(lambda: cloud.providers('compute2'))
    [provider] = cloud.providers('compute2').values()
    allocate(cloud, provider)
    host.pull_out(QAT)
    eventually(lambda: not cloud.get('/devices', params={'hostname': 'compute2'})['devices'])
    code, said = manage('host', 'tidy', 'compute2', '--yes')
    assert code == 1 and 'is kept: servers have allocations of it' in said
    # and the list does not promise to delete it
    code, said = manage('host', 'tidy', 'compute2')
    assert code == 0 and 'is kept: servers have allocations of it' in said
    assert said.splitlines()[-1].startswith('0 resource providers belong to devices')


def test_the_card_of_a_region_that_a_server_holds_is_not_listed_for_deletion(cloud, manage):
    # given a card that was pulled out while a server held its region
    host = cloud.host('compute2', make=FpgaHost)
    eventually(lambda: len(cloud.providers('compute2')) == 2)
    [region] = [each for each in cloud.providers('compute2').values() if each['inventories']]
    allocate(cloud, region)
    host.pull_out(ADDRESS)
    eventually(lambda: not cloud.get('/devices', params={'hostname': 'compute2'})['devices'])
    # when the operator asks, he is told what --yes does: it keeps both
    code, listed = manage('host', 'tidy', 'compute2')
    assert code == 0 and listed.count(' is kept: ') == 2
    assert f'compute2_{ADDRESS} ' in listed and 'is kept: there are providers below it' in listed
    assert listed.splitlines()[-1].startswith('0 resource providers belong to devices')
    code, said = manage('host', 'tidy', 'compute2', '--yes')
    assert code == 1 and said.splitlines()[:-1] == listed.splitlines()[:-1]


@pytest.fixture
def pulled_out(cloud):
    """A host whose only card was pulled out: its provider is empty."""
    host = cloud.host('compute2', make=SimHost, drivers=['intel_qat_driver'])
    host.plug_in('8086:4940', at=QAT)
    eventually(lambda: cloud.providers('compute2'))
    host.pull_out(QAT)
    eventually(lambda: not cloud.providers('compute2'))
    return host


@pytest.fixture
def come_back(cloud, pulled_out):
    """Plugs the card in again, and waits until it is offered."""

    def offered():
        return any(each['inventories'] for each in cloud.providers('compute2').values())

    def act():
        pulled_out.plug_in('8086:4940', at=QAT)
        eventually(offered)

    return act


def meanwhile(monkeypatch, owner, name, act, *, first):
    """Act once before, or after, a function is called."""
    function = getattr(owner, name)

    def call(*arguments, **options):
        if first:
            act()
        answer = function(*arguments, **options)
        if not first:
            act()
        return answer

    monkeypatch.setattr(owner, name, call)


def test_a_card_that_is_reported_while_tidying_begins_is_not_tidied_away(
    cloud, manage, come_back, monkeypatch
):
    # given a card that comes back before Placement is read
    meanwhile(monkeypatch, manage_hosts.Placement, 'owned', come_back, first=True)
    # when the operator tidies up, then it is none of the leftovers
    assert manage('host', 'tidy', 'compute2', '--yes') == (
        0,
        'There are no leftover resource providers\n',
    )
    assert cloud.providers('compute2')


def test_a_card_that_comes_back_before_its_provider_is_deleted_keeps_it(
    cloud, manage, come_back, monkeypatch
):
    meanwhile(monkeypatch, manage_hosts.deployables, 'providers_of', come_back, first=False)
    code, said = manage('host', 'tidy', 'compute2', '--yes')
    assert code == 1 and f'compute2_{QAT}' in said
    assert 'is kept: it has an inventory, so its device may be back' in said
    assert said.splitlines()[-1].startswith('0 resource providers deleted.')
    assert cloud.providers('compute2')


def test_tidying_an_unknown_host_is_said_in_a_sentence(manage):
    with pytest.raises(errors.ProviderTreeMissing, match='nowhere'):
        manage('host', 'tidy', 'nowhere')
