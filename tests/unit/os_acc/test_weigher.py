# SPDX-License-Identifier: Apache-2.0
"""os_acc.weigher: hosts by the accelerators that they have free."""

import pathlib
import subprocess
import sys

import pytest

from os_acc import weigher
from tests.fixtures import novas_code

ROOT = pathlib.Path(__file__).parents[3]
#: Nova's own handler weighs three hosts, of which the second has most free cards.
SCRIPT = """
import json, sys
from nova import conf, objects
from nova.scheduler import weights
from nova.scheduler.host_manager import HostState
from oslo_config import cfg
import os_acc.weigher

objects.register_all()
conf.CONF([], project='nova', default_config_files=[])
handler = weights.HostWeightHandler()
classes = handler.get_matching_classes(
    ['nova.scheduler.weights.all_weighers', 'os_acc.weigher.AcceleratorWeigher'])
assert os_acc.weigher.AcceleratorWeigher in classes, classes
assert issubclass(os_acc.weigher.AcceleratorWeigher, weights.BaseHostWeigher)


def host(name, cards, **metadata):
    state = HostState(name, name, None)
    state.allocation_candidates = [
        {'mappings': {'': [name], 'device_profile_0': [f'{name}-{card}']}}
        for card in range(cards)]
    state.aggregates = [objects.Aggregate(metadata=metadata)] if metadata else []
    return state


def order(multiplier, *hosts):
    weigher = os_acc.weigher.AcceleratorWeigher()
    cfg.CONF.set_override('weight_multiplier', multiplier, 'os_acc')
    weighed = handler.get_weighed_objects([weigher], list(hosts), None)
    return [(each.obj.host, round(each.weight, 2)) for each in weighed]


hosts = host('few', 1), host('many', 4), host('some', 2)
print(json.dumps({
    'spread': order(1.0, *hosts),
    'pack': order(-1.0, *hosts),
    'none': order(1.0, host('a', 0), host('b', 0)),
    'aggregate': order(1.0, host('few', 1), host(
        'many', 4, accelerator_weight_multiplier='-2')),
}))
"""


class Host:
    def __init__(self, *mappings):
        self.allocation_candidates = [{'mappings': each} for each in mappings]


def weigh(host):
    return weigher.AcceleratorWeigher()._weigh_object(host, None)


def test_a_host_weighs_as_many_cards_as_could_serve_the_request():
    assert (
        weigh(
            Host(
                {'': ['node'], 'device_profile_0': ['card1']},
                {'': ['node'], 'device_profile_0': ['card2']},
                {'': ['node'], 'device_profile_0': ['card1']},
            )
        )
        == 2
    )


def test_the_scarcest_group_counts():
    assert (
        weigh(
            Host(
                {'device_profile_0': ['gpu1'], 'device_profile_1': ['fpga']},
                {'device_profile_0': ['gpu2'], 'device_profile_1': ['fpga']},
            )
        )
        == 1
    )


def test_the_profile_of_a_port_counts_too():
    assert weigh(Host({'device_profile_05f1b0a4e-port': ['nic']})) == 1


@pytest.mark.parametrize(
    'host',
    [
        Host(),
        Host({'': ['node']}),
        Host(None),
        object(),
    ],
    ids=['a rebuild', 'no accelerator', 'no mappings', 'an older Nova'],
)
def test_a_request_that_asks_for_none_or_does_not_tell_weighs_nothing(host):
    assert weigh(host) == 0


def test_the_multiplier_is_an_option():
    assert weigher.AcceleratorWeigher().weight_multiplier(Host()) == 1.0


@novas_code.needs_nova
def test_novas_scheduler_uses_it():
    assert novas_code.run(SCRIPT, path=str(ROOT)) == {
        'spread': [['many', 1.0], ['some', 0.5], ['few', 0.25]],
        'pack': [['few', -0.25], ['some', -0.5], ['many', -1.0]],
        'none': [['a', 0.0], ['b', 0.0]],
        'aggregate': [['few', 0.25], ['many', -2.0]],
    }


def test_it_imports_without_nova_and_calls_nobody():
    code = 'import sys, os_acc.weigher; print("nova" in sys.modules, "requests" in sys.modules)'
    run = subprocess.run(
        [sys.executable, '-W', 'ignore', '-c', code], text=True, capture_output=True, check=True
    )
    assert run.stdout.split() == ['False', 'False']
