# SPDX-License-Identifier: Apache-2.0
"""A change of state is one line of the log, and no value can add another."""

import logging

import pytest

from cyborg.conductor.engine import changes
from cyborg.conductor.engine.changes import Change
from cyborg.db.sqlalchemy.history import Cause

CAUSE = Cause('user alice', 'req-1')


def test_a_line_has_the_noun_the_id_the_verb_and_the_facts():
    change = Change('device.disabled', 'uuid-1', {'hostname': 'compute1', 'type': 'FPGA'})
    assert change.render(CAUSE) == (
        'Device uuid-1: disabled hostname=compute1 type=FPGA actor="user alice" request_id=req-1'
    )


def test_an_agent_is_named_by_its_host():
    line = changes.of_agent('compute1', 'down').render(Cause('conductor', None))
    assert line == 'Agent compute1: down hostname=compute1 actor=conductor'


def test_what_is_not_known_is_left_out():
    line = Change('task.done', 'uuid-1', {'error': None, 'changed': [], 'attempts': 0}).render(
        CAUSE
    )
    assert 'error' not in line and 'changed' not in line
    assert 'attempts=0' in line


@pytest.mark.parametrize(
    'value, shown',
    [
        ('plain', 'plain'),
        (['a', 'b'], 'a,b'),
        ('', '""'),
        ('two words', '"two words"'),
        ('x\nDevice uuid-2: enabled', r'"x\nDevice uuid-2: enabled"'),
        ('a" actor=root', r'"a\" actor=root"'),
        ('reason=none', '"reason=none"'),
        ('Zürich', r'"Z\u00fcrich"'),
    ],
)
def test_a_value_is_one_word(value, shown):
    line = Change('device.added', 'uuid-1', {'name': value}).render(CAUSE)
    assert f' name={shown} actor=' in line
    assert '\n' not in line


def test_a_change_below_the_level_of_the_log_is_not_written(caplog):
    quiet = Change('task.created', 'uuid-1', level=logging.DEBUG)
    loud = Change('task.failed', 'uuid-2', level=logging.WARNING)
    with caplog.at_level(logging.INFO, 'cyborg.changes'):
        changes.write(CAUSE, [quiet, loud])
    assert [record.levelname for record in caplog.records] == ['WARNING']
