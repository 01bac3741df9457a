# SPDX-License-Identifier: Apache-2.0
"""The alert rules and the dashboard use metrics, labels and values that exist."""

import json
import pathlib
import re
from http import HTTPStatus

import pytest
import yaml

from cyborg import metrics
from cyborg.clients import keystone
from cyborg.conductor import metrics as figures
from cyborg.conductor import outbox, sweep
from cyborg.objects import TaskKind

DIRECTORY = pathlib.Path(__file__).parents[3] / 'etc/cyborg/monitoring'
#: what Prometheus itself has
OF_PROMETHEUS = {'up': ()}
TARGET = {'job', 'instance'}
METRICS = metrics.LABELS | figures.LABELS | OF_PROMETHEUS
#: values of labels whose values the code lists
VALUES = {
    'alive': {'true', 'false'},
    'round': {sweep.SWEEP, sweep.AUDIT, sweep.PROFILES},
    'kind': set(TaskKind),
    'service': {*keystone.SERVICE_TYPES, 'conductor', 'agent', 'heartbeats'},
    'status': {keystone.NO_ANSWER, *(str(int(each)) for each in HTTPStatus)},
    'method': set(metrics.METHODS),
    'result': {
        *(metrics.OK, metrics.FAILED),
        *('refused', 'timeout', 'undelivered'),
        *(*outbox.RESULTS.values(), 'unreachable', 'given_up'),
    },
}
FUNCTIONS = {'sum', 'min', 'max', 'rate', 'increase', 'histogram_quantile', 'absent'}
WORDS = {'by', 'or', 'and'}
#: a metric with its selector, if it has one
USE = re.compile(r'\b([a-z_]+)\s*(?:\{([^}]*)\})?')
MATCHER = re.compile(r'(\w+)\s*(=~|!=|!~|=)\s*"([^"]*)"')
#: of time, such as [5m] or a variable of Grafana
RANGE = re.compile(r'\[[\w$]*[a-z]\]')
GROUPING = re.compile(r'\bby\s*\(([^)]*)\)')


def rules():
    [group] = yaml.safe_load((DIRECTORY / 'alerts.yaml').read_text())['groups']
    return group['rules']


def panels():
    return json.loads((DIRECTORY / 'dashboard.json').read_text())['panels']


def expressions():
    """Each with the labels that its texts show."""
    for rule in rules():
        texts = ' '.join(rule['annotations'].values())
        yield rule['alert'], rule['expr'], re.findall(r'\$labels\.(\w+)', texts)
    for panel in panels():
        for target in panel.get('targets', ()):
            shown = re.findall(r'\{\{(\w+)\}\}', target['legendFormat'])
            yield panel['title'], target['expr'], shown


def uses(expression):
    """The metrics of an expression, each with what its selector says of labels."""
    bare = RANGE.sub('', GROUPING.sub('', expression))
    return [
        (name, MATCHER.findall(selector))
        for name, selector in USE.findall(bare)
        if name not in FUNCTIONS | WORDS
    ]


def problems(expression, shown):
    """What is wrong with an expression."""
    used = uses(expression)
    if not used:
        return ['it uses no metric']
    found = [f'there is no metric {name}' for name, _ in used if name not in METRICS]
    if found:
        return found
    for name, matchers in used:
        for label, operator, value in matchers:
            if label not in {*METRICS[name], *TARGET}:
                found.append(f'{name} has no label {label}')
            elif label in VALUES and not _is_possible(label, operator, value):
                found.append(f'{label} is never {value}')
    common = TARGET | set.intersection(*({*METRICS[name]} for name, _ in used))
    grouped = {
        label.strip() for group in GROUPING.findall(expression) for label in group.split(',')
    }
    found += [f'no metric has the label {label}' for label in grouped - common]
    kept = common if '(' not in expression else grouped
    return found + [f'the result has no label {label}' for label in set(shown) - kept]


def _is_possible(label, operator, value):
    """Is there a value that the matcher selects?"""
    is_expression = operator in ('=~', '!~')
    return any(
        re.fullmatch(value, each) if is_expression else value == each for each in VALUES[label]
    )


@pytest.mark.parametrize(
    'expression, shown',
    [
        pytest.param(*rest, id=f'{number} {name}')
        for number, (name, *rest) in enumerate(expressions())
    ],
)
def test_an_expression_uses_metrics_labels_and_values_that_exist(expression, shown):
    assert problems(expression, shown) == []


@pytest.mark.parametrize(
    'expression, shown, problem',
    [
        ('max(cyborg_made_up)', [], 'there is no metric cyborg_made_up'),
        ('max(cyborg_agents{host="a"})', [], 'cyborg_agents has no label host'),
        ('max(cyborg_agents{alive="no"})', [], 'alive is never no'),
        ('max by (driver) (cyborg_agents)', [], 'no metric has the label driver'),
        ('max by (alive) (cyborg_agents)', ['state'], 'the result has no label state'),
        ('max(cyborg_agents)', ['alive'], 'the result has no label alive'),
        ('vector(1)', [], 'there is no metric vector'),
        ('1', [], 'it uses no metric'),
    ],
)
def test_an_expression_that_is_wrong_is_found(expression, shown, problem):
    assert problem in problems(expression, shown)


def test_every_metric_is_on_the_dashboard_or_in_an_alert():
    used = {
        name.removesuffix('_count').removesuffix('_bucket')
        for _, expression, _ in expressions()
        for name, _ in uses(expression)
    }
    families = {
        name.removesuffix('_count').removesuffix('_bucket').removesuffix('_sum')
        for name in metrics.LABELS | figures.LABELS
    }
    assert families - used == set()


def test_every_alert_says_how_grave_it_is_and_what_to_do():
    names = [rule['alert'] for rule in rules()]
    assert len(set(names)) == len(names)
    for rule in rules():
        assert rule['labels']['severity'] in ('critical', 'warning', 'info')
        assert set(rule['annotations']) == {'summary', 'description'}
        assert re.fullmatch(r'\d+m', rule['for'])


def test_panels_have_numbers_of_their_own_and_do_not_overlap():
    ids = [panel['id'] for panel in panels()]
    assert len(set(ids)) == len(ids)
    taken = set()
    for panel in panels():
        place = panel['gridPos']
        cells = {
            (place['x'] + x, place['y'] + y) for x in range(place['w']) for y in range(place['h'])
        }
        assert not cells & taken, panel['title']
        assert place['x'] + place['w'] <= 24
        taken |= cells
