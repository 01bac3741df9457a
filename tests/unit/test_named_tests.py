# SPDX-License-Identifier: Apache-2.0
"""Pages that name the test of what they say name tests that exist."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PAGES = ['server-operations.rst', 'vgpu-handover.rst']


@pytest.mark.parametrize('page', PAGES)
def test_a_page_names_tests_that_exist(page):
    named = set(re.findall(r'\btest_\w+', (ROOT / 'doc/source/admin' / page).read_text()))
    files = list((ROOT / 'tests/functional').glob('test_*.py'))
    known = {path.stem for path in files} | {
        name for path in files for name in re.findall(r'def (test_\w+)', path.read_text())}
    assert named and named <= known
