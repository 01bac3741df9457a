# SPDX-License-Identifier: Apache-2.0
"""The runner of commands in the documentation notices a page that is wrong."""

import pytest

from tests.fixtures import pages

PAGE = """\
Text
====

.. code-block:: console

   $ export NAME=world
   $ echo "hello
     $NAME" | tr '\\n' ' '
   hello ... world
   $ echo unseen

Text

.. code-block:: ini

   [section]
   option = value

.. code-block:: console
   :class: fails

   $ printf '1\\n2\\n3\\n'
   1
   ...
   $ ls /nowhere
   ...No such file or directory
"""


@pytest.fixture
def page(tmp_path, monkeypatch):
    monkeypatch.setattr(pages, 'SOURCE', tmp_path)
    (tmp_path / 'page.rst').write_text(PAGE)
    return 'page.rst'


@pytest.fixture
def shell(tmp_path):
    with pages.Shell(tmp_path, {'PATH': '/usr/bin:/bin', 'LC_ALL': 'C'}) as shell:
        yield shell


def test_the_commands_of_a_page_are_found(page):
    steps = list(pages.steps(page))
    assert [step.place for step in steps] == [f'{page}:{line}' for line in (6, 7, 10, 22, 25)]
    assert [step.fails for step in steps] == [False] * 4 + [True]
    assert steps[1].output == ('hello ... world',)
    assert pages.configuration(page) == '[section]\noption = value\n'


def test_a_page_that_is_right_is_followed(page, shell):
    printed = [shell.follow(step) for step in pages.steps(page)]
    assert printed[1].split() == ['hello', 'world']


@pytest.mark.parametrize(
    'command, output, fails',
    [
        ('false', (), False),
        ('true', (), True),
        ('echo more than is shown; echo and more', ('more than is shown',), False),
        ('echo something else', ('something',), False),
        ('true', ('something',), False),
    ],
)
def test_a_page_that_is_wrong_is_noticed(shell, command, output, fails):
    with pytest.raises(pages.Failed, match='page:1'):
        shell.follow(pages.Step('page:1', command, output, fails))


def test_a_command_that_does_not_end_is_given_up(shell, monkeypatch):
    monkeypatch.setattr(pages, 'LONGEST', 0.1)
    with pytest.raises(pages.Failed, match='did not end'):
        shell.run('sleep 1000')
