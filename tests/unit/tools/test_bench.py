# SPDX-License-Identifier: Apache-2.0
"""The benchmark's own arithmetic; what it measures is tried in tests/functional."""

import importlib
import pkgutil
import types

import pytest

from tools import bench
from tools.bench import deployed_site, html_report, image_fetch, load, results, targets, text_report
from tools.bench.figures import (
    Better,
    Change,
    Figure,
    allowed_rate,
    compare,
    latencies,
    life_floor,
    percentile,
)


@pytest.mark.parametrize(
    'name', [each.name for each in pkgutil.iter_modules(bench.__path__, 'tools.bench.')]
)
def test_each_module_can_be_imported(name):
    """Some are started by hand only."""
    assert importlib.import_module(name).__doc__


def test_fetching_an_image_is_measured(capfd):
    image_fetch.main(['1'])
    first, second = capfd.readouterr().out.splitlines()
    assert first.split()[:4] == ['1', 'MiB', 'from', 'Glance']
    assert second.split()[:5] == ['1', 'MiB', 'from', 'the', 'cache']


def figure(value, better=Better.LESS, **at):
    return Figure('life', 'bind p50', 'ms', value, at, better)


@pytest.mark.parametrize(
    'samples, percent, expected',
    [
        ([7], 99, 7),
        ([1, 2, 3], 50, 2),
        ([4, 1, 3, 2], 50, 2.5),
        ([1, 2, 3], 0, 1),
        ([1, 2, 3], 100, 3),
        (range(101), 95, 95),
    ],
)
def test_a_percentile_lies_between_its_neighbours(samples, percent, expected):
    assert percentile(list(samples), percent) == expected


def test_there_is_no_percentile_of_nothing():
    with pytest.raises(ValueError, match='at least one sample'):
        percentile([], 50)


def test_latencies_are_in_milliseconds():
    found = latencies('life', 'bind', [0.001, 0.002, 0.003], {'clients': 1})
    assert [(each.what, each.value) for each in found][0] == ('bind p50', 2)
    assert {each.unit for each in found} == {'ms'}


def test_the_floor_of_a_life_is_four_requests_and_its_sql():
    # as measured once: 1.5 ms HTTP, 3.3 ms a call, 2.3 ms SQL
    assert life_floor(http=1.5, rpc=3.3, sql=2.3) == pytest.approx(21.5)


def test_parts_that_share_the_machine_allow_less_than_each_alone():
    assert allowed_rate(http=400, rpc=400, sql=100) == pytest.approx(1 / 0.03)


@pytest.mark.parametrize(
    'old, new, better, is_worse',
    [
        (100, 111, Better.LESS, True),
        (100, 109, Better.LESS, False),
        (100, 50, Better.LESS, False),
        (100, 89, Better.MORE, True),
        (100, 91, Better.MORE, False),
        (100, 200, Better.MORE, False),
        (100, 500, Better.NONE, False),
        (0, 1, Better.LESS, True),
        (0, 0, Better.LESS, False),
    ],
)
def test_what_is_worse_by_more_than_a_tenth_is_marked(old, new, better, is_worse):
    assert Change(old, figure(new, better)).is_worse is is_worse


def test_runs_are_compared_where_they_measured_the_same():
    [change] = compare(
        [figure(10, clients=1), figure(20, clients=4)],
        [figure(30, clients=4), figure(40, clients=16)],
    )
    assert (change.old, change.new.value) == (20, 30)


def test_a_run_is_found_again_as_the_last_of_its_kind(tmp_path):
    assert results.last(tmp_path, 'embedded', 'quick') is None
    run = results.Run.now('embedded', 'quick', [figure(1.5, clients=4)])
    run.save(tmp_path)
    results.Run.now('services', 'quick', []).save(tmp_path)
    assert results.last(tmp_path, 'embedded', 'quick') == run


def test_a_table_shows_each_circumstance_once():
    text = text_report.render(
        [figure(1.2345, clients=1), figure(12345.6, clients=1), figure(3, clients=4)]
    )
    assert text.count('clients 1') == 1
    assert all(word in text for word in ('1.23', '12,346', 'clients 4'))


def test_changes_for_the_worse_catch_the_eye():
    text = text_report.render_changes([Change(1, figure(2)), Change(2, figure(1))])
    assert text.count('WORSE') == 1


@pytest.mark.parametrize(
    'count, among, expected', [(1, 4, [1, 0, 0, 0]), (16, 4, [4, 4, 4, 4]), (6, 4, [2, 2, 1, 1])]
)
def test_clients_are_spread_over_processes(count, among, expected):
    assert load.shares(count, among) == expected


def test_samples_of_processes_are_put_together():
    assert load.merge([{'a': [1.0]}, {'a': [2.0], 'b': [3.0]}]) == {'a': [1, 2], 'b': [3]}


def test_a_target_is_judged_by_the_worst_of_its_figures():
    [verdict] = targets.judge(
        [
            Figure('lists', 'list more than query', 'ms', value, {'devices': 1000, 'of': of})
            for of, value in (('devices', 50), ('arqs', 130))
        ]
    )
    assert (verdict.figure.value, verdict.holds) == (130, False)
    [verdict] = targets.judge(
        [
            Figure('life', 'lives to floor', '×', value, {'stored': stored, 'clients': 16})
            for stored, value in ((0, 0.9), (1000, 0.7))
        ]
    )
    assert (verdict.figure.value, verdict.holds) == (0.7, True)
    assert 'MISSED' not in text_report.render_verdicts([verdict])


def test_a_target_says_nothing_of_other_circumstances():
    assert not list(
        targets.judge([Figure('life', 'lives to floor', '×', 0.1, {'stored': 0, 'clients': 4})])
    )


def test_every_target_is_about_something_that_is_measured():
    """Names are written twice; here they meet."""
    known = {'life', 'lists', 'availability', 'report', 'hotplug', 'fleet', 'start'}
    assert {target.measurement for target in targets.TARGETS} <= known


def test_the_page_has_a_plot_of_what_was_measured_along_a_number():
    figures = [
        Figure(
            'life', 'bind p50', 'ms', stored / 10 + clients, {'stored': stored, 'clients': clients}
        )
        for stored in (0, 1000, 100_000)
        for clients in (1, 16)
    ]
    run = results.Run.now('embedded', 'full', figures)
    text = html_report.render(run, run, compare(figures, figures))
    assert text.count('<svg') == 1
    assert text.count('<polyline') == 2
    assert 'clients 16' in text and '<h2>Compared' in text
    assert 'http' not in text


def test_a_page_escapes_what_it_shows():
    run = results.Run.now('<b>', 'full', [])
    assert '<b>' not in html_report.render(run, None, [])


def test_the_api_of_the_deployment_runs_under_uwsgi(tmp_path, monkeypatch):
    program = tmp_path / 'venv/bin/uwsgi'
    program.parent.mkdir(parents=True)
    program.touch()
    monkeypatch.setenv('CYBORG_BENCH_UWSGI_VENV', str(tmp_path / 'venv'))
    identity = types.SimpleNamespace(url='http://127.0.0.1', password='secret')
    with deployed_site.Deployed(
        tmp_path, 'rabbit://127.0.0.1', 'mysql+pymysql://127.0.0.1/cyborg', identity, {}
    ) as made:
        [api] = made.apis
        assert made.api is api
        assert api.argv[0] == str(program)
