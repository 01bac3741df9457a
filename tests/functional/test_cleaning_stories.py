# SPDX-License-Identifier: Apache-2.0
"""What a tenant had is cleaned before another one gets it, or nobody does.

Seen through the API and Placement alone, and by what happened to the cards.
"""

import argparse
import json
import re
import threading
import uuid

import pytest

from cyborg import errors
from cyborg.cmd import manage_handles
from cyborg.conductor.audit import Audit
from tests.fixtures.agents import Agents
from tests.fixtures.cleaning import CARDS, KERNEL, SETTINGS, CleanedHost
from tests.fixtures.cloud import PATIENCE, Cloud, eventually
from tests.fixtures.persons import Person, trusting_cloud
from tests.fixtures.servers import Server
from tests.fixtures.threads import in_thread

CARD, OTHER_CARD = CARDS
CLASS = 'CUSTOM_PCI'
GROUP = {f'resources:{CLASS}': '1'}
#: what the kernel says to a reset that fails
REFUSAL = 'Inappropriate ioctl for device'


@pytest.fixture
def settings(request):
    """Options of [cleaning], and how long a bind waits for its host."""
    return {'level': 'reset', 'bind_wait': PATIENCE} | getattr(request, 'param', {})


@pytest.fixture
def scripts(tmp_path):
    """The directory of the operator's scripts, which has none yet."""
    directory = tmp_path / 'clean.d'
    (directory / 'pci_driver').mkdir(parents=True, mode=0o755)
    return directory


@pytest.fixture
def cloud(tmp_path, settings, scripts):
    options = dict(settings)
    wait = options.pop('bind_wait')
    made = Cloud(
        tmp_path,
        more=(
            f'{SETTINGS}[conductor]\nsweep_interval = 1\n[agent]\nresync_interval = 1\n'
            f'[api]\nbind_wait = {wait}\n[cleaning]\nscripts_directory = {scripts}\n'
            + ''.join(f'{name} = {value}\n' for name, value in options.items())
        ),
    )
    made.start()
    made.profile('card', GROUP)
    yield made
    for host in made.hosts.values():
        host.goes_on.set()
    made.stop()


def with_settings(*settings):
    return pytest.mark.parametrize(
        'settings',
        settings,
        indirect=True,
        ids=lambda each: ' '.join(f'{name}={value}' for name, value in each.items()),
    )


no_wait = with_settings({'bind_wait': 0})
not_required = with_settings({'required': False})


@pytest.fixture
def agents(cloud, monkeypatch):
    return Agents(cloud, monkeypatch)


@pytest.fixture
def host(agents):
    return agents.host(make=CleanedHost)


def rp(cloud, card=CARD):
    return cloud.rp(name=card)


def shown(cloud, arq):
    return cloud.get(f'/accelerator_requests/{arq["uuid"]}')


def bind(cloud, card=CARD, profile='card', **options):
    """Make a request and bind it; returns both the request and the answer."""
    [arq] = cloud.request(profile)
    return arq, cloud.bind(arq, rp=rp(cloud, card), **options)


def used(cloud, host, card=CARD, profile='card', **options):
    """A request that is bound, and whose guest has left its traces on the card."""
    arq, answer = bind(cloud, card, profile, **options)
    assert answer.status_code == 202, answer.text
    eventually(lambda: shown(cloud, arq)['state'] == 'Bound')
    host.have_guest_use(card)
    assert host.traces(card)
    return arq


def delete(cloud, arq):
    answer = cloud.call('DELETE', f'/accelerator_requests?arqs={arq["uuid"]}')
    assert answer.status_code == 204, answer.text


def reserved(cloud, card=CARD):
    return cloud.providers()[f'compute1_{card}']['inventories'][CLASS]['reserved']


def require_usable(cloud, host, card=CARD):
    """The card can be had, and nothing of an earlier guest is on it when it is given out."""
    eventually(lambda: reserved(cloud, card) == 0)
    arq, answer = bind(cloud, card)
    assert answer.status_code == 202, answer.text
    assert host.traces(card) == []
    delete(cloud, arq)


def told(cloud, card=CARD):
    """All that an operator is shown of a card: its device, and its deployable."""
    [part] = cloud.get(f'/deployables?name=compute1_{card}')['deployables']
    return json.dumps([part, cloud.get(f'/devices/{part["device_uuid"]}')])


