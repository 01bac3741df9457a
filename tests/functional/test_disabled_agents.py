# SPDX-License-Identifier: Apache-2.0
"""An operator takes a host out of use with cyborg-manage, and back into it."""

import argparse
import datetime
import json

import pytest

from cyborg import errors
from cyborg.cmd import manage_agents
from cyborg.db.sqlalchemy import clock
from tests.fixtures.cloud import eventually

FPGA = {'resources:FPGA': '1', 'trait:CUSTOM_FAKE_DEVICE': 'required'}


@pytest.fixture
def agents(cloud, capsys):
    """cyborg-manage agents with these words: what it prints. The agent sends a heartbeat then."""
    parser = argparse.ArgumentParser()
    manage_agents.add_commands(parser.add_subparsers())

    def run(*words):
        capsys.readouterr()
        options = parser.parse_args(['agents', *words])
        assert options.function(cloud.standalone.conf, options) == 0
        for agent in cloud.standalone.agents.values():
            agent.inventory.beat()
        return capsys.readouterr().out

    return run


def test_agents_are_alive_by_the_clock_of_the_database(cloud, agents, monkeypatch):
    cloud.host()
    cloud.rest()
    # given a machine whose clock is an hour fast, and a database that was not opened yet
    fast = datetime.timedelta(hours=1)
    right = clock.local_now
    monkeypatch.setattr(clock, 'local_now', lambda: right() + fast)
    monkeypatch.setattr(clock._Clock, 'ahead', datetime.timedelta())
    assert agents('list') == 'compute1: up, ready\n'


def reserved(cloud):
    [provider] = cloud.providers().values()
    inventory = provider['inventories']['FPGA']
    return inventory['reserved'], inventory['total']


def test_a_disabled_host_gets_no_new_requests_and_keeps_its_own(cloud, agents):
    # given a host with a bound request
    cloud.host()
    cloud.rest()
    cloud.profile('one', FPGA)
    [bound] = cloud.request('one')
    assert cloud.bind(bound).status_code == 202
    assert reserved(cloud)[0] == 0
    # when an operator disables its agent
    agents('disable', 'compute1', '--reason', 'Its firmware is upgraded.')
    # then binds are refused with the reason
    [other] = cloud.request('one')
    refused = cloud.bind(other)
    assert refused.status_code == 409
    sentence = json.loads(refused.json()['error_message'])['faultstring']
    assert sentence.endswith('where an operator has disabled the agent: Its firmware is upgraded.')
    # and Placement offers nothing of it, and availability tells why
    eventually(lambda: len(set(reserved(cloud))) == 1)
    found = cloud.get('/device_profiles/one/availability')
    assert (found['fits'], set(found['reasons'])) == (0, {'in_use', 'disabled'})
    # and what was bound stays
    assert cloud.get(f'/accelerator_requests/{bound["uuid"]}')['state'] == 'Bound'
    assert agents('list') == 'compute1: up, ready, disabled: Its firmware is upgraded.\n'
    # when the operator enables it again
    agents('enable', 'compute1')
    # then it is as before
    assert cloud.bind(other).status_code == 202
    eventually(lambda: reserved(cloud)[0] == 0)
    assert agents('list') == 'compute1: up, ready\n'


def test_no_host_is_disabled_without_a_reason(cloud, agents, capsys):
    with pytest.raises(SystemExit):
        agents('disable', 'compute1', '--reason', ' ')
    assert '--reason: it must not be blank' in capsys.readouterr().err


def test_an_agent_that_does_not_exist_cannot_be_disabled(cloud, agents):
    with pytest.raises(errors.AgentNotFound):
        agents('disable', 'compute7', '--reason', 'It is gone.')
    assert agents('list') == 'There is no agent\n'
