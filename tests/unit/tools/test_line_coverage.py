# SPDX-License-Identifier: Apache-2.0
"""The lines that are recorded are those that the tracer of coverage.py finds."""

import importlib.util
import subprocess
import sys

import coverage
import pytest

from tools import line_coverage

MODULE = """\
\'\'\'A docstring.\'\'\'
from __future__ import annotations

import functools


def decorate(function):
    return function


@decorate
@functools.cache
def first(value):
    \'\'\'A docstring.\'\'\'
    if value == 1:
        return (
            'one'
        )
    elif value == 2:
        return 'two'
    else:
        value += 1
    return value


def tried(value):
    try:
        value = 1 / value
    except TypeError:
        return 'type'
    except (
        ZeroDivisionError
    ):
        return 'zero'
    else:
        value = 0
    finally:
        value = 1
    return value


class Thing:
    \'\'\'A docstring.\'\'\'

    size = 1

    @property
    def shape(self):
        match self.size:
            case 0:
                return 'none'
            case 1:
                return 'one'
        return 'some'

    async def never(self):
        async with self as other:
            return other


for number in range(3):
    if number == 1:
        continue
    while number:
        number -= 1
with open(__file__) as own:
    text = own.read()
first(1), first(3), tried(0), Thing().shape
"""


@pytest.fixture
def module(tmp_path):
    path = tmp_path / 'measured.py'
    path.write_text(MODULE)
    return path


def missing(data_file, path):
    """The lines that a report shows as not run."""
    measured = coverage.Coverage(data_file=data_file)
    measured.load()
    return measured.analysis2(str(path))[3]


def traced(path):
    data_file = path.with_name('traced')
    subprocess.run(
        [sys.executable, '-m', 'coverage', 'run', f'--data-file={data_file}', str(path)],
        check=True,
        cwd=path.parent,
    )
    return missing(data_file, path)


def recorded(path, monkeypatch):
    monkeypatch.syspath_prepend(path.parent)
    finder = line_coverage.Finder(('measured',))
    monkeypatch.setattr(sys, 'meta_path', [finder, *sys.meta_path])
    spec = importlib.util.find_spec('measured')
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    finder.save(str(path.with_name('recorded')))
    [data_file] = path.parent.glob('recorded.*')
    return missing(data_file, path)


def test_the_lines_that_are_recorded_are_those_that_are_traced(module, monkeypatch):
    found = recorded(module, monkeypatch)
    assert found == traced(module)
    assert len(found) > 5


def test_other_packages_are_loaded_as_they_are():
    assert line_coverage.Finder(('measured',)).find_spec('json', None) is None


def test_a_file_that_no_test_imports_counts_as_not_run(tmp_path, monkeypatch):
    package = tmp_path / 'measured'
    package.mkdir()
    (package / '__init__.py').write_text('')
    (package / 'unused.py').write_text('VALUE = 1\n')
    monkeypatch.syspath_prepend(tmp_path)
    finder = line_coverage.Finder(('measured',))
    finder.save(str(tmp_path / 'recorded'))
    [data_file] = tmp_path.glob('recorded.*')
    assert missing(data_file, package / 'unused.py') == [1]


def test_packages_that_are_imported_already_cannot_be_measured(pytestconfig):
    import cyborg  # noqa: F401

    with pytest.raises(pytest.UsageError, match='too early'):
        line_coverage.pytest_load_initial_conftests(pytestconfig)
