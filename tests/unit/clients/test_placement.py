# SPDX-License-Identifier: Apache-2.0
"""The providers that a publication leaves in the real Placement."""

import hypothesis
import pytest
from hypothesis import strategies

from cyborg import errors
from cyborg.clients.placement import Obstacle

ROOT = 'compute1'


# --- what others claim


@pytest.mark.parametrize(
    'spelling', ['0000:AF:00.0', '0000:af:00.0', 'pci_0000_af_00_0', 'PCI_0000_AF_00_0']
)
def test_a_device_that_nova_sells_is_a_conflict(client, service, wanted, spelling):
    theirs = service.make(f'{ROOT}_{spelling}', service.root, ['OWNER_NOVA'], {'VGPU': 4})
    card = wanted('0000:af:00.0', resource_class=None, total=0)
    region, other = wanted('0000:af:00.0_0', parent=card), wanted('0000:b0:00.0')

    published = client.publish(ROOT, [card, region, other])

    assert published.conflicts.keys() == {card.name, region.name}
    assert f'{ROOT}_{spelling}' in published.conflicts[card.name]
    assert theirs in published.conflicts[region.name]
    assert service.names() == {f'{ROOT}_{spelling}', other.name}
    assert service.traits(theirs) == {'OWNER_NOVA'}


@pytest.mark.parametrize('spelling', ['0000:AF:00.4', 'pci_0000_af_00_4'])
def test_a_virtual_function_that_nova_sells_is_a_conflict_of_the_whole_card(
    client, service, wanted, spelling
):
    theirs = service.make(f'{ROOT}_{spelling}', service.root, ['OWNER_NOVA'], {'VGPU': 1})
    card, other = wanted('0000:af:00.0'), wanted('0000:b0:00.0')
    functions = {
        card.name: {'0000:af:00.0', '0000:af:00.4', '0000:af:00.5'},
        other.name: {'0000:b0:00.0', '0000:b0:00.4'},
    }

    published = client.publish(ROOT, [card, other], functions)

    assert published.conflicts.keys() == {card.name}
    assert theirs in published.conflicts[card.name]
    assert service.names() == {f'{ROOT}_{spelling}', other.name}


def test_new_addresses_of_a_device_are_looked_for(client, service, wanted):
    card = wanted('0000:af:00.0')
    service.make(f'{ROOT}_pci_0000_af_00_4', service.root)
    assert not client.publish(ROOT, [card], {card.name: {'0000:af:00.0'}}).conflicts
    assert client.publish(ROOT, [card], {card.name: {'0000:af:00.0', '0000:af:00.4'}}).conflicts


def test_an_address_that_only_begins_alike_is_no_conflict(client, service, wanted):
    service.make(f'{ROOT}_0000:84:00.1', service.root)
    service.make(f'{ROOT}_10000:84:00.0', service.root)
    service.make(f'{ROOT}_0000:84:00.0_port', service.root)
    assert not client.publish(ROOT, [wanted('0000:84:00.0')]).conflicts


def test_a_device_that_nova_claims_later_is_withdrawn(client, service, wanted):
    free, used = wanted('0000:84:00.0'), wanted('0000:85:00.0')
    client.publish(ROOT, [free, used])
    guest = service.allocate(used.uuid, 'FPGA')
    for address in ('84', '85'):
        service.make(f'{ROOT}_pci_0000_{address}_00_0', service.root)
    client.forget()

    published = client.publish(ROOT, [free, used])

    assert published.conflicts.keys() == {free.name, used.name}
    assert service.is_empty(free.uuid)
    assert service.inventories(used.uuid)['FPGA']['reserved'] == 1
    # and when the guest has gone, it is emptied too
    service.release(guest)
    assert client.publish(ROOT, [free, used]).is_complete
    assert service.is_empty(used.uuid)


def test_a_claim_that_is_given_up_frees_the_device(client, service, wanted):
    card = wanted('0000:84:00.0')
    theirs = service.make(f'{ROOT}_pci_0000_84_00_0', service.root)
    assert client.publish(ROOT, [card]).conflicts
    service.delete(theirs)
    client.forget()
    assert not client.publish(ROOT, [card]).conflicts
    assert card.name in service.names()


def test_a_name_without_an_address_can_be_claimed_too(client, service, wanted):
    card = wanted('fake0')
    service.make(card.name, service.root)
    assert client.publish(ROOT, [card]).conflicts.keys() == {card.name}


