"""A table or a chart as data, made once and drawn three times: on the terminal, in Markdown, on a page (`page.py`)."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from interplay.evaluation.intervals import Estimate


@dataclass(frozen=True)
class Sheet:
    """An empty row is a gap; the first `labels` columns are words, the others numbers. A `long` one is for files, and
    so are the columns that `hide` names: a terminal is narrow."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    labels: int = 1
    note: str = ""
    long: bool = False
    hide: Sequence[str] = ()


@dataclass(frozen=True)
class Bars:
    """Estimates with their intervals, one under the other."""

    title: str
    rows: Sequence[tuple[str, Estimate]]
    percent: bool = True
    note: str = ""


@dataclass(frozen=True)
class Heat:
    """A matrix of numbers: who (row) with or against whom (column)."""

    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    cells: Sequence[Sequence[float | None]]
    digits: int = 2
    note: str = ""


@dataclass(frozen=True)
class Curves:
    """Estimates over k."""

    title: str
    lines: Sequence[tuple[str, Sequence[tuple[int, Estimate]]]]
    x: str = "k"
    note: str = ""


Chart = Bars | Heat | Curves


def terminal(sheet: Sheet) -> Group:
    """Narrow enough for 80 columns; the note under it is as wide as the table, or wider where that is slim."""
    out = Table(title=escape(sheet.title), title_justify="left", box=None, padding=(0, 2, 0, 0), pad_edge=False)
    shown = [i for i, name in enumerate(sheet.head) if name not in sheet.hide]
    for i in shown:
        word = i < sheet.labels
        longest = max((len(row[i]) for row in sheet.rows if row), default=0)
        least = min(longest, 60 // (3 * sheet.labels)) if word else None
        out.add_column(sheet.head[i], justify="left" if word else "right", no_wrap=not word, min_width=least)
    for row in sheet.rows:
        out.add_row(*(escape(row[i]) for i in shown if row))
    return Group(out, *([Text(sheet.note, "italic dim")] if sheet.note else []))


def markdown(sheet: Sheet) -> str:
    """A GitHub table under its title."""
    cells = lambda row: "| " + " | ".join(c.replace("|", "\\|") for c in row) + " |"  # noqa: E731
    rule = "|" + "|".join("---" if i < sheet.labels else "---:" for i in range(len(sheet.head))) + "|"
    lines = [f"## {sheet.title}", "", cells(sheet.head), rule, *(cells(row) for row in sheet.rows if row)]
    return "\n".join([*lines, *(["", sheet.note] if sheet.note else [])]) + "\n"


def percent(e: Estimate | None) -> str:
    """`93.2 (90.6–95.1)`."""
    return "" if e is None else f"{100 * e.value:.1f} ({100 * e.low:.1f}–{100 * e.high:.1f})"


def points(e: Estimate | None) -> str:
    """A difference of shares: `+12.0 (+3.1, +20.5)`."""
    return "" if e is None else f"{100 * e.value:+.1f} ({100 * e.low:+.1f}, {100 * e.high:+.1f})"


def number(e: Estimate | None, digits: int = 2, sign: bool = False) -> str:
    """`1.25 ±0.15`, half the width of the interval."""
    if e is None:
        return ""
    form = f"{'+' if sign else ''}.{digits}f"
    if not math.isfinite(e.low):
        return f"{e.value:{form}}"
    return f"{e.value:{form}} ±{(e.high - e.low) / 2:.{digits}f}"


def write_json(path: Path, data: Any) -> None:
    """Numbers that are none, the interval of a single value, are null."""
    path.write_text(json.dumps(_finite(data), indent=1, allow_nan=False) + "\n", encoding="utf-8")


def _finite(data: Any) -> Any:
    if isinstance(data, float):
        return data if math.isfinite(data) else None
    if isinstance(data, dict):
        return {k: _finite(v) for k, v in data.items()}
    return [_finite(v) for v in data] if isinstance(data, list | tuple) else data
