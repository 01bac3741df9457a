# SPDX-License-Identifier: Apache-2.0
"""Which roles may use which operations, also by unusual requests."""

import pytest
from oslo_policy import opts
from oslo_policy import policy as oslo_policy

from cyborg import policies, policy
from cyborg.api import app
from cyborg.api.controllers import root
from cyborg.api.middleware import auth_token
from cyborg.context import RequestContext
from tests.unit.api.conftest import (
    Client,
    agent,
    arq,
    attribute,
    deployable,
    device,
    fault,
    profile,
    uuid,
)

# as Keystone implies them
PERSONS = {
    'admin': ['admin', 'manager', 'member', 'reader'],
    'manager': ['manager', 'member', 'reader'],
    'member': ['member', 'reader'],
    'reader': ['reader'],
    'service': ['service'],
    'nobody': [],
}
EVERY_PERSON_BUT_SERVICES = {'admin', 'manager', 'member', 'reader'}
MEMBERS_AND_SERVICES = {'admin', 'manager', 'member', 'service'}
MANAGERS = {'admin', 'manager'}

PROFILE = [{'name': 'x', 'groups': [{'resources:FPGA': '1'}]}]
UNBIND = {uuid(1): [{'op': 'remove', 'path': '/hostname'}]}
PROGRAM = [{'op': 'add', 'path': '/program', 'value': [{'image_uuid': uuid(9)}]}]
ATTRIBUTE = {'deployable_id': 3, 'key': 'k', 'value': 'v'}

MATRIX = [
    ('GET', '/v2/device_profiles', None, EVERY_PERSON_BUT_SERVICES),
    ('GET', f'/v2/device_profiles/{uuid(1)}', None, EVERY_PERSON_BUT_SERVICES),
    ('GET', f'/v2/device_profiles/{uuid(1)}/availability', None, EVERY_PERSON_BUT_SERVICES),
    ('POST', '/v2/device_profiles', PROFILE, {'admin'}),
    ('DELETE', '/v2/device_profiles/x', None, {'admin'}),
    ('DELETE', '/v2/device_profiles?value=x', None, {'admin'}),
    ('GET', '/v2/accelerator_requests', None, EVERY_PERSON_BUT_SERVICES),
    ('GET', f'/v2/accelerator_requests/{uuid(1)}', None, EVERY_PERSON_BUT_SERVICES),
    ('GET', f'/v2/accelerator_requests/{uuid(1)}/history', None, EVERY_PERSON_BUT_SERVICES),
    ('POST', '/v2/accelerator_requests', {'device_profile_name': 'x'}, MEMBERS_AND_SERVICES),
    ('PATCH', '/v2/accelerator_requests', UNBIND, MEMBERS_AND_SERVICES),
    ('PATCH', f'/v2/accelerator_requests/{uuid(1)}', UNBIND, MEMBERS_AND_SERVICES),
    ('DELETE', f'/v2/accelerator_requests/{uuid(1)}', None, MEMBERS_AND_SERVICES),
    ('DELETE', f'/v2/accelerator_requests?instance={uuid(1)}', None, MEMBERS_AND_SERVICES),
    ('GET', '/v2/devices', None, MANAGERS),
    ('GET', f'/v2/devices/{uuid(1)}', None, MANAGERS),
    ('POST', f'/v2/devices/{uuid(1)}/enable', None, {'admin'}),
    ('POST', f'/v2/devices/{uuid(1)}/disable', None, {'admin'}),
    ('GET', f'/v2/devices/{uuid(1)}/handbacks', None, {'admin'}),
    ('POST', f'/v2/devices/{uuid(1)}/handles/{uuid(2)}/clean', None, {'admin'}),
    ('POST', f'/v2/devices/{uuid(1)}/handles/{uuid(2)}/release', {'reason': 'x'}, {'admin'}),
    ('GET', '/v2/deployables', None, MANAGERS),
    ('GET', f'/v2/deployables/{uuid(1)}', None, MANAGERS),
    ('PATCH', f'/v2/deployables/{uuid(1)}/program', PROGRAM, {'admin'}),
    ('PATCH', f'/v2/deployables/{uuid(1)}/program/{uuid(1)}', PROGRAM, {'admin'}),
    ('GET', '/v2/attributes', None, MANAGERS),
    ('GET', f'/v2/attributes/{uuid(1)}', None, MANAGERS),
    ('POST', '/v2/attributes', ATTRIBUTE, {'admin'}),
    ('DELETE', f'/v2/attributes/{uuid(1)}', None, {'admin'}),
    ('PATCH', f'/v2/device_profiles/{uuid(1)}', {'name': 'y'}, {'admin'}),
    ('GET', '/v2/agents', None, {'admin'}),
    ('GET', '/v2/capacity', None, MANAGERS),
    ('GET', '/v2/topology?hostname=compute1', None, {'admin'}),
    ('GET', '/v2/agents/compute1', None, {'admin'}),
    ('GET', '/v2/usage', None, EVERY_PERSON_BUT_SERVICES),
    ('GET', '/v2/usage?project_id=mine', None, EVERY_PERSON_BUT_SERVICES),
    ('GET', '/v2/usage?project_id=theirs', None, {'admin'}),
]


@pytest.fixture(autouse=True)
def things(conductor):
    conductor.items = {
        'device_profiles': [profile(1)],
        'arqs': [arq(1)],
        'devices': [device(1)],
        'deployables': [deployable(1)],
        'attributes': [attribute(1)],
        'agents': [agent(1)],
    }


@pytest.fixture
def overrides(conf, tmp_path):
    """The operator's policy file."""
    opts.set_defaults(conf)
    path = tmp_path / 'policy.yaml'
    conf.set_override('policy_file', str(path), 'oslo_policy')
    return path


@pytest.mark.parametrize('person', PERSONS)
@pytest.mark.parametrize('method, path, body, allowed', MATRIX)
def test_each_person_may_do_what_the_contract_says(
    application, conductor, person, method, path, body, allowed
):
    # a service token is there throughout: it must not stand in for a role
    client = Client(application, roles=PERSONS[person], service=True)
    answer = client(method, path, body, version='latest')
    if person in allowed:
        assert answer.status_int < 300
    else:
        assert answer.status_int == 403
        assert 'cyborg:' in fault(answer)
        assert not conductor.calls


@pytest.mark.parametrize(
    'scope',
    [
        {'OpenStack-System-Scope': 'all'},
        {'X-Domain-Id': 'd'},
        # what is left of these when a service vouches
        {'X-Project-Id': '', 'X-Service-Roles': 'service'},
    ],
)
@pytest.mark.parametrize('method, path, body, allowed', MATRIX)
def test_only_project_tokens_are_accepted(admin, conductor, scope, method, path, body, allowed):
    answer = admin(method, path, body, version='latest', headers=scope)
    assert answer.status_int == 403
    assert not conductor.calls


def test_the_matrix_leaves_no_operation_out():
    nouns = {noun.path: noun for noun in root.COLLECTIONS}
    asked = set()
    for method, path, _, _ in MATRIX:
        noun, *rest = path.removeprefix('/v2/').partition('?')[0].split('/')
        asked |= {
            (noun, name)
            for name, operation in nouns[noun].operations.items()
            if operation.method == method and operation.match(rest) is not None
        }
    declared = {(path, name) for path, noun in nouns.items() for name in noun.operations}
    assert declared - asked == {('attributes', 'delete_all')}  # which nobody may


def test_every_operation_below_the_version_has_a_rule_that_exists():
    known = {rule.name for rule in policies.list_rules()}
    for noun in root.COLLECTIONS:
        for operation in noun.operations.values():
            assert operation.rule in known


def test_every_rule_of_ours_is_documented_and_for_projects():
    for rule in policies.list_rules():
        if rule.name.startswith('cyborg:'):
            assert isinstance(rule, oslo_policy.DocumentedRuleDefault)
            assert rule.scope_types == ['project']


def test_the_rules_refer_to_rules_that_exist(conf):
    enforcer = oslo_policy.Enforcer(conf)
    enforcer.register_defaults(policies.list_rules())
    enforcer.load_rules()
    assert enforcer.check_rules(raise_on_violation=True)