def require_quarantined(cloud, card=CARD, why=REFUSAL):
    """Nobody can have the card; Placement knows, and operators are told why."""
    eventually(lambda: why in told(cloud, card))
    eventually(lambda: reserved(cloud, card) == 1)
    arq, answer = bind(cloud, card)
    assert answer.status_code == 409, answer.text
    assert shown(cloud, arq)['state'] == 'Initial'
    delete(cloud, arq)


def add_script(scripts, name, text):
    path = scripts / 'pci_driver' / name
    path.write_text(f'#!/bin/sh\n{text}\n')
    path.chmod(0o755)
    return path


# -- cleaned before the next -----------------------------------------------------------------


def unbind(cloud, arq, server):
    assert cloud.unbind(arq).status_code == 202


def delete_one(cloud, arq, server):
    delete(cloud, arq)


def delete_server(cloud, arq, server):
    assert cloud.call('DELETE', f'/accelerator_requests?instance={server}').status_code == 204


@with_settings({'level': 'reset', 'bind_wait': 0}, {'level': 'full', 'bind_wait': 0})
@pytest.mark.parametrize('release', [unbind, delete_one, delete_server])
def test_a_handle_is_not_given_out_before_it_is_clean(cloud, host, release):
    server = str(uuid.uuid4())
    arq = used(cloud, host, instance=server)
    host.goes_on.clear()
    # when it is released
    release(cloud, arq, server)
    # then its request ends at once
    assert cloud.arqs(instance=server) == []
    # but nobody gets what it had while that is being cleaned
    assert host.is_resetting.wait(PATIENCE)
    next_one, answer = bind(cloud)
    assert answer.status_code == 409, answer.text
    assert 'clean' in answer.text
    assert shown(cloud, next_one)['state'] == 'Initial'
    # when it is clean it can be had
    host.goes_on.set()
    eventually(lambda: cloud.bind(next_one, rp=rp(cloud)).status_code == 202)
    assert shown(cloud, next_one)['state'] == 'Bound'
    assert host.traces(CARD) == []
    assert host.resets == [CARD]


def test_a_bind_waits_for_what_is_being_cleaned(cloud, host):
    arq = used(cloud, host)
    host.goes_on.clear()
    delete(cloud, arq)
    assert host.is_resetting.wait(PATIENCE)
    second = in_thread(bind, cloud)
    host.goes_on.set()
    arq, answer = second()
    assert answer.status_code == 202, answer.text
    assert (shown(cloud, arq)['state'], host.traces(CARD)) == ('Bound', [])


def test_each_release_is_followed_by_a_reset_of_its_own(cloud, host):
    for count in (1, 2, 3):
        delete(cloud, used(cloud, host))
        eventually(lambda count=count: host.resets == [CARD] * count)
        eventually(lambda: host.traces(CARD) == [])


@with_settings({'level': 'none'})
def test_what_is_not_to_be_cleaned_can_be_had_at_once(cloud, host):
    delete(cloud, used(cloud, host))
    arq, answer = bind(cloud)
    assert answer.status_code == 202
    assert host.resets == []


def test_a_request_that_was_never_bound_leaves_nothing_to_clean(cloud, host):
    [arq] = cloud.request('card')
    delete(cloud, arq)
    require_usable(cloud, host)
    eventually(lambda: host.resets == [CARD])


@no_wait
def test_a_card_that_is_being_cleaned_holds_up_no_other(cloud, host):
    first, second = used(cloud, host), used(cloud, host, OTHER_CARD)
    host.goes_on.clear()
    delete(cloud, first)
    assert host.is_resetting.wait(PATIENCE)
    assert shown(cloud, second)['state'] == 'Bound'
    assert reserved(cloud, OTHER_CARD) == 0
    host.goes_on.set()
    delete(cloud, second)
    for card in CARDS:
        eventually(lambda card=card: host.traces(card) == [])


@with_settings({'level': 'none'})
def test_a_profile_can_ask_for_more_than_the_host_does(cloud, host):
    cloud.profile('clean', GROUP | {'accel:cleaning': 'reset'})
    delete(cloud, used(cloud, host, profile='clean'))
    eventually(lambda: host.resets == [CARD])
    require_usable(cloud, host)