def test_a_name_below_another_compute_node_is_a_conflict(client, service, wanted):
    card = wanted('0000:84:00.0', resource_class=None, total=0)
    region = wanted('0000:84:00.0_0', parent=card)
    other = service.make('compute2')
    theirs = service.make(card.name, other, ['OWNER_CYBORG'])

    published = client.publish(ROOT, [card, region])

    assert published.conflicts.keys() == {card.name, region.name}
    assert theirs in published.conflicts[card.name]
    assert other in published.conflicts[card.name]
    assert not service.names()


@pytest.mark.parametrize('mark', ['OWNER_NOVA', 'COMPUTE_MANAGED_PCI_DEVICE'])
def test_a_provider_of_nova_is_not_taken_over_whoever_names_it(client, service, wanted, mark):
    theirs = service.make(f'{ROOT}_0000:AF:00.0', service.root, [mark], {'VGPU': 4})
    other = service.make(f'{ROOT}_0000:B1:00.0', service.root, [mark], {'VGPU': 2})
    left = service.make(f'{ROOT}_FakeDevice', service.root, (), {'FPGA': 2})
    card = wanted('0000:af:00.0')

    published = client.publish(ROOT, [card], taken_over=[theirs, other, left])

    assert published.conflicts.keys() == {card.name}
    assert service.traits(theirs) == service.traits(other) == {mark}
    assert service.inventories(theirs)['VGPU']['total'] == 4
    assert service.inventories(other)['VGPU']['total'] == 2
    assert service.is_empty(left)
    # nor is it deleted with the host
    assert client.owned(ROOT, [theirs, other, left]).keys() == {left}


def test_a_uuid_that_another_provider_has_is_a_conflict(client, service, wanted):
    card = wanted('0000:84:00.0')
    service.ask('POST', '/resource_providers', json={'name': 'stranger', 'uuid': card.uuid})
    assert 'stranger' in client.publish(ROOT, [card]).conflicts[card.name]


# --- what was ours before


def test_a_provider_of_ours_keeps_its_uuid(client, service, wanted):
    card = wanted('0000:84:00.0', resource_class=None, total=0)
    region = wanted('0000:84:00.0_0', parent=card)
    older = service.make(card.name, service.root, ['OWNER_CYBORG'])

    published = client.publish(ROOT, [card, region])

    assert (published.adopted, published.conflicts) == ({card.name: older}, {})
    rows = service.rows()
    assert rows.keys() == {card.name, region.name}
    assert rows[region.name]['parent_provider_uuid'] == older
    # the answer is the same when nothing is asked of Placement
    assert client.publish(ROOT, [card, region]) == published


def test_a_provider_that_was_moved_comes_back(client, service, wanted):
    card, other = wanted('0000:84:00.0'), wanted('0000:85:00.0')
    client.publish(ROOT, [card, other])
    service.ask(
        'PUT',
        f'/resource_providers/{card.uuid}',
        json={'name': card.name, 'parent_provider_uuid': other.uuid},
    )
    client.forget()
    client.publish(ROOT, [card, other])
    assert service.rows()[card.name]['parent_provider_uuid'] == service.root


def test_a_creation_that_was_cut_off_is_taken_up_again(service, wanted):
    # given an agent that died between creating a provider and marking it
    card = wanted('0000:84:00.0')
    service.ask(
        'POST',
        '/resource_providers',
        json={'name': card.name, 'uuid': card.uuid, 'parent_provider_uuid': service.root},
    )
    # then its successor does not take it for another's
    assert not service.client().publish(ROOT, [card]).conflicts
    assert service.traits(card.uuid) == {'OWNER_CYBORG'}
    assert service.inventories(card.uuid)['FPGA']['total'] == 1


def test_what_others_changed_is_put_right(client, service, wanted):
    card = wanted('0000:84:00.0', traits=['CUSTOM_A'])
    client.publish(ROOT, [card])
    generation = service.row(card.uuid)['generation']
    service.ask(
        'PUT',
        f'/resource_providers/{card.uuid}/traits',
        json={'resource_provider_generation': generation, 'traits': ['OWNER_CYBORG', 'OWNER_NOVA']},
    )
    service.ask(
        'PUT',
        f'/resource_providers/{card.uuid}/inventories',
        json={
            'resource_provider_generation': generation + 1,
            'inventories': {'VGPU': {'total': 9}},
        },
    )
    client.forget()

    client.publish(ROOT, [card])

    assert service.traits(card.uuid) == {'CUSTOM_A', 'OWNER_CYBORG'}
    assert service.inventories(card.uuid).keys() == {'FPGA'}


