# SPDX-License-Identifier: Apache-2.0
"""What every process does at its start."""

import os
import subprocess
import sys

from tools.process_usage import resident

#: MiB that stay with a process after blocks of different sizes were freed
MOST_KEPT = 5


def test_freed_blocks_of_memory_go_back_to_the_system():
    """In a process of its own, since the setting holds for all of a process."""
    program = subprocess.run(
        [sys.executable, '-c', f'from {__name__} import grow; grow()'],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert float(program.stdout) < MOST_KEPT


def grow():
    from cyborg.cmd import startup

    startup.settle_memory()
    before = resident([os.getpid()])
    first = b'x' * 1_000_000
    del first  # from now on, by default, blocks of this size stay
    kept, large = [], []
    for _ in range(60):
        large.append(b'x' * 400_000)
        kept.append(b'y' * 20_000)  # between two large ones, so that the heap cannot shrink
    large.clear()
    sys.stdout.write(str(resident([os.getpid()]) - before))
    kept.clear()