def test_a_profile_can_ask_for_less_than_the_host_does(cloud, host):
    cloud.profile('dirty', GROUP | {'accel:cleaning': 'none'})
    delete(cloud, used(cloud, host, profile='dirty'))
    arq, answer = bind(cloud)
    assert answer.status_code == 202
    assert host.resets == []


# -- the operator's scripts ------------------------------------------------------------------


@with_settings({'level': 'reset'}, {'level': 'full'})
def test_scripts_of_the_operator_run_before_the_handle_is_given_out(cloud, host, scripts, tmp_path):
    note = tmp_path / 'note'
    add_script(scripts, '10-first', f'echo first $CYBORG_ADDRESS >> {note}')
    add_script(scripts, '20-second', f'echo second $CYBORG_LEVEL >> {note}')
    delete(cloud, used(cloud, host))
    require_usable(cloud, host)
    lines = note.read_text().splitlines()
    assert lines[0] == f'first {CARD}' and lines[1].startswith('second ')
    assert host.resets[0] == CARD


def test_a_script_that_fails_keeps_the_handle_back_and_is_quoted(cloud, host, scripts):
    add_script(scripts, '10-check', 'echo The fan does not turn; exit 3')
    delete(cloud, used(cloud, host))
    require_quarantined(cloud, why='The fan does not turn')


# -- steps that fail -------------------------------------------------------------------------


def test_a_handle_that_cannot_be_cleaned_is_quarantined(cloud, host):
    arq = used(cloud, host)
    host.is_broken = True
    delete(cloud, arq)
    assert cloud.arqs() == []
    require_quarantined(cloud)
    assert host.traces(CARD)
    # the other card is not concerned
    require_usable(cloud, host, OTHER_CARD)


def test_a_quarantine_outlives_the_agent_and_its_host(cloud, agents, host):
    arq = used(cloud, host)
    host.is_broken = True
    delete(cloud, arq)
    require_quarantined(cloud)
    agents.stop()()
    host.reboot()
    agents.start()
    cloud.rest()
    require_quarantined(cloud)


def test_a_quarantine_outlives_all_services(cloud, host):
    arq = used(cloud, host)
    host.is_broken = True
    delete(cloud, arq)
    require_quarantined(cloud)
    cloud.standalone.stop()
    cloud.start()
    cloud.rest()
    require_quarantined(cloud)


@not_required
def test_what_need_not_be_clean_is_given_out_though_a_step_fails(cloud, host):
    arq = used(cloud, host)
    host.is_broken = True
    delete(cloud, arq)
    eventually(lambda: host.resets)
    arq, answer = bind(cloud)
    assert answer.status_code == 202, answer.text
    assert reserved(cloud) == 0


@not_required
def test_a_profile_can_require_what_the_host_does_not(cloud, host):
    cloud.profile('clean', GROUP | {'accel:cleaning_required': 'true'})
    arq = used(cloud, host, profile='clean')
    host.is_broken = True
    delete(cloud, arq)
    require_quarantined(cloud)


def test_a_server_that_is_deleted_is_gone_though_its_card_cannot_be_cleaned(cloud, host):
    server = Server(cloud, 'card')
    server.create('compute1')
    host.is_broken = True
    server.delete()
    assert cloud.arqs() == []
    # Nova finds the other card, and then none
    others = [Server(cloud, 'card'), Server(cloud, 'card')]
    eventually(lambda: sorted(reserved(cloud, card) for card in CARDS) == [0, 1])
    others[0].create('compute1')
    with pytest.raises(Exception, match='No valid host'):
        others[1].create('compute1')


# -- operators who decide --------------------------------------------------------------------


USER = 'user noauth'
REASON = 'It was overwritten by hand.'


def device(cloud, card=CARD):
    """The uuid of a card."""
    [part] = cloud.get(f'/deployables?name=compute1_{card}')['deployables']
    return part['device_uuid']


def handbacks(cloud, card=CARD, **filters):
    return cloud.get(f'/devices/{device(cloud, card)}/handbacks', params=filters)['handbacks']


def quarantined(cloud, card=CARD):
    [found] = handbacks(cloud, card, result='quarantined')
    return found


def decide(cloud, decision, handle=None, card=CARD, reason=REASON, token=None):
    """Have an operator say what becomes of a quarantined handle; returns the answer."""
    handle = handle or quarantined(cloud, card)['attach_handle_uuid']
    return cloud.call(
        'POST',
        f'/devices/{device(cloud, card)}/handles/{handle}/{decision}',
        json={'reason': reason} if decision == 'release' else None,
        headers={'X-Auth-Token': token} if token else {},
    )


