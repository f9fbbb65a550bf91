"""The table of time and memory: what was measured, and what could not run, with its reason."""

from __future__ import annotations

import runpy
from pathlib import Path

MODULE = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "recipes.py"))


def test_the_table_has_a_row_for_every_recipe_and_no_path_of_this_machine() -> None:
    measured = {"seconds": 125.0, "steps": 60, "step": 1.5, "peak": 3 << 29, "needed": 5 << 20, "device": "cpu"}
    lacking = {"why": "data file '/data/me/gsm8k/train.jsonl' does not exist; run a | b."}
    large = {"untimed": MODULE["NO_GPU"], "steps": 200, "needed": 3 << 30, "device": "cuda"}
    text = MODULE["table"]({"tictactoe/demo": measured, "math/pair": lacking, "math/debate": large})
    assert "| `tictactoe/demo` | 2 min | 60 | 1.5 s | 5 MiB | 1.5 GiB |" in text
    assert "| `math/debate` | needs a GPU; not timed here | 200 |  | 3.0 GiB |  |" in text
    assert "| `math/pair` | data file '…/train.jsonl' does not exist; run a \\| b. |" in text


def test_recipes_with_models_that_need_a_gpu_are_told_apart() -> None:
    found = MODULE["recipes"]()
    assert "rlhf/smollm2/story" in found and not any("experiment" in name for name in found)
    assert MODULE["tiny"](found["tictactoe/demo"]) and MODULE["tiny"](found["vision/fusion"])
    assert not MODULE["tiny"](found["math/pair"]) and not MODULE["tiny"](found["rlhf/gpt_judge"])


def test_a_recipe_that_is_refused_is_listed_with_its_sentence(tmp_path: Path) -> None:
    recipe = tmp_path / "wrong.toml"
    recipe.write_text('name = "wrong"\n[env]\nname = "tictacto"\n')
    found = MODULE["rehearsed"](recipe, 60.0)
    assert "policies" in found["why"] or "Did you mean" in found["why"]


def test_without_time_only_the_memory_is_estimated() -> None:
    found = MODULE["rehearsed"](MODULE["recipes"]()["matrix/grpo"], 0.0)
    assert found["untimed"] == "not timed" and found["steps"] == 30 and found["needed"] > 1 << 20


def test_every_recipe_is_on_the_page_of_time_and_memory() -> None:
    page = (Path(__file__).parents[2] / "docs" / "recipes.md").read_text(encoding="utf-8")
    assert [name for name in MODULE["recipes"]() if f"`{name}`" not in page] == []
