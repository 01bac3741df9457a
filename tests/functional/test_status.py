# SPDX-License-Identifier: Apache-2.0
"""cyborg-status upgrade check: what it finds in a cloud, and the way out that it names."""

import datetime

import pytest
import sqlalchemy as sa

from cyborg.clients import keystone
from cyborg.cmd import status
from cyborg.db.sqlalchemy import clock, models, revisions
from cyborg.objects import manifests
from tests.fixtures.cloud import Cloud, eventually
from tests.fixtures.hosts import SimHost
from tests.functional.test_ownership import ADDRESS, CARDS, Claim

pytestmark = pytest.mark.any_database
FPGA = {'resources:FPGA': '1', 'trait:CUSTOM_FAKE_DEVICE': 'required'}


@pytest.fixture
def cloud(tmp_path, monkeypatch):
    # conductors leave alone what this test changes
    made = Cloud(tmp_path, more='[conductor]\nsweep_interval = 3600\n')
    made.start()
    made.host()
    made.profile('one', FPGA)
    connect = keystone.connect
    transports = {'placement': made.placement.session.session}
    monkeypatch.setattr(
        keystone, 'connect', lambda conf, section: connect(conf, section, transports.get(section))
    )
    yield made
    made.stop()


def check(name):
    """How a check ended, and what it said."""
    [function] = [each for title, each in status.Checks._upgrade_checks if title == name]
    result = function(status.Checks())
    return result.code, result.details


def change(cloud, model, **values):
    with cloud.standalone.db.writer() as session:
        session.execute(sa.update(model).values(**values))


def ago(**duration):
    return clock.now() - datetime.timedelta(**duration)


def test_a_healthy_cloud_passes_every_check(cloud):
    # but for what libraries and files of this test are
    for name in (
        'Database schema',
        'Placement',
        'Nova',
        'Agents',
        'Versions in use',
        'Unfinished requests',
        'Requests and handles',
        'Ownership of devices',
        'Device profiles',
    ):
        code, details = check(name)
        assert code == status.CODE.SUCCESS, details


def test_a_user_whom_placement_refuses_needs_a_role(cloud):
    cloud.standalone.conf.set_override('token', 'somebody:else', 'placement')
    code, details = check('Placement')
    assert code == status.CODE.FAILURE
    assert 'give it the role service' in details


def test_a_user_whose_events_nova_refuses_needs_a_role(cloud):
    cloud.nova.forbids_events = True
    code, details = check('Nova')
    assert code == status.CODE.FAILURE
    assert 'give the user the role service' in details
    assert cloud.nova.events() == []


def test_services_that_do_not_answer_are_told(cloud):
    for section in ('placement', 'nova'):
        cloud.standalone.conf.set_override('endpoint_override', 'http://127.0.0.1:1', section)
    for name, section in (('Placement', 'placement'), ('Nova', 'nova')):
        code, details = check(name)
        assert code == status.CODE.WARNING
        assert f'Correct [{section}], or run the check again' in details
    assert check('Device profiles')[0] == status.CODE.WARNING


def test_an_endpoint_that_is_not_placement_is_told(cloud):
    where = f'{cloud.placement.get_endpoint()}/another'
    cloud.standalone.conf.set_override('endpoint_override', where, 'placement')
    for name in ('Placement', 'Device profiles'):
        code, details = check(name)
        assert code == status.CODE.WARNING and '404' in details, details


def test_a_user_from_whom_nova_hides_servers_needs_a_role(cloud):
    cloud.nova.hides_others = True
    code, details = check('Nova')
    assert code == status.CODE.WARNING and 'Give the user the role admin' in details


def test_a_host_without_credentials_is_not_asked_for_them(cloud):
    cloud.standalone.conf.set_override('auth_type', None, 'nova')
    code, details = check('Nova')
    assert code == status.CODE.SUCCESS and details.startswith('Not checked')


def test_a_silent_agent_is_named(cloud):
    gone = models.Agent(
        hostname='compute9',
        last_heartbeat=ago(days=1),
        sequence=1,
        digest='',
        is_ready=True,
        drivers=[],
        conflicts={},
    )
    with cloud.standalone.db.writer() as session:
        session.add(gone)
    code, details = check('Agents')
    assert code == status.CODE.WARNING
    assert 'compute9' in details and 'compute1' not in details
    assert 'cyborg-manage host forget' in details


