"""Writes sheets and charts as one HTML file that loads nothing from elsewhere.

The markup is in `templates/`, where every text is escaped; this module computes the positions of the marks of a chart.
The page is light or dark as the reader's system is set, and wide tables scroll.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from interplay.evaluation.intervals import Estimate
from interplay.evaluation.sheet import Bars, Chart, Curves, Heat, Sheet, harmless

WIDTH = 880
COLOURS = 6  # --c0 to --c5 in page.css

_PAGES = Environment(
    loader=PackageLoader("interplay.evaluation"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    finalize=lambda value: harmless(value) if isinstance(value, str) and not isinstance(value, Markup) else value,
)


@dataclass(frozen=True)
class Shape:
    """An SVG element. `told` is shown when the mouse is over it; `parts` are the elements inside it."""

    tag: str
    attributes: dict[str, str]
    text: str = ""
    told: str = ""
    parts: Sequence[Shape] = ()


@dataclass(frozen=True)
class ChartDrawing:
    chart: Chart
    height: float
    shapes: Sequence[Shape]


def page(title: str, lead: str, sheets: Sequence[Sheet], charts: Sequence[Chart]) -> str:
    """The whole page: short tables first, then charts, then the long tables, which are folded."""
    drawings = [_drawing(chart) for chart in charts]
    return _PAGES.get_template("page.html").render(
        title=title, lead=lead, sheets=sheets, drawings=drawings, width=WIDTH
    )


def _drawing(chart: Chart) -> ChartDrawing:
    if isinstance(chart, Bars):
        return _bars(chart)
    return _heat(chart) if isinstance(chart, Heat) else _curves(chart)


def _shape(tag: str, text: str = "", told: str = "", parts: Sequence[Shape] = (), **attributes: str | float) -> Shape:
    """Makes an SVG element. Underscores in the names of attributes become hyphens."""
    written = {
        name.rstrip("_").replace("_", "-"): value if isinstance(value, str) else f"{value:.1f}"
        for name, value in attributes.items()
        if value != ""
    }
    return Shape(tag, written, text, told, parts)


def _text(x: float, y: float, text: str, anchor: str = "start", kind: str = "") -> Shape:
    return _shape("text", text, x=x, y=y, text_anchor=anchor, class_=kind)


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Shape:
    return _shape("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=kind)


def _short(text: str, limit: int = 40) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers that span the range."""
    high = high if high > low else low + 1.0
    span = high - low
    step = 10 ** math.floor(math.log10(span))
    step = next(step * f for f in (0.1, 0.2, 0.5, 1, 2) if span / (step * f) <= 6)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [i * step for i in range(first, last + 1)]


def _bounded(e: Estimate) -> Estimate:
    """Replaces infinite ends of an interval (it comes from a single value) by the value, so that it can be drawn."""
    return Estimate(e.value, *(v if math.isfinite(v) else e.value for v in (e.low, e.high)))


def _bars(chart: Bars) -> ChartDrawing:
    scale = 100.0 if chart.percent else 1.0
    found = [(label, Estimate(*(scale * v for v in _bounded(e)))) for label, e in chart.rows]
    ends = [v for _, e in found for v in (e.low, e.high)]
    ends += [0.0] if chart.percent or not ends else []  # shares are drawn from zero; ratings have no natural zero
    ticks = _ticks(min(ends), max(ends))
    left, right, pitch = 300, WIDTH - 70, 30
    at = lambda v: left + (right - left) * (v - ticks[0]) / (ticks[-1] - ticks[0])  # noqa: E731
    bottom = 8 + pitch * len(found)
    shapes = []
    for tick in ticks:
        shapes.append(_line(at(tick), 8, at(tick), bottom, "zero" if abs(tick) < 1e-9 else "axis"))
        shapes.append(_text(at(tick), bottom + 18, f"{tick:g}", "middle", "soft"))
    for i, (label, e) in enumerate(found):
        y = 8 + pitch * (i + 0.5)
        parts = [
            _text(left - 12, y + 4, _short(label), "end"),
            _line(at(e.low), y, at(e.high), y, "mark"),
            *(_line(at(v), y - 5, at(v), y + 5, "mark") for v in (e.low, e.high)),
            _shape("circle", cx=at(e.value), cy=y, r=5, fill="var(--mark)"),
            _text(right + 14, y + 4, f"{e.value:.{1 if chart.percent else 0}f}"),
        ]
        shapes.append(_shape("g", told=f"{label}: {e.value:.1f} ({e.low:.1f} to {e.high:.1f})", parts=parts))
    return ChartDrawing(chart, bottom + 28, shapes)


