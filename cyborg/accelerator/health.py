# SPDX-License-Identifier: Apache-2.0
"""Faults of PCI functions that are present: they had errors, or no longer answer."""

import re

from cyborg.accelerator.sysfs import Node, raise_own

#: The kernel counts errors of each function from the moment it finds the function.
COUNTERS = {
    'fatal': 'aer_dev_fatal',
    'non-fatal': 'aer_dev_nonfatal',
    'correctable': 'aer_dev_correctable',
}
#: What a read of the bus returns where no device answers.
SILENCE = b'\xff\xff\xff\xff'


def errors_counted(function: Node, severity: str) -> int:
    """Returns the number of errors of a severity that the kernel has counted."""
    total = re.search(
        r'^TOTAL_ERR_\w+\s+(\d{1,18})$', function.read(COUNTERS[severity]) or '', re.MULTILINE
    )
    return int(total[1]) if total else 0


def is_silent(function: Node) -> bool:
    """Returns whether a function is listed but no longer answers. A function that is suspended is
    not read, because that would wake it."""
    if function.read('power_state') != 'D0':
        return False
    try:
        with open(function.path / 'config', 'rb') as config:
            return config.read(len(SILENCE)) == SILENCE
    except OSError as error:
        raise_own(error)
        return False


def loss(function: Node) -> str | None:
    """Returns the fault of a card that was given out by its virtual functions and has none now.

    Its driver may have been unbound, or a reset or a reboot has removed the functions. Returns
    None if the card is bound to vfio-pci: by that an operator says that it is given out whole
    from now on, and a card that a guest has whole is bound to it, too.
    """
    bound = function.link('driver')
    if not function.has('sriov_totalvfs') or (bound and bound.name == 'vfio-pci'):
        return None
    why = '' if bound else ', as no driver is bound to it'
    return (
        f'{function.name} was given out by its virtual functions and has none now{why}: make '
        'them anew, or bind it to vfio-pci to have it given out whole.'
    )


def fault(function: Node, tolerated: dict[str, int]) -> str | None:
    """Returns why a function should not be given out; None if nothing is wrong with it.

    ``tolerated`` is the number of errors that a function may have had, by severity.
    """
    if is_silent(function):
        return f'{function.name} does not answer any more: reset or replace it.'
    for severity, limit in tolerated.items():
        if errors_counted(function, severity) > limit:
            amount = f'more than {limit} ' if limit else ''
            return (
                f'{function.name} had {amount}{severity} PCI errors since it was '
                'found: look at the kernel log; removing it and rescanning the bus, or a '
                'reboot, starts the count anew.'
            )
    return None
