# SPDX-License-Identifier: Apache-2.0
"""The ``openstack`` commands that pages show exist in the client, and accept their arguments."""

import json
import pathlib
import re
import subprocess

import pytest

from tests.fixtures import shown
from tests.fixtures.commands import venv_of

pytestmark = pytest.mark.clients
SCRIPT = pathlib.Path(shown.__file__).with_name('openstack_parsers.py')


def read(*commands):
    """What the parsers of the client say about each command."""
    python = venv_of('openstackclient') / 'bin' / 'python'
    done = subprocess.run(
        [python, '-W', 'ignore', SCRIPT],
        input=json.dumps(commands),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def test_commands_in_blocks_are_accepted():
    commands = [
        each
        for page in shown.names()
        for each in shown.commands(page)
        if each.program == 'openstack'
    ]
    assert len(commands) > 30
    answers = read(*(each.words[1:] for each in commands))
    assert [
        f'{each}: {answer["error"]}'
        for each, answer in zip(commands, answers, strict=True)
        if answer['error']
    ] == []


def test_commands_in_the_text_exist_with_their_options():
    commands = [
        (each, each.words[1:] if each.words[0] == 'openstack' else each.words)
        for page in shown.names()
        for each in shown.mentioned(page)
        if each.words[0] in {'openstack', 'accelerator'}
    ]
    # those of one or two words name the group, not a command
    commands = [(each, words) for each, words in commands if len(words) > 2]
    assert len(commands) > 15
    answers = read(*(words for _, words in commands))
    for (each, words), answer in zip(commands, answers, strict=True):
        assert answer['name'], f'{each}: {answer["error"]}'
        named = set(re.findall(r'--[\w-]+', ' '.join(words)))
        assert named <= {*answer['options']}, str(each)


def test_what_is_wrong_is_noticed():
    unknown, wrong, incomplete, right = read(
        ('accelerator', 'device', 'dance'),
        ('accelerator', 'agent', 'list', '--loud'),
        ('accelerator', 'agent', 'show'),
        ('accelerator', 'agent', 'list', '--alive'),
    )
    assert (unknown['name'], right['error']) == (None, None)
    assert '--loud' in wrong['error']
    assert 'are required: <agent>' in incomplete['error']
    assert '--silent' in right['options']
