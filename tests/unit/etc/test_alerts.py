# SPDX-License-Identifier: Apache-2.0
"""Prometheus evaluates the alert rules: each fires when it should, and is silent otherwise."""

import pathlib
import re
import shutil
import subprocess

import pytest
import yaml

RULES = pathlib.Path(__file__).parents[3] / 'etc/cyborg/monitoring/alerts.yaml'
TESTS = pathlib.Path(__file__).with_name('alerts_test.yaml')
NAMES = [rule['alert'] for rule in yaml.safe_load(RULES.read_text())['groups'][0]['rules']]

pytestmark = pytest.mark.skipif(
    shutil.which('promtool') is None, reason='promtool (package prometheus) is not installed'
)


def promtool(*words):
    return subprocess.run(['promtool', *words], text=True, capture_output=True)


def failing(directory, **changes):
    """The alerts whose tests fail when each rule is changed."""
    rules = yaml.safe_load(RULES.read_text())
    for rule in rules['groups'][0]['rules']:
        rule |= changes
    (directory / 'rules.yaml').write_text(yaml.safe_dump(rules))
    tests = yaml.safe_load(TESTS.read_text()) | {'rule_files': ['rules.yaml']}
    (directory / 'tests.yaml').write_text(yaml.safe_dump(tests))
    done = promtool('test', 'rules', str(directory / 'tests.yaml'))
    return set(re.findall(r'alertname: ?(\w+)', done.stdout + done.stderr))


def test_prometheus_accepts_the_rules():
    done = promtool('check', 'rules', str(RULES))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f'{len(NAMES)} rules found' in done.stdout


def test_each_alert_fires_when_it_should_and_is_silent_otherwise():
    done = promtool('test', 'rules', str(TESTS))
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_test_fails_if_no_rule_is_changed(tmp_path):
    assert failing(tmp_path) == set()


@pytest.mark.parametrize(
    'changes',
    [
        pytest.param({'expr': 'vector(1) > 1'}, id='never fires'),
        pytest.param({'expr': 'vector(1)', 'for': '0m'}, id='always fires'),
        pytest.param({'for': '0m'}, id='fires at once'),
    ],
)
def test_a_wrong_rule_is_noticed_whichever_it_is(tmp_path, changes):
    assert failing(tmp_path, **changes) == set(NAMES)
