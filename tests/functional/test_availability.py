# SPDX-License-Identifier: Apache-2.0
"""How often a profile fits, and why not: compared with what a real Placement would offer."""

import contextlib
import pathlib
import tempfile
from http import HTTPStatus

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oslo_context import context as oslo_context

from tests.fixtures.cloud import clear
from tests.fixtures.persons import Person, trusting_cloud
from tests.fixtures.supply import MICROVERSION, Card, Supply

A, B = 'CUSTOM_A', 'CUSTOM_B'
ONE = {'resources:FPGA': '1'}


@pytest.fixture(scope='module')
def cloud():
    """Without agents: hosts are made by Supply. In memory where that is possible, since Placement
    waits for the disk with each of its many calls."""
    memory = pathlib.Path('/dev/shm')
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as name:
        yield from started(pathlib.Path(name))


def started(directory):
    made = trusting_cloud(directory)
    made.start()
    made.session.headers['X-Auth-Token'] = 'admin:p'
    for trait in (A, B):
        made.placement.put(f'/traits/{trait}', headers=MICROVERSION)
    yield made
    made.stop()


@pytest.fixture
def supply(cloud):
    with emptied(cloud) as made:
        yield made


@contextlib.contextmanager
def emptied(cloud):
    clear(cloud.standalone.db)
    yield Supply(cloud)
    clear(cloud.standalone.db)


def availability(cloud, *groups, query='', who=None):
    """Of a new profile with these groups."""
    number = len(cloud.get('/device_profiles')['device_profiles'])
    cloud.profile(f'p{number}', *groups)
    return (who or cloud).get(f'/device_profiles/p{number}/availability{query}')


def on_host(shown, name):
    return next(host for host in shown['hosts'] if host['hostname'] == name)


# -- each obstacle has its own reason ----------------------------------------------------------

OBSTACLES = {
    'in_use': (Card(held=1), {}),
    'trait_missing': (Card(), {}),
    'disabled': (Card(status='maintaining'), {}),
    'at_fault': (Card(fault='It is on fire.'), {}),
    'being_cleaned': (Card(withheld=('cleaning',), failures=1), {}),
    'being_programmed': (Card(withheld=('programming',)), {}),
    'quarantined': (Card(withheld=('quarantined',)), {}),
    'used_by_others': (Card(occupied=1), {}),
    'conflict_with_nova': (Card(has_conflict=True), {}),
    'agent_silent': (Card(), {'is_silent': True}),
    'compute_service_disabled': (Card(), {'is_disabled': True}),
    'no_room_in_placement': (Card(strangers=1), {}),
    'not_in_placement': (Card(is_published=False), {}),
}


@pytest.mark.parametrize('reason', OBSTACLES)
def test_an_obstacle_gives_its_own_reason(cloud, supply, reason):
    card, options = OBSTACLES[reason]
    group = ONE
    if reason == 'trait_missing':
        group = ONE | {f'trait:{A}': 'required'}
    name = supply.host(card, **options)
    shown = availability(cloud, group)
    assert (shown['fits'], shown['hosts_considered'], shown['hosts_fitting']) == (0, 1, 0)
    assert shown['reasons'] == {reason: 1}
    assert shown['groups'][0]['reasons'] == {reason: 1}
    [told] = on_host(shown, name)['groups']
    assert told['reasons'] == {reason: 1} and told['free'] == 0
    assert told['sentence'].startswith('It does not fit: of 1 unit of FPGA, 1 ')
    if reason != 'agent_silent':  # Placement does not know of that
        assert not supply.candidate(name, [group])


def test_a_forbidden_trait_is_in_the_way(cloud, supply):
    supply.host(Card(traits=(A,)))
    shown = availability(cloud, ONE | {f'trait:{A}': 'forbidden'})
    assert shown['reasons'] == {'trait_missing': 1}
    assert f'{A} is forbidden' in shown['hosts'][0]['groups'][0]['sentence']


def test_a_trait_that_placement_has_lost_is_missing(cloud, supply):
    card = Card(traits=(A,))
    supply.host(card)
    path = f'/resource_providers/{card.rp_uuid}/traits'
    assert cloud.placement.delete(path, headers=MICROVERSION).ok
    shown = availability(cloud, ONE | {f'trait:{A}': 'required'})
    assert shown['reasons'] == {'trait_missing': 1}


def test_units_of_two_cards_do_not_serve_one_group(cloud, supply):
    supply.host(Card(units=2, held=1), Card(units=2, held=1))
    shown = availability(cloud, {'resources:FPGA': '2'})
    assert (shown['fits'], shown['reasons']) == (0, {'in_use': 1, 'too_few': 1})
    assert shown['groups'][0]['reasons'] == {'in_use': 2, 'too_few': 2}


