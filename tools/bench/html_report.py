# SPDX-License-Identifier: Apache-2.0
"""Renders a run as one self-contained HTML page with plots."""

import html
import itertools
import math
from collections.abc import Iterator, Sequence

from tools.bench import targets
from tools.bench.figures import Change, Figure
from tools.bench.results import Run
from tools.bench.text_report import shown

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 460, 240, 60, 36, 14
COLOURS = ('#1f77b4', '#d62728', '#2ca02c', '#9467bd', '#ff7f0e', '#17becf')
STYLE = """
body { font: 14px sans-serif; margin: 2em; max-width: 1100px }
table { border-collapse: collapse } td, th { padding: 2px 10px; text-align: right }
td:first-child { text-align: left } tr.bad td { color: #b00; font-weight: bold }
figure { display: inline-block; margin: 0 1em 1em 0 } svg text { font: 11px sans-serif }
figcaption { font-weight: bold }
"""

#: name of a line -> its points
Lines = dict[str, list[tuple[float, float]]]


def render(run: Run, before: Run | None, changes: Sequence[Change]) -> str:
    """Return the page."""
    parts = [
        f'<h1>{_text(run.title)}</h1>',
        f'<p>{_text(", ".join(f"{k}: {v}" for k, v in run.machine.items()))}</p>',
        '<h2>Targets</h2>',
        _targets(run.figures),
        '<h2>Plots</h2>',
        *map(_plot, _plots(run.figures)),
    ]
    if before is not None:
        parts += [f'<h2>Compared with {_text(before.title)}</h2>', _changes(changes)]
    parts += ['<h2>Figures</h2>', _figures(run.figures)]
    return (
        f'<!doctype html><meta charset="utf-8"><title>{_text(run.title)}</title>'
        f'<style>{STYLE}</style>{"".join(parts)}'
    )


# -- tables ----------------------------------------------------------------------------------


def _targets(figures: Sequence[Figure]) -> str:
    return _table(
        ('', 'bound', 'measured', ''),
        (
            (
                not each.holds,
                (
                    each.target.sentence,
                    ('≤ ' if each.target.holds is targets.AT_MOST else '≥ ')
                    + shown(each.target.bound),
                    shown(each.figure.value),
                    each.figure.unit,
                ),
            )
            for each in targets.judge(figures)
        ),
    )


def _changes(changes: Sequence[Change]) -> str:
    return _table(
        ('', 'old', 'new', ''),
        (
            (
                each.is_worse,
                (each.new.key, shown(each.old), shown(each.new.value), f'{each.share:+.0%}'),
            )
            for each in changes
        ),
    )


def _figures(figures: Sequence[Figure]) -> str:
    return _table(
        ('', 'value', ''),
        ((False, (figure.key, shown(figure.value), figure.unit)) for figure in figures),
    )


def _table(head: Sequence[str], rows: Iterator[tuple[bool, Sequence[str]]]) -> str:
    lines = [f'<tr>{"".join(f"<th>{_text(cell)}</th>" for cell in head)}</tr>']
    for is_bad, cells in rows:
        mark = ' class="bad"' if is_bad else ''
        lines.append(f'<tr{mark}>{"".join(f"<td>{_text(cell)}</td>" for cell in cells)}</tr>')
    return f'<table>{"".join(lines)}</table>'


# -- plots -----------------------------------------------------------------------------------


def _plots(figures: Sequence[Figure]) -> Iterator[tuple[str, str, Lines]]:
    """Yield title, axis and lines of the figures that depend on a number."""

    def group(figure: Figure) -> tuple[str, str, str]:
        return figure.measurement, figure.what, figure.unit

    for (measurement, what, unit), found in itertools.groupby(
        sorted(figures, key=group), key=group
    ):
        members = list(found)
        axis = _axis(members)
        if axis is None:
            continue
        lines: Lines = {}
        for figure in members:
            if axis in figure.at:
                rest = ', '.join(
                    f'{name} {value}' for name, value in figure.at.items() if name != axis
                )
                lines.setdefault(rest, []).append((float(figure.at[axis]), figure.value))
        yield f'{measurement}: {what} ({unit})', axis, lines


def _axis(figures: Sequence[Figure]) -> str | None:
    """The number that has most values, if one has several."""
    values: dict[str, set[int]] = {}
    for figure in figures:
        for name, value in figure.at.items():
            if isinstance(value, int):
                values.setdefault(name, set()).add(value)
    several = {name: found for name, found in values.items() if len(found) > 1}
    return max(several, key=lambda name: len(several[name])) if several else None


def _plot(plot: tuple[str, str, Lines]) -> str:
    title, axis, lines = plot
    points = [point for line in lines.values() for point in line]
    across = sorted({x for x, _ in points})
    highest = max(y for _, y in points) * 1.05 or 1

    def place(x: float, y: float) -> tuple[float, float]:
        """Return the position of a point; the horizontal axis is logarithmic and includes 0."""
        span = math.log1p(across[-1]) or 1
        return (
            LEFT + (WIDTH - LEFT - 20) * math.log1p(x) / span,
            HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * y / highest,
        )

    marks = [_label(*place(x, 0), 14, shown(x)) for x in across]
    marks += [_label(LEFT - 24, place(0, y)[1], 4, shown(y)) for y in (0, highest / 2, highest)]
    for (name, line), colour in zip(lines.items(), itertools.cycle(COLOURS), strict=False):
        placed = [place(x, y) for x, y in sorted(line)]
        path = ' '.join(f'{x:.1f},{y:.1f}' for x, y in placed)
        marks.append(f'<polyline points="{path}" fill="none" stroke="{colour}"/>')
        marks += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in placed]
        if name:
            x, y = placed[-1]
            marks.append(
                f'<text x="{x - 4:.1f}" y="{y - 6:.1f}" text-anchor="end" '
                f'fill="{colour}">{_text(name)}</text>'
            )
    marks.append(_label(WIDTH / 2, HEIGHT - 4, 0, axis))
    return (
        f'<figure><figcaption>{_text(title)}</figcaption>'
        f'<svg width="{WIDTH}" height="{HEIGHT}"><path d="M{LEFT},{TOP} V{HEIGHT - BOTTOM} '
        f'H{WIDTH - 10}" fill="none" stroke="#888"/>{"".join(marks)}</svg></figure>'
    )


def _label(x: float, y: float, down: float, text: str) -> str:
    return f'<text x="{x:.1f}" y="{y + down:.1f}" text-anchor="middle">{_text(text)}</text>'


def _text(words: str) -> str:
    return html.escape(words)
