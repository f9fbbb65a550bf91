"""Sheets and charts as one HTML file: nothing is fetched, light and dark as the reader's system is, tables scroll."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

from interplay.evaluation.intervals import Estimate
from interplay.evaluation.sheet import Bars, Chart, Curves, Heat, Sheet

STYLE = """
:root { color-scheme: light dark; --ink: #1c2024; --soft: #5f6770; --line: #d9dde1; --paper: #fff; --panel: #f6f7f8;
  --mark: #2563c9; --c0: #2563c9; --c1: #c2410c; --c2: #15803d; --c3: #9333ea; --c4: #b45309; --c5: #0e7490 }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8ea; --soft: #9aa3ac; --line: #33393f; --paper: #15181b;
  --panel: #1d2125; --mark: #7aa7f7; --c0: #7aa7f7; --c1: #fb923c; --c2: #4ade80; --c3: #c084fc; --c4: #fbbf24;
  --c5: #22d3ee } }
* { box-sizing: border-box }
body { margin: 0 auto; max-width: 60rem; padding: 2rem 1.25rem 4rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif }
h1 { font-size: 1.5rem; margin: 0 } h2 { font-size: 1.1rem; margin: 2.2rem 0 .5rem }
p.lead, p.note, figcaption { color: var(--soft) } p.lead { margin: .25rem 0 0 }
p.note, figcaption { font-size: .85rem; margin: .5rem 0 0; max-width: 48rem }
.wide { overflow-x: auto; border: 1px solid var(--line); border-radius: 8px }
table { border-collapse: collapse; width: 100%; font-size: .9rem; font-variant-numeric: tabular-nums }
th, td { padding: .4rem .8rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line) }
tr:last-child td { border-bottom: 0 } th { background: var(--panel); font-weight: 600; color: var(--soft) }
th.word, td.word { text-align: left } figure { margin: 0 }
svg { display: block; width: 100%; height: auto } svg text { fill: var(--ink); font-size: 13px }
svg .soft { fill: var(--soft) } svg .axis { stroke: var(--line) } svg .zero { stroke: var(--soft) }
details { margin-top: 1.5rem } summary { cursor: pointer; font-weight: 600 }
details .wide { max-height: 32rem; overflow: auto; margin-top: .5rem }
"""
WIDTH = 880
COLOURS = 6


def page(title: str, lead: str, sheets: Sequence[Sheet], charts: Sequence[Chart]) -> str:
    """Short tables first, then charts, then the long tables, folded."""
    body = [f"<h1>{escape(title)}</h1>", f'<p class="lead">{escape(lead)}</p>']
    body += [f"<h2>{escape(s.title)}</h2>{_table(s)}" for s in sheets if not s.long]
    body += [_figure(c) for c in charts]
    body += [f"<details><summary>{escape(s.title)}</summary>{_table(s)}</details>" for s in sheets if s.long]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )


def _table(sheet: Sheet) -> str:
    def row(cells: Sequence[str], tag: str) -> str:
        word = lambda i: ' class="word"' if i < sheet.labels else ""  # noqa: E731
        return "<tr>" + "".join(f"<{tag}{word(i)}>{escape(c)}</{tag}>" for i, c in enumerate(cells)) + "</tr>"

    body = "".join(row(r, "td") for r in sheet.rows if r)
    note = f'<p class="note">{escape(sheet.note)}</p>' if sheet.note else ""
    return f'<div class="wide"><table><thead>{row(sheet.head, "th")}</thead><tbody>{body}</tbody></table></div>{note}'


def _figure(chart: Chart) -> str:
    draw = {Bars: _bars, Heat: _heat, Curves: _curves}[type(chart)]
    note = f"<figcaption>{escape(chart.note)}</figcaption>" if chart.note else ""
    return f"<h2>{escape(chart.title)}</h2><figure>{draw(chart)}{note}</figure>"  # type: ignore[operator]


def _svg(height: float, parts: Sequence[str], label: str) -> str:
    head = f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{escape(label, quote=True)}">'
    return head + "".join(parts) + "</svg>"


def _text(x: float, y: float, text: str, anchor: str = "start", kind: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}">{escape(text)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, style: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" {style}/>'


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
    """The interval of a single value has no ends: it is drawn as the value."""
    return Estimate(e.value, *(v if math.isfinite(v) else e.value for v in (e.low, e.high)))


def _bars(chart: Bars) -> str:
    scale = 100.0 if chart.percent else 1.0
    found = [(label, Estimate(*(scale * v for v in _bounded(e)))) for label, e in chart.rows]
    ends = [v for _, e in found for v in (e.low, e.high)]
    ends += [0.0] if chart.percent or not ends else []  # a rating has no zero worth showing
    ticks = _ticks(min(ends), max(ends))
    left, right, pitch = 300, WIDTH - 70, 30
    at = lambda v: left + (right - left) * (v - ticks[0]) / (ticks[-1] - ticks[0])  # noqa: E731
    bottom = 8 + pitch * len(found)
    parts = []
    for tick in ticks:
        parts.append(_line(at(tick), 8, at(tick), bottom, f'class="{"zero" if abs(tick) < 1e-9 else "axis"}"'))
        parts.append(_text(at(tick), bottom + 18, f"{tick:g}", "middle", "soft"))
    for i, (label, e) in enumerate(found):
        y = 8 + pitch * (i + 0.5)
        parts += [
            f"<g><title>{escape(label)}: {e.value:.1f} ({e.low:.1f} to {e.high:.1f})</title>",
            _text(left - 12, y + 4, _short(label), "end"),
            _line(at(e.low), y, at(e.high), y, 'stroke="var(--mark)" stroke-width="2"'),
            *(_line(at(v), y - 5, at(v), y + 5, 'stroke="var(--mark)" stroke-width="2"') for v in (e.low, e.high)),
            f'<circle cx="{at(e.value):.1f}" cy="{y:.1f}" r="5" fill="var(--mark)"/>',
            _text(right + 14, y + 4, f"{e.value:.{1 if chart.percent else 0}f}"),
            "</g>",
        ]
    return _svg(bottom + 28, parts, chart.title)


def _heat(chart: Heat) -> str:
    known = [c for row in chart.cells for c in row if c is not None] or [0.0]
    low, high = min(known), max(known)
    left, top = 190, 34
    side = min(110.0, (WIDTH - left - 10) / max(1, len(chart.columns)))
    tall = min(48.0, side)
    fits = max(3, int(side / 8))
    parts = [
        _text(left + side * (j + 0.5), top - 10, _short(c, fits), "middle", "soft") for j, c in enumerate(chart.columns)
    ]
    for i, (name, row) in enumerate(zip(chart.rows, chart.cells, strict=True)):
        y = top + tall * i
        parts.append(_text(left - 12, y + tall / 2 + 4, _short(name, 24), "end"))
        for j, value in enumerate(row):
            if value is None:
                continue
            strength = 0.08 + 0.62 * ((value - low) / (high - low) if high > low else 0.5)
            x = left + side * j
            parts += [
                f"<g><title>{escape(name)}, {escape(chart.columns[j])}: {value:.{chart.digits}f}</title>",
                f'<rect x="{x + 1:.1f}" y="{y + 1:.1f}" width="{side - 2:.1f}" height="{tall - 2:.1f}" rx="4" '
                f'fill="var(--mark)" fill-opacity="{strength:.2f}"/>',
                _text(x + side / 2, y + tall / 2 + 4, f"{value:.{chart.digits}f}", "middle"),
                "</g>",
            ]
    return _svg(top + tall * len(chart.rows) + 8, parts, chart.title)


def _curves(chart: Curves) -> str:
    xs = sorted({x for _, line in chart.lines for x, _ in line})
    left, right, top, bottom = 60, WIDTH - 20, 10, 250
    at_x = lambda x: left + (right - left) * (xs.index(x) / max(1, len(xs) - 1))  # noqa: E731
    at_y = lambda v: bottom - (bottom - top) * v  # noqa: E731
    parts = []
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        parts.append(_line(left, at_y(tick), right, at_y(tick), 'class="axis"'))
        parts.append(_text(left - 10, at_y(tick) + 4, f"{100 * tick:g}", "end", "soft"))
    parts += [_text(at_x(x), bottom + 20, f"{chart.x} = {x}", "middle" if 0 < xs.index(x) < len(xs) - 1 else
                    "start" if xs.index(x) == 0 else "end", "soft") for x in xs]  # fmt: skip
    for i, (name, line) in enumerate(chart.lines):
        parts += _curve(
            name, [(at_x(x), _bounded(e)) for x, e in line], at_y, f"var(--c{i % COLOURS})", bottom + 44 + 20 * i
        )
    return _svg(bottom + 52 + 20 * len(chart.lines), parts, chart.title)


def _curve(name: str, line: Sequence[tuple[float, Estimate]], at_y: object, colour: str, y: float) -> Iterator[str]:
    assert callable(at_y)
    path = " ".join(f"{x:.1f},{at_y(e.value):.1f}" for x, e in line)
    band = [f"{x:.1f},{at_y(e.high):.1f}" for x, e in line] + [f"{x:.1f},{at_y(e.low):.1f}" for x, e in reversed(line)]
    yield f'<polygon points="{" ".join(band)}" fill="{colour}" fill-opacity=".12"/>'
    yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
    for x, e in line:
        told = f"<title>{escape(name)}: {100 * e.value:.1f}</title>"
        yield f'<circle cx="{x:.1f}" cy="{at_y(e.value):.1f}" r="4" fill="{colour}">{told}</circle>'
    yield f'<rect x="60" y="{y - 10:.1f}" width="14" height="4" rx="2" fill="{colour}"/>'
    yield _text(82, y - 3, name)
