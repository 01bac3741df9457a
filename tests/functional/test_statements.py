# SPDX-License-Identifier: Apache-2.0
"""The number of SQL statements of a request does not depend on the number of rows."""

import uuid

import pytest
import sqlalchemy as sa

from cyborg.db.sqlalchemy import clock, models
from tests.fixtures.cloud import clear
from tests.fixtures.persons import SERVICE, trusting_cloud

#: more than a page, and than SQLAlchemy would load parts for at once
MANY = 1100
HOST = 'compute1'


@pytest.fixture(scope='module')
def cloud(tmp_path_factory):
    """Without hosts, whose agents would do something of their own from time to time."""
    made = trusting_cloud(tmp_path_factory.mktemp('cloud'), more='bind_wait = 0\n')
    made.start()
    made.session.headers.update({'X-Auth-Token': 'admin:p'} | SERVICE)
    yield made
    made.stop()


@pytest.fixture
def empty(cloud):
    """Before and after."""
    clear(cloud.standalone.db)
    yield
    clear(cloud.standalone.db)


def fill(cloud, count):
    """So many of everything."""
    numbers, now = range(1, count + 1), clock.now()
    card = {
        'hostname': HOST,
        'type': 'FPGA',
        'vendor': '8086',
        'driver_name': 'd',
        'std_board_info': {},
        'vendor_board_info': {},
        'status': 'enabled',
    }
    rows = {
        models.Agent: lambda n: {
            'hostname': f'h{n}',
            'last_heartbeat': now,
            'sequence': 1,
            'digest': '',
            'is_ready': True,
            'drivers': [],
            'conflicts': {},
        },
        models.Device: lambda n: card | {'key': f'k{n}'},
        models.Deployable: lambda n: {
            'device_id': n,
            'name': f'd{n}',
            'num_accelerators': 1,
            'rp_uuid': str(uuid.uuid4()),
            'driver_name': 'd',
        },
        models.Attribute: lambda n: {
            'deployable_id': (n + 1) // 2,
            'key': 'k',
            'value': 'v',
            'parent_attribute_id': n - 1 if n % 2 == 0 else None,
        },
        models.DeviceProfile: lambda n: {'name': f'p{n}', 'groups': [], 'is_private': True},
        models.DeviceProfileProject: lambda n: {'device_profile_id': n, 'project_id': 'p'},
        models.ExtArq: lambda n: {
            'device_profile_id': n,
            'device_profile_group_id': 0,
            'group': {},
            'hostname': HOST,
            'project_id': 'p',
        },
        models.AttachHandle: lambda n: {
            'deployable_id': n,
            'key': 'k',
            'type': 'PCI',
            'info': {},
            'arq_id': n,
        },
    }
    with cloud.standalone.db.writer() as session:
        for model, make in rows.items():
            session.execute(sa.insert(model), [{'id': n} | make(n) for n in numbers])


def cost(cloud, method, path, status=200, **options):
    """How many statements, and the answer."""
    with cloud.statements() as statements:
        response = cloud.call(method, path, **options)
    assert response.status_code == status, response.text
    return len(statements), response


COLLECTIONS = {
    '/device_profiles': 'device_profiles',
    '/accelerator_requests': 'arqs',
    '/devices': 'devices',
    '/deployables': 'deployables',
    '/attributes': 'attributes',
    '/attributes?nested=true': 'attributes',
    '/agents': 'agents',
}


