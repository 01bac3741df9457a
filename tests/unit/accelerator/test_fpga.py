# SPDX-License-Identifier: Apache-2.0
"""Behaviour that all FPGA drivers share."""

import pytest

from cyborg import errors
from cyborg.accelerator import fpga

ADDRESS = '0000:5e:00.0'
FUNCTION = 'd8424dc4-a4a3-c413-f89e-433683f9040b'
KPIS = f'[fpga]\nfunction_kpis = {FUNCTION}:throughput_gbps=40, latency_us=3\n'


@pytest.fixture
def attributes(host, load):
    """Of card and region: key -> value and what is below it."""

    def attributes():
        [device] = load('intel_fpga_driver').discover()
        return [
            {
                each.key: (each.value, {child.key: child.value for child in each.children})
                for each in deployable.attributes
            }
            for deployable in device.deployables
        ]

    host.plug_in('8086:09c4', at=ADDRESS)
    return attributes


def test_a_card_tells_its_shell_and_more_of_it(attributes):
    card, _ = attributes()
    assert card == {
        'shell_id': (
            '0x121000200000164',
            {
                'ports_num': '1',
                'bitstream_metadata': '0x0',
                'cache_size': '0',
                'fabric_version': '0',
                'socket_id': '0',
            },
        )
    }


@pytest.mark.parametrize('is_virtual', [False, True], ids=['whole card', 'virtual function'])
def test_the_shell_is_in_the_record_of_a_hand_back(host, load, stored, is_virtual):
    more = {'sriov': {'total': 1, 'enabled': 1, 'offset': 1, 'vf': {'device': '09c5'}}}
    host.plug_in('8086:09c4', at=ADDRESS, **(more if is_virtual else {}))
    host.tree.file('proc/sys/kernel/osrelease', '6.12.1')
    driver = load('intel_fpga_driver')
    [device] = driver.discover()
    [handle] = device.deployables[1].attach_handles
    handle, told = stored(handle), {'kernel': '6.12.1', 'shell': '0x121000200000164'}
    assert driver.function(handle).is_virtual is is_virtual
    assert driver.versions(handle).items() >= told.items()
    # nothing is guessed
    host.pull_out(ADDRESS)
    assert driver.versions(handle) == {'kernel': '6.12.1'}


def test_figures_of_a_function_are_below_it(configure, attributes):
    configure(KPIS)
    _, region = attributes()
    assert region['function_uuid'] == (FUNCTION, {'throughput_gbps': '40', 'latency_us': '3'})


def test_another_function_has_none_of_them(host, configure, attributes):
    configure(KPIS)
    other = FUNCTION.replace('d', 'e')
    host.program(ADDRESS, 0, other)
    _, region = attributes()
    assert region['function_uuid'] == (other, {})


@pytest.mark.parametrize(
    'line',
    [
        'fast',
        'fast:a=1',
        FUNCTION,
        f'{FUNCTION}:',
        f'{FUNCTION}:a',
        f'{FUNCTION}:=1',
        f'{FUNCTION}:a=1,,b=2',
    ],
)
def test_a_mistake_is_one_sentence(configure, load, line):
    configure(f'[fpga]\nfunction_kpis = {line}\n')
    with pytest.raises(errors.ConfigError, match='function_kpis has'):
        load('intel_fpga_driver')


@pytest.mark.parametrize(
    ('words', 'found'),
    [
        (None, ()),
        ('', ()),
        ('junk', ()),
        (FUNCTION.replace('-', ''), (FUNCTION,)),
        (f'{FUNCTION}\n{FUNCTION}\nx', (FUNCTION,)),
    ],
)
def test_uuids_are_read_with_and_without_dashes(words, found):
    assert fpga.uuids(words) == found
