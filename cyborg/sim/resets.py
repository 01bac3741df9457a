# SPDX-License-Identifier: Apache-2.0
"""Resets simulated functions, counts their PCI errors, and makes them ill.

The fact ``reset`` is False for a function that cannot be reset on its own. It may also be a
mapping: ``error`` makes a reset fail with that error number, ``silences`` makes the function
unreadable after it, and ``counts`` names the severity of a PCI error that a reset causes.
"""

import errno
from enum import StrEnum
from typing import TYPE_CHECKING

from cyborg.sim import pci_attributes
from cyborg.sim.attribute_values import parse_unsigned
from cyborg.sim.tree import Tree, kernel_error

if TYPE_CHECKING:
    from cyborg.sim.bus import Function

BRIDGE = '06'
#: Severity -> the suffix of the last line of its file, and the names in the lines above.
COUNTERS = {
    'correctable': ('COR', ('RxErr', 'BadTLP', 'BadDLLP', 'Rollover', 'Timeout', 'NonFatalErr')),
    'nonfatal': ('NONFATAL', ('Undefined', 'DLP', 'TLP', 'CmpltTO', 'CmpltAbrt')),
    'fatal': ('FATAL', ('Undefined', 'DLP', 'TLP', 'CmpltTO', 'CmpltAbrt')),
}


class Illness(StrEnum):
    """What can be wrong with a card that is present."""

    ERRORS = 'errors'  #: it had a fatal PCI error
    SILENT = 'silent'  #: it no longer answers


def offer(tree: Tree, function: 'Function') -> None:
    """Create the files that reset a function, and its error counters."""
    facts = function.facts.get('reset', True)
    for severity in COUNTERS:
        count(tree, function, severity, 0)
    if facts is not False and not function.facts['class'].startswith(BRIDGE):
        tree.file(f'{function.path}/reset_method', 'flr', _refuse_method)
        tree.trigger(f'{function.path}/reset', lambda text: _reset(tree, function, text))


def count(tree: Tree, function: 'Function', severity: str, errors: int) -> None:
    """Set the counters of a severity, as if all errors had one cause."""
    total, kinds = COUNTERS[severity]
    lines = [f'{kind} {errors if number == 1 else 0}' for number, kind in enumerate(kinds)]
    tree.file(
        f'{function.path}/aer_dev_{severity}', '\n'.join([*lines, f'TOTAL_ERR_{total} {errors}'])
    )


def make_ill(tree: Tree, function: 'Function', kind: Illness) -> None:
    """Give a function a fault, with the event that the kernel sends when it handles an error."""
    if kind is Illness.SILENT:
        _silence(tree, function)
    else:
        count(tree, function, 'fatal', 1)
    tree.emit('change', 'pci', function.address, ERROR_EVENT='BEGIN_RECOVERY', DEVICE_ONLINE='0')


def heal(tree: Tree, function: 'Function') -> None:
    """Make a function well: it answers, and its counters start anew."""
    tree.file(
        f'{function.path}/config',
        pci_attributes.config(function.address, function.facts, function.parent is not None),
    )
    for severity in COUNTERS:
        count(tree, function, severity, 0)
    tree.emit(
        'change', 'pci', function.address, ERROR_EVENT='SUCCESSFUL_RECOVERY', DEVICE_ONLINE='1'
    )


def _silence(tree: Tree, function: 'Function') -> None:
    config = tree.path(f'{function.path}/config')
    tree.file(f'{function.path}/config', b'\xff' * config.stat().st_size)


def _reset(tree: Tree, function: 'Function', text: str) -> None:
    if parse_unsigned(text) != 1:
        raise kernel_error(errno.EINVAL)
    facts = function.facts.get('reset', {})
    facts = facts if isinstance(facts, dict) else {}
    if name := facts.get('error'):
        raise kernel_error(getattr(errno, name))
    function.is_dirty = False
    if facts.get('silences'):
        _silence(tree, function)
    if severity := facts.get('counts'):
        count(tree, function, severity, 1)


def _refuse_method(text: str) -> None:
    """Accept the one method that there is; raises EINVAL for any other."""
    if text not in ('flr', 'default', ''):
        raise kernel_error(errno.EINVAL)
