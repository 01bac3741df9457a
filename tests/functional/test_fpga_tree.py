# SPDX-License-Identifier: Apache-2.0
"""FPGAs of several levels: what is programmed decides what can be scheduled."""

import functools
import json
import uuid

import pytest

from tests.fixtures.cloud import Cloud, eventually
from tests.fixtures.hosts import SimHost

ADDRESS = '0000:5e:00.0'
TYPE = '69528db6-eb31-577a-8c36-68f9faa081f6'
FIRST, SECOND, THIRD = (str(uuid.UUID(int=number, version=4)) for number in (1, 2, 3))
CARD, REGION = f'compute1_{ADDRESS}', f'compute1_{ADDRESS}_region0'
FACTS = {'shell': '0x1', 'region_type': TYPE, 'ports': [[FIRST, SECOND]]}


@pytest.fixture
def cloud(tmp_path):
    made = Cloud(tmp_path, more='[api]\nbind_wait = 60\n')
    made.start()
    yield made
    made.stop()


def gbs(*functions):
    description = json.dumps(
        {
            'version': 1,
            'afu-image': {
                'interface-uuid': TYPE,
                'accelerator-clusters': [{'accelerator-type-uuid': each} for each in functions],
            },
        }
    ).encode()
    return (
        b'XeonFPGA\xb7GBSv001'
        + len(description).to_bytes(4, 'little')
        + description
        + b'bits' * 100
    )


def program(cloud, name, image):
    [found] = cloud.get(f'/deployables?name={name}')['deployables']
    return cloud.call(
        'PATCH',
        f'/deployables/{found["uuid"]}/program',
        json=[{'path': '/program', 'op': 'replace', 'value': [{'image_uuid': image}]}],
    )


def units(cloud):
    """Provider -> how many there are to be had."""
    return {
        name: provider['inventories']['FPGA']['total']
        for name, provider in cloud.providers().items()
        if 'FPGA' in provider['inventories']
    }


#: a provider without inventories, and the only trait of one that is kept
EMPTY = {}, ['OWNER_CYBORG']


def kept(cloud, provider):
    """The inventories and traits of a provider, which must be there."""
    found = []
    for part in ('', '/inventories', '/traits'):
        answer = cloud.placement.get(
            f'/resource_providers/{provider}{part}',
            headers={'OpenStack-API-Version': 'placement 1.39'},
            raise_exc=False,
        )
        assert answer.status_code == 200, answer.text
        found.append(answer.json())
    _, inventories, traits = found
    return inventories['inventories'], traits['traits']