def clean_again(cloud, **options):
    answer = decide(cloud, 'clean', **options)
    assert answer.status_code == 202, answer.text
    return answer.json()


def release_as_it_is(cloud, **options):
    answer = decide(cloud, 'release', **options)
    assert answer.status_code == 200, answer.text
    return answer.json()


def quarantine(cloud, host):
    arq = used(cloud, host)
    host.is_broken = True
    delete(cloud, arq)
    require_quarantined(cloud)
    return arq['uuid']


def reasons(cloud, arq):
    """What the history of a request tells of how its handle was given back."""
    found = cloud.get(f'/accelerator_requests/{arq}/history')['history']
    return [step['reason'] for step in found if step['event'] == 'handed back']


def test_a_hand_back_is_recorded_with_whose_it_was_and_what_was_done(cloud, host):
    server = str(uuid.uuid4())
    arq = used(cloud, host, instance=server)
    bound = shown(cloud, arq)
    delete(cloud, arq)
    require_usable(cloud, host)
    record, *_ = handbacks(cloud)
    assert (record['kind'], record['result'], record['reason']) == ('clean', 'done', None)
    assert [record[name] for name in ('arq_uuid', 'instance_uuid', 'project_id')] == [
        arq['uuid'],
        server,
        bound['project_id'],
    ]
    for name in ('uuid', 'type', 'info'):
        assert record[f'attach_handle_{name}'] == bound[f'attach_handle_{name}']
    assert (record['hostname'], record['driver_name']) == ('compute1', 'pci_driver')
    steps = [(step['name'], step['result'], step['reason']) for step in record['steps']]
    assert steps == [('reset', 'done', None), ('verify', 'done', None)]
    assert 0 <= sum(step['seconds'] for step in record['steps']) <= record['seconds'] + 0.1
    assert record['created_at'] <= record['finished_at']
    assert record['versions'] == {'kernel': KERNEL}
    assert record['decision'] is None


def test_a_quarantine_says_which_step_failed_and_why(cloud, host):
    arq = quarantine(cloud, host)
    record = quarantined(cloud)
    assert (record['arq_uuid'], record['attempts']) == (arq, 3)
    [step] = record['steps']
    assert (step['name'], step['result']) == ('reset', 'failed')
    assert REFUSAL in step['reason'] and REFUSAL in record['reason']
    # the tenant can read it, too
    [reason] = reasons(cloud, arq)
    assert 'could not be cleaned' in reason and REFUSAL in reason
    # the other card has no such record
    assert handbacks(cloud, OTHER_CARD) == []


def test_an_operator_has_a_handle_cleaned_again(cloud, host):
    arq = quarantine(cloud, host)
    failed = quarantined(cloud)
    host.is_broken = False
    again = clean_again(cloud)
    assert (again['result'], again['attempts'], again['steps']) == ('open', 0, [])
    require_usable(cloud, host)
    assert REFUSAL not in told(cloud)
    # the record of the failure stays, and says who decided what
    first, second, *_ = handbacks(cloud)
    assert (first['uuid'], first['result'], first['reason']) == (
        failed['uuid'],
        'failed',
        failed['reason'],
    )
    assert first['steps'] == failed['steps']
    assert first['finished_at'] == failed['finished_at'] <= first['decided_at']
    assert (first['decision'], first['decided_by']) == ('clean', USER)
    # and the new one is for the same request
    assert (second['uuid'], second['result'], second['arq_uuid']) == (again['uuid'], 'done', arq)
    assert ['could not be' in text for text in reasons(cloud, arq)] == [True, False]


def test_a_handle_that_is_cleaned_again_in_vain_stays_in_quarantine(cloud, host):
    quarantine(cloud, host)
    before = len(host.resets)
    again = clean_again(cloud)
    eventually(lambda: len(host.resets) > before)
    require_quarantined(cloud)
    assert quarantined(cloud)['uuid'] == again['uuid']


