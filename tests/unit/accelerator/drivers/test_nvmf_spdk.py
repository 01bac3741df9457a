# SPDX-License-Identifier: Apache-2.0
"""Storage that SPDK serves."""

import pytest

from cyborg import errors
from cyborg.sim.spdk import Spdk


@pytest.fixture
def discover(conf, load, tmp_path):
    conf.set_override('socket', str(tmp_path / 'spdk.sock'), group='nvmf_spdk_driver')
    conf.set_override('timeout', 60.0, group='nvmf_spdk_driver')
    return lambda: list(load('nvmf_spdk_driver').discover())


@pytest.fixture
def spdk(tmp_path):
    spdk = Spdk(tmp_path / 'spdk.sock')
    spdk.start()
    yield spdk
    spdk.stop()


def facts(device):
    return {
        each.key: (each.value, {child.key: child.value for child in each.children})
        for each in device.deployables[0].attributes
    }


def test_where_it_does_not_run_there_is_nothing(discover, tmp_path):
    assert discover() == []
    spdk = Spdk(tmp_path / 'spdk.sock')
    spdk._server.server_close()  # died and left its socket behind
    assert discover() == []


def test_it_is_shown_with_all_it_serves_and_offers_nothing(spdk, discover):
    [device] = discover()
    assert (device.key, device.type, device.model) == ('spdk', 'SSD', 'SPDK v24.09')
    [deployable] = device.deployables
    assert (deployable.resource_class, deployable.attach_handles) == (None, [])
    assert facts(device) == {
        'bdev0': (
            'Nvme0n1',
            {
                'product_name': 'NVMe disk',
                'uuid': '2b7d5c6a-8f11-4d3e-9a55-6a1f0c9e7b10',
                'block_size': '512',
                'num_blocks': '2097152',
            },
        ),
        'subsystem0': (
            'nqn.2016-06.io.spdk:cnode1',
            {'namespace1': 'Nvme0n1', 'listener0': 'TCP 192.0.2.7 4420'},
        ),
    }


def test_one_that_was_built_without_a_part_has_nothing_of_it(spdk, discover):
    del spdk.results['nvmf_get_subsystems']
    assert list(facts(discover()[0])) == ['bdev0']


@pytest.mark.parametrize('raw', [b'{', b'[]', b'{"id": 99, "result": 1}', b'\xff\xfe', b'{}{}'])
def test_nonsense_is_one_sentence(spdk, discover, conf, raw):
    spdk.raw = raw
    conf.set_override('timeout', 1.0, group='nvmf_spdk_driver')  # half of it is waited for
    with pytest.raises(errors.DriverFailed, match='spdk_get_version returned'):
        discover()


@pytest.mark.parametrize('answer', [None, [], 7, 'x', [None], [{}], [{'nqn': None}], {'a': 1}])
def test_answers_of_another_shape_hurt_nobody(spdk, discover, answer):
    spdk.results['bdev_get_bdevs'] = spdk.results['nvmf_get_subsystems'] = answer
    [device] = discover()
    device.obj_to_primitive()


def test_a_refusal_is_passed_on(spdk, discover, monkeypatch):
    monkeypatch.setattr(spdk, 'raw', b'{"id": 1, "error": {"code": -1, "message": "No"}}')
    with pytest.raises(errors.DriverFailed, match='spdk_get_version fails: .*No'):
        discover()
