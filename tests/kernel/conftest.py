# SPDX-License-Identifier: Apache-2.0
"""Tests whose requirements are missing on this machine are skipped with a reason."""

import pytest

from cyborg.sim import namespace
from tools.services import packages


@pytest.fixture(scope='session')
def need():
    """The path of a program, of this package."""

    def need(package, program):
        try:
            return packages.require(package, program)
        except packages.Missing as why:
            pytest.skip(str(why))

    return need


@pytest.fixture(scope='session')
def need_namespaces(need):
    """A simulated /sys can be mounted."""
    need('fuse3', 'fusermount3')
    if why := namespace.why_not():
        pytest.skip(why)
