"""Charts as inline SVG, readable in light and dark: lines over an axis, and bars of shares."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import TypeAlias

from lockstep.report._run import Point

Place: TypeAlias = Callable[[Point], Point]
"""The place of a point in the drawing."""
# The drawing's own units; the page scales it to the width that there is.
_WIDTH, _HEIGHT = 640, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 26, 10, 28
# Buckets of a long curve: each keeps its lowest and highest point, so that no spike is lost and the page stays small.
_BUCKETS = 250
_TICKS = 5
# A loss of this size has diverged as much as an infinite one.
_LARGEST = 1e300
# Curves that have eight colours in the style sheet.
COLOURS = 8


def line_chart(
    title: str, curves: Mapping[str, Sequence[Point]], x_name: str, marks: Iterable[float] = (), unit: str = ""
) -> str:
    """Returns a figure with a line for each curve.

    Args:
        title: The caption.
        curves: Points by name, in ascending order of x. Values that are not finite leave a gap.
        x_name: The name of the x axis.
        marks: Places on the x axis with a vertical line: restarts.
        unit: The unit of values, such as "GB".
    """
    shown = {name: thin([_drawable(p) for p in points]) for name, points in curves.items() if points}
    finite = [point for points in shown.values() for point in points if math.isfinite(point[1])]
    if not finite:
        return ""
    low_x, high_x = _range([x for x, _ in finite], 0.0)
    low_y, high_y = _range([y for _, y in finite], 0.05)

    def place(point: Point) -> tuple[float, float]:
        x = _LEFT + (point[0] - low_x) / (high_x - low_x) * (_WIDTH - _LEFT - _RIGHT)
        y = _HEIGHT - _BOTTOM - (point[1] - low_y) / (high_y - low_y) * (_HEIGHT - _TOP - _BOTTOM)
        return round(x, 1), round(y, 1)

    parts: list[str] = []
    for value in ticks(low_y, high_y):
        y = place((low_x, value))[1]
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text class="tick" x="{_LEFT - 6}" y="{y + 4}" text-anchor="end">{number(value)}</text>')
    for value in ticks(low_x, high_x):
        x = place((value, low_y))[0]
        parts.append(f'<text class="tick" x="{x}" y="{_HEIGHT - 8}" text-anchor="middle">{number(value)}</text>')
    for mark in marks:
        if low_x <= mark <= high_x:
            x = place((mark, low_y))[0]
            parts.append(f'<line class="mark" x1="{x}" x2="{x}" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}"/>')
    for index, points in enumerate(shown.values()):
        parts.extend(_line(points, place, index % COLOURS))
    # The script of the page shows the values at the pointer; without scripts the chart is as readable as paper.
    data = {
        "x": [low_x, high_x, _LEFT, _WIDTH - _RIGHT],
        "curves": {name: [[_short(x), _short(y)] for x, y in points] for name, points in shown.items()},
        "unit": unit,
        "axis": x_name,
    }
    legend = "".join(
        f'<span class="key c{i % COLOURS}">{escape(name)}</span>' for i, name in enumerate(shown) if len(shown) > 1
    )
    # Names of metrics are the user's. `escape` replaces both kinds of quotes, too, so that none of them ends an
    # attribute.
    text = escape(f"{title}: {', '.join(shown)} over {x_name}")
    return (
        f'<figure class="chart"><figcaption>{escape(title)}<small>{escape(unit)} over {escape(x_name)}</small>'
        f'<output></output></figcaption><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{text}" '
        f"data-chart='{escape(json.dumps(data, allow_nan=False))}'>{''.join(parts)}</svg>"
        f'<div class="legend">{legend}</div></figure>'
    )


def share_bar(name: str, parts: Mapping[str, float], labels: Mapping[str, str], order: Sequence[str]) -> str:
    """Returns a bar of shares of time, and what each of them is in seconds and percent."""
    total = sum(parts.values()) or 1.0
    x, rectangles, keys = 0.0, list[str](), list[str]()
    for kind in order:
        seconds = parts.get(kind, 0.0)
        if not seconds:
            continue
        width, colour = 100 * seconds / total, order.index(kind) % (COLOURS + 1)
        words = f"{labels[kind]}: {seconds:.1f} s, {100 * seconds / total:.1f} %"
        rectangles.append(
            f'<rect class="c{colour}" x="{x:.3f}" width="{width:.3f}" height="10"><title>{escape(words)}</title></rect>'
        )
        keys.append(
            f'<li><span class="key c{colour}">{escape(labels[kind])}</span><b>{seconds:.1f} s</b>'
            f"<i>{100 * seconds / total:.1f} %</i></li>"
        )
        x += width
    return (
        f'<section class="share"><h3>{escape(name)}</h3><svg viewBox="0 0 100 10" preserveAspectRatio="none" '
        f'role="img" aria-label="{escape(name)}">{"".join(rectangles)}</svg><ul>{"".join(keys)}</ul></section>'
    )


def _line(points: Sequence[Point], place: Place, colour: int) -> Iterable[str]:
    """Yields a line for each stretch of finite values, and a dot for a single one."""
    stretch: list[tuple[float, float]] = []
    # A gap after the last point closes the last stretch, too.
    for point in [*points, (math.nan, math.nan)]:
        if math.isfinite(point[1]):
            stretch.append(place(point))
            continue
        if len(stretch) == 1:
            yield f'<circle class="c{colour}" cx="{stretch[0][0]}" cy="{stretch[0][1]}" r="3"/>'
        elif stretch:
            path = " ".join(f"{x:g},{y:g}" for x, y in stretch)
            yield f'<polyline class="c{colour}" points="{path}"/>'
        stretch = []


def thin(points: Sequence[Point]) -> list[Point]:
    """Returns at most 500 points of a curve: of each of its buckets the lowest and the highest."""
    if len(points) <= 2 * _BUCKETS:
        return list(points)
    found: list[Point] = []
    for bucket in range(_BUCKETS):
        part = points[bucket * len(points) // _BUCKETS : (bucket + 1) * len(points) // _BUCKETS]
        finite = [p for p in part if math.isfinite(p[1])]
        if not finite:
            # Nothing but NaN: one of them keeps the gap.
            found.append(part[0])
            continue
        low, high = min(finite, key=lambda p: p[1]), max(finite, key=lambda p: p[1])
        # By x, as a line is drawn; in a set, because the lowest may be the highest.
        found.extend(sorted({low, high}))
    return found


def ticks(low: float, high: float) -> list[float]:
    """Returns round numbers between two values: about five."""
    raw = (high - low) / _TICKS
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next((unit * f for f in (1, 2, 5) if unit * f >= raw), unit * 10)
    # With slack: 0.3 / 0.1 is 2.9999999999999996, so that the last tick would be lost.
    first = math.ceil(low / step - 1e-9)
    return [round(i * step, 12) for i in range(first, math.floor(high / step + 1e-9) + 1)]


def number(value: float) -> str:
    """Returns a number with four digits that count, such as "0.01234", "12 k" or "3.1 M"."""
    for limit, suffix in ((1e9, " G"), (1e6, " M"), (1e4, " k")):
        if abs(value) >= limit:
            return f"{value / (1e3 if suffix == ' k' else limit):.4g}{suffix}"
    return f"{value:.4g}"


def _range(values: Sequence[float], margin: float) -> tuple[float, float]:
    low, high = min(values), max(values)
    if low == high:
        space = abs(low) * 0.1 or 1.0
        return low - space, high + space
    space = margin * (high - low)
    # A curve of values that are never negative, such as a loss, keeps zero as its floor.
    return (max(low - space, 0.0) if low >= 0 else low - space), high + space


def _drawable(point: Point) -> Point:
    """Returns a point, without a value that an axis beyond the range of floats would be needed for."""
    return point if abs(point[1]) < _LARGEST else (point[0], math.nan)


def _short(value: float) -> float | None:
    # Six digits say more than a drawing 640 units wide can show; the text of a float has up to seventeen. JSON has no
    # NaN, so a gap is null.
    return float(f"{value:.6g}") if math.isfinite(value) else None
