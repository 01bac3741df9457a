# SPDX-License-Identifier: Apache-2.0
"""Agents send heartbeats and reports, and nobody waits because of that."""

import threading

import pytest

from cyborg import context, objects
from cyborg.conductor.engine import hosts
from cyborg.conductor.rpcapi import ConductorAPI
from cyborg.db.sqlalchemy import agents
from tests.fixtures.cloud import eventually

pytestmark = pytest.mark.any_database
MANY, MANY_REPORTS = 2000, 200


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


def test_callers_are_answered_though_hundreds_of_reports_wait(cloud, monkeypatch):
    # given reports that take a conductor for ever
    begun, end = threading.Event(), threading.Event()

    def dawdle(*arguments, **options):
        begun.set()
        end.wait()

    monkeypatch.setattr(hosts, 'take_report', dawdle)
    conductor = ConductorAPI(cloud.standalone.transport)
    for number in range(MANY_REPORTS):
        conductor._client_for_reports(context.internal()).cast(
            context.internal(), 'report', report=report(f'host{number}')
        )
    eventually(begun.is_set)
    # when somebody asks something
    try:
        assert cloud.get('/devices')['devices'] == []
    finally:
        end.set()


def test_a_report_of_an_agent_of_an_earlier_release_is_answered(cloud):
    plan = ConductorAPI(cloud.standalone.transport)._client.call(
        context.internal(), 'report', report=report('old')
    )
    assert plan.providers == []


def report(hostname):
    return objects.Report(hostname=hostname, sequence=1, digest='digest', drivers=[], devices=[])


def test_an_agent_of_an_earlier_release_is_heard(cloud, monkeypatch):
    heard = []

    def beat(session, hostname, digest, silent_since):
        heard.append(hostname)
        return agents.Beat(is_current=True)

    monkeypatch.setattr(agents, 'beat', beat)
    conductor = ConductorAPI(cloud.standalone.transport)
    conductor._client.cast(context.internal(), 'heartbeat', hostname='old', digest='digest')
    eventually(lambda: heard == ['old'])