def test_only_ours_and_only_below_the_compute_node_is_touched(client, service, wanted):
    nova = service.make(f'{ROOT}_numa0', service.root, ['OWNER_NOVA'], {'VCPU': 4})
    other = service.make('compute2')
    theirs = service.make('compute2_0000:84:00.0', other, ['OWNER_CYBORG'], {'FPGA': 1})
    service.ask(
        'PUT',
        f'/resource_providers/{service.root}/traits',
        json={'resource_provider_generation': 0, 'traits': ['OWNER_CYBORG', 'COMPUTE_NODE']},
    )
    before = [service.row(uuid) for uuid in (service.root, nova, other, theirs)]

    client.publish(ROOT, [wanted('0000:84:00.0')])
    client.publish(ROOT, [])

    assert [service.row(uuid) for uuid in (service.root, nova, other, theirs)] == before


def test_a_compute_node_below_something_leaves_its_siblings_alone(client, service, wanted):
    rack = service.make('rack')
    sibling = service.make('compute2', rack)
    theirs = service.make('compute2_0000:84:00.0', sibling, ['OWNER_CYBORG'], {'FPGA': 1})
    service.ask(
        'PUT',
        f'/resource_providers/{service.root}',
        json={'name': ROOT, 'parent_provider_uuid': rack},
    )

    client.publish(ROOT, [wanted('0000:84:00.0')])
    client.publish(ROOT, [])

    assert service.names() == {'rack', 'compute2', 'compute2_0000:84:00.0', f'{ROOT}_0000:84:00.0'}
    assert service.inventories(theirs)['FPGA']['reserved'] == 0


# --- what guests hold


def test_the_provider_of_a_device_that_is_gone_is_emptied_and_kept(client, service, wanted):
    card = wanted('0000:84:00.0', resource_class=None, total=0)
    region = wanted('0000:84:00.0_0', parent=card, traits=['CUSTOM_A'])
    client.publish(ROOT, [card, region])
    assert client.publish(ROOT, []).is_complete
    assert service.names() == {card.name, region.name}
    assert service.is_empty(card.uuid) and service.is_empty(region.uuid)


def test_a_provider_is_taken_up_again_when_its_device_returns(client, service, wanted):
    card = wanted('0000:84:00.0', traits=['CUSTOM_A'])
    client.publish(ROOT, [card])
    before = service.shape()
    client.publish(ROOT, [])
    assert client.publish(ROOT, [card]).is_complete
    assert service.shape() == before


def test_an_empty_provider_of_ours_in_another_place_is_moved_when_it_is_taken_up(
    client, service, wanted
):
    card, other = wanted('0000:84:00.0'), wanted('0000:85:00.0')
    client.publish(ROOT, [card, wanted('region', parent=card)])
    client.publish(ROOT, [card])
    client.publish(ROOT, [card, other, wanted('region', parent=other)])
    assert service.rows()[f'{ROOT}_region']['parent_provider_uuid'] == other.uuid


def test_a_vanished_device_in_use_stays_reserved_until_it_is_free(client, service, wanted):
    card = wanted('0000:84:00.0', resource_class=None, total=0)
    regions = [wanted(f'0000:84:00.0_{n}', parent=card, traits=['CUSTOM_A']) for n in range(2)]
    client.publish(ROOT, [card, *regions])
    guest = service.allocate(regions[0].uuid, 'FPGA')

    assert not client.publish(ROOT, []).is_complete

    assert service.inventories(regions[0].uuid)['FPGA']['reserved'] == 1
    assert service.traits(regions[0].uuid) == {'OWNER_CYBORG', 'CUSTOM_A'}
    assert service.is_empty(regions[1].uuid)
    # when the guest goes, the next publication empties it too
    service.release(guest)
    assert client.publish(ROOT, []).is_complete
    assert service.is_empty(regions[0].uuid)


