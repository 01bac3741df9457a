# SPDX-License-Identifier: Apache-2.0
"""What a tenant had is cleaned before another one gets it, or nobody does.

Seen through the API and Placement alone, and by what happened to the cards.
"""

import json
import threading
import uuid

import pytest
import sqlalchemy as sa

from cyborg import context
from cyborg.conductor.rpcapi import ConductorAPI
from cyborg.db.sqlalchemy import models
from tests.fixtures.agents import Agents
from tests.fixtures.cleaning import CARDS, SETTINGS, CleanedHost
from tests.fixtures.cloud import PATIENCE, Cloud, eventually
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
    made = Cloud(tmp_path, more=(
        f'{SETTINGS}[conductor]\nsweep_interval = 1\n[agent]\nresync_interval = 1\n'
        f'[api]\nbind_wait = {wait}\n[cleaning]\nscripts_directory = {scripts}\n'
        + ''.join(f'{name} = {value}\n' for name, value in options.items())))
    made.start()
    made.profile('card', GROUP)
    yield made
    for host in made.hosts.values():
        host.goes_on.set()
    made.stop()


def with_settings(*settings):
    return pytest.mark.parametrize('settings', settings, indirect=True, ids=lambda each: ' '.join(
        f'{name}={value}' for name, value in each.items()))


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
def test_scripts_of_the_operator_run_before_the_handle_is_given_out(
        cloud, host, scripts, tmp_path):
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
    with pytest.raises(Exception, match='no valid host'):
        others[1].create('compute1')


# -- operators who decide --------------------------------------------------------------------


def decide(cloud, decision, card=CARD):
    """Have an operator say what becomes of a quarantined handle."""
    [handle] = [row.handle_uuid for row in quarantined(cloud)]
    conductor = ConductorAPI(cloud.standalone.transport)
    act = {'clean': conductor.clean_handle, 'release': conductor.release_handle}[decision]
    act(context.internal(), handle)


def quarantined(cloud):
    with cloud.standalone.db.reader() as session:
        return session.scalars(sa.select(models.Task).where(
            models.Task.state == 'quarantined')).all()


def quarantine(cloud, host):
    arq = used(cloud, host)
    host.is_broken = True
    delete(cloud, arq)
    require_quarantined(cloud)


def test_an_operator_has_a_handle_cleaned_again(cloud, host):
    quarantine(cloud, host)
    host.is_broken = False
    decide(cloud, 'clean')
    require_usable(cloud, host)
    assert REFUSAL not in told(cloud)


def test_a_handle_that_is_cleaned_again_in_vain_stays_in_quarantine(cloud, host):
    quarantine(cloud, host)
    before = len(host.resets)
    decide(cloud, 'clean')
    eventually(lambda: len(host.resets) > before)
    require_quarantined(cloud)


def test_an_operator_releases_a_handle_as_it_is(cloud, host):
    quarantine(cloud, host)
    before = len(host.resets)
    decide(cloud, 'release')
    eventually(lambda: reserved(cloud) == 0)
    assert bind(cloud)[1].status_code == 202
    assert len(host.resets) == before
    assert REFUSAL not in told(cloud)


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
        cloud, agents, host, scripts, tmp_path):
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
