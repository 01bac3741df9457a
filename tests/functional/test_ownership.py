# SPDX-License-Identifier: Apache-2.0
"""A device that Nova sells too is told everywhere, and is ours again when Nova lets it go."""

import pathlib
import subprocess
import sys
import uuid

import pytest

from tests.fixtures.cloud import Cloud, eventually
from tests.fixtures.hosts import SimHost

pytestmark = pytest.mark.any_database
VERSION = {'OpenStack-API-Version': 'placement 1.39'}
ADDRESS, OTHER = '0000:af:00.0', '0000:b0:00.0'
NAME, OTHER_NAME = f'compute1_{ADDRESS}', f'compute1_{OTHER}'
NOVAS = 'compute1_pci_0000_af_00_0'
CARDS = [{'model': '10de:2331', 'at': ADDRESS}, {'model': '10de:2331', 'at': OTHER}]


@pytest.fixture
def start(tmp_path):
    """A cloud whose only host has two cards."""
    clouds = []

    def start(more, cards=CARDS):
        cloud = Cloud(tmp_path, more=f'[agent]\n{more}\n')
        cloud.start()
        clouds.append(cloud)
        cloud.host(make=SimHost, cards=cards)
        return cloud

    yield start
    for cloud in clouds:
        cloud.stop()


class Claim:
    """A provider as nova-compute makes them for the PCI devices that it hands out itself."""

    def __init__(self, name=NOVAS):
        self.name, self.uuid = name, str(uuid.uuid4())

    def make(self, cloud):
        host = self.name.partition('_')[0]
        [root] = cloud.placement.get(f'/resource_providers?name={host}', headers=VERSION).json()[
            'resource_providers'
        ]
        made = cloud.placement.post(
            '/resource_providers',
            headers=VERSION,
            json={'name': self.name, 'uuid': self.uuid, 'parent_provider_uuid': root['uuid']},
        )
        assert made.status_code == 200

    def give_up(self, cloud):
        gone = cloud.placement.delete(f'/resource_providers/{self.uuid}', headers=VERSION)
        assert gone.status_code == 204


def conflicts(cloud):
    [agent] = cloud.get('/agents')['agents']
    return agent['conflicts']


def offered(cloud):
    """The providers that have something to give: one that is withdrawn is emptied and kept."""
    return {name for name, each in cloud.providers().items() if each['inventories']}


def status(cloud):
    """How cyborg-status ended, and what it said."""
    done = subprocess.run(
        [
            pathlib.Path(sys.executable).parent / 'cyborg-status',
            '--config-file',
            cloud.directory / 'cyborg.conf',
            'upgrade',
            'check',
        ],
        text=True,
        capture_output=True,
    )
    return done.returncode, ' '.join(done.stdout.replace('|', ' ').split())


def test_a_claimed_device_is_told_everywhere_until_it_is_let_go(start, capfd):
    claim = Claim()
    cloud = start('resync_interval = 1\nplacement_interval = 0')
    claim.make(cloud)
    cloud.agent().inventory.wake(must_report=True)  # somebody doubts what is published
    eventually(lambda: set(conflicts(cloud)) == {NAME})
    assert claim.uuid in conflicts(cloud)[NAME]
    assert OTHER_NAME in offered(cloud) and NAME not in offered(cloud)
    code, said = status(cloud)
    assert code == 1
    assert '1 devices are not offered' in said and NOVAS in said

    claim.give_up(cloud)  # and nobody tells us
    eventually(lambda: NAME in offered(cloud))
    eventually(lambda: conflicts(cloud) == {})
    assert 'No other service claims a device of Cyborg.' in status(cloud)[1]
    # rounds were many, the log says it once
    assert capfd.readouterr().err.count(f'{NAME} is not published: ') == 1


def test_a_claim_that_comes_later_is_found_without_any_change_of_the_host(start):
    cloud = start('resync_interval = 1\nplacement_interval = 1')
    eventually(lambda: NAME in offered(cloud))
    claim = Claim(f'compute1_{ADDRESS.upper()}')
    claim.make(cloud)
    eventually(lambda: set(conflicts(cloud)) == {NAME})
    eventually(lambda: NAME not in offered(cloud))
    claim.give_up(cloud)
    eventually(lambda: NAME in offered(cloud))


@pytest.mark.parametrize(
    'novas',
    [
        'compute1_pci_0000_af_00_4',
        'compute1_0000:AF:00.4',  # a virtual function that is offered
        'compute1_pci_0000_af_01_3',  # one that is not: the type leaves it without a place
        'compute1_pci_0000_af_00_0',
        'compute1_0000:AF:00.0',
    ],
)
def test_a_card_is_claimed_with_any_of_its_functions(start, novas):
    cloud = start(
        'resync_interval = 1\nplacement_interval = 1\n[gpu_devices]\n'
        'enabled_vgpu_types = nvidia-471',
        [{'model': '10de:20b5', 'at': ADDRESS}],
    )
    eventually(lambda: NAME in offered(cloud))
    Claim(novas).make(cloud)
    eventually(lambda: set(conflicts(cloud)) == {NAME})
    eventually(lambda: NAME not in offered(cloud))


def test_a_provider_that_somebody_deleted_is_made_again(start):
    cloud = start('resync_interval = 1\nplacement_interval = 1')
    [rp] = [
        each['rp_uuid'] for each in cloud.get('/deployables')['deployables'] if each['name'] == NAME
    ]
    cloud.placement.delete(f'/resource_providers/{rp}', headers=VERSION)
    eventually(lambda: NAME in offered(cloud))
