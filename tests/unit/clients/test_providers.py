# SPDX-License-Identifier: Apache-2.0
"""The stand-in for Placement that quick tests use answers as the real one does."""

from tests.fixtures.providers import Providers

HEADERS = {'OpenStack-API-Version': 'placement 1.39'}
ROOT, CARD, REGION, OTHER, NOBODY = (
    f'00000000-0000-4000-8000-00000000000{number}' for number in range(5)
)
INVENTORY = {
    'total': 2,
    'reserved': 1,
    'min_unit': 1,
    'max_unit': 2,
    'step_size': 1,
    'allocation_ratio': 1.0,
}


def _make(uuid, name, parent=None):
    body = {'uuid': uuid, 'name': name} | ({'parent_provider_uuid': parent} if parent else {})
    return 'POST', '/resource_providers', body


def _write(uuid, what, generation, value):
    return (
        'PUT',
        f'/resource_providers/{uuid}/{what}',
        {'resource_provider_generation': generation, what: value},
    )


def _reshape(*changes):
    return (
        'POST',
        '/reshaper',
        {
            'allocations': {},
            'inventories': {
                uuid: {'resource_provider_generation': generation, 'inventories': inventories}
                for uuid, generation, inventories in changes
            },
        },
    )


CALLS = [
    ('GET', '/resource_providers?name=compute1', None),
    _make(ROOT, 'compute1'),
    _make(CARD, 'card', ROOT),
    _make(REGION, 'region', CARD),
    _make(OTHER, 'compute2'),
    _make(NOBODY, 'card', ROOT),  # the name is taken
    _make(CARD, 'another', ROOT),  # so is the uuid
    _make('00000000-0000-4000-8000-000000000009', 'orphan', NOBODY),
    ('GET', '/traits?name=in:CUSTOM_A,CUSTOM_B,OWNER_CYBORG', None),
    _write(CARD, 'traits', 0, ['CUSTOM_A']),  # not known yet
    ('PUT', '/traits/CUSTOM_A', None),
    ('PUT', '/traits/CUSTOM_A', None),
    ('GET', '/traits?name=in:CUSTOM_A,CUSTOM_B,OWNER_CYBORG', None),
    _write(CARD, 'traits', 0, ['CUSTOM_A', 'OWNER_CYBORG']),
    _write(CARD, 'traits', 1, ['CUSTOM_A', 'OWNER_CYBORG']),  # nothing new
    _write(CARD, 'traits', 0, ['CUSTOM_A']),  # somebody was quicker
    _write(NOBODY, 'traits', 0, ['CUSTOM_A']),
    _write(CARD, 'inventories', 1, {'CUSTOM_CLASS': INVENTORY}),  # not known yet
    ('PUT', '/resource_classes/CUSTOM_CLASS', None),
    ('PUT', '/resource_classes/CUSTOM_CLASS', None),
    _write(CARD, 'inventories', 1, {'CUSTOM_CLASS': INVENTORY, 'FPGA': INVENTORY}),
    _write(CARD, 'inventories', 2, {'FPGA': INVENTORY}),
    _write(CARD, 'inventories', 2, {}),  # somebody was quicker
    _write(NOBODY, 'inventories', 0, {}),
    _reshape((CARD, 3, {'PGPU': INVENTORY}), (REGION, 0, {'FPGA': INVENTORY})),
    _reshape((CARD, 5, {}), (REGION, 2, {'PGPU': INVENTORY})),
    _reshape((CARD, 6, {'FPGA': INVENTORY}), (REGION, 3, {})),  # somebody was quicker
    _reshape((CARD, 6, {'CUSTOM_UNKNOWN': INVENTORY})),
    _reshape((CARD, 6, {}), (NOBODY, 0, {})),
    ('GET', f'/resource_providers/{CARD}/inventories', None),
    ('GET', f'/resource_providers/{REGION}/inventories', None),
    ('GET', f'/resource_providers/{NOBODY}/inventories', None),
    ('GET', f'/resource_providers?in_tree={REGION}', None),
    ('GET', f'/resource_providers?in_tree={ROOT}&required=OWNER_CYBORG', None),
    ('GET', f'/resource_providers?in_tree={NOBODY}', None),
    ('GET', f'/resource_providers?uuid={CARD}', None),
    ('PUT', f'/resource_providers/{REGION}', {'name': 'region', 'parent_provider_uuid': ROOT}),
    ('GET', f'/resource_providers?in_tree={ROOT}', None),
    ('DELETE', f'/resource_providers/{ROOT}', None),  # others are below
    ('DELETE', f'/resource_providers/{CARD}', None),
    ('DELETE', f'/resource_providers/{CARD}', None),
    ('GET', '/resource_providers?name=card', None),
]


def _said(adapter, method, path, body):
    """The status, and what a client reads of the answer."""
    answer = adapter.request(path, method, headers=HEADERS, json=body, raise_exc=False)
    said = answer.json() if answer.content else None
    if not answer.ok:
        return answer.status_code, said['errors'][0]['code']
    if said and 'resource_providers' in said:
        said = sorted(map(_row, said['resource_providers']), key=str)
    elif said and 'generation' in said:
        said = _row(said)
    elif said and 'traits' in said:
        said = said | {'traits': sorted(said['traits'])}
    return answer.ok, said


def _row(row):
    return {
        key: row[key]
        for key in ('uuid', 'name', 'generation', 'parent_provider_uuid', 'root_provider_uuid')
    }


def test_it_answers_every_call_of_ours_as_placement_does(service):
    stand_in = Providers()
    service.delete(service.root)
    for call in CALLS:
        assert _said(stand_in, *call) == _said(service.admin, *call), call
