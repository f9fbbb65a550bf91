"""The page stands alone, says what the tables say, and is well-formed whatever players are called."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET

import pytest

from interplay.evaluation.intervals import Estimate
from interplay.evaluation.page import _ticks, page
from interplay.evaluation.sheet import Bars, Curves, Heat, Sheet, markdown, number, percent, points

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


def test_the_page_needs_nothing_from_outside() -> None:
    text = page("t", "lead", SHEETS, CHARTS)
    assert "<script" not in text and "http" not in text and "@import" not in text and "url(" not in text
    assert "prefers-color-scheme: dark" in text


def test_every_tag_is_closed_and_every_name_escaped() -> None:
    """As XML, once the doctype and the void tags of HTML are taken for what they are."""
    text = page(ODD, ODD, SHEETS, CHARTS)
    body = re.sub(r"<(meta)([^>]*)>", r"<\1\2/>", text.removeprefix("<!doctype html>\n"))
    root = ET.fromstring(body)
    words = [cell.text for cell in root.iter("td")]
    assert words == [ODD, "50.0 (25.0–75.0)", "b|c", "1", "t1", "0.50"]
    assert len(list(root.iter("svg"))) == len(CHARTS)
    assert [d.find("summary").text for d in root.iter("details")] == ["Every task"]  # type: ignore[union-attr]
    for node in root.iter():
        assert not any("nan" in v or "inf" in v for v in node.attrib.values()), node.attrib


def test_numbers_as_they_are_written() -> None:
    e = Estimate(0.123, 0.05, 0.21)
    assert (percent(e), points(e), number(e), number(e, sign=True)) == (
        "12.3 (5.0–21.0)", "+12.3 (+5.0, +21.0)", "0.12 ±0.08", "+0.12 ±0.08",
    )  # fmt: skip
    assert number(Estimate(1.0, -math.inf, math.inf)) == "1.00" and percent(None) == ""
    assert markdown(SHEETS[0]).splitlines() == [
        "## Results", "", "| who | success (95%) |", "|---|---:|", f"| {ODD} | 50.0 (25.0–75.0) |", "| b\\|c | 1 |", "",
        "A note.",
    ]  # fmt: skip


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (0.0, 93.2), (-12.5, 40.0), (1480.0, 1820.0), (0.0, 0.0)])
def test_ticks_are_few_and_hold_the_range(low: float, high: float) -> None:
    ticks = _ticks(low, high)
    assert ticks[0] <= low + 1e-9 and ticks[-1] >= high - 1e-9 and 2 <= len(ticks) <= 9
