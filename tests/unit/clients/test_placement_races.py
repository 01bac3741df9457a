# SPDX-License-Identifier: Apache-2.0
"""Publishing while others write, and while the way to Placement breaks."""

import itertools
import socket

import pytest
import requests
import webob.exc

from cyborg import errors
from cyborg.clients import keystone, placement, wsgi

ROOT = 'compute1'


@pytest.fixture
def once(service):
    """Have something happen right before the client's first request of a kind."""

    def plan(method, ending, deed):
        def before(*call):
            if call[0] == method and call[1].endswith(ending):
                service.before = lambda *call: None
                deed()

        service.before = before

    return plan


@pytest.fixture
def tagged(wanted):
    return wanted('0000:84:00.0', traits=['CUSTOM_A'])


@pytest.mark.parametrize('ending', ['/traits', '/inventories'])
def test_a_writer_between_read_and_write_is_seen(client, service, wanted, once, tagged, ending):
    client.publish(ROOT, [wanted('0000:84:00.0', total=4)])
    once('PUT', ending, lambda: service.touch(tagged.uuid))

    client.publish(ROOT, [tagged])

    assert service.traits(tagged.uuid) == {'CUSTOM_A', 'OWNER_CYBORG'}
    assert service.inventories(tagged.uuid)['FPGA']['total'] == 1
    assert service.before('PUT', ending) is None


def test_one_who_always_loses_the_race_pauses_longer_each_time(client, monkeypatch, tagged):
    bounds = []
    monkeypatch.setattr(placement.random, 'uniform', lambda least, most: bounds.append(most) or 0)
    monkeypatch.setattr(placement.Publication, 'run', lost_race)
    with pytest.raises(errors.PlacementUnavailable, match='last: 409'):
        client.publish(ROOT, [tagged])
    assert bounds == [0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6]


def lost_race(publication):
    raise placement.Stale('409')


@pytest.fixture
def pair(wanted):
    return [wanted('0000:84:00.0', traits=['CUSTOM_A']), wanted('0000:85:00.0')]


def test_a_writer_before_several_are_written_at_once_is_seen(client, service, wanted, once, pair):
    client.publish(ROOT, pair)
    once('POST', '/reshaper', lambda: service.touch(pair[1].uuid))
    client.publish(ROOT, [wanted(f'0000:8{n}:00.0', total=2) for n in (4, 5)])
    assert [service.inventories(card.uuid)['FPGA']['total'] for card in pair] == [2, 2]


def test_one_that_vanishes_before_several_are_written_is_made_again(client, service, once, pair):
    once('POST', '/reshaper', lambda: service.delete(pair[1].uuid))
    client.publish(ROOT, pair)
    assert [service.inventories(card.uuid)['FPGA']['total'] for card in pair] == [1, 1]


def test_a_class_that_a_guest_holds_hinders_no_other(client, service, wanted, pair):
    client.publish(ROOT, pair)
    service.allocate(pair[0].uuid, 'FPGA')
    changed = [wanted(f'0000:8{n}:00.0', resource_class='PGPU') for n in (4, 5)]
    assert not client.publish(ROOT, changed).is_complete
    assert service.inventories(pair[0].uuid).keys() == {'FPGA', 'PGPU'}
    assert service.inventories(pair[0].uuid)['FPGA']['reserved'] == 1
    assert service.inventories(pair[1].uuid).keys() == {'PGPU'}


def test_a_writer_while_a_cold_client_reads_is_seen(service, wanted, once, tagged):
    service.client().publish(ROOT, [tagged])

    def undo():
        generation = service.row(tagged.uuid)['generation']
        service.ask(
            'PUT',
            f'/resource_providers/{tagged.uuid}/traits',
            json={'resource_provider_generation': generation, 'traits': ['OWNER_CYBORG']},
        )

    once('GET', '/inventories', undo)
    service.client().publish(ROOT, [tagged])
    assert service.traits(tagged.uuid) == {'CUSTOM_A', 'OWNER_CYBORG'}


def test_a_writer_who_never_rests_is_an_error_in_the_end(client, service, wanted):
    card = wanted('0000:84:00.0')
    client.publish(ROOT, [card])
    service.before = lambda method, path: method == 'PUT' and service.touch(card.uuid)

    with pytest.raises(errors.PlacementUnavailable, match='keep changing providers'):
        client.publish(ROOT, [wanted('0000:84:00.0', total=2)])

    service.before = lambda *call: None
    client.publish(ROOT, [wanted('0000:84:00.0', total=2)])
    assert service.inventories(card.uuid)['FPGA']['total'] == 2


def test_nova_may_be_quicker_with_the_same_name(client, service, once, tagged):
    once('POST', '', lambda: service.make(tagged.name, service.root, ['OWNER_NOVA']))
    assert client.publish(ROOT, [tagged]).conflicts.keys() == {tagged.name}


def test_another_of_us_may_be_quicker_with_the_same_name(client, service, once, tagged):
    made = []
    once('POST', '', lambda: made.append(service.make(tagged.name, service.root, ['OWNER_CYBORG'])))
    assert client.publish(ROOT, [tagged]).adopted == {tagged.name: made[0]}
    assert service.inventories(made[0])['FPGA']['total'] == 1


def test_a_provider_that_vanishes_under_our_hands_is_made_again(client, service, once, tagged):
    once('PUT', f'{tagged.uuid}/inventories', lambda: service.delete(tagged.uuid))
    client.publish(ROOT, [tagged])
    assert service.inventories(tagged.uuid)['FPGA']['total'] == 1


