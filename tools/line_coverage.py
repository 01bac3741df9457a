# SPDX-License-Identifier: Apache-2.0
"""A pytest plugin that records which lines the tests run: ``pytest -p tools.line_coverage``.

The tracer of coverage.py is called for every call of every library, which doubles the time of our
suites (Python 3.12 has a cheaper way). Here our modules record their lines themselves: as they
are imported, an assignment to a byte is put before each statement. The libraries run as they are.
The result is a data file of coverage.py for each process; ``coverage combine`` and ``coverage
report`` do the rest. Processes that tests start are not measured.
"""

import ast
import importlib.abc
import importlib.machinery
import importlib.util
import pathlib
import sys
import types
from collections.abc import Iterator, Sequence
from typing import Any

import coverage
import pytest

PACKAGES = ('cyborg', 'os_acc')
#: the name of the bytes in the modules
RAN = '__lines_ran__'


class Marker(ast.NodeTransformer):
    """Puts ``__lines_ran__[line] = 1`` before each statement of a module."""

    def body(self, body: list[ast.stmt], lines: Sequence[int] = ()) -> list[ast.stmt]:
        """Returns the statements of a block with their marks. ``lines``: further lines that have
        run if the block runs."""
        made = []
        for number, statement in enumerate(body):
            if number == 0 and isinstance(_constant(statement), str):  # a docstring
                made.append(statement)
            elif isinstance(statement, ast.ImportFrom) and statement.module == '__future__':
                made.append(statement)  # must come first; its mark follows
                lines = (*lines, statement.lineno)
            else:
                made += [*map(_mark, (*lines, *_lines(statement))), self.visit(statement)]
                lines = ()
        return made

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """Mark the blocks of a statement. Expressions are left alone."""
        for name in ('body', 'orelse', 'finalbody'):
            block = getattr(node, name, None)
            if isinstance(block, list):
                setattr(node, name, self.body(block))
        before: list[int] = []
        for part in (*getattr(node, 'handlers', ()), *getattr(node, 'cases', ())):
            # the clauses above have been tried, too
            before.append(part.lineno if isinstance(part, ast.ExceptHandler) else _line(part))
            part.body = self.body(part.body, before)
        return node


def _constant(statement: ast.stmt) -> Any:
    value = statement.value if isinstance(statement, ast.Expr) else None
    return value.value if isinstance(value, ast.Constant) else None


def _line(case: ast.match_case) -> int:
    return case.pattern.lineno


def _lines(statement: ast.stmt) -> list[int]:
    decorators: list[ast.expr] = getattr(statement, 'decorator_list', [])
    return [*(each.lineno for each in decorators), statement.lineno]


def _mark(line: int) -> ast.stmt:
    target = ast.Subscript(ast.Name(RAN, ast.Load()), ast.Constant(line), ast.Store())
    mark = ast.Assign([target], ast.Constant(1), lineno=line, col_offset=0)
    mark.end_lineno, mark.end_col_offset = line, 0
    return ast.fix_missing_locations(mark)


def marked(source: bytes | str, path: str) -> types.CodeType:
    """Returns the code of a module with its marks."""
    tree = ast.parse(source, path)
    tree.body = Marker().body(tree.body)
    return compile(tree, path, 'exec', dont_inherit=True)


class Loader(importlib.machinery.SourceFileLoader):
    """Loads a module with its marks. Its code is not cached."""

    def __init__(self, fullname: str, path: str, ran: dict[str, bytearray]) -> None:
        super().__init__(fullname, path)
        self._ran = ran

    def get_code(self, fullname: str) -> types.CodeType:
        return marked(self.get_data(self.path), self.path)

    def exec_module(self, module: types.ModuleType) -> None:
        size = self.get_data(self.path).count(b'\n') + 2
        # a module that is loaded again goes on with its bytes
        ran = self._ran.setdefault(self.path, bytearray(size))
        setattr(module, RAN, ran)
        super().exec_module(module)


class Finder(importlib.abc.MetaPathFinder):
    """Gives the modules of our packages the loader that marks them."""

    def __init__(self, packages: Sequence[str]) -> None:
        self._packages = packages
        #: path -> a byte for each line, which is 1 if it has run
        self.ran: dict[str, bytearray] = {}

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: types.ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition('.')[0] not in self._packages:
            return None
        for finder in sys.meta_path:
            if finder is self:
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                if type(spec.loader) is importlib.machinery.SourceFileLoader:
                    spec.loader = Loader(fullname, spec.loader.path, self.ran)
                return spec
        return None

    def save(self, base: str) -> None:
        """Write what has run into a data file of coverage.py beside those of other processes."""
        data = coverage.CoverageData(basename=base, suffix=True)
        data.add_lines(
            {
                path: [line for line, is_run in enumerate(self.ran.get(path, ())) if is_run]
                for path in (*self.ran, *self._never_imported())
            }
        )
        data.write()

    def _never_imported(self) -> Iterator[str]:
        """Yields the other files of our packages, in which no line has run."""
        for package in self._packages:
            spec = importlib.util.find_spec(package)
            for place in spec.submodule_search_locations or () if spec else ():
                yield from set(map(str, pathlib.Path(place).rglob('*.py'))) - self.ran.keys()


class Recorder:
    """Saves what has run at the end of the tests."""

    def __init__(self, finder: Finder) -> None:
        self._finder = finder

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self._finder.save(str(session.config.rootpath / '.coverage'))


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Begin before the first conftest.py imports our packages."""
    early = sorted(name for name in sys.modules if name.partition('.')[0] in PACKAGES)
    if early:
        raise pytest.UsageError(f'Imported too early to be measured: {", ".join(early)}')
    finder = Finder(PACKAGES)
    sys.meta_path.insert(0, finder)
    early_config.pluginmanager.register(Recorder(finder), 'line-coverage')
