# SPDX-License-Identifier: Apache-2.0
"""Arrows point one way: who must not know whom, looked at in a fresh process."""

import ast
import pathlib
import subprocess
import sys

import pytest

import cyborg

COUNT = ('import sys, {module}; '
         'print(sorted(name for name in sys.modules if name.startswith({forbidden!r})))')


def imported(module, *forbidden):
    code = COUNT.format(module=module, forbidden=forbidden)
    result = subprocess.run([sys.executable, '-W', 'ignore', '-c', code], text=True,
                            capture_output=True, check=True)
    return result.stdout.strip()


@pytest.mark.parametrize('module, forbidden', [
    ('cyborg.api.app', ('cyborg.db', 'cyborg.agent', 'cyborg.accelerator')),
    ('cyborg.cmd.agent', ('cyborg.db', 'cyborg.api')),
    ('cyborg.conductor.service', ('cyborg.api', 'cyborg.accelerator')),
    ('os_acc', ('cyborg',)),
    ('cyborg.accelerator.driver', ('cyborg.db', 'cyborg.api', 'cyborg.conductor')),
    ('cyborg.objects', ('cyborg.db', 'cyborg.api', 'cyborg.conductor', 'cyborg.agent')),
    # it looks for libfuse when it is imported, which few machines have
    ('tools.bench.hotplug', ('mfusepy',)),
])
def test_a_part_does_not_know_what_it_must_not_know(module, forbidden):
    assert imported(module, *forbidden) == '[]'




def packages_imported_by(path):
    """The top-level packages that a module names in its own import statements."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    named = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    named += [node.module for node in nodes
              if isinstance(node, ast.ImportFrom) and node.module and not node.level]
    return {name.partition('.')[0] for name in named}


def test_the_conductor_leaves_sql_to_the_db_package():
    conductor = pathlib.Path(cyborg.__file__).parent / 'conductor'
    modules = sorted(conductor.rglob('*.py'))
    assert modules
    assert {str(path.relative_to(conductor)) for path in modules
            if packages_imported_by(path) & {'sqlalchemy', 'oslo_db'}} == set()