def _heat(chart: Heat) -> ChartDrawing:
    known = [c for row in chart.cells for c in row if c is not None] or [0.0]
    low, high = min(known), max(known)
    left, top = 190, 34
    side = min(110.0, (WIDTH - left - 10) / max(1, len(chart.columns)))
    tall = min(48.0, side)
    fits = max(3, int(side / 8))
    shapes = [
        _text(left + side * (j + 0.5), top - 10, _short(c, fits), "middle", "soft") for j, c in enumerate(chart.columns)
    ]
    for i, (name, row) in enumerate(zip(chart.rows, chart.cells, strict=True)):
        y = top + tall * i
        shapes.append(_text(left - 12, y + tall / 2 + 4, _short(name, 22), "end"))
        for j, value in enumerate(row):
            if value is None:
                continue
            strength = 0.08 + 0.62 * ((value - low) / (high - low) if high > low else 0.5)
            x, shown = left + side * j, f"{value:.{chart.digits}f}"
            parts = [
                _shape("rect", x=x + 1, y=y + 1, width=side - 2, height=tall - 2, rx=4, fill="var(--mark)",
                       fill_opacity=f"{strength:.2f}"),
                _text(x + side / 2, y + tall / 2 + 4, shown, "middle"),
            ]  # fmt: skip
            shapes.append(_shape("g", told=f"{name}, {chart.columns[j]}: {shown}", parts=parts))
    return ChartDrawing(chart, top + tall * len(chart.rows) + 8, shapes)


def _curves(chart: Curves) -> ChartDrawing:
    xs = sorted({x for _, line in chart.lines for x, _ in line})
    left, right, top, bottom = 60, WIDTH - 20, 10, 250
    at_x = lambda x: left + (right - left) * (xs.index(x) / max(1, len(xs) - 1))  # noqa: E731
    at_y = lambda v: bottom - (bottom - top) * v  # noqa: E731
    shapes = []
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        shapes.append(_line(left, at_y(tick), right, at_y(tick), "axis"))
        shapes.append(_text(left - 10, at_y(tick) + 4, f"{100 * tick:g}", "end", "soft"))
    for i, x in enumerate(xs):
        anchor = "start" if i == 0 else "end" if i == len(xs) - 1 else "middle"
        shapes.append(_text(at_x(x), bottom + 20, f"{chart.x} = {x}", anchor, "soft"))
    for i, (name, line) in enumerate(chart.lines):
        placed = [(at_x(x), _bounded(e)) for x, e in line]
        shapes += _curve(name, placed, at_y, f"var(--c{i % COLOURS})", bottom + 44 + 20 * i)
    return ChartDrawing(chart, bottom + 52 + 20 * len(chart.lines), shapes)


def _curve(
    name: str, line: Sequence[tuple[float, Estimate]], at_y: Callable[[float], float], colour: str, y: float
) -> Iterator[Shape]:
    """One curve with its interval band and dots, and its entry in the legend at height `y`."""
    path = " ".join(f"{x:.1f},{at_y(e.value):.1f}" for x, e in line)
    band = [f"{x:.1f},{at_y(e.high):.1f}" for x, e in line] + [f"{x:.1f},{at_y(e.low):.1f}" for x, e in reversed(line)]
    yield _shape("polygon", points=" ".join(band), fill=colour, fill_opacity=".12")
    yield _shape("polyline", points=path, fill="none", stroke=colour, stroke_width="2")
    for x, e in line:
        yield _shape("circle", told=f"{name}: {100 * e.value:.1f}", cx=x, cy=at_y(e.value), r=4, fill=colour)
    yield _shape("rect", x=60, y=y - 10, width=14, height=4, rx=2, fill=colour)
    yield _text(82, y - 3, _short(name, 100))
