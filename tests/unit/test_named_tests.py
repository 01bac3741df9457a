# SPDX-License-Identifier: Apache-2.0
"""Pages that name the test of what they say name tests that exist."""

import functools
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PAGES = {
    name: (ROOT / 'doc/source/admin' / name).read_text()
    for name in ('server-operations.rst', 'vgpu-handover.rst')
}
#: the operations that users and administrators can perform on a server
OPERATIONS = (
    """
    create delete restore start stop pause unpause suspend resume lock unlock snapshot backup
    reboot rebuild shelve unshelve resize evacuate
""".split()
    + ['cold migrate', 'live migrate', 'set password', 'crash dump', 'boot from a snapshot']
)


@functools.cache
def known_tests(name):
    """The tests of the file of this name, in whichever suite it is."""
    found = [
        path
        for suite in ('functional', 'services')
        for path in (ROOT / 'tests' / suite).glob(f'{name}.py')
    ]
    return {test for path in found for test in re.findall(r'def (test_\w+)', path.read_text())}


def rows(text):
    """The cells of each row of the table of a page, without the heading."""
    table = text.partition('.. list-table::')[2]
    for row in re.split(r'^   \* - ', table, flags=re.MULTILINE)[2:]:
        yield [' '.join(cell.split()) for cell in re.split(r'^     - ', row, flags=re.MULTILINE)]


@pytest.mark.parametrize('page', PAGES)
def test_a_page_names_tests_that_exist(page):
    """Tests follow their file: ``test_file``: ``test_one``, ``test_other``."""
    file, named, wrong = None, 0, []
    for name, colon in re.findall(r'``(?:tests/\w+/)?(test_\w+)(?:\.py)?``(:?)', PAGES[page]):
        if colon or known_tests(name):
            file = name
            assert known_tests(file), file
        else:
            named += 1
            wrong += [] if name in known_tests(file) else [(file, name)]
    assert named and wrong == []
    assert len(set(re.findall(r'\btest_\w+', PAGES[page]))) > 5


def test_every_operation_on_a_server_has_a_row_and_a_test():
    table = list(rows(PAGES['server-operations.rst']))
    operations = {each for cells in table for each in cells[0].split(', ')}
    assert set(OPERATIONS) <= operations
    for operation, *_, tests in table:
        assert re.search(r'``test_|^as for |^none', tests), operation
        if match := re.match('as for (.*)', tests):
            assert match[1] in operations
