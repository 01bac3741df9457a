# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a PCI function that is there: errors it had, or no answer at all."""

import re

from cyborg.accelerator.sysfs import Node

#: The kernel counts them per function, from the moment it was found.
COUNTERS = {'fatal': 'aer_dev_fatal', 'non-fatal': 'aer_dev_nonfatal',
            'correctable': 'aer_dev_correctable'}
#: What a bus reads where nobody answers.
SILENCE = b'\xff\xff\xff\xff'


def errors_counted(function: Node, severity: str) -> int:
    """How many errors of that severity the kernel has counted."""
    total = re.search(r'^TOTAL_ERR_\w+\s+(\d{1,18})$', function.read(COUNTERS[severity]) or '',
                      re.MULTILINE)
    return int(total[1]) if total else 0


def is_silent(function: Node) -> bool:
    """It is listed but does not answer: it fell off the bus. One that sleeps is let sleep."""
    if function.read('power_state') != 'D0':
        return False
    try:
        with open(function.path / 'config', 'rb') as config:
            return config.read(len(SILENCE)) == SILENCE
    except OSError:
        return False


def loss(function: Node) -> str | None:
    """What ails a card without virtual functions if it was given out by these before.

    Its driver may have gone, or a reset taken them away, or a reboot, after which nobody made
    them yet. That it should go whole from now on is said by binding it to vfio-pci; if a guest
    has it whole, that is so already.
    """
    bound = function.link('driver')
    if not function.has('sriov_totalvfs') or (bound and bound.name == 'vfio-pci'):
        return None
    why = '' if bound else ', as no driver is bound to it'
    return (f'{function.name} was given out by its virtual functions and has none now{why}: make '
            'them anew, or bind it to vfio-pci to have it given out whole.')


def fault(function: Node, tolerated: dict[str, int]) -> str | None:
    """Why a function should not be given out, if so; by severity, how many errors are fine."""
    if is_silent(function):
        return f'{function.name} does not answer any more: reset or replace it.'
    for severity, limit in tolerated.items():
        if errors_counted(function, severity) > limit:
            return (f'{function.name} had more than {limit} {severity} PCI errors since it was '
                    'found: look at the kernel log; removing it and rescanning the bus, or a '
                    'reboot, starts the count anew.')
    return None