def test_asking_twice_for_cleaning_cleans_once(cloud, host):
    quarantine(cloud, host)
    handle, before = quarantined(cloud)['attach_handle_uuid'], len(host.resets)
    host.is_broken = False
    host.goes_on.clear()
    first, second = (clean_again(cloud, handle=handle) for _ in range(2))
    assert first['uuid'] == second['uuid']
    host.goes_on.set()
    eventually(lambda: reserved(cloud) == 0)
    assert len(host.resets) == before + 1
    answer = decide(cloud, 'clean', handle)
    assert answer.status_code == 409
    assert 'it is free' in answer.text


def test_an_operator_releases_a_handle_as_it_is(cloud, host):
    arq = quarantine(cloud, host)
    before = len(host.resets)
    record = release_as_it_is(cloud)
    assert (record['result'], record['decision']) == ('failed', 'release')
    assert (record['decided_by'], record['decision_reason']) == (USER, REASON)
    eventually(lambda: reserved(cloud) == 0)
    assert bind(cloud)[1].status_code == 202
    assert len(host.resets) == before
    assert REFUSAL not in told(cloud)
    assert handbacks(cloud) == [record]
    # whose it was is told
    assert 'without being cleaned' in reasons(cloud, arq)[-1]


def test_releasing_a_handle_twice_is_one_decision(cloud, host):
    quarantine(cloud, host)
    handle = quarantined(cloud)['attach_handle_uuid']
    first = release_as_it_is(cloud, handle=handle)
    assert bind(cloud)[1].status_code == 202
    assert release_as_it_is(cloud, handle=handle) == first
    # what another one says, or for another reason, is not recorded, and therefore refused
    other = decide(cloud, 'release', handle, reason='Nobody cares.')
    assert other.status_code == 409
    assert 'holds it' in other.text


def test_only_what_is_quarantined_can_be_decided_about(cloud, host):
    arq = used(cloud, host)
    handle = shown(cloud, arq)['attach_handle_uuid']
    for decision in ('clean', 'release'):
        answer = decide(cloud, decision, handle)
        assert answer.status_code == 409
        assert f'accelerator request {arq["uuid"]} holds it' in answer.text
    host.goes_on.clear()
    delete(cloud, arq)
    assert host.is_resetting.wait(PATIENCE)
    answer = decide(cloud, 'release', handle)
    assert answer.status_code == 409
    assert 'not cleaned it yet' in answer.text
    host.goes_on.set()
    require_usable(cloud, host)


def test_a_handle_is_decided_about_by_way_of_its_own_device(cloud, host):
    quarantine(cloud, host)
    handle = quarantined(cloud)['attach_handle_uuid']
    for decision in ('clean', 'release'):
        for at, why in ((OTHER_CARD, 'has no handle'), (None, 'Device not found')):
            place = device(cloud, at) if at else str(uuid.uuid4())
            answer = cloud.call(
                'POST', f'/devices/{place}/handles/{handle}/{decision}', json={'reason': REASON}
            )
            assert answer.status_code == 404
            assert why in answer.text
    assert quarantined(cloud)['decision'] is None


@pytest.mark.parametrize('reason', [None, '', '  ', 5, 'x' * 1025])
def test_nothing_is_released_without_a_reason(cloud, host, reason):
    answer = decide(cloud, 'release', str(uuid.uuid4()), reason=reason)
    assert answer.status_code == 400
    assert 'reason' in answer.text


@pytest.mark.parametrize(
    'decisions', [('release', 'release'), ('clean', 'release'), ('clean', 'clean')], ids='-'.join
)
def test_of_two_operators_one_decides(cloud, host, decisions):
    quarantine(cloud, host)
    handle = quarantined(cloud)['attach_handle_uuid']
    host.is_broken = False
    host.goes_on.clear()
    asked = [
        in_thread(decide, cloud, decision, handle, reason=f'Says {who}.', token=f'{who}:admins')
        for who, decision in zip(('alice', 'bob'), decisions, strict=True)
    ]
    answers = [wait() for wait in asked]
    statuses = sorted(answer.status_code for answer in answers)
    assert statuses == ([202, 202] if 'release' not in decisions else [statuses[0], 409])
    [decided] = [record for record in handbacks(cloud) if record['decision']]
    winners = [
        f'user {who}'
        for who, answer in zip(('alice', 'bob'), answers, strict=True)
        if answer.status_code < 300
    ]
    assert decided['decided_by'] in winners
    host.goes_on.set()
    eventually(lambda: reserved(cloud) == 0)
    assert bind(cloud)[1].status_code == 202