def test_who_is_not_placement_cannot_be_asked_who_holds_what(service):
    with pytest.raises(errors.PlacementUnavailable, match='answered 404'):
        placement.Allocations(
            keystone.connect(service.conf, 'placement', service._session(webob.exc.HTTPNotFound()))
        ).providers_of('server')


def test_a_compute_node_that_vanishes_under_our_hands_is_said(client, service, once, tagged):
    once('POST', '', lambda: service.delete(service.root))
    with pytest.raises(errors.ProviderTreeMissing):
        client.publish(ROOT, [tagged])


def test_a_parent_that_vanishes_under_our_hands_is_made_again(client, service, wanted, once):
    card = wanted('0000:84:00.0', resource_class=None, total=0)
    client.publish(ROOT, [card])
    once('POST', '', lambda: service.delete(card.uuid))
    region = wanted('0000:84:00.0_0', parent=card)
    client.publish(ROOT, [card, region])
    assert service.rows()[region.name]['parent_provider_uuid'] == card.uuid


def test_an_allocation_right_before_the_withdrawal_keeps_the_inventory(
    client, service, once, tagged
):
    client.publish(ROOT, [tagged])
    once('PUT', f'{tagged.uuid}/inventories', lambda: service.allocate(tagged.uuid, 'FPGA'))
    assert not client.publish(ROOT, []).is_complete
    assert service.inventories(tagged.uuid)['FPGA']['reserved'] == 1


def test_what_somebody_else_deletes_first_is_gone_all_the_same(client, service, once, tagged):
    client.publish(ROOT, [tagged])
    once('PUT', f'{tagged.uuid}/inventories', lambda: service.delete(tagged.uuid))
    assert client.publish(ROOT, []).is_complete
    assert not service.names()


@pytest.mark.parametrize('is_served', [False, True])
def test_however_far_it_came_the_next_time_ends_it(service, wanted, is_served):
    """The network breaks at each call in turn, before Placement hears of it or after."""
    old, card = wanted('0000:83:00.0'), wanted('0000:84:00.0', resource_class=None, total=0)
    region = wanted('0000:84:00.0_0', parent=card, resource_class='CUSTOM_A', traits=['CUSTOM_A'])
    service.client().publish(ROOT, [old, card, region])
    expected = None
    for broken in itertools.count():
        calls = itertools.count()

        def fail(*call):
            if next(calls) == broken:  # noqa: B023
                raise requests.ConnectionError('cable')

        client = service.client()
        client.delete(client.owned(ROOT))
        client.publish(ROOT, [old])
        setattr(service, 'after' if is_served else 'before', fail)
        try:
            client.publish(ROOT, [card, region])
        except errors.PlacementUnavailable as error:
            assert 'cable' in str(error)
        else:
            break
        finally:
            service.before = service.after = lambda *call: None
        # the same agent, or one that starts in its place
        (client if broken % 2 else service.client()).publish(ROOT, [card, region])
        assert expected in (None, service.shape())
        expected = service.shape()
    assert broken > 6
    assert expected == service.shape()
    assert expected.keys() == {old.name, card.name, region.name}


def test_nobody_ever_sees_an_inventory_without_its_traits(client, service, tagged):
    def look(*call):
        for _, traits, inventories in service.shape().values():
            assert not inventories or traits == {'OWNER_CYBORG', 'CUSTOM_A'}

    service.after = look
    client.publish(ROOT, [tagged])
    puts = [
        path.rpartition('/')[2]
        for method, path in service.calls
        if method == 'PUT' and tagged.uuid in path
    ]
    assert puts == ['traits', 'inventories']


def test_nobody_ever_sees_a_device_on_offer_twice(client, service, wanted):
    """A card is offered whole, or by its region, and changes between the two."""
    whole = [wanted('0000:84:00.0')]
    card = wanted('0000:84:00.0', resource_class=None, total=0)
    parts = [card, wanted('0000:84:00.0_0', parent=card)]
    offers = []
    service.after = lambda *call: offers.append(
        sum(bool(inventories) for _, _, inventories in service.shape().values())
    )
    for providers in (whole, parts, whole):
        client.publish(ROOT, providers)
    assert max(offers) == 1


def test_a_placement_that_does_not_listen_is_said(conf, wanted):
    with socket.socket() as unheard:
        unheard.bind(('127.0.0.1', 0))
        conf.set_override(
            'endpoint_override', f'http://127.0.0.1:{unheard.getsockname()[1]}', 'placement'
        )
        client = placement.Placement(keystone.connect(conf, 'placement'))
        with pytest.raises(errors.PlacementUnavailable, match='127.0.0.1'):
            client.publish(ROOT, [wanted('0000:84:00.0')])


@pytest.mark.parametrize(
    ('status', 'body'),
    [
        ('503 Service Unavailable', b'<html>busy</html>'),
        ('500 Internal Server Error', b'{"errors": []}'),
        ('401 Unauthorized', b'{"error": {"code": 401}}'),
        ('403 Forbidden', b'{"errors": [{"detail": "not you"}]}'),
        ('404 Not Found', b'nothing here'),
        ('200 OK', b'<html>a login page</html>'),
    ],
)
def test_an_answer_that_is_none_is_said(conf, wanted, status, body, monkeypatch):
    monkeypatch.setattr(placement, 'ATTEMPTS', 2)

    def application(environ, start_response):
        start_response(status, [('Content-Type', 'text/html')])
        return [body]

    session = requests.Session()
    wsgi.mount(session, 'http://placement.local', application)
    client = placement.Placement(keystone.connect(conf, 'placement', session))
    with pytest.raises(errors.PlacementUnavailable) as caught:
        client.publish(ROOT, [wanted('0000:84:00.0')])
    assert status.startswith('200') or status[:3] in str(caught.value)
