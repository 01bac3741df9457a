# SPDX-License-Identifier: Apache-2.0
"""How many calls to Placement each kind of change costs."""

import pytest

ROOT = 'compute1'


@pytest.fixture
def calls(service):
    """The calls since one last asked."""

    def take():
        taken, service.calls = service.calls, []
        return taken

    return take


@pytest.fixture
def cards(wanted):
    return [wanted(f'0000:8{n}:00.0', traits=['CUSTOM_A']) for n in range(4)]


def kinds(calls):
    """(method, last word of the path) of each call."""
    return [(method, path.rpartition('/')[2]) for method, path in calls]


def test_the_first_publication_costs_two_calls_a_provider_and_one_for_all(client, cards, calls):
    client.publish(ROOT, cards)
    assert kinds(calls()) == [
        ('GET', 'resource_providers'),
        ('GET', 'resource_providers'),
        ('GET', 'traits'),
        ('POST', 'resource_providers'),
        ('PUT', 'CUSTOM_A'),
        ('PUT', 'traits'),
        *3 * [('POST', 'resource_providers'), ('PUT', 'traits')],
        ('POST', 'reshaper'),
    ]


def test_who_may_not_reshape_writes_a_provider_at_a_time(service, cards, calls):
    service.conf.set_override('token', 'admin:only', 'placement')
    service.client().publish(ROOT, cards)
    assert kinds(calls())[-5:] == [('POST', 'reshaper'), *4 * [('PUT', 'inventories')]]
    assert [service.inventories(card.uuid)['FPGA']['total'] for card in cards] == [1, 1, 1, 1]


def test_the_same_again_costs_nothing(client, service, cards, calls):
    first = client.publish(ROOT, cards)
    calls()
    assert client.publish(ROOT, reversed(cards)) == first
    assert not calls()


def test_a_conflict_that_lasts_costs_nothing(client, service, cards, calls):
    service.make(f'{ROOT}_pci_0000_80_00_0', service.root)
    first = client.publish(ROOT, cards)
    calls()
    assert client.publish(ROOT, cards) == first
    assert not calls()


def test_looking_again_costs_one_call(client, cards, calls):
    client.publish(ROOT, cards)
    calls()
    client.forget()
    client.publish(ROOT, cards)
    assert kinds(calls()) == [('GET', 'resource_providers')]


def test_looking_again_reads_only_what_changed(client, service, cards, calls):
    client.publish(ROOT, cards)
    service.allocate(cards[0].uuid, 'FPGA')
    calls()
    client.forget()
    client.publish(ROOT, cards)
    assert kinds(calls()) == [
        ('GET', 'resource_providers'),
        ('GET', 'resource_providers'),
        ('PUT', 'traits'),
        ('GET', 'inventories'),
    ]


def test_one_more_card_costs_its_own_calls(client, cards, calls):
    client.publish(ROOT, cards[1:])
    calls()
    client.publish(ROOT, cards)
    assert kinds(calls()) == [
        ('GET', 'resource_providers'),
        ('POST', 'resource_providers'),
        ('PUT', 'traits'),
        ('PUT', 'inventories'),
    ]


def test_one_card_less_costs_two_writes(client, cards, calls):
    client.publish(ROOT, cards)
    calls()
    client.publish(ROOT, cards[1:])
    assert kinds(calls()) == [
        ('GET', 'resource_providers'),
        ('PUT', 'inventories'),
        ('PUT', 'traits'),
    ]


def test_a_card_with_regions_less_costs_one_write_of_all_inventories(client, wanted, calls):
    card = wanted('0000:84:00.0', resource_class='CUSTOM_CARD')
    region = wanted('0000:84:00.0_0', parent=card, traits=['CUSTOM_A'])
    client.publish(ROOT, [card, region])
    calls()
    client.publish(ROOT, [])
    assert kinds(calls()) == [
        ('GET', 'resource_providers'),
        ('POST', 'reshaper'),
        ('PUT', 'traits'),
    ]


def test_what_was_emptied_once_costs_nothing_more(client, cards, calls):
    client.publish(ROOT, cards)
    client.publish(ROOT, cards[1:])
    calls()
    client.forget()
    client.publish(ROOT, cards[1:])
    assert kinds(calls()) == [('GET', 'resource_providers')]


def test_a_changed_amount_costs_one_write(client, wanted, calls):
    client.publish(ROOT, [wanted('0000:84:00.0')])
    calls()
    client.publish(ROOT, [wanted('0000:84:00.0', total=2)])
    assert kinds(calls()) == [('GET', 'resource_providers'), ('PUT', 'inventories')]


def test_changed_amounts_of_many_cost_one_write(client, wanted, calls):
    client.publish(ROOT, [wanted('0000:84:00.0'), wanted('0000:85:00.0')])
    for total in (2, 3):  # once more: what was written so is known as well as any other
        calls()
        client.publish(
            ROOT, [wanted('0000:84:00.0', total=total), wanted('0000:85:00.0', total=total)]
        )
        assert kinds(calls()) == [('GET', 'resource_providers'), ('POST', 'reshaper')]


def test_what_was_emptied_with_others_is_known_as_well(client, wanted, calls):
    cards = ['0000:84:00.0', '0000:85:00.0']
    client.publish(ROOT, [wanted(card) for card in cards])
    client.publish(ROOT, [wanted(card, total=0) for card in cards])
    calls()
    client.forget()
    client.publish(ROOT, [wanted(card, total=0) for card in cards])
    assert kinds(calls()) == [('GET', 'resource_providers')]


def test_a_holder_of_others_has_no_inventory_to_write(client, wanted, calls):
    client.publish(ROOT, [wanted('0000:84:00.0', resource_class=None, total=0)])
    assert ('PUT', 'inventories') not in kinds(calls())


def test_an_agent_that_starts_anew_checks_and_changes_nothing(service, cards, calls):
    service.client().publish(ROOT, cards)
    before = service.rows()
    calls()
    service.client().publish(ROOT, cards)
    assert kinds(calls()) == [
        *3 * [('GET', 'resource_providers')],
        ('GET', 'traits'),
        *4 * [('PUT', 'traits')],
        *4 * [('GET', 'inventories')],
    ]
    assert service.rows() == before


def test_a_device_that_a_guest_holds_costs_two_calls_each_time(client, service, cards, calls):
    client.publish(ROOT, cards)
    service.allocate(cards[0].uuid, 'FPGA')
    client.publish(ROOT, cards[1:])
    calls()
    client.publish(ROOT, cards[1:])
    assert kinds(calls()) == [('GET', 'resource_providers'), ('PUT', 'inventories')]


def test_two_compute_nodes_do_not_disturb_each_other(client, service, cards, wanted, calls):
    service.make('compute2')
    client.publish(ROOT, cards)
    client.publish('compute2', [])
    calls()
    client.publish(ROOT, cards)
    client.publish('compute2', [])
    assert not calls()
