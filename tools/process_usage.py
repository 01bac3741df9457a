# SPDX-License-Identifier: Apache-2.0
"""CPU time, memory and threads of processes, from /proc."""

import contextlib
import os
import pathlib
from collections.abc import Iterable, Mapping

TICKS = os.sysconf('SC_CLK_TCK')


def cpu(pids: Iterable[int]) -> float:
    """Return the CPU seconds of these processes."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):  # it has ended
            # the name, in brackets, may contain spaces and brackets
            fields = pathlib.Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()
            total += int(fields[11]) + int(fields[12])
    return total / TICKS


def cpu_by_name(processes: Mapping[str, Iterable[int]]) -> dict[str, float]:
    return {name: cpu(pids) for name, pids in processes.items()}


def resident(pids: Iterable[int]) -> float:
    """Return their resident memory in MiB; shared memory counts for each process."""
    return sum(_status(pid).get('VmRSS', 0) for pid in pids) / 1024


def threads(pids: Iterable[int]) -> int:
    return sum(_status(pid).get('Threads', 0) for pid in pids)


def with_children(pid: int) -> list[int]:
    """Return the ids of a process and its children, as the workers of a service."""
    found, tasks = [pid], []
    with contextlib.suppress(OSError):  # it has ended
        tasks = os.listdir(f'/proc/{pid}/task')
    for task in tasks:
        with contextlib.suppress(OSError):  # a thread may end meanwhile
            children = pathlib.Path(f'/proc/{pid}/task/{task}/children').read_text()
            found.extend(map(int, children.split()))
    return found


def _status(pid: int) -> dict[str, int]:
    found = {}
    with contextlib.suppress(OSError):
        for line in pathlib.Path(f'/proc/{pid}/status').read_text().splitlines():
            name, _, value = line.partition(':')
            if name in ('VmRSS', 'Threads'):
                found[name] = int(value.split()[0])
    return found
