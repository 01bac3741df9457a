# SPDX-License-Identifier: Apache-2.0
"""How a fleet is divided, counted and told of; what it says is tried in tests/functional."""

import argparse
import os
import sys

import pytest

from cyborg.cmd import sim
from cyborg.sim import usage
from cyborg.sim.fleet import command, figures


def options(*words):
    parser = argparse.ArgumentParser()
    command.add_options(parser)
    parser.set_defaults(config_file=['c'])
    return parser.parse_args(['--hosts', '5', *words])


def test_processes_share_hosts_and_what_happens():
    orders = command.orders(options('--processes', '2', '--churn', 'cards=6,binds=3'))
    assert [list(order.names) for order in orders] == [['sim0', 'sim2', 'sim4'], ['sim1', 'sim3']]
    assert {(order.cards, order.binds) for order in orders} == {(3, 1.5)}


def test_there_are_no_more_processes_than_hosts():
    assert len(command.orders(options('--processes', '9'))) == 5


@pytest.mark.parametrize('text', ['rain=1', 'cards=much', 'cards'])
def test_what_cannot_happen_is_refused(text, capsys):
    with pytest.raises(SystemExit):
        options('--churn', text)
    assert 'argument --churn' in capsys.readouterr().err


def test_without_a_broker_there_is_no_fleet(monkeypatch):
    monkeypatch.setattr(sys, 'argv', ['cyborg-sim', 'fleet', '--hosts', '1'])
    with pytest.raises(SystemExit, match='--config-file'):
        sim.main()


def test_figures_of_processes_are_put_together():
    first, second = figures.Figures(), figures.Figures()
    for each, seconds in ((first, 0.001), (second, 0.003)):
        each.count('sent', 2)
        each.took('send', seconds)
    told = figures.together([first.take(), second.take()])
    assert told['counts']['sent'] == 4
    assert told['times'] == {'send': {'p50': 1, 'p99': 3}}
    assert first.take() == {'counts': {}, 'times': {}}


def test_a_line_says_what_matters():
    told = figures.together([{'counts': {'sent': 7}, 'times': {'ask': [0.002]}}])
    assert figures.sentence(told | {'conductor': 0.25}) == (
        '7 heartbeats sent, 0 periods missed, ask p50 2.0 p99 2.0 ms, conductor 25% of a core')


@pytest.mark.parametrize('percent, expected', [(1, 1), (50, 2), (75, 3), (99, 4)])
def test_a_percentile_is_one_of_the_samples(percent, expected):
    assert figures.nearest([4, 3, 2, 1], percent) == expected


def test_the_kernel_says_what_a_process_takes():
    here = usage.with_children(os.getpid())
    assert os.getpid() in here
    assert usage.cpu(here) > 0
    assert usage.resident(here) > 1
    assert usage.threads(here) >= 1
    ended = 2 ** 31 - 1
    assert usage.cpu([ended]) == usage.resident([ended]) == 0
    assert usage.with_children(ended) == [ended]
