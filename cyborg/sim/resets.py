# SPDX-License-Identifier: Apache-2.0
"""What a simulated function does when it is reset, and the PCI errors that are counted of it.

The fact ``reset`` is False for a function that cannot be reset on its own. It may also say that
a reset fails with an ``error``, that it ``silences`` the function, or that one error of a
severity is ``counts``-ed meanwhile.
"""

import errno
from typing import TYPE_CHECKING

from cyborg.sim.numbers import natural
from cyborg.sim.tree import Tree, refuse

if TYPE_CHECKING:
    from cyborg.sim.bus import Function

BRIDGE = '06'
#: The severities that the kernel counts -> the last line of their file, and the ones above it.
COUNTERS = {
    'correctable': ('COR', ('RxErr', 'BadTLP', 'BadDLLP', 'Rollover', 'Timeout', 'NonFatalErr')),
    'nonfatal': ('NONFATAL', ('Undefined', 'DLP', 'TLP', 'CmpltTO', 'CmpltAbrt')),
    'fatal': ('FATAL', ('Undefined', 'DLP', 'TLP', 'CmpltTO', 'CmpltAbrt')),
}


def offer(tree: Tree, function: 'Function') -> None:
    """Show the files by which a function is reset, and the counters of its errors."""
    facts = function.facts.get('reset', True)
    for severity in COUNTERS:
        count(tree, function, severity, 0)
    if facts is not False and not function.facts['class'].startswith(BRIDGE):
        tree.file(f'{function.path}/reset_method', 'flr', _refuse_method)
        tree.trigger(f'{function.path}/reset', lambda text: _reset(tree, function, text))


def count(tree: Tree, function: 'Function', severity: str, errors: int) -> None:
    """Set the counters of a severity; all errors are of one kind."""
    total, kinds = COUNTERS[severity]
    lines = [f'{kind} {errors if number == 1 else 0}' for number, kind in enumerate(kinds)]
    tree.file(f'{function.path}/aer_dev_{severity}',
              '\n'.join([*lines, f'TOTAL_ERR_{total} {errors}']))


def _reset(tree: Tree, function: 'Function', text: str) -> None:
    if natural(text) != 1:
        raise refuse(errno.EINVAL)
    facts = function.facts.get('reset', {})
    facts = facts if isinstance(facts, dict) else {}
    if name := facts.get('error'):
        raise refuse(getattr(errno, name))
    function.is_soiled = False
    if facts.get('silences'):
        config = tree.path(f'{function.path}/config')
        tree.file(f'{function.path}/config', b'\xff' * config.stat().st_size)
    if severity := facts.get('counts'):
        count(tree, function, severity, 1)


def _refuse_method(text: str) -> None:
    """There is one method only."""
    if text not in ('flr', 'default', ''):
        raise refuse(errno.EINVAL)
