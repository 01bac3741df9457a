# SPDX-License-Identifier: Apache-2.0
"""Arrows point one way: who must not know whom, looked at in a fresh process."""

import ast
import functools
import pathlib
import subprocess
import sys

import pytest

import cyborg


@functools.cache
def imported_with(module):
    """The names of all modules that a process has after it has imported this one."""
    result = subprocess.run(
        [sys.executable, '-W', 'ignore', '-c', f'import sys, {module}; print(*sys.modules)'],
        text=True,
        capture_output=True,
        check=True,
    )
    return sorted(result.stdout.split())


@pytest.mark.parametrize(
    'module, forbidden',
    [
        ('cyborg.api.app', ('cyborg.db', 'cyborg.agent', 'cyborg.accelerator')),
        ('cyborg.cmd.agent', ('cyborg.db', 'cyborg.api')),
        ('cyborg.conductor.service', ('cyborg.api', 'cyborg.accelerator')),
        ('os_acc', ('cyborg',)),
        ('cyborg.accelerator.driver', ('cyborg.db', 'cyborg.api', 'cyborg.conductor')),
        ('cyborg.objects', ('cyborg.db', 'cyborg.api', 'cyborg.conductor', 'cyborg.agent')),
        # openstacksdk is large: only processes that call other services have it
        ('cyborg.cmd.api', ('openstack.',)),
        ('cyborg.cmd.manage', ('openstack.',)),
        ('cyborg.cmd.status', ('openstack.',)),
        ('os_acc', ('openstack.',)),
        # libraries import it where it is installed
        ('cyborg.cmd.api', ('eventlet.', 'dns.')),
        ('cyborg.cmd.conductor', ('eventlet.', 'dns.')),
        ('cyborg.cmd.agent', ('eventlet.', 'dns.')),
        # Pecan imports these, to show rows and source code
        ('cyborg.cmd.api', ('sqlalchemy', 'pygments')),
        # only commands that change the schema need it
        ('cyborg.cmd.conductor', ('alembic', 'mako', 'pygments')),
        # few agents fetch images or verify signatures, and none has a database
        ('cyborg.cmd.agent', ('sqlalchemy', 'glanceclient', 'cursive', 'castellan')),
        # it registers its options when it is imported: only conductors that limit requests need it
        ('cyborg.cmd.conductor', ('oslo_limit',)),
        # it looks for libfuse when it is imported, which few machines have
        ('tools.bench.hotplug', ('mfusepy',)),
    ],
)
def test_a_part_does_not_know_what_it_must_not_know(module, forbidden):
    assert [name for name in imported_with(module) if name.startswith(forbidden)] == []


@pytest.mark.parametrize('name', ['eventlet', 'sqlalchemy', 'pygments'])
def test_the_libraries_that_the_api_does_without_can_be_used_beside_it(name):
    """A process may have all services, and others than ours."""
    before = f'import {name}; import cyborg.api; assert {name}.__name__ in sys.modules'
    after = f'import cyborg.api; import {name}'
    for code in (before, after) if name != 'eventlet' else (before,):
        subprocess.run([sys.executable, '-W', 'ignore', '-c', f'import sys; {code}'], check=True)


def packages_imported_by(path):
    """The top-level packages that a module names in its own import statements."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    named = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    named += [
        node.module
        for node in nodes
        if isinstance(node, ast.ImportFrom) and node.module and not node.level
    ]
    return {name.partition('.')[0] for name in named}


def test_the_conductor_leaves_sql_to_the_db_package():
    conductor = pathlib.Path(cyborg.__file__).parent / 'conductor'
    modules = sorted(conductor.rglob('*.py'))
    assert modules
    assert {
        str(path.relative_to(conductor))
        for path in modules
        if packages_imported_by(path) & {'sqlalchemy', 'oslo_db'}
    } == set()


def is_reading(node):
    """Whether a node compares with a state, or is the default of a column."""
    return (
        isinstance(node, ast.Compare)
        or isinstance(node, ast.keyword)
        and node.arg == 'default'
        or isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ('in_', 'not_in')
    )


def decisions_in(source):
    """The lines that choose the state of a task, or use the table of the requests' states."""
    nodes = list(ast.walk(ast.parse(source)))
    read = {id(part) for node in nodes if is_reading(node) for part in ast.walk(node)}
    return [
        ast.unparse(node)
        for node in nodes
        if isinstance(node, ast.Attribute)
        and (
            ast.unparse(node.value).endswith('TaskState')
            and id(node) not in read
            or ast.unparse(node) in ('arq_states.after', 'arq_states.TRANSITIONS')
        )
        or isinstance(node, ast.ImportFrom)
        and str(node.module).endswith('arq_states')
        and {alias.name for alias in node.names} & {'after', 'TRANSITIONS'}
    ]


def test_the_db_package_decides_no_state():
    db = pathlib.Path(cyborg.__file__).parent / 'db'
    modules = sorted(db.rglob('*.py'))
    assert modules
    found = {str(path.relative_to(db)): decisions_in(path.read_text()) for path in modules}
    assert {name: lines for name, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    'source',
    [
        'task.state = TaskState.FAILED',
        'row.state, row.attempts = objects.TaskState.OPEN, 0',
        'sa.update(Task).where(Task.state == TaskState.OPEN).values(state=TaskState.CANCELLED)',
        'state = arq_states.after(row.state, event, row.uuid)',
        'from cyborg.objects.arq_states import TRANSITIONS',
    ],
)
def test_a_decision_is_recognised(source):
    assert len(decisions_in(source)) == 1


@pytest.mark.parametrize(
    'source',
    [
        'sa.select(Task).where(Task.state == TaskState.OPEN)',
        'sa.select(Task).where(Task.state.in_((TaskState.OPEN, TaskState.QUARANTINED)))',
        'task.state = state',
        'state = orm.mapped_column(sa.String(16), default=tasks.TaskState.OPEN)',
    ],
)
def test_what_reads_or_stores_a_state_is_no_decision(source):
    assert decisions_in(source) == []
