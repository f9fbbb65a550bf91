"""A table or a chart as data. Tables are drawn on the terminal, in Markdown and on an HTML page, charts only on a page.

Names in them may come from untrusted sources, so each of these outputs escapes them and replaces harmful characters.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape as escape_html
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from interplay.evaluation.intervals import Estimate
from interplay.rollout.episode_json import finite
from interplay.rollout.records import write_whole

# Control characters (an escape sequence can rewrite a terminal), halves of surrogate pairs (no file can hold them) and
# marks that reverse the direction of the text after them.
_HARMFUL = re.compile("[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\ud800-\\udfff\\ufffe\\uffff\\u202a-\\u202e\\u2066-\\u2069]")


@dataclass(frozen=True)
class Sheet:
    """A table. The first `labels` columns hold words, the others numbers; an empty row is a gap.

    A terminal is narrow, so it does not show `long` sheets and the columns named in `hide`. Files contain everything.
    """

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
    """A matrix of numbers: the player of the row with or against the player of the column."""

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


def harmless(text: str) -> str:
    """`text` with � in place of characters that could harm a terminal or a page, or that no file can hold."""
    return _HARMFUL.sub("�", text)


def terminal(sheet: Sheet) -> Group:
    """The sheet for a terminal of 80 columns, with its note under it."""
    words = lambda text: escape(harmless(text))  # noqa: E731
    out = Table(title=words(sheet.title), title_justify="left", box=None, padding=(0, 2, 0, 0), pad_edge=False)
    shown = [i for i, name in enumerate(sheet.head) if name not in sheet.hide]
    for i in shown:
        word = i < sheet.labels
        longest = max((len(row[i]) for row in sheet.rows if row), default=0)
        least = min(longest, 60 // (3 * sheet.labels)) if word else None
        out.add_column(words(sheet.head[i]), justify="left" if word else "right", no_wrap=not word, min_width=least)
    for row in sheet.rows:
        out.add_row(*(words(row[i]) for i in shown if row))
    return Group(out, *([Text(harmless(sheet.note), "italic dim")] if sheet.note else []))


def markdown(sheet: Sheet) -> str:
    """A GitHub table under its title."""
    words = lambda text: escape_html(" ".join(harmless(text).split()), quote=False)  # noqa: E731
    cells = lambda row: "| " + " | ".join(words(c).replace("|", "\\|") for c in row) + " |"  # noqa: E731
    rule = "|" + "|".join("---" if i < sheet.labels else "---:" for i in range(len(sheet.head))) + "|"
    lines = [f"## {words(sheet.title)}", "", cells(sheet.head), rule, *(cells(row) for row in sheet.rows if row)]
    return "\n".join([*lines, *(["", words(sheet.note)] if sheet.note else [])]) + "\n"


def percent(e: Estimate | None) -> str:
    """A share in percent: `93.2 (90.6–95.1)`."""
    return "" if e is None else f"{100 * e.value:.1f} ({100 * e.low:.1f}–{100 * e.high:.1f})"


def points(e: Estimate | None) -> str:
    """A difference of shares in percent: `+12.0 (+3.1, +20.5)`."""
    return "" if e is None else f"{100 * e.value:+.1f} ({100 * e.low:+.1f}, {100 * e.high:+.1f})"


def number(e: Estimate | None, digits: int = 2, sign: bool = False) -> str:
    """`1.25 ±0.15`: the value and half the width of its interval."""
    if e is None:
        return ""
    form = f"{'+' if sign else ''}.{digits}f"
    if not math.isfinite(e.low):
        return f"{e.value:{form}}"
    return f"{e.value:{form}} ±{(e.high - e.low) / 2:.{digits}f}"


def write_json(path: Path, data: Any) -> None:
    """Writes JSON. Infinite numbers, such as the interval ends of a single value, are written as null."""
    write_whole(path, json.dumps(finite(data), indent=1, allow_nan=False) + "\n")