def test_an_agent_that_starts_anew_finishes_a_withdrawal(client, service, wanted):
    card = wanted('0000:84:00.0')
    client.publish(ROOT, [card])
    guest = service.allocate(card.uuid, 'FPGA')
    assert not service.client().publish(ROOT, []).is_complete
    assert service.inventories(card.uuid)['FPGA']['reserved'] == 1
    service.release(guest)
    assert service.client().publish(ROOT, []).is_complete
    assert service.is_empty(card.uuid)


def test_our_providers_are_deleted_leaves_first(client, service, wanted):
    card, other = wanted('0000:84:00.0'), wanted('0000:85:00.0')
    region = wanted('0000:84:00.0_0', parent=card)
    service.make(f'{ROOT}_of_nova', service.root)
    client.publish(ROOT, [card, region, other])
    client.publish(ROOT, [other])

    found = client.owned(ROOT)

    assert found == {region.uuid: region.name, card.uuid: card.name, other.uuid: other.name}
    del found[other.uuid]
    assert [*found] == [region.uuid, card.uuid]
    assert client.delete(found) == set()
    assert service.names() == {other.name, f'{ROOT}_of_nova'}
    assert client.delete(found) == set()  # as if somebody else had been faster


def test_a_leftover_that_a_guest_holds_stays(client, service, wanted):
    card = wanted('0000:84:00.0', resource_class=None, total=0)
    region = wanted('0000:84:00.0_0', parent=card)
    client.publish(ROOT, [card, region])
    service.allocate(region.uuid, 'FPGA')
    assert client.delete(client.owned(ROOT)) == {card.uuid, region.uuid}
    assert service.names() == {card.name, region.name}


def test_only_empty_providers_are_deleted_and_the_others_with_reasons(client, service, wanted):
    card = wanted('0000:84:00.0', resource_class=None, total=0)
    region = wanted('0000:84:00.0_0', parent=card)
    offered, empty = wanted('0000:85:00.0'), wanted('0000:86:00.0')
    client.publish(ROOT, [card, region, offered, empty])
    client.publish(ROOT, [card, region, offered])
    service.allocate(region.uuid, 'FPGA')

    found = client.owned(ROOT)
    kept = {
        region.uuid: Obstacle.ALLOCATIONS,
        offered.uuid: Obstacle.INVENTORY,
        card.uuid: Obstacle.PROVIDERS_BELOW,
    }

    assert client.obstacles(ROOT, found) == kept
    assert service.names() == {card.name, region.name, offered.name, empty.name}
    assert client.delete_empty(found) == kept
    assert service.names() == {card.name, region.name, offered.name}
    # as if somebody else had been faster
    assert client.obstacles(ROOT, found) == client.delete_empty(found) == kept


def test_an_empty_provider_above_others_that_are_not_to_be_deleted_has_an_obstacle(
    client, service, wanted
):
    ours, theirs, free = (wanted(f'0000:8{n}:00.0', resource_class=None, total=0) for n in '456')
    region, empty = wanted('0000:84:00.0_0', parent=ours), wanted('0000:86:00.0_0', parent=free)
    client.publish(ROOT, [ours, region, theirs, free, empty])
    client.publish(ROOT, [ours, region, theirs])
    service.make(f'{ROOT}_of_nova', theirs.uuid)
    leftovers = [uuid for uuid in client.owned(ROOT) if uuid != region.uuid]

    kept = dict.fromkeys((ours.uuid, theirs.uuid), Obstacle.PROVIDERS_BELOW)

    assert client.obstacles(ROOT, leftovers) == client.delete_empty(leftovers) == kept


def test_an_inner_provider_is_emptied_above_a_used_one(client, service, wanted):
    card = wanted('0000:84:00.0', resource_class='CUSTOM_CARD')
    region = wanted('0000:84:00.0_0', parent=card)
    client.publish(ROOT, [card, region])
    service.allocate(region.uuid, 'FPGA')
    assert not client.publish(ROOT, []).is_complete
    assert service.is_empty(card.uuid)


def test_a_device_that_returns_is_on_offer_again(client, service, wanted):
    card = wanted('0000:84:00.0')
    client.publish(ROOT, [card])
    service.allocate(card.uuid, 'FPGA')
    client.publish(ROOT, [])
    assert client.publish(ROOT, [card]).is_complete
    assert service.inventories(card.uuid)['FPGA']['reserved'] == 0


