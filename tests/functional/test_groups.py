# SPDX-License-Identifier: Apache-2.0
"""A guest gets all of an IOMMU group or nothing: one handle of a group is offered at a time."""

import json

import pytest

from tests.fixtures.cloud import PATIENCE, Cloud, eventually
from tests.fixtures.hosts import SimHost

pytestmark = pytest.mark.any_database
FIRST, SECOND = '0000:3b:00.0', '0000:3c:00.0'
GROUPS = {FIRST: '7', SECOND: '7'}
#: Nothing here may wait for the timer.
SETTINGS = f"""
[agent]
resync_interval = 3600
[pci]
passthrough_whitelist = {json.dumps([{'vendor_id': '1234'}, {'vendor_id': '8086'}])}
"""


@pytest.fixture
def cloud(tmp_path):
    cloud = Cloud(tmp_path, more=SETTINGS)
    cloud.start()
    yield cloud
    cloud.stop()


def gpu(address, **facts):
    return {'model': '10de:2331', 'at': address} | facts


def offered(cloud):
    """Address -> how many can be had."""
    return {
        name.partition('_')[2]: each['total'] - each['reserved']
        for name, provider in cloud.providers().items()
        for each in provider['inventories'].values()
    }


def devices(cloud):
    """By address."""
    parts = cloud.get('/deployables')['deployables']  # before devices: one may come in between
    known = {each['uuid']: each for each in cloud.get('/devices')['devices']}
    return {each['name'].partition('_')[2]: known[each['device_uuid']] for each in parts}


def faults(cloud):
    return {address: each['fault'] for address, each in devices(cloud).items()}


def take(cloud, address):
    """Bind a new request to a card."""
    profile = f'gpu{address[5:7]}'
    cloud.profile(profile, {'resources:PGPU': '1'})
    [arq] = cloud.request(profile)
    answer = cloud.bind(arq, rp=cloud.rp(name=address))
    return arq, answer


@pytest.mark.parametrize('driver', ['vfio-pci', None])
def test_of_two_cards_in_a_group_one_is_offered_and_the_other_says_why(cloud, driver):
    cloud.host(
        make=SimHost, cards=[gpu(FIRST, driver=driver), gpu(SECOND, driver=driver)], groups=GROUPS
    )
    cloud.rest()
    eventually(lambda: offered(cloud) == {FIRST: 1, SECOND: 0})
    assert faults(cloud)[FIRST] is None
    assert f'{SECOND} shares its IOMMU group with {FIRST}' in faults(cloud)[SECOND]
    # nor can it be had by somebody who does not ask Placement
    assert take(cloud, SECOND)[1].status_code == 409
    assert take(cloud, FIRST)[1].status_code == 202


def test_cards_of_different_drivers_share_a_group_too(cloud):
    other = {'vendor': '1234', 'device': '0001', 'class': 'ff0000', 'at': FIRST}
    cloud.host(
        make=SimHost,
        cards=[other, gpu(SECOND)],
        groups=GROUPS,
        drivers=('nvidia_gpu_driver', 'pci_driver'),
    )
    cloud.rest()
    eventually(lambda: offered(cloud) == {FIRST: 1, SECOND: 0})


def test_a_card_that_is_held_stays_and_what_joins_its_group_waits(cloud):
    host = cloud.host(make=SimHost, cards=[gpu(SECOND)], groups=GROUPS)
    cloud.rest()
    arq, answer = take(cloud, SECOND)
    assert answer.status_code == 202
    host.plug_in(**gpu(FIRST))
    eventually(lambda: FIRST in faults(cloud))
    eventually(lambda: offered(cloud) == {FIRST: 0, SECOND: 1})
    assert cloud.arqs()[0]['state'] == 'Bound' and faults(cloud)[SECOND] is None
    # what was offered stays so when nobody holds it any more, and over a restart of the agent
    assert cloud.call('DELETE', f'/accelerator_requests?arqs={arq["uuid"]}').status_code == 204
    cloud.standalone.remove_host('compute1')
    assert cloud.standalone.add_host(host).inventory.is_ready.wait(PATIENCE)
    eventually(lambda: offered(cloud) == {FIRST: 0, SECOND: 1})


def test_the_other_card_is_offered_when_the_first_is_disabled_and_free(cloud):
    cloud.host(make=SimHost, cards=[gpu(FIRST), gpu(SECOND)], groups=GROUPS)
    cloud.rest()
    arq, _ = take(cloud, FIRST)
    disable = f'/devices/{devices(cloud)[FIRST]["uuid"]}/disable'
    assert cloud.call('POST', disable).status_code == 204
    eventually(lambda: offered(cloud) == {FIRST: 0, SECOND: 0})
    assert cloud.call('DELETE', f'/accelerator_requests?arqs={arq["uuid"]}').status_code == 204
    eventually(lambda: offered(cloud) == {FIRST: 0, SECOND: 1})
    assert faults(cloud)[SECOND] is None


def test_of_virtual_functions_in_a_group_one_is_offered(cloud):
    functions = [f'0000:3b:01.{number}' for number in range(4)]
    cloud.host(
        make=SimHost,
        groups=dict.fromkeys(functions, '7'),
        drivers=('pci_driver',),
        cards=[
            {
                'model': '8086:37c8',
                'at': FIRST,
                'vfs': 5,
                'sriov': {'total': 16, 'offset': 8, 'vf': {'device': '37c9'}},
            }
        ],
    )
    cloud.rest()
    # four that share a group, and one that has its own
    eventually(lambda: offered(cloud) == {FIRST: 2})
    assert faults(cloud)[FIRST] is None
