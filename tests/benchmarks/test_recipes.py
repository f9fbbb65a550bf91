"""The table of time and memory: what was measured, and what could not run, with its reason."""

from __future__ import annotations

import runpy
from pathlib import Path

MODULE = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "recipes.py"))


def test_the_table_has_a_row_for_every_recipe_and_no_path_of_this_machine() -> None:
    measured = {"seconds": 125.0, "steps": 60, "step": 1.5, "peak": 3 << 29, "needed": 5 << 20, "device": "cpu"}
    lacking = {"why": "data file '/data/me/gsm8k/train.jsonl' does not exist; run a | b."}
    text = MODULE["table"]({"tictactoe/demo": measured, "math/pair": lacking})
    assert "| `tictactoe/demo` | 2 min | 60 | 1.5 s | 5 MiB | 1.5 GiB |" in text
    assert "| `math/pair` | data file '…/train.jsonl' does not exist; run a \\| b. |" in text


def test_a_recipe_that_is_refused_is_listed_with_its_sentence(tmp_path: Path) -> None:
    recipe = tmp_path / "wrong.toml"
    recipe.write_text('name = "wrong"\n[env]\nname = "tictacto"\n')
    found = MODULE["rehearsed"](recipe, 60.0)
    assert "policies" in found["why"] or "Did you mean" in found["why"]