def test_a_class_in_use_stays_reserved_beside_the_new_one(client, service, wanted):
    client.publish(ROOT, [wanted('0000:84:00.0', total=2)])
    card = wanted('0000:84:00.0', resource_class='CUSTOM_GPU', total=3)
    guest = service.allocate(card.uuid, 'FPGA')

    assert not client.publish(ROOT, [card]).is_complete

    present = service.inventories(card.uuid)
    assert {name: (each['total'], each['reserved']) for name, each in present.items()} == {
        'FPGA': (2, 2),
        'CUSTOM_GPU': (3, 0),
    }
    service.release(guest)
    assert client.publish(ROOT, [card]).is_complete
    assert service.inventories(card.uuid).keys() == {'CUSTOM_GPU'}


def test_an_inventory_in_use_that_should_vanish_stays_reserved(client, service, wanted):
    client.publish(ROOT, [wanted('0000:84:00.0')])
    card = wanted('0000:84:00.0', total=0)
    guest = service.allocate(card.uuid, 'FPGA')
    assert not client.publish(ROOT, [card]).is_complete
    assert service.inventories(card.uuid)['FPGA']['reserved'] == 1
    service.release(guest)
    assert client.publish(ROOT, [card]).is_complete
    assert service.inventories(card.uuid) == {}


# --- what is wrong


def test_no_compute_node_is_said_and_not_made(client, service, wanted):
    with pytest.raises(errors.ProviderTreeMissing, match='compute2'):
        client.publish('compute2', [wanted('0000:84:00.0')])
    assert not service.names()


def test_a_compute_node_that_vanishes_and_returns_is_found_again(client, service, wanted):
    card = wanted('0000:84:00.0')
    client.publish(ROOT, [card])
    service.delete(card.uuid)
    service.delete(service.root)
    client.forget()
    with pytest.raises(errors.ProviderTreeMissing):
        client.publish(ROOT, [card])
    service.root = service.make(ROOT)
    client.publish(ROOT, [card])
    assert service.names() == {card.name}


def test_a_provider_that_placement_refuses_does_not_keep_the_others_out(client, service, wanted):
    bad = wanted('0000:84:00.0', resource_class=None, total=0, traits=['NO_SUCH_STANDARD'])
    below = wanted('0000:84:00.0_0', parent=bad)
    worse, worst = wanted('0000:85:00.0', traits=['no trait']), wanted('x' * 200)
    good = wanted('0000:86:00.0')

    published = client.publish(ROOT, [bad, below, worse, worst, good])

    assert service.inventories(good.uuid)['FPGA']['total'] == 1
    assert below.name not in service.names()
    assert published.refused.keys() == {bad.name, below.name, worse.name, worst.name}
    assert 'NO_SUCH_STANDARD' in published.refused[bad.name]
    # and it is said again, not taken for done
    assert not published.is_complete
    assert client.publish(ROOT, [bad, below, worse, worst, good]) == published


def test_what_placement_begins_to_refuse_is_not_offered_any_more(client, service, wanted):
    card, other = wanted('0000:84:00.0', traits=['CUSTOM_A']), wanted('0000:85:00.0')
    client.publish(ROOT, [card, other])
    refused = wanted('0000:84:00.0', traits=['CUSTOM_A', 'NO_SUCH_STANDARD'])
    assert client.publish(ROOT, [refused, other]).refused.keys() == {card.name}
    assert service.inventories(card.uuid) == {}
    assert service.inventories(other.uuid)['FPGA']['reserved'] == 0
    # what a guest holds is only reserved
    assert client.publish(ROOT, [card, other]).is_complete
    service.allocate(card.uuid, 'FPGA')
    client.publish(ROOT, [refused, other])
    assert service.inventories(card.uuid)['FPGA']['reserved'] == 1
    # until it is as Placement takes it
    assert client.publish(ROOT, [card, other]).is_complete
    assert service.inventories(card.uuid)['FPGA']['reserved'] == 0


def test_a_trait_that_was_deleted_meanwhile_is_made_again(client, service, wanted):
    client.publish(ROOT, [wanted('0000:84:00.0', traits=['CUSTOM_A'])])
    client.publish(ROOT, [])
    service.ask('DELETE', '/traits/CUSTOM_A')
    card = wanted('0000:84:00.0', traits=['CUSTOM_A'])
    assert client.publish(ROOT, [card]).is_complete
    assert 'CUSTOM_A' in service.traits(card.uuid)