def test_a_card_that_is_being_cleaned_is_offered_already(cloud, supply):
    """A bind waits for it."""
    supply.host(Card(units=2, withheld=('cleaning',), held=1))
    shown = availability(cloud, ONE)
    assert (shown['fits'], shown['groups'][0]['free']) == (1, 0)
    assert shown['groups'][0]['reasons'] == {'in_use': 1, 'being_cleaned': 1}


@pytest.mark.parametrize(
    'amount, limits, fits',
    [
        (1, {'min_unit': 2}, 0),
        (2, {'min_unit': 2}, 2),
        (3, {'max_unit': 2}, 0),
        (2, {'max_unit': 2}, 2),
        (1, {'step_size': 2}, 0),
        (2, {'step_size': 2}, 2),
        (3, {'step_size': 2}, 0),
    ],
)
def test_the_limits_of_an_inventory_are_honoured(cloud, supply, amount, limits, fits):
    supply.host(Card(units=4, inventory=limits))
    shown = availability(cloud, {'resources:FPGA': str(amount)})
    assert shown['fits'] == fits
    assert shown['reasons'] == ({} if fits else {'no_room_in_placement': 1})


# -- several groups ----------------------------------------------------------------------------


def test_groups_that_share_a_card_fit_together_less_often(cloud, supply):
    supply.host(Card(units=4))
    shown = availability(cloud, ONE, ONE)
    assert [group['fits'] for group in shown['groups']] == [4, 4]
    assert (shown['fits'], shown['at_most']) == (2, False)


def test_groups_that_do_not_fit_together_do_not_fit(cloud, supply):
    supply.host(Card(units=3), Card(units=3))
    shown = availability(cloud, *[{'resources:FPGA': '2'}] * 3)
    assert [group['fits'] for group in shown['groups']] == [2, 2, 2]
    assert (shown['fits'], shown['reasons']) == (0, {'too_few': 1})


def test_where_groups_compete_it_says_at_most(cloud, supply):
    both = {'resources:FPGA': '3'}, {'resources:FPGA': '2'}
    supply.host(Card(units=5), Card(units=5))
    shown = availability(cloud, *both)
    assert (shown['fits'], shown['at_most']) == (2, False)
    # whoever places one server after the other may take the wrong card for the group of 2
    name = supply.host(Card(units=3), Card(units=3), Card(units=4))
    shown = availability(cloud, *both)
    assert (shown['fits'], shown['at_most']) == (4, True)
    assert (on_host(shown, name)['fits'], on_host(shown, name)['at_most']) == (2, True)


def test_a_host_without_a_class_is_told_apart(cloud, supply):
    name = supply.host(Card(units=2))
    shown = availability(cloud, ONE, {'resources:VGPU': '1'})
    assert (shown['fits'], shown['reasons']) == (0, {'class_missing': 1})
    assert on_host(shown, name)['groups'][1]['sentence'] == 'The host has no unit of VGPU.'


# -- who is told what --------------------------------------------------------------------------


def test_tenants_see_counts_and_no_hosts(cloud, supply):
    name = supply.host(Card(units=2, held=1))
    shown = availability(cloud, ONE, who=Person(cloud, 'reader'))
    assert (shown['fits'], shown['hosts_considered']) == (1, 1)
    assert shown['groups'] == [
        {'group': 0, 'fits': 1, 'units': 2, 'free': 1, 'reasons': {'in_use': 1}}
    ]
    assert 'hosts' not in shown and name not in str(shown)
    assert 'hosts' in availability(cloud, ONE, who=Person(cloud, 'manager'))


def test_tenants_do_not_ask_about_a_host(cloud, supply):
    name = supply.host(Card())
    cloud.profile('p', ONE)
    path = f'/device_profiles/p/availability?hostname={name}'
    refused = Person(cloud, 'member').call('GET', path)
    assert refused.status_code == HTTPStatus.FORBIDDEN
    assert 'cyborg:device:get_all' in refused.text
    assert Person(cloud, 'manager').get(path)['fits'] == 1


def test_a_private_profile_stays_private(cloud, supply):
    supply.host(Card())
    cloud.profile('p', ONE)
    change = {'projects': ['mine'], 'enabled': False}
    assert cloud.call('PATCH', '/device_profiles/p', json=change).ok
    path = '/device_profiles/p/availability'
    assert Person(cloud, 'reader', 'mine').get(path)['enabled'] is False
    hidden = Person(cloud, 'reader', 'other').call('GET', path)
    assert hidden.status_code == HTTPStatus.NOT_FOUND


def test_hosts_are_shown_in_the_order_of_their_names(cloud, supply):
    for name, card in (('b', Card()), ('c', Card(held=1)), ('a', Card()), ('d', Card(units=2))):
        supply.host(card, name=name)
    shown = availability(cloud, ONE)
    assert [(host['hostname'], host['fits']) for host in shown['hosts']] == [
        ('a', 1),
        ('b', 1),
        ('c', 0),
        ('d', 2),
    ]


