"""`interplay recipes` and `interplay runs`: what can be trained, and what was trained."""

from __future__ import annotations

import difflib
import re
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from interplay.config import packaged
from interplay.errors import ConfigError, did_you_mean

_BARS = "▁▂▃▄▅▆▇█"
_ABBREVIATIONS = frozenset(
    ("al", "approx", "cf", "Dr", "e.g", "Eq", "Fig", "i.e", "Mr", "Mrs", "Ms", "Prof", "resp", "St", "vs")
)  # their dot does not end a sentence


def recipe_table() -> Table:
    """The recipes with a sentence about each. Only larger models are named, because tiny ones train on any CPU."""
    table = _table("recipe")
    table.add_column("what")
    for name, file in packaged().items():
        text = file.read_text(encoding="utf-8")
        bases = sorted({policy["base"] for policy in tomllib.loads(text)["policies"].values()})
        large = [base for base in bases if not base.startswith("tiny")]
        table.add_row(_short(name), escape(_first_sentence(text) + (f" ({', '.join(large)})" if large else "")))
    table.caption = "interplay recipes NAME prints one; interplay train recipes/NAME.toml runs it"
    table.caption_justify = "left"
    return table


def recipe_text(name: str) -> str:
    """The text of a recipe's file. The folder may be left out if only one recipe has the name."""
    found = {_short(known): file for known, file in packaged().items()}
    wanted = _short(name)
    ends = [known for known in found if known == wanted] or [known for known in found if known.endswith(f"/{wanted}")]
    if len(ends) == 1:
        return found[ends[0]].read_text(encoding="utf-8")
    if ends:
        raise ConfigError(f"'{name}' is the name of several recipes; expected one of {', '.join(ends)}.")
    near = difflib.get_close_matches(wanted, found, n=8, cutoff=0)
    raise ConfigError(f"'{name}' is not a recipe of the package; {did_you_mean(wanted, near)}")


def run_table(folders: Sequence[Path]) -> Table:
    from interplay.viewer.library import Library

    table = _table("run")
    for name in ("environment", "seed", "steps", "reward", "wins against", "written"):
        table.add_column(name, justify="right" if name in ("seed", "steps") else "left", no_wrap=name != "wins against")
    for run in Library(folders).runs():
        table.add_row(*(escape(cell) for cell in _run_row(run.card())))
    table.caption = "interplay view RUN shows one in the browser" if table.row_count else "no runs here yet"
    table.caption_justify = "left"
    return table


def _run_row(card: dict[str, Any]) -> list[str]:
    reward = "" if card["reward"] is None else f"{card['reward']:+.3g} {_curve(card['curve'])}"
    wins = ", ".join(f"{who.removeprefix('bot:')} {share:.1%}" for who, share in card["wins"].items())
    steps = f"{card['step']}/{card['steps']} {card['state']}".rstrip()
    return [card["key"], card["env"], str(card["seed"]), steps, reward, wins, _ago(card["updated"])]


def _curve(values: Sequence[float]) -> str:
    """A curve of at most eight blocks, the lowest for the smallest value. The last one is the latest value."""
    values = values[:: -max(1, len(values) // 8)][7::-1]
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    return "".join(_BARS[round((value - low) / span * (len(_BARS) - 1))] for value in values)


def _ago(then: float) -> str:
    gap = max(0.0, time.time() - then)
    for size, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if gap >= 2 * size:
            return f"{gap / size:.0f} {unit} ago"
    return f"{gap:.0f} s ago"


def _table(first: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(first, no_wrap=True)  # on one line, so that users can copy it
    return table


def _short(name: str) -> str:
    """The short name of a recipe: `recipes/tictactoe/demo.toml` becomes tictactoe/demo."""
    return name.removeprefix("recipes/").removesuffix(".toml")


def _first_sentence(text: str) -> str:
    """The first sentence of the comment at the beginning of a file."""
    lines = []
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.lstrip("# ").strip())
    comment = " ".join(lines)
    for end in re.finditer(r"([^\s(]+)\. ", comment):
        word = end.group(1)
        if word not in _ABBREVIATIONS and not (len(word) == 1 and word.isupper()):  # the latter is an initial
            return comment[: end.end(1)]
    return comment.removesuffix(".")
