# SPDX-License-Identifier: Apache-2.0
"""Others hear for which request Cyborg asks them something."""

import uuid

import pytest

from tests.fixtures.cloud import eventually

pytestmark = pytest.mark.any_database


@pytest.fixture
def placement_ids(cloud, monkeypatch):
    """The ids that come along with each change of Placement, from now on."""
    found = []
    session = cloud.standalone.placement.session.session
    send = session.send

    def note(request, **options):
        if request.method != 'GET':
            found.append(request.headers.get('X-OpenStack-Request-ID'))
        return send(request, **options)

    monkeypatch.setattr(session, 'send', note)
    return found


def test_nova_hears_for_which_request_it_is_told(cloud):
    cloud.host('compute1')
    cloud.profile('fpga', {'resources:FPGA': '1'})
    [arq] = cloud.request('fpga')
    theirs = {'X-OpenStack-Request-ID': f'req-{uuid.uuid4()}'}
    body = {
        arq['uuid']: [
            {'op': 'add', 'path': '/hostname', 'value': 'compute1'},
            {'op': 'add', 'path': '/device_rp_uuid', 'value': cloud.rp()},
            {'op': 'add', 'path': '/instance_uuid', 'value': str(uuid.uuid4())},
        ]
    }
    answer = cloud.call('PATCH', '/accelerator_requests', json=body, headers=theirs)
    assert answer.status_code == 202
    assert cloud.nova.wait_for_events(1)
    assert cloud.nova.request_ids == list(theirs.values())


def test_placement_hears_for_which_request_it_is_changed(cloud, placement_ids):
    cloud.host('compute1')
    [device] = cloud.get('/devices')['devices']
    cloud.rest()
    for action, reserved in (('disable', 16), ('enable', 0)):
        placement_ids.clear()
        theirs = f'req-{uuid.uuid4()}'
        answer = cloud.call(
            'POST',
            f'/devices/{device["uuid"]}/{action}',
            headers={'X-OpenStack-Request-ID': theirs},
        )
        assert answer.status_code == 204
        eventually(
            lambda reserved=reserved: (
                cloud.providers()['compute1_FakeDevice']['inventories']['FPGA']['reserved']
                == reserved
            )
        )
        assert set(placement_ids) == {theirs}