def test_one_host_is_asked_for(cloud, supply):
    first, second = supply.host(Card(units=2)), supply.host(Card(units=3))
    supply.host(name='bare')
    shown = availability(cloud, ONE, query=f'?hostname={second}')
    assert (shown['fits'], shown['hosts_considered']) == (3, 1)
    assert [host['hostname'] for host in shown['hosts']] == [second]
    shown = availability(cloud, ONE, query='?hostname=bare')
    assert (shown['fits'], shown['reasons']) == (0, {'class_missing': 1})
    unknown = cloud.call('GET', '/device_profiles/p0/availability?hostname=elsewhere')
    assert unknown.status_code == HTTPStatus.NOT_FOUND
    assert first


# -- what it costs -----------------------------------------------------------------------------


class Calls(list):
    """The calls of Placement that follow."""

    def __init__(self, cloud, monkeypatch):
        super().__init__()
        real = cloud.placement.request
        monkeypatch.setattr(
            cloud.placement,
            'request',
            lambda path, method, **options: (
                self.append((method, path)) or real(path, method, **options)
            ),
        )


@pytest.mark.parametrize(
    'groups', [[ONE], [ONE | {f'trait:{A}': 'required'}, {'resources:FPGA': '2'}]]
)
def test_calls_and_statements_do_not_grow_with_hosts(cloud, supply, monkeypatch, groups):
    costs = []
    for _ in range(2):
        # each kind of disagreement, so that all that can be asked is asked
        supply.host(Card(units=4, traits=(A,)), Card(strangers=1), Card(is_published=False))
        supply.host(Card(units=2, traits=(A,), withheld=('cleaning',)), Card(held=1))
        calls = Calls(cloud, monkeypatch)
        cloud.profile(f'cost{len(costs)}', *groups)
        calls.clear()
        with cloud.statements() as statements:
            cloud.get(f'/device_profiles/cost{len(costs)}/availability')
        costs.append((len(calls), len(statements)))
        monkeypatch.undo()
    assert costs[0] == costs[1]
    calls, statements = costs[0]
    assert calls <= 1 + 4 * len(groups)
    assert statements <= 5


def test_a_sum_is_not_asked_for_if_no_card_has_so_many_units(cloud, supply, monkeypatch):
    groups = ONE, ONE | {f'trait:{A}': 'required'}
    supply.host(Card(), Card(traits=(A,)))
    cloud.profile('small', *groups)
    calls = Calls(cloud, monkeypatch)
    assert cloud.get('/device_profiles/small/availability')['fits'] == 1
    assert len(calls) == 3  # one for each group, one for disabled compute services
    supply.host(Card(units=2, traits=(A,)))
    calls.clear()
    assert cloud.get('/device_profiles/small/availability')['fits'] == 2
    assert len([path for method, path in calls if method == 'GET']) == 4


def test_placement_hears_the_request_id_of_the_caller(cloud, supply, monkeypatch):
    heard, real = [], cloud.placement.request

    def request(*args, **options):
        heard.append(oslo_context.get_current().request_id)
        return real(*args, **options)

    supply.host(Card())
    cloud.profile('p', ONE)
    monkeypatch.setattr(cloud.placement, 'request', request)
    response = cloud.call('GET', '/device_profiles/p/availability')
    assert heard == [response.headers['X-OpenStack-Request-ID']] * 2


# -- what the cloud has ------------------------------------------------------------------------

WITHHELD_UNITS = {
    'disabled': Card(units=3, held=1, status='maintaining'),
    'at_fault': Card(units=3, held=1, fault='It is on fire.'),
    'being_cleaned': Card(units=3, held=1, withheld=('cleaning',) * 2),
    'being_programmed': Card(units=3, held=1, withheld=('programming',) * 2),
    'quarantined': Card(units=3, held=1, withheld=('quarantined',) * 2),
    'used_by_others': Card(units=3, held=1, occupied=1, reserved=1),
    'conflict_with_nova': Card(units=3, has_conflict=True),
}


@pytest.mark.parametrize('reason', WITHHELD_UNITS)
def test_capacity_and_topology_tell_why_units_are_withheld(cloud, supply, reason):
    card = WITHHELD_UNITS[reason]
    name = supply.host(card)
    count = card.units - card.held
    [model] = cloud.get('/capacity')['capacity']
    assert (model['units'], model['in_use'], model['free']) == (3, card.held, 0)
    assert model['withheld'] == {reason: count}
    [host] = cloud.get(f'/topology?hostname={name}')['hosts']
    units = host['devices'][0]['deployables'][0]['units']
    assert [unit['withheld'] for unit in units] == [None] * card.held + [reason] * count
    held = [unit for unit in units if unit['arq_uuid']]
    assert len(held) == card.held
    assert all(unit['project_id'] == 'mine' and unit['instance_uuid'] for unit in held)