@pytest.mark.parametrize(
    ('reported', 'code', 'sentence'),
    [
        ('1.9', status.CODE.FAILURE, 'Upgrade the agents to the release before this one first'),
        (None, status.CODE.SUCCESS, f'{manifests.OLDEST} (1 agents)'),
        ('99.0', status.CODE.WARNING, 'Upgrade the conductors: '),
    ],
)
def test_agents_of_other_releases_are_told(cloud, reported, code, sentence):
    cloud.rest()  # it reports no more
    change(cloud, models.Agent, rpc_version=reported, last_heartbeat=clock.now())
    found, details = check('Versions in use')
    assert found == code and sentence in details, details


def test_a_pin_that_no_agent_needs_is_told(cloud):
    cloud.rest()
    cloud.standalone.conf.set_override('agent', manifests.OLDEST, 'upgrade_levels')
    code, details = check('Versions in use')
    assert code == status.CODE.WARNING
    assert f'Unset [upgrade_levels] agent = {manifests.OLDEST}' in details


def test_a_schema_that_is_not_contracted_yet_is_told(cloud, monkeypatch):
    cloud.rest()
    assert check('Last upgrade') == (status.CODE.SUCCESS, 'Nothing is left to do.')
    # given a release that removes something from the schema
    last = revisions.Revision('9999', revisions.head(), revisions.Phase.CONTRACT)
    known = (*revisions.known(), last)
    monkeypatch.setattr(revisions, 'known', lambda: known)
    assert check('Database schema')[0] == status.CODE.SUCCESS
    code, details = check('Last upgrade')
    assert code == status.CODE.WARNING
    assert details == 'Run cyborg-dbsync upgrade --contract when all services are upgraded.'


def test_a_device_that_another_service_claims_is_named(cloud):
    cloud.host('compute2', SimHost, cards=CARDS)
    Claim('compute2_pci_0000_af_00_0').make(cloud)
    cloud.agent('compute2').inventory.wake(must_report=True)
    eventually(lambda: cloud.get('/agents/compute2')['conflicts'])
    code, details = check('Ownership of devices')
    assert code == status.CODE.WARNING
    assert details.startswith('1 devices are not offered'), details
    assert f'compute2_{ADDRESS}: ' in details and 'compute2_pci_0000_af_00_0' in details


def test_a_bind_that_nobody_ends_is_named(cloud):
    [arq] = cloud.request('one')
    change(cloud, models.ExtArq, state='BindStarted', bind_deadline=ago(days=1))
    code, details = check('Unfinished requests')
    assert code == status.CODE.WARNING
    assert arq['uuid'] in details and 'Start a conductor' in details


def test_a_request_that_stays_in_a_passing_state_is_named(cloud):
    [arq] = cloud.request('one')
    change(cloud, models.ExtArq, state='Deleting', updated_at=ago(hours=2))
    code, details = check('Unfinished requests')
    assert code == status.CODE.WARNING
    assert arq['uuid'] in details and 'cyborg-manage audit' in details


def test_a_profile_with_a_trait_that_nobody_publishes_is_named(cloud):
    cloud.profile('typo', {'resources:FPGA': '1', 'trait:CUSTOM_FAKE_DEVISE': 'required'})
    cloud.profile('old', {'resources:CUSTOM_OLD': '1'})
    code, details = check('Device profiles')
    assert code == status.CODE.WARNING
    assert 'typo: CUSTOM_FAKE_DEVISE.' in details and 'old: CUSTOM_OLD.' in details
    assert 'one: ' not in details


def test_without_a_schema_only_that_is_told(cloud, tmp_path):
    cloud.standalone.conf.set_override('connection', f'sqlite:///{tmp_path}/empty.db', 'database')
    assert check('Database schema')[0] == status.CODE.FAILURE
    for name in (
        'Agents',
        'Versions in use',
        'Last upgrade',
        'Unfinished requests',
        'Requests and handles',
        'Ownership of devices',
        'Device profiles',
    ):
        code, details = check(name)
        assert code == status.CODE.SUCCESS and details.startswith('Not checked: The schema')
