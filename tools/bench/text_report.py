# SPDX-License-Identifier: Apache-2.0
"""Renders a run as text: figures by measurement and condition, targets, and changes."""

from collections.abc import Iterable, Sequence

from tools.bench.figures import Change, Figure
from tools.bench.targets import AT_MOST, Verdict


def shown(value: float) -> str:
    """Format a number with three digits, or all digits of an integer."""
    if value == int(value):
        return f'{int(value):,}'
    return f'{value:,.0f}' if abs(value) >= 1000 else f'{value:.3g}'


def render(figures: Sequence[Figure]) -> str:
    """Render the figures by measurement and condition."""
    rows = [('', '', '')]
    previous = None
    for figure in figures:
        group = (figure.measurement, tuple(figure.at.items()))
        if group != previous:
            where = ', '.join(
                f'{name} {shown(value) if isinstance(value, int) else value}'
                for name, value in figure.at.items()
            )
            rows.append((f'-- {figure.measurement}' + (f': {where}' if where else ''), '', ''))
            previous = group
        rows.append((f'  {figure.what}', shown(figure.value), figure.unit))
    return _aligned(rows)


def render_verdicts(verdicts: Iterable[Verdict]) -> str:
    """Render the targets, and whether they are met."""
    rows = [('', 'bound', 'measured', '', '')]
    for each in verdicts:
        sign = '≤' if each.target.holds is AT_MOST else '≥'
        rows.append(
            (
                each.target.sentence,
                f'{sign} {shown(each.target.bound)}',
                shown(each.figure.value),
                each.figure.unit,
                '' if each.holds else 'MISSED',
            )
        )
    return _aligned(rows)


def render_changes(changes: Iterable[Change]) -> str:
    """Render old and new values; worse ones are marked."""
    rows = [('', 'old', 'new', '', '')]
    for change in changes:
        rows.append(
            (
                change.new.key,
                shown(change.old),
                shown(change.new.value),
                f'{change.share:+.0%}',
                'WORSE' if change.is_worse else '',
            )
        )
    return _aligned(rows)


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return '\n'.join(
        '  '.join(
            cell.ljust(width) if number == 0 else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )
