"""`interplay eval` from end to end: every figure is there, a kill loses one chunk, and the same seeds give the same
file."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from interplay.agents import render
from interplay.agents.arguments import Call
from interplay.agents.syntax import Plain, Wanted
from interplay.cli.main import app
from interplay.errors import ConfigError
from interplay.evaluation.played import Played
from interplay.rollout.runner import Runner
from interplay.types import Tool

RECIPE = """
name = "pair"
device = "cpu"
[env]
name = "plan_path"
size = 3
min_length = 1
brief = true
turns = 2
speech = "action"
[policies.a]
base = "tiny-16x1"
[policies.b]
base = "tiny-16x1"
adapter = { rank = 2 }
[seats]
planner = "a"
actor = "b"
[algorithm]
name = "grpo"
[sampling]
max_tokens = 3
[eval]
opponents = ["team", "bot:random"]
success = "solved"
games = 3
chunk = 2
samples = 2
seeds = [0, 5]
ablations = ["budget", "swap", "without"]
single = { options = { team = "single" } }
"""


def run(recipe: Path, out: Path, *changes: str) -> Any:
    result = CliRunner().invoke(app, ["eval", str(recipe), *changes, "--out", str(out)], catch_exceptions=False)
    assert result.exit_code == 0
    return json.loads((out / "eval.json").read_text())


def test_a_suite_that_was_killed_goes_on_and_ends_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = tmp_path / "r.toml"
    recipe.write_text(RECIPE)
    data = run(recipe, tmp_path / "whole")
    files = {name: (tmp_path / "whole" / name).read_bytes() for name in ("eval.json", "eval.md", "eval.html")}

    class Killed(BaseException):
        pass

    keep, kept = Played.put, list[str]()

    def put(self: Played, key: str, episodes: Any) -> None:
        if len(kept) == 7:
            raise Killed
        kept.append(key)
        keep(self, key, episodes)

    with monkeypatch.context() as patch:
        patch.setattr(Played, "put", put)
        with pytest.raises(Killed):
            run(recipe, tmp_path / "cut")
    played: list[int] = []
    honest = Runner.run

    async def counted(self: Runner, *args: Any) -> Any:
        found = await honest(self, *args)
        played.append(len(found))
        return found

    monkeypatch.setattr(Runner, "run", counted)
    assert run(recipe, tmp_path / "cut") == data
    assert {name: (tmp_path / "cut" / name).read_bytes() for name in files} == files, "bit for bit"
    rest = len(played)
    assert run(recipe, tmp_path / "cut") == data and len(played) == rest, "nothing is left to play"

    # Every figure of the issue: two seeds of three tasks, two games each, in the roles that the policies sit in.
    assert [(r["policy"], r["role"], r["games"]) for r in data["results"]] == [
        ("team", "team", 12), ("a", "planner", 12), ("b", "actor", 12),
    ]  # fmt: skip
    for row in data["results"]:
        assert list(row["seeds"]) == ["0", "5"] and [r["games"] for r in row["seeds"].values()] == [6, 6]
        assert list(row["pass_at_k"]) == ["1", "2"] and row["pass_at_k"]["1"]["value"] == pytest.approx(row["win_rate"])
        assert row["pass_at_k"]["2"]["value"] >= row["pass_at_k"]["1"]["value"]
        assert len(row["tasks"]) == 6 and sum(t["games"] for t in row["tasks"]) == 12
        assert row["tokens_per_episode"] == pytest.approx(sum(t["tokens"] * t["games"] for t in row["tasks"]) / 12)
        assert 0 <= row["win_low"] <= row["win_rate"] <= row["win_high"] <= 1
    assert [c["what"] for c in data["swap"]] == ["planner ↔ actor", "b as planner", "a as actor"]
    assert [c["what"] for c in data["without"]] == ["planner = a@base", "actor = b@base"]
    zero = {"value": 0.0, "low": 0.0, "high": 0.0}
    assert [c["won_drop"] for c in data["without"]] == [zero, zero], "an untrained policy is its base"
    assert [c["score_drop"] for c in data["without"]] == [zero, zero]
    assert all(t["samples"] == t["budget"] for t in data["budget"]["tasks"]) and len(data["budget"]["tasks"]) == 6
    text = files["eval.md"].decode()
    for title in ("Results", "By seed", "pass@k", "The same tokens", "One agent replaced", "Every task: team"):
        assert f"## {title}" in text


def test_a_start_that_was_not_kept_is_said(tmp_path: Path) -> None:
    recipe = tmp_path / "r.toml"
    recipe.write_text(RECIPE + 'substitute = "start"\n')
    with pytest.raises(ConfigError, match=r"eval.substitute is 'start', but .*a@start' does not exist"):
        run(recipe, tmp_path / "out")


def test_what_changes_the_games_is_played_anew(tmp_path: Path) -> None:
    """In the same folder, nothing is reused that was played with other settings, by other weights or in other turns."""
    recipe, base, out = tmp_path / "r.toml", tmp_path / "base", tmp_path / "out"
    recipe.write_text(RECIPE)
    assert CliRunner().invoke(app, ["models", "--save", "tiny-16x1", "--to", str(base)]).exit_code == 0
    few = ("eval.ablations=[]", "eval.seeds=[]", 'eval.opponents=["team"]', f"policies.a.base={base}")
    by_turn = 'seats={planner="%s", "actor@1"="%s", actor="%s"}'
    seats = [(by_turn % who,) for who in (("a", "b", "bot:random"), ("a", "bot:random", "b"), ("b", "a", "bot:random"))]
    settings = [(), ("tools.calls=0",), ("tools.characters=9",), ('sampling.stop=["1"]',), *seats]

    def chunks() -> int:
        return len((out / "played.jsonl").read_text().splitlines())

    for i, changes in enumerate(settings, 1):
        for _ in range(2):
            run(recipe, out, *few, *changes)
            assert chunks() == 2 * i, changes
    os.utime(base / "model.safetensors", (0, 0))
    run(recipe, out, *few)
    assert chunks() == 2 * len(settings) + 2, "a base whose files changed"


def test_games_are_played_anew_if_a_policy_may_see_less(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    recipe, out = tmp_path / "r.toml", tmp_path / "out"
    recipe.write_text(
        'name = "seen"\ndevice = "cpu"\nseats = { actor = "a" }\n'
        '[env]\nname = "plan_path"\nview = "image"\nsize = 3\nteam = "single"\n'
        '[policies.a]\nbase = "tiny-vl-16x1x24"\n[algorithm]\nname = "grpo"\n'
        "[sampling]\nmax_tokens = 2\n[eval]\ngames = 1\n"
    )
    for i, changes in enumerate([(), ("policies.a.senses={limit=1}",), ("policies.a.senses={max_pixels=64}",)], 1):
        for _ in range(2):
            run(recipe, out, *changes)
            assert len((out / "played.jsonl").read_text().splitlines()) == i, changes


class Eager(Plain):
    """Takes everything that is said as a tool call."""

    def calls(self, text: str, tools: Sequence[Tool]) -> Wanted:
        return [Call(tools[0], {"expression": text})]


def test_calls_of_tools_are_counted_where_there_are_any(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(
        'name = "calls"\ndevice = "cpu"\nseats = "a"\n'
        'env = { name = "math", team = "single", tools = ["calculator"] }\n'
        'tools = { calls = 2 }\npolicies.a.base = "tiny-16x1"\nalgorithm.name = "grpo"\nsampling.max_tokens = 3\n'
        'eval = { opponents = ["team"], success = "correct", games = 3 }\n'
    )
    (entry,) = run(recipe, tmp_path / "none")["results"]
    assert entry["calls"] == 0 and "calls" not in (tmp_path / "none" / "eval.md").read_text().split("##")[1]
    monkeypatch.setattr(render, "syntax_of", lambda tokenizer: Eager())
    (entry,) = run(recipe, tmp_path / "some")["results"]
    assert entry["calls"] == 3 * 2
    assert "| turns | calls |" in (tmp_path / "some" / "eval.md").read_text()
