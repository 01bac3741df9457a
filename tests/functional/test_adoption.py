# SPDX-License-Identifier: Apache-2.0
"""Providers that were in Placement before us keep their uuids, by which Nova knows them."""

import uuid

import pytest
import sqlalchemy as sa

from cyborg import errors
from cyborg.clients.placement_api import PlacementApi
from cyborg.conductor.audit import Audit
from cyborg.db.sqlalchemy import models
from cyborg.sim import nova as sim_nova
from tests.fixtures.cloud import PATIENCE, eventually

VERSION = {'OpenStack-API-Version': 'placement 1.39'}
PROVIDER = 'compute1_FakeDevice'


@pytest.fixture
def adopted(cloud):
    """A host whose provider an earlier Cyborg made; answers the provider's uuid."""
    older = str(uuid.uuid4())
    node = sim_nova.make_compute_node(cloud.placement, 'compute1')
    made = cloud.placement.post(
        '/resource_providers',
        headers=VERSION,
        json={'uuid': older, 'name': PROVIDER, 'parent_provider_uuid': node},
    )
    cloud.placement.put(
        f'/resource_providers/{older}/traits',
        headers=VERSION,
        json={
            'resource_provider_generation': made.json()['generation'],
            'traits': ['OWNER_CYBORG'],
        },
    )
    cloud.host()
    eventually(lambda: cloud.rp() == older)
    cloud.rest()
    cloud.profile('one', {'resources:FPGA': '1'})
    return older


def restart_without_placement(cloud, monkeypatch):
    """Have the agent start while Placement is away, and report."""

    def away(*arguments, **options):
        raise errors.PlacementUnavailable(why='nobody is there')

    cloud.standalone.remove_host('compute1')
    monkeypatch.setattr(PlacementApi, '_call', away)
    before = known_report(cloud)
    cloud.standalone.add_host(cloud.hosts['compute1'])
    eventually(lambda: known_report(cloud) != before)


def known_report(cloud):
    with cloud.standalone.db.reader() as session:
        return session.scalar(sa.select(models.Agent.sequence))


def test_an_adopted_provider_keeps_its_uuid_while_a_new_agent_cannot_ask_placement(
    cloud, adopted, monkeypatch
):
    server = str(uuid.uuid4())
    assert cloud.bind(cloud.request('one'), rp=adopted, instance=server).status_code == 202
    restart_without_placement(cloud, monkeypatch)
    assert cloud.rp() == adopted
    assert cloud.bind(cloud.request('one'), rp=adopted).status_code == 202
    assert Audit(cloud.standalone.db).look() == []
    # and it is published as it was when Placement is back
    monkeypatch.undo()
    cloud.agent().inventory.wake(must_report=True)
    assert cloud.agent().inventory.is_ready.wait(PATIENCE)
    assert cloud.providers()[PROVIDER]['uuid'] == cloud.rp() == adopted


def test_what_placement_says_later_counts_more(cloud, adopted):
    cloud.standalone.remove_host('compute1')
    change(cloud, sa.update(models.Deployable).values(rp_uuid=str(uuid.uuid4())))
    cloud.standalone.add_host(cloud.hosts['compute1'])
    eventually(lambda: cloud.rp() == adopted)


def test_the_audit_leaves_a_handle_to_its_server_whatever_uuid_its_provider_has(cloud, adopted):
    assert cloud.bind(cloud.request('one'), rp=adopted).status_code == 202
    cloud.standalone.remove_host('compute1')
    change(cloud, sa.update(models.Deployable).values(rp_uuid=str(uuid.uuid4())))
    audit = Audit(cloud.standalone.db)
    [finding] = audit.look()
    assert adopted in finding.what and audit.mend([finding]) == 0
    assert [arq['state'] for arq in cloud.arqs()] == ['Bound']


def change(cloud, statement):
    with cloud.standalone.db.writer() as session:
        session.execute(statement)