@pytest.mark.usefixtures('empty')
@pytest.mark.parametrize('token', ['admin:p', 'manager:p'])
def test_a_list_costs_the_same_whatever_its_length(cloud, token, monkeypatch):
    fill(cloud, MANY)
    monkeypatch.setitem(cloud.session.headers, 'X-Auth-Token', token)
    for path, key in COLLECTIONS.items():
        if path == '/agents' and token != 'admin:p':
            continue
        url = f'{path}{"&" if "?" in path else "?"}sort_dir=asc'
        few, response = cost(cloud, 'GET', f'{url}&limit=1')
        marker = response.json()[key][0]['uuid']
        many, response = cost(cloud, 'GET', f'{url}&limit=1000')
        assert len(response.json()[key]) == (MANY // 2 if 'nested' in path else 1000)
        more, response = cost(cloud, 'GET', f'{url}&limit=1000&marker={marker}')
        assert (few, more) == (many, many + 1), path
        assert more <= 3, path


@pytest.mark.usefixtures('empty')
def test_hand_backs_cost_the_same_whatever_their_number(cloud):
    fill(cloud, MANY)
    with cloud.standalone.db.writer() as session:
        device = session.get(models.Device, 1)
        handles = session.scalars(sa.select(models.AttachHandle.uuid)).all()
        rows = [
            {
                'kind': 'clean',
                'state': 'done',
                'hostname': HOST,
                'device_uuid': device.uuid,
                'deployable_uuid': device.uuid,
                'handle_uuid': handle,
                'steps': [{'name': 'reset', 'seconds': 0.5, 'error': None}],
            }
            for handle in handles
        ]
        session.execute(sa.insert(models.Task), rows)
        url = f'/devices/{device.uuid}/handbacks?result=done'
    few, response = cost(cloud, 'GET', f'{url}&limit=1')
    marker = response.json()['handbacks'][0]['uuid']
    many, response = cost(cloud, 'GET', f'{url}&limit=1000')
    assert len(response.json()['handbacks']) == 1000
    more, _ = cost(cloud, 'GET', f'{url}&limit=1000&marker={marker}')
    assert (few, many, more) == (1, 1, 2)


@pytest.mark.usefixtures('empty')
@pytest.mark.parametrize('token', ['admin:p', 'manager:p'])
def test_one_thing_costs_the_same_whatever_there_is(cloud, token):
    costs, shown = [], COLLECTIONS.keys() - ({'/agents'} if token == 'manager:p' else set())
    for count in (1, MANY):
        clear(cloud.standalone.db)
        fill(cloud, count)
        for path in sorted(shown):
            key = COLLECTIONS[path]
            first = cloud.get(f'{path.partition("?")[0]}?limit=1')[key][0]['uuid']
            path, _, query = path.partition('?')
            costs.append(
                cost(cloud, 'GET', f'{path}/{first}?{query}', headers={'X-Auth-Token': token})[0]
            )
    assert max(costs) <= 2
    assert costs[: len(shown)] == costs[len(shown) :]


@pytest.fixture(params=[False, True], ids=['ready', 'prepared by its host'])
def provider(cloud, empty, request):
    """A deployable with room for many requests."""
    rp = str(uuid.uuid4())
    with cloud.standalone.db.writer() as session:
        device = models.Device(
            hostname=HOST,
            type='FPGA',
            vendor='8086',
            driver_name='d',
            key='k',
            std_board_info={},
            vendor_board_info={},
        )
        part = models.Deployable(
            device=device,
            name='d',
            num_accelerators=64,
            rp_uuid=rp,
            driver_name='d',
            resource_class='FPGA',
        )
        part.attach_handles = [
            models.AttachHandle(
                key=str(number), type='PCI', info={}, is_host_prepared=request.param
            )
            for number in range(64)
        ]
        session.add(device)
    return rp


@pytest.mark.usefixtures('empty')
@pytest.mark.parametrize('token', ['admin:p', 'member:p'])
@pytest.mark.parametrize('groups, units', [(1, 1), (1, 64), (20, 3)])
def test_creating_requests_costs_the_same_for_any_number(cloud, groups, units, token, monkeypatch):
    cloud.profile('p', *[{'resources:FPGA': str(units)}] * groups)
    monkeypatch.setitem(cloud.session.headers, 'X-Auth-Token', token)
    count, response = cost(
        cloud, 'POST', '/accelerator_requests', 201, json={'device_profile_name': 'p'}
    )
    assert len(response.json()['arqs']) == groups * units
    assert count <= 5  # the fifth stores the key that makes a repetition harmless


@pytest.mark.parametrize('token', ['admin:p', 'member:p'])
@pytest.mark.parametrize('number', [1, 2, 16])
def test_a_server_costs_what_it_has(cloud, provider, number, token, monkeypatch):
    instance = str(uuid.uuid4())
    cloud.profile('p', {'resources:FPGA': str(number)})
    monkeypatch.setitem(cloud.session.headers, 'X-Auth-Token', token)
    arqs = cloud.request('p')
    body = {
        arq['uuid']: [
            {'op': 'add', 'path': '/hostname', 'value': HOST},
            {'op': 'add', 'path': '/device_rp_uuid', 'value': provider},
            {'op': 'add', 'path': '/instance_uuid', 'value': instance},
        ]
        for arq in arqs
    }
    bound, _ = cost(cloud, 'PATCH', '/accelerator_requests', 202, json=body)
    assert bound <= 6 + 2 * number
    read, response = cost(cloud, 'GET', f'/accelerator_requests?instance={instance}')
    states = [arq['state'] for arq in response.json()['arqs']]
    assert states in (['Bound'] * number, ['BindStarted'] * number)
    assert read == 1
    deleted, _ = cost(cloud, 'DELETE', f'/accelerator_requests?instance={instance}', 204)
    # what its host was to prepare is taken back, and what it may have prepared is given back
    assert deleted <= (6 if 'Bound' in states else 7)
    assert cloud.arqs() == []