@pytest.mark.parametrize(
    'name',
    [
        'admin_api',
        'project_admin_api',
        'project_member_api',
        'project_reader_api',
        'project_manager_api',
        'service_api',
        'project_member_or_admin',
        'project_reader_or_admin',
        'project_manager_or_admin',
        'project_member_or_service',
        'public_api',
        'allow',
        'deny',
        'default',
        'is_admin',
        'admin_or_owner',
        'admin_or_user',
    ],
)
def test_a_policy_file_may_refer_to_the_names_it_used_to(conf, conductor, overrides, name):
    overrides.write_text(f'"cyborg:device:get_all": "rule:{name}"\n')
    client = Client(app.make_app(conf, conductor))
    is_denied = name in ('public_api', 'deny', 'service_api')
    assert client.get('/v2/devices').status_int == (403 if is_denied else 200)


def test_the_operators_policy_decides_who_is_an_administrator(conf, conductor, overrides):
    overrides.write_text('"admin_api": "role:cloud_admin"\n')
    application = app.make_app(conf, conductor)
    Client(application, roles=['reader', 'cloud_admin']).get('/v2/accelerator_requests')
    Client(application).get('/v2/accelerator_requests')
    assert [context.is_admin for context in conductor.contexts] == [True, False]


def test_what_was_decided_for_one_caller_is_not_for_another(application):
    path = '/v2/devices'
    manager, reader = (Client(application, roles=roles) for roles in (['manager'], ['reader']))
    assert [client.get(path).status_int for client in (manager, reader, manager)] == [200, 403, 200]


def test_a_rule_that_was_changed_holds_soon(conf, conductor, overrides, monkeypatch):
    monkeypatch.setattr(policy, 'FRESH', 0.0)
    overrides.write_text('"cyborg:device:get_all": "role:manager"\n')
    client = Client(app.make_app(conf, conductor), roles=['manager'])
    assert client.get('/v2/devices').status_int == 200
    overrides.write_text('"cyborg:device:get_all": "!"\n# another size\n')
    assert client.get('/v2/devices').status_int == 403


def test_the_context_carries_who_asks(application, conductor):
    Client(application, roles=['reader']).get(
        '/v2/accelerator_requests',
        headers={'X-Auth-Token': 'secret'},
        **{'openstack.request_id': 'req-local', 'openstack.global_request_id': 'req-global'},
    )
    [context] = conductor.contexts
    assert (context.user_id, context.project_id, context.roles) == ('me', 'mine', ['reader'])
    assert (context.is_admin, context.is_service) == (False, False)
    assert (context.request_id, context.global_request_id) == ('req-local', 'req-global')


@pytest.mark.parametrize(
    'roles, is_service',
    [('service', True), ('service,reader', True), ('reader', False), ('', False)],
)
def test_a_service_is_who_has_a_role_of_services(admin, conductor, roles, is_service):
    admin.get('/v2/accelerator_requests', headers={'X-Service-Roles': roles})
    assert conductor.contexts[0].is_service is is_service


@pytest.mark.parametrize(
    'own, others, sees_all',
    [(['reader'], 'service', False), (['reader', 'service'], '', True), (['admin'], '', True)],
)
def test_a_service_sees_all_projects_with_its_own_token_only(
    application, conductor, own, others, sees_all
):
    Client(application, roles=own).get(
        '/v2/accelerator_requests', headers={'X-Service-Roles': others}
    )
    [context] = conductor.contexts
    assert RequestContext.from_dict(context.to_dict()).sees_all_projects is sees_all


def test_the_operator_says_which_roles_services_have(conf, conductor):
    auth_token.register_opts(conf)
    conf.set_override('service_token_roles', ['nova'], 'keystone_authtoken')
    application = app.make_app(conf, conductor)
    for role in ('service', 'nova'):
        Client(application, roles=['reader', role]).get(
            '/v2/accelerator_requests', headers={'X-Service-Roles': role}
        )
    assert [(context.is_service, context.is_service_user) for context in conductor.contexts] == [
        (False, False),
        (True, True),
    ]
