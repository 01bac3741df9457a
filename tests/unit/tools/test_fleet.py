# SPDX-License-Identifier: Apache-2.0
"""How a fleet is divided, counted and told of; what it says is tried in tests/functional."""

import os

import pytest

from tools import process_usage
from tools.fleet import command, interval_statistics


def options(*words):
    return command.parse(['--config-file', 'c', '--hosts', '5', *words])


def test_processes_share_hosts_and_what_happens():
    assignments = command.assignments(options('--processes', '2', '--churn', 'cards=6,binds=3'))
    assert [list(assignment.names) for assignment in assignments] == [
        ['sim0', 'sim2', 'sim4'],
        ['sim1', 'sim3'],
    ]
    assert {(assignment.cards, assignment.binds) for assignment in assignments} == {(3, 1.5)}


def test_there_are_no_more_processes_than_hosts():
    assert len(command.assignments(options('--processes', '9'))) == 5


@pytest.mark.parametrize('text', ['rain=1', 'cards=much', 'cards'])
def test_what_cannot_happen_is_refused(text, capsys):
    with pytest.raises(SystemExit):
        options('--churn', text)
    assert 'argument --churn' in capsys.readouterr().err


def test_without_a_broker_there_is_no_fleet(capsys):
    with pytest.raises(SystemExit):
        command.main(['--hosts', '1'])
    assert '--config-file' in capsys.readouterr().err


def test_a_file_that_is_not_there_is_an_error(tmp_path, capfd):
    assert command.main(['--hosts', '1', '--config-file', str(tmp_path / 'none.conf')]) == 1
    assert 'tools.fleet: A process of the fleet has ended' in capfd.readouterr().err


def test_figures_of_processes_are_put_together():
    first, second = (
        interval_statistics.IntervalStatistics(),
        interval_statistics.IntervalStatistics(),
    )
    for each, seconds in ((first, 0.001), (second, 0.003)):
        each.count('sent', 2)
        each.add_time('send', seconds)
    told = interval_statistics.combine([first.take(), second.take()])
    assert told['counts']['sent'] == 4
    assert told['times'] == {'send': {'p50': 1, 'p99': 3}}
    assert first.take() == {'counts': {}, 'times': {}}


def test_a_line_says_what_matters():
    told = interval_statistics.combine([{'counts': {'sent': 7}, 'times': {'ask': [0.002]}}])
    assert interval_statistics.render(told | {'conductor': 0.25}) == (
        '7 heartbeats sent, 0 periods missed, query p50 2.0 p99 2.0 ms, conductor 25% of a core'
    )


@pytest.mark.parametrize('percent, expected', [(1, 1), (50, 2), (75, 3), (99, 4)])
def test_a_percentile_is_one_of_the_samples(percent, expected):
    assert interval_statistics.nearest_rank([4, 3, 2, 1], percent) == expected


def test_the_kernel_says_what_a_process_takes():
    here = process_usage.with_children(os.getpid())
    assert os.getpid() in here
    assert process_usage.cpu(here) > 0
    assert process_usage.resident(here) > 1
    assert process_usage.threads(here) >= 1
    ended = 2**31 - 1
    assert process_usage.cpu([ended]) == process_usage.resident([ended]) == 0
    assert process_usage.with_children(ended) == [ended]