def test_an_orphan_is_a_mistake_of_the_caller(client, wanted):
    with pytest.raises(ValueError, match='not'):
        client.publish(ROOT, [wanted('0000:84:00.0_0', parent=wanted('0000:84:00.0'))])


# --- what is right


def test_what_is_wanted_is_there(client, service, wanted):
    card = wanted('0000:84:00.0', resource_class=None, total=0, traits=['CUSTOM_FPGA_INTEL'])
    region = wanted(
        '0000:84:00.0_0',
        parent=card,
        total=2,
        reserved=1,
        resource_class='CUSTOM_REGION',
        traits=['HW_NIC_ACCEL_SSL'],
    )

    published = client.publish(ROOT, [region, card])

    assert (published.adopted, published.conflicts) == ({}, {})
    assert service.rows()[card.name]['uuid'] == card.uuid
    assert service.shape() == {
        card.name: (ROOT, {'CUSTOM_FPGA_INTEL', 'OWNER_CYBORG'}, {}),
        region.name: (
            card.name,
            {'HW_NIC_ACCEL_SSL', 'OWNER_CYBORG'},
            {
                'CUSTOM_REGION': {
                    'total': 2,
                    'reserved': 1,
                    'min_unit': 1,
                    'max_unit': 2,
                    'step_size': 1,
                    'allocation_ratio': 1.0,
                }
            },
        ),
    }


def test_many_long_trait_names_fit_into_the_queries(client, service, wanted):
    traits = [f'CUSTOM_{"LONG_" * 48}{n}' for n in range(40)]
    card = wanted('0000:84:00.0', traits=traits)
    client.publish(ROOT, [card])
    assert service.traits(card.uuid) == {*traits, 'OWNER_CYBORG'}


def test_a_class_may_be_called_like_a_trait(client, service, wanted):
    card = wanted('0000:84:00.0', resource_class='CUSTOM_A', traits=['CUSTOM_A'])
    client.publish(ROOT, [card])
    assert service.inventories(card.uuid).keys() == {'CUSTOM_A'}


@strategies.composite
def trees(draw):
    """(place, parent, class, total, reserved, traits) of up to six providers."""
    chosen, tree = draw(strategies.lists(strategies.integers(0, 5), unique=True)), []
    for place in chosen:
        total = draw(strategies.integers(0, 3))
        tree.append(
            (
                place,
                draw(strategies.sampled_from([None, *(node[0] for node in tree)])),
                draw(strategies.sampled_from([None, 'FPGA', 'CUSTOM_A'])),
                total,
                draw(strategies.integers(0, total)),
                draw(
                    strategies.lists(strategies.sampled_from(['CUSTOM_A', 'CUSTOM_B']), unique=True)
                ),
            )
        )
    return tree


@hypothesis.settings(
    max_examples=25,
    suppress_health_check=[
        hypothesis.HealthCheck.function_scoped_fixture,
        hypothesis.HealthCheck.too_slow,
    ],
)
@hypothesis.given(first=trees(), second=trees(), is_new_client=strategies.booleans())
def test_whatever_there_was_the_last_wish_counts(service, wanted, first, second, is_new_client):
    def providers(tree):
        made = {None: None}
        for place, parent, *rest in tree:
            made[place] = wanted(f'0000:8{place}:00.0', made[parent], *rest)
        return list(filter(None, made.values()))

    client = service.client()
    client.publish(ROOT, providers(first))
    if is_new_client:
        client = service.client()

    assert client.publish(ROOT, reversed(providers(second))).is_complete

    names = {None: ROOT} | {node[0]: f'{ROOT}_0000:8{node[0]}:00.0' for node in second}
    shape = service.shape()
    assert all(
        shape.pop(name)[1:] == ({'OWNER_CYBORG'}, {}) for name in shape.keys() - names.values()
    )
    assert shape == {
        names[place]: (
            names[parent],
            {*traits, 'OWNER_CYBORG'},
            {
                resource_class: {
                    'total': total,
                    'reserved': reserved,
                    'min_unit': 1,
                    'max_unit': total,
                    'step_size': 1,
                    'allocation_ratio': 1.0,
                }
            }
            if resource_class and total
            else {},
        )
        for place, parent, resource_class, total, reserved, traits in second
    }
