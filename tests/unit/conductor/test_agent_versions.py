# SPDX-License-Identifier: Apache-2.0
"""Messages to agents have a version that the oldest agent which is alive understands."""

import datetime

import pytest
import sqlalchemy as sa

from cyborg.conductor.agent_versions import LowestVersion
from cyborg.db.sqlalchemy import clock, models
from cyborg.objects import manifests

TIMEOUT = 300


@pytest.fixture
def lowest(db):
    return LowestVersion(db, TIMEOUT)


def agent(db, hostname, version, ago=0):
    with db.writer() as session:
        session.add(
            models.Agent(
                hostname=hostname,
                last_heartbeat=clock.now() - datetime.timedelta(seconds=ago),
                rpc_version=version,
                sequence=1,
                digest='1',
                is_ready=True,
                drivers=[],
                conflicts={},
            )
        )


def test_before_the_first_look_the_oldest_version_is_used(lowest):
    assert lowest() == manifests.OLDEST


def test_without_agents_the_newest_version_is_used(lowest):
    lowest.read()
    assert lowest() == manifests.NEWEST


@pytest.mark.parametrize(
    ('versions', 'expected'),
    [
        (['2.1', '2.1'], '2.1'),
        (['2.1', '2.0'], '2.0'),
        # a release that does not say what it reads is an old one
        (['2.1', None], '2.0'),
        # one that is newer than this conductor reads ours, too
        (['2.999'], manifests.NEWEST),
    ],
)
def test_the_oldest_agent_decides(db, lowest, versions, expected):
    for number, version in enumerate(versions):
        agent(db, f'compute{number}', version)
    lowest.read()
    assert lowest() == expected


def test_an_agent_that_is_silent_does_not_count(db, lowest):
    agent(db, 'compute1', '2.0', ago=TIMEOUT + 10)
    agent(db, 'compute2', '2.1')
    lowest.read()
    assert lowest() == '2.1'


def test_the_version_follows_the_last_upgraded_agent(db, lowest):
    agent(db, 'compute1', '2.0')
    lowest.read()
    with db.writer() as session:
        session.execute(sa.update(models.Agent).values(rpc_version='2.1'))
    assert lowest() == '2.0'
    lowest.read()
    assert lowest() == '2.1'