def test_a_page_of_hand_backs_leads_to_the_next(cloud, host):
    for _ in range(3):
        delete(cloud, used(cloud, host))
        require_usable(cloud, host)
    eventually(lambda: all(each['result'] == 'done' for each in handbacks(cloud)))
    every = [each['uuid'] for each in handbacks(cloud)]
    path, seen = f'/devices/{device(cloud)}/handbacks?limit=2&result=done', []
    while path:
        page = cloud.get(path)
        seen += [each['uuid'] for each in page['handbacks']]
        path = page.get('handbacks_links', [{'href': ''}])[0]['href'].partition('/v2')[2]
    assert seen == every and len(seen) == 6
    assert [
        each['uuid'] for each in handbacks(cloud, sort_key='created_at', sort_dir='desc')
    ] == every[::-1]
    # a record of another device is no marker here
    answer = cloud.call('GET', f'/devices/{device(cloud, OTHER_CARD)}/handbacks?marker={every[0]}')
    assert answer.status_code == 400


def test_hand_backs_are_found_by_what_they_were_for(cloud, host):
    arqs = []
    for _ in range(2):
        arqs.append(shown(cloud, used(cloud, host, instance=str(uuid.uuid4()))))
        delete(cloud, arqs[-1])
        eventually(lambda: [each['result'] for each in handbacks(cloud)] == ['done'] * len(arqs))
    first, second = handbacks(cloud)
    for arq, record in zip(arqs, (first, second), strict=True):
        assert handbacks(cloud, arq_uuid=arq['uuid']) == [record]
        assert handbacks(cloud, instance_uuid=arq['instance_uuid']) == [record]
    assert handbacks(cloud, attach_handle_uuid=arqs[0]['attach_handle_uuid']) == [first, second]
    assert handbacks(cloud, attach_handle_uuid=str(uuid.uuid4())) == []
    assert handbacks(cloud, result='quarantined') == []


def test_an_agent_that_is_killed_after_the_decision_cleans_when_it_is_back(cloud, agents, host):
    quarantine(cloud, host)
    handle = quarantined(cloud)['attach_handle_uuid']
    agents.kill()()
    host.is_broken = False
    before = len(host.resets)
    again = clean_again(cloud, handle=handle)
    assert [each['result'] for each in handbacks(cloud)] == ['failed', 'open']
    agents.start()
    eventually(lambda: reserved(cloud) == 0)
    assert host.resets[before:] == [CARD]
    assert handbacks(cloud)[-1]['uuid'] == again['uuid']
    assert handbacks(cloud)[-1]['result'] == 'done'


def test_a_handle_is_released_though_its_agent_is_gone(cloud, agents, host):
    quarantine(cloud, host)
    place = rp(cloud)
    agents.kill()()
    release_as_it_is(cloud)
    [arq] = cloud.request('card')
    assert cloud.bind(arq, rp=place).status_code == 202
    agents.start()
    eventually(lambda: reserved(cloud) == 0)


@pytest.fixture
def trusting(tmp_path):
    """A cloud that asks who asks."""
    more = f'{SETTINGS}[cleaning]\nlevel = reset\n'
    made = trusting_cloud(tmp_path, more=more)
    made.start()
    yield made
    made.stop()


def test_a_tenant_sees_how_its_own_handles_were_cleaned_and_no_others(trusting):
    trusting.host(make=CleanedHost)
    admin, mine, other = (
        Person(trusting, role, project, vouched=True)
        for role, project in (('admin', 'admins'), ('member', 'mine'), ('member', 'other'))
    )
    made = admin.call('POST', '/device_profiles', json=[{'name': 'card', 'groups': [GROUP]}])
    assert made.status_code == 201, made.text
    made = mine.call('POST', '/accelerator_requests', json={'device_profile_name': 'card'})
    [arq] = made.json()['arqs']
    card, *_ = admin.get('/deployables')['deployables']
    values = {
        'hostname': 'compute1',
        'device_rp_uuid': card['rp_uuid'],
        'instance_uuid': str(uuid.uuid4()),
    }
    patch = [{'op': 'add', 'path': f'/{name}', 'value': value} for name, value in values.items()]
    bound = mine.call('PATCH', '/accelerator_requests', json={arq['uuid']: patch})
    assert bound.status_code == 202, bound.text
    mine.call('DELETE', f'/accelerator_requests?arqs={arq["uuid"]}')
    history = f'/accelerator_requests/{arq["uuid"]}/history'
    eventually(lambda: 'was cleaned' in str(mine.get(history)))
    [step] = [each for each in mine.get(history)['history'] if each['event'] == 'handed back']
    assert 'reset (done), verify (done)' in step['reason']
    # others see nothing of it
    assert other.call('GET', history).status_code == 404
    path = f'/devices/{card["device_uuid"]}/handbacks'
    assert [person.call('GET', path).status_code for person in (mine, other)] == [403, 403]
    [record] = admin.get(path)['handbacks']
    assert (record['arq_uuid'], record['project_id']) == (arq['uuid'], 'mine')


