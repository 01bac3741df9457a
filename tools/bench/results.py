# SPDX-License-Identifier: Apache-2.0
"""Stores runs as files, so that a run can be compared with the last one of its kind."""

import datetime
import json
import os
import pathlib
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from tools.bench.children import ROOT
from tools.bench.figures import Figure


@dataclass(frozen=True)
class Run:
    """The figures of a run, with its place and time."""

    site: str
    scale: str
    moment: str
    commit: str
    machine: dict[str, Any]
    figures: Sequence[Figure]

    @classmethod
    def now(cls, site: str, scale: str, figures: Sequence[Figure]) -> Self:
        moment = datetime.datetime.now(datetime.UTC).isoformat(timespec='seconds')
        return cls(site, scale, moment, _commit(), _machine(), figures)

    @property
    def title(self) -> str:
        return f'{self.site}, {self.scale}, {self.moment}, {self.commit}'

    def save(self, directory: pathlib.Path) -> pathlib.Path:
        """Write the run to a new file and return its path."""
        directory.mkdir(parents=True, exist_ok=True)
        stamp = self.moment.replace(':', '').removesuffix('+0000')
        path = directory / f'{stamp}-{self.site}-{self.scale}.json'
        facts = {**vars(self), 'figures': [figure.to_dict() for figure in self.figures]}
        path.write_text(json.dumps(facts, indent=1))
        return path

    @classmethod
    def load(cls, path: pathlib.Path) -> Self:
        facts = json.loads(path.read_text())
        return cls(**{**facts, 'figures': [Figure.of(each) for each in facts['figures']]})


def last(directory: pathlib.Path, site: str, scale: str) -> Run | None:
    """Return the latest run of that kind, or None."""
    found = sorted(directory.glob(f'*-{site}-{scale}.json'))
    return Run.load(found[-1]) if found else None


def _commit() -> str:
    asked = subprocess.run(
        ['git', 'describe', '--always', '--dirty'], cwd=ROOT, text=True, capture_output=True
    )
    return asked.stdout.strip() or 'unknown'


def _machine() -> dict[str, Any]:
    return {
        'cores': os.cpu_count(),
        'python': platform.python_version(),
        'system': platform.platform(),
    }
