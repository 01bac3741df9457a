# SPDX-License-Identifier: Apache-2.0
"""Lists of what changes between two requests for them."""

import datetime

import pytest
import sqlalchemy as sa

from cyborg.db.sqlalchemy import clock, models
from tests.fixtures.cloud import eventually


@pytest.fixture
def bound(cloud):
    """The one bound request of four."""
    cloud.host('compute2')
    cloud.profile('two', *[{'resources:FPGA': '1'}] * 2)
    _, arq, _, _ = [*cloud.request('two'), *cloud.request('two')]
    assert cloud.bind(arq, host='compute2').status_code == 202
    return arq


def test_a_marker_need_not_match_the_filters_any_more(cloud, bound):
    first, second, *rest = cloud.arqs(state='Initial')
    url = f'/accelerator_requests?state=Initial&marker={first["uuid"]}'
    before = cloud.get(url)
    with cloud.standalone.db.writer() as session:
        session.execute(
            sa.update(models.ExtArq)
            .where(models.ExtArq.uuid == first['uuid'])
            .values(state='Unbound')
        )
    assert cloud.get(url) == before
    assert [each['uuid'] for each in before['arqs']] == [each['uuid'] for each in (second, *rest)]


def test_a_state_that_is_not_known_is_not_that_which_is_stored(cloud, bound):
    assert len(cloud.arqs(state='Bound')) == 1
    cloud.standalone.remove_host('compute2')

    def is_silent():
        """Have the host be silent, and the handle be one that it had to prepare. What it said
        last may still be on its way, and undo that."""
        with cloud.standalone.db.writer() as session:
            session.execute(
                sa.update(models.AttachHandle)
                .values(is_host_prepared=True)
                .where(models.AttachHandle.arq_id.is_not(None))
            )
            session.execute(
                sa.update(models.Agent)
                .where(models.Agent.hostname == 'compute2')
                .values(last_heartbeat=clock.now() - datetime.timedelta(days=1))
            )
        return cloud.arqs(state='Bound') == []

    eventually(is_silent)
    assert cloud.arqs(bind_state='resolved') == []
    [unknown] = cloud.arqs(state='Unknown')
    assert (unknown['uuid'], unknown['state']) == (bound['uuid'], 'Unknown')
