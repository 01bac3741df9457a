# SPDX-License-Identifier: Apache-2.0
"""Arrows point one way: who must not know whom, looked at in a fresh process."""

import subprocess
import sys

import pytest

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