def manage(cloud, capsys, *words):
    """Run cyborg-manage handle; returns what it said."""
    parser = argparse.ArgumentParser()
    manage_handles.add_commands(parser.add_subparsers())
    options = parser.parse_args(['handle', *words])
    assert options.function(cloud.standalone.conf, options) == 0
    return capsys.readouterr().out


def test_an_operator_without_the_api_decides_with_cyborg_manage(cloud, host, capsys):
    quarantine(cloud, host)
    handle = quarantined(cloud)['attach_handle_uuid']
    assert REFUSAL in manage(cloud, capsys, 'list')
    manage(cloud, capsys, 'clean', handle)
    eventually(lambda: len(handbacks(cloud)) == 2 and handbacks(cloud, result='quarantined'))
    manage(cloud, capsys, 'release', handle, '--reason', REASON)
    eventually(lambda: reserved(cloud) == 0)
    assert manage(cloud, capsys, 'list') == 'No handle is quarantined\n'
    assert [
        (each['decision'], each['decided_by'], each['decision_reason']) for each in handbacks(cloud)
    ] == [('clean', 'operator', None), ('release', 'operator', REASON)]
    with pytest.raises(errors.NotQuarantined, match='operator has released it'):
        manage(cloud, capsys, 'clean', handle)
    with pytest.raises(errors.NotFound, match='There is no handle'):
        manage(cloud, capsys, 'release', str(uuid.uuid4()), '--reason', REASON)


def test_the_audit_names_a_command_that_releases_a_quarantined_handle(cloud, host, capsys):
    quarantine(cloud, host)
    [remedy] = [
        each.remedy for each in Audit(cloud.standalone.db).look() if 'quarantined' in each.what
    ]
    [words] = re.findall('cyborg-manage handle (release .*) to offer it', remedy)
    manage(cloud, capsys, *words.split())
    eventually(lambda: reserved(cloud) == 0)


@pytest.mark.parametrize('words', [(), ('--reason', ' ')], ids=['none', 'blank'])
def test_cyborg_manage_releases_no_handle_without_a_reason(cloud, capsys, words):
    with pytest.raises(SystemExit):
        manage(cloud, capsys, 'release', str(uuid.uuid4()), *words)
    assert '--reason' in capsys.readouterr().err


# -- agents that go meanwhile ----------------------------------------------------------------


@no_wait
def test_a_release_needs_no_living_agent_and_is_cleaned_when_it_is_back(cloud, agents, host):
    arq, place = used(cloud, host), rp(cloud)
    agents.stop()()
    delete(cloud, arq)
    assert cloud.arqs() == []
    [next_one] = cloud.request('card')
    assert cloud.bind(next_one, rp=place).status_code == 409
    assert host.resets == []
    agents.start()
    eventually(lambda: cloud.bind(next_one, rp=place).status_code == 202)
    assert (host.resets, host.traces(CARD)) == ([CARD], [])


@no_wait
def test_an_agent_that_is_stopped_finishes_the_step_that_runs(cloud, agents, host):
    arq, place = used(cloud, host), rp(cloud)
    host.goes_on.clear()
    delete(cloud, arq)
    assert host.is_resetting.wait(PATIENCE)
    stopped = agents.stop()
    host.goes_on.set()
    stopped()
    assert host.traces(CARD) == []
    agents.start()
    [next_one] = cloud.request('card')
    eventually(lambda: cloud.bind(next_one, rp=place).status_code == 202)