def test_capacity_is_counted_by_model(cloud, supply):
    supply.host(Card(units=4, held=1), Card(units=2, model='Other'))
    supply.host(Card(units=4, held=2), is_silent=True)
    first, second = cloud.get('/capacity')['capacity']
    assert first == {
        'type': 'FPGA',
        'vendor': '8086',
        'model': 'Card',
        'resource_class': 'FPGA',
        'hosts': 2,
        'units': 8,
        'in_use': 3,
        'free': 3,
        'withheld': {'agent_silent': 2},
    }
    assert (second['model'], second['free']) == ('Other', 2)
    assert Person(cloud, 'member').call('GET', '/capacity').status_code == HTTPStatus.FORBIDDEN


def test_a_topology_is_that_of_a_known_host(cloud, supply):
    supply.host(name='empty')
    assert cloud.get('/topology?hostname=empty')['hosts'] == [
        {'hostname': 'empty', 'alive': True, 'devices': []}
    ]
    assert cloud.call('GET', '/topology').status_code == HTTPStatus.BAD_REQUEST
    unknown = cloud.call('GET', '/topology?hostname=elsewhere')
    assert unknown.status_code == HTTPStatus.NOT_FOUND


def test_statements_of_capacity_and_topology_do_not_grow(cloud, supply):
    costs = []
    for name in ('small', 'large'):
        count = 1 if name == 'small' else 3
        supply.host(*(Card(units=4, held=1) for _ in range(count)), name=name)
        for path in ('/capacity', f'/topology?hostname={name}'):
            with cloud.statements() as statements:
                cloud.get(path)
            costs.append(len(statements))
    assert costs[:2] == costs[2:]
    assert max(costs) <= 4


# -- chance ------------------------------------------------------------------------------------

WITHHELD = st.lists(st.sampled_from(['cleaning', 'quarantined']), max_size=2).map(tuple)


@st.composite
def cards(draw):
    units = draw(st.integers(1, 4))
    held = draw(st.integers(0, units))
    withheld = draw(WITHHELD)[: units - held]
    left = units - held - len(withheld)
    return Card(
        units=units,
        resource_class=draw(st.sampled_from(['FPGA', 'FPGA', 'VGPU'])),
        traits=tuple(draw(st.sets(st.sampled_from([A, B])))),
        held=held,
        withheld=withheld,
        failures=draw(st.integers(0, 2)),
        occupied=draw(st.integers(0, min(1, left))),
        strangers=draw(st.integers(0, min(2, units - held))),
        status=draw(st.sampled_from(['enabled'] * 5 + ['maintaining'])),
        fault=draw(st.sampled_from([None] * 5 + ['It is on fire.'])),
        has_conflict=draw(st.sampled_from([False] * 7 + [True])),
    )


@st.composite
def profile_groups(draw):
    traits = draw(
        st.dictionaries(
            st.sampled_from([f'trait:{A}', f'trait:{B}']),
            st.sampled_from(['required', 'forbidden']),
            max_size=1,
        )
    )
    name = draw(st.sampled_from(['FPGA', 'FPGA', 'VGPU']))
    return {f'resources:{name}': str(draw(st.integers(1, 3)))} | traits


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    hosts=st.lists(
        st.tuples(st.lists(cards(), min_size=1, max_size=3), st.sampled_from([False] * 4 + [True])),
        min_size=1,
        max_size=2,
    ),
    profiles=st.lists(st.lists(profile_groups(), min_size=1, max_size=3), min_size=2, max_size=4),
)
def test_a_profile_fits_exactly_where_placement_has_a_candidate(cloud, hosts, profiles):
    for members, _ in hosts:
        for card in members:
            if card.has_conflict:
                card.held = card.strangers = 0  # nobody can get what is not in Placement
    with emptied(cloud) as supply:
        names = [supply.host(*members, is_disabled=is_disabled) for members, is_disabled in hosts]
        for groups in profiles:
            shown = availability(cloud, *groups)
            by_host = {host['hostname']: host for host in shown['hosts']}
            for name in names:
                fits = by_host[name]['fits'] if name in by_host else 0
                assert bool(fits) == supply.candidate(name, groups), (name, groups)
            for host in by_host.values():
                for group in host['groups']:
                    counted = group['free'] + sum(group['reasons'].values())
                    assert counted == group['units']
            assert shown['fits'] == sum(host['fits'] for host in by_host.values())
            assert bool(shown['reasons']) == (shown['hosts_fitting'] < shown['hosts_considered'])
