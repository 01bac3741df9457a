# SPDX-License-Identifier: Apache-2.0
"""Agents say that they live, and nobody waits because of that."""

import threading

import pytest

from cyborg import context
from cyborg.conductor.rpcapi import ConductorAPI
from cyborg.db.sqlalchemy import agents
from tests.fixtures.cloud import eventually

pytestmark = pytest.mark.any_database
MANY = 2000


def test_callers_are_answered_though_thousands_of_heartbeats_wait(cloud, monkeypatch):
    # given heartbeats that take a conductor for ever
    begun, end = threading.Event(), threading.Event()

    def dawdle(*arguments):
        begun.set()
        end.wait()
        return True
    monkeypatch.setattr(agents, 'beat', dawdle)
    conductor = ConductorAPI(cloud.standalone.transport)
    for number in range(MANY):
        conductor.heartbeat(context.internal(), f'host{number}', 'digest')
    eventually(begun.is_set)
    # when somebody asks something
    try:
        assert cloud.get('/devices')['devices'] == []
    finally:
        end.set()


def test_an_agent_of_an_earlier_release_is_heard(cloud, monkeypatch):
    heard = []
    monkeypatch.setattr(agents, 'beat', lambda session, hostname, digest: heard.append(hostname))
    conductor = ConductorAPI(cloud.standalone.transport)
    conductor._client.cast(context.internal(), 'heartbeat', hostname='old', digest='digest')
    eventually(lambda: heard == ['old'])