@no_wait
def test_an_agent_that_is_killed_between_two_steps_does_all_of_them_again(
    cloud, agents, host, scripts, tmp_path
):
    note, killed = tmp_path / 'note', threading.Event()
    add_script(scripts, '10-check', f'echo checked >> {note}')
    arq, place = used(cloud, host), rp(cloud)

    def die():
        """Nothing that the agent does after this reset is heard of, or succeeds."""
        agents.cut()
        host.is_broken = True
        add_script(scripts, '10-check', 'exit 1')
        killed.set()

    host.on_reset = die
    delete(cloud, arq)
    assert killed.wait(PATIENCE)
    agents.kill()()
    # nobody gets it half cleaned
    [next_one] = cloud.request('card')
    assert cloud.bind(next_one, rp=place).status_code == 409
    assert REFUSAL not in told(cloud)
    # when the agent is back
    host.on_reset, host.is_broken = lambda: None, False
    add_script(scripts, '10-check', f'echo checked >> {note}')
    before = len(host.resets)
    agents.start()
    # then all is done from the start
    eventually(lambda: cloud.bind(next_one, rp=place).status_code == 202)
    assert host.resets[before:] == [CARD]
    assert note.read_text().splitlines() == ['checked']
    assert host.traces(CARD) == []


@no_wait
def test_an_agent_whose_last_word_is_lost_cleans_once_more(cloud, agents, host, scripts, tmp_path):
    note = tmp_path / 'note'
    # given a script that ends after the agent was cut off
    add_script(scripts, '10-check', f'echo checked >> {note}')
    arq, place = used(cloud, host), rp(cloud)
    host.on_reset = agents.cut
    delete(cloud, arq)
    eventually(note.exists)
    agents.kill()()
    [next_one] = cloud.request('card')
    assert cloud.bind(next_one, rp=place).status_code == 409
    host.on_reset = lambda: None
    agents.start()
    eventually(lambda: cloud.bind(next_one, rp=place).status_code == 202)
    assert host.resets == [CARD, CARD]


# -- hosts and cards that go meanwhile -------------------------------------------------------


@no_wait
def test_a_card_that_was_pulled_out_uncleaned_is_cleaned_when_it_is_back(cloud, agents, host):
    arq, place = used(cloud, host), rp(cloud)
    agents.stop()()
    delete(cloud, arq)
    host.pull_out(CARD)
    agents.start()
    cloud.rest()
    [next_one] = cloud.request('card')
    assert cloud.bind(next_one, rp=place).status_code in (404, 409)
    host.plug_in('1234:5678', at=CARD)
    eventually(lambda: cloud.bind(next_one, rp=place).status_code == 202)
    assert host.resets == [CARD]


@no_wait
def test_after_a_reboot_what_was_owed_is_still_done(cloud, agents, host):
    arq, place = used(cloud, host), rp(cloud)
    host.goes_on.clear()
    delete(cloud, arq)
    assert host.is_resetting.wait(PATIENCE)
    stopped = agents.kill()
    host.is_broken = True
    host.goes_on.set()
    stopped()
    host.reboot()
    host.is_broken = False
    before = len(host.resets)
    agents.start()
    [next_one] = cloud.request('card')
    eventually(lambda: cloud.bind(next_one, rp=place).status_code == 202)
    assert host.resets[before:] == [CARD]


def test_a_disabled_card_is_cleaned_as_well(cloud, host):
    arq = used(cloud, host)
    [part] = cloud.get(f'/deployables?name=compute1_{CARD}')['deployables']
    device = f'/devices/{part["device_uuid"]}'
    assert cloud.call('POST', f'{device}/disable').status_code == 204
    delete(cloud, arq)
    eventually(lambda: host.traces(CARD) == [])
    assert bind(cloud)[1].status_code == 409
    assert cloud.call('POST', f'{device}/enable').status_code == 204
    require_usable(cloud, host)


def test_a_server_that_was_evacuated_leaves_its_card_to_be_cleaned(cloud, agents, host):
    agents.host('compute2', make=CleanedHost)
    server = Server(cloud, 'card')
    server.create('compute1')
    [given] = server.accelerators
    card = '0000:{bus}:{device}.{function}'.format_map(given['attach_handle_info'])
    host.have_guest_use(card)
    agents.stop('compute1')()
    server.evacuate('compute2')
    assert host.resets == []
    agents.start('compute1')
    server.source_is_back('compute1')
    eventually(lambda: host.resets == [card])
    require_usable(cloud, host, card)
    server.reboot()
    assert [arq['hostname'] for arq in server.accelerators] == ['compute2']
