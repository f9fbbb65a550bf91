"""The page loads nothing, shows what the tables show, and is valid and harmless for every player's name."""

from __future__ import annotations

import io
import math
import re
import tomllib
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from interplay.evaluation.intervals import Estimate
from interplay.evaluation.page import _ticks, page
from interplay.evaluation.sheet import Bars, Curves, Heat, Sheet, harmless, markdown, number, percent, points, terminal

ODD = '<b>"a" & b</b>'
SHEETS = [
    Sheet(
        "Results", ["who", "success (95%)"], [[ODD, percent(Estimate(0.5, 0.25, 0.75))], [], ["b|c", "1"]], 1, "A note."
    ),
    Sheet("Every task", ["task", "score"], [["t1", "0.50"]], 1, long=True),
]
CHARTS = [
    Bars("Success", [(ODD, Estimate(0.5, 0.25, 0.75)), ("one value", Estimate(0.2, -math.inf, math.inf))]),
    Bars("Nothing", []),
    Bars("All alike", [("a", Estimate(0.0, 0.0, 0.0))]),
    Heat("Payoff", ["a", ODD], ["a", ODD], [[None, 0.25], [0.75, None]]),
    Curves("pass@k", [(ODD, [(1, Estimate(0.1, 0.0, 0.2)), (4, Estimate(0.4, 0.3, 0.5))])]),
]


def parsed(text: str) -> ET.Element:
    """The page as XML, after handling the doctype and the void tags of HTML."""
    return ET.fromstring(re.sub(r"<(meta)([^>]*)>", r"<\1\2/>", text.removeprefix("<!doctype html>\n")))


def test_the_page_needs_nothing_from_outside() -> None:
    text = page("t", "lead", SHEETS, CHARTS)
    assert "<script" not in text and "http" not in text and "@import" not in text and "url(" not in text
    assert "prefers-color-scheme: dark" in text


def test_every_tag_is_closed_and_every_name_escaped() -> None:
    root = parsed(page(ODD, ODD, SHEETS, CHARTS))
    words = [cell.text for cell in root.iter("td")]
    assert words == [ODD, "50.0 (25.0–75.0)", "b|c", "1", "t1", "0.50"]
    assert len(list(root.iter("svg"))) == len(CHARTS)
    assert [d.find("summary").text for d in root.iter("details")] == ["Every task"]  # type: ignore[union-attr]
    for node in root.iter():
        assert not any("nan" in v or "inf" in v for v in node.attrib.values()), node.attrib


HOSTILE = [
    "<script>alert(1)</script>", "</title><script>alert(1)</script>", "</style><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>', "' onload='alert(1)", "<!--", "]]>", "&lt;script&gt;", "{{ 7 * 7 }}", "{% raw %}",
    "{{ ''.__class__.__mro__ }}", "javascript:alert(1)", "\x00null", "\x1b[2Jescape", "half \ud800", "\u202edesrever",
    "\ufffe", "two\nlines", "a" * 10_000, "[bold]rich[/bold]", "[link=http://x]y[/link]", "", " ",
]  # fmt: skip


def filled(name: str) -> ET.Element:
    """A page with this name wherever a name can be."""
    e = Estimate(0.5, 0.25, 0.75)
    sheet = Sheet(name, [name, name], [[name, name]], 1, name)
    charts = [
        Bars(name, [(name, e)], note=name),
        Heat(name, [name], [name], [[0.5]], note=name),
        Curves(name, [(name, [(1, e), (2, e)])], name, name),
    ]
    return parsed(page(name, name, [sheet, replace(sheet, long=True)], charts))


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: ascii(name[:30]))
def test_hostile_names_do_no_harm(name: str, tmp_path: Path) -> None:
    """A name is shown as it is, adds no element and no attribute, and no output format fails because of it."""
    root, plain = filled(name), filled("n" if name else "")
    assert [(x.tag, sorted(x.attrib)) for x in root.iter()] == [(x.tag, sorted(x.attrib)) for x in plain.iter()]
    assert root.find("body/h1").text in (harmless(name), None)  # type: ignore[union-attr]
    assert [td.text or "" for td in root.iter("td")] == [harmless(name)] * 4
    sheet = Sheet(name, [name, "n"], [[name, name]], 1, name)
    text = markdown(sheet)
    assert "<script" not in text and "<img" not in text
    assert len([line for line in text.splitlines() if line.startswith("|")]) == 3
    shown = io.StringIO()
    Console(file=shown, width=80, force_terminal=True).print(terminal(sheet))
    (tmp_path / "page").write_text(text + shown.getvalue(), encoding="utf-8")
    assert "\x1b[2J" not in shown.getvalue() and "\x1b]8" not in shown.getvalue()


def test_templates_are_part_of_the_package() -> None:
    """`make` installs the folder as it is; a wheel contains only what pyproject.toml names."""
    root = Path(__file__).parents[2]
    data = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]["package-data"]
    folder = root / "src" / "interplay" / "evaluation"
    named = {path for pattern in data["interplay.evaluation"] for path in folder.glob(pattern)}
    assert named == set((folder / "templates").iterdir())


def test_numbers_as_they_are_written() -> None:
    e = Estimate(0.123, 0.05, 0.21)
    assert (percent(e), points(e), number(e), number(e, sign=True)) == (
        "12.3 (5.0–21.0)", "+12.3 (+5.0, +21.0)", "0.12 ±0.08", "+0.12 ±0.08",
    )  # fmt: skip
    assert number(Estimate(1.0, -math.inf, math.inf)) == "1.00" and percent(None) == ""
    assert markdown(SHEETS[0]).splitlines() == [
        "## Results", "", "| who | success (95%) |", "|---|---:|",
        "| &lt;b&gt;\"a\" &amp; b&lt;/b&gt; | 50.0 (25.0–75.0) |", "| b\\|c | 1 |", "",
        "A note.",
    ]  # fmt: skip


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (0.0, 93.2), (-12.5, 40.0), (1480.0, 1820.0), (0.0, 0.0)])
def test_ticks_are_few_and_hold_the_range(low: float, high: float) -> None:
    ticks = _ticks(low, high)
    assert ticks[0] <= low + 1e-9 and ticks[-1] >= high - 1e-9 and 2 <= len(ticks) <= 9