class TestSharedRegion:
    @pytest.fixture(autouse=True)
    def host(self, cloud):
        card = {
            'model': '8086:bcce',
            'at': ADDRESS,
            'dfl': FACTS,
            'sriov': {
                'total': 2,
                'enabled': 2,
                'offset': 1,
                'vf': {'device': 'bccf', 'driver': 'dfl-pci', 'dfl': FACTS},
            },
        }
        return cloud.host(
            make=functools.partial(SimHost, cards=[card], drivers=['intel_fpga_driver'])
        )

    def test_what_is_in_a_region_is_scheduled_by_what_it_does(self, cloud):
        eventually(lambda: units(cloud) == {f'{REGION}_{FIRST}': 1, f'{REGION}_{SECOND}': 1})
        cloud.profile(
            'second',
            {
                'resources:FPGA': '1',
                'trait:CUSTOM_FPGA_INTEL_FUNCTION_' + SECOND.upper().replace('-', '_'): 'required',
            },
        )
        [provider] = [
            each['uuid'] for name, each in cloud.providers().items() if name.endswith(SECOND)
        ]
        # who has a part of a region keeps others from programming all of it
        assert cloud.bind(cloud.request('second'), rp=provider).status_code == 202
        answer = program(cloud, REGION, cloud.glance.add(gbs(THIRD)))
        assert answer.status_code == 409
        assert 'has a part of it' in answer.text

    def test_the_tree_follows_what_is_programmed(self, cloud):
        eventually(lambda: units(cloud) == {f'{REGION}_{FIRST}': 1, f'{REGION}_{SECOND}': 1})
        former = [cloud.providers()[f'{REGION}_{each}']['uuid'] for each in (FIRST, SECOND)]
        assert program(cloud, REGION, cloud.glance.add(gbs(THIRD, THIRD))).status_code == 200
        eventually(lambda: units(cloud) == {f'{REGION}_{THIRD}': 2})
        assert program(cloud, REGION, cloud.glance.add(gbs(THIRD))).status_code == 200
        eventually(lambda: units(cloud) == {f'{REGION}_{THIRD}': 1})
        # nova-compute remembers those that have gone, and fails each build if one is deleted
        for each in former:
            eventually(lambda each=each: kept(cloud, each) == EMPTY)

    @pytest.fixture
    def image(self, cloud):
        """An image of two functions, which an operator has loaded."""
        facts = {'name': 'gzip', 'function_name': 'compress', 'visibility': 'public'}
        image = cloud.glance.add(gbs(THIRD, THIRD), **facts)
        assert program(cloud, REGION, image).status_code == 200
        eventually(lambda: units(cloud) == {f'{REGION}_{THIRD}': 2})
        return image

    @pytest.mark.parametrize(
        'key', ['bitstream_id', 'bitstream_name', 'function_id', 'function_name']
    )
    def test_the_image_of_a_region_is_that_of_its_functions(self, cloud, host, image, key):
        wanted = {
            'bitstream_id': image,
            'bitstream_name': 'gzip',
            'function_id': THIRD,
            'function_name': 'compress',
        }
        cloud.profile('gzip', {'resources:FPGA': '1', f'accel:{key}': wanted[key]})
        host.tools['fpgaconf'] = None  # nothing is loaded again
        for _ in range(2):
            arqs = cloud.request('gzip')
            answer = cloud.bind(arqs, rp=cloud.providers()[f'{REGION}_{THIRD}']['uuid'])
            assert answer.status_code == 202, answer.text
            [found] = [cloud.get(f'/accelerator_requests/{arq["uuid"]}') for arq in arqs]
            assert found['state'] == 'Bound'

    def test_another_image_is_not_loaded_for_one_function(self, cloud, image):
        other = cloud.glance.add(gbs(FIRST), visibility='public')
        cloud.profile('other', {'resources:FPGA': '1', 'accel:bitstream_id': other})
        rp = cloud.providers()[f'{REGION}_{THIRD}']['uuid']
        answer = cloud.bind(cloud.request('other'), rp=rp)
        assert answer.status_code == 409
        [region] = cloud.get(f'/deployables?name={REGION}')['deployables']
        assert f'load the image into deployable {region["uuid"]} first' in answer.text


def test_a_card_without_a_shell_is_seen_and_not_offered(cloud):
    cloud.host(
        make=functools.partial(
            SimHost, cards=[{'model': '10ee:d000', 'at': ADDRESS}], drivers=['xilinx_fpga_driver']
        )
    )
    [found] = cloud.get(f'/deployables?name={CARD}')['deployables']
    assert (found['num_accelerators'], found['is_programmable']) == (0, False)
    [device] = cloud.get('/devices')['devices']
    assert 'has no shell: flash one' in cloud.get(f'/devices/{device["uuid"]}')['fault']
    assert units(cloud) == {}


def test_an_alveo_card_is_programmed(cloud):
    cloud.host(
        make=functools.partial(
            SimHost,
            drivers=['xilinx_fpga_driver'],
            cards=[
                {'model': '10ee:5000', 'at': ADDRESS},
                {'model': '10ee:5001', 'at': '0000:5e:00.1'},
            ],
        )
    )
    region = 'compute1_0000:5e:00.1_region0'
    header = bytearray(456)
    header[:8], header[304:312] = b'xclbin2\0', (556).to_bytes(8, 'little')
    header[416:432] = uuid.UUID(THIRD).bytes
    image = cloud.glance.add(bytes(header) + b'b' * 100, name='third.xclbin')
    assert program(cloud, region, image).status_code == 200
    trait = f'CUSTOM_FPGA_XILINX_FUNCTION_{THIRD.upper().replace("-", "_")}'
    eventually(lambda: trait in cloud.providers()[region]['traits'])
    [shown] = cloud.get(f'/deployables?name={region}')['deployables']
    assert shown['bitstream_id'] == image
