"""Tool calls in training: sampled ids are trained unchanged, tool output is never trained, and credit is shared."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from asking import ANSWER, Asking, Eager

from interplay.agents import render
from interplay.config import parse
from interplay.envs import env as registry
from interplay.models.load import Loaded
from interplay.rollout import records
from interplay.rollout.records import Record
from interplay.rollout.resolve import resolve
from interplay.training.batch import micro_batches
from interplay.training.forward import predict
from interplay.training.trainer import Trainer
from interplay.training.tries import Example, lay
from interplay.types import Turn


@pytest.fixture
def asking(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(registry.ENVIRONMENTS.classes, "asking", Asking)
    monkeypatch.setattr(render, "syntax_of", lambda tokenizer: Eager())
    yield


ALGORITHMS: dict[str, dict[str, Any]] = {
    "grpo": {"name": "grpo", "group": 4},
    "at_grpo": {"name": "at_grpo", "candidates": 3},
    "online_dpo": {"name": "online_dpo", "candidates": 3},
    "ppo": {"name": "ppo", "replicas": 2},
    "ppo by token": {"name": "ppo", "replicas": 2, "level": "token"},
    "by tool": {
        "name": "custom",
        "plan": {"kind": "independent", "replicas": 8},
        "grouping": ["task", "role", "tool"],
        "credit": "mean",
    },
}


def run(folder: Path, algorithm: dict[str, Any]) -> tuple[list[Record], dict[str, float]]:
    recipe = {
        "name": "asking", "device": "cpu", "env": {"name": "asking"}, "algorithm": algorithm,
        "policies": {"player": {"base": "tiny-16x1"}}, "seats": "player",
        "sampling": {"max_tokens": 4}, "tools": {"calls": 3}, "rollout": {"tasks": 3},
        "train": {"steps": 1, "lr": 1e-3}, "records": {"tensorboard": "off", "episodes_per_step": 99},
        "eval": {"opponents": ["team"], "success": "letters"},
    }  # fmt: skip
    trainer = Trainer(resolve(parse(recipe)), folder)
    try:
        trainer.train()
    finally:
        trainer.close()
    metrics = json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])
    return list(records.read(folder / "episodes.jsonl")), metrics


@pytest.mark.parametrize("name", ALGORITHMS)
def test_promises_1_and_2_calls_are_trained_as_they_were_sampled(asking: None, tmp_path: Path, name: str) -> None:
    """Engine and learner agree on every token of every call, with groups, trees and critics; credit is shared."""
    found, metrics = run(tmp_path, ALGORITHMS[name])
    assert metrics["player/gap"] < 1e-4
    assert metrics["tool_calls"] > 0.5 and metrics["tool_calls_malformed"] == 0
    assert metrics["player/grad_norm"] > 0
    turns = [(t, r.credit) for r in found for t in r.episode.turns]
    samples = [s for t, _ in turns for s in t.samples]
    assert metrics["tokens_sampled"] == sum(len(s.action) for s in samples)
    assert len({s.id for s in samples}) == len(samples)
    assert metrics["player/turns"] == len(samples), "every call is trained"
    for turn, given in turns:
        for call, after in itertools.pairwise(turn.samples):
            assert after.extends == call.id
            assert after.prompt[: len(call.prompt) + len(call.action)] == call.prompt + call.action
        advantages = [given.advantages[s.id] for s in turn.samples]
        if name == "ppo by token":
            assert [len(a) for a in advantages] == [len(s.action) for s in turn.samples]  # type: ignore[arg-type]
        else:
            assert len(set(advantages)) == 1 and isinstance(advantages[0], float)
    if name == "by tool":
        assert {t.keys.tool for t, _ in turns} == {"", "ask"}
    log = next((tmp_path / "logs").glob("llm_conversation_*.log")).read_text()
    assert f"[tool] {ANSWER}" in log and "decision 0.1, asker" in log


def test_a_run_with_tools_is_repeated_exactly(asking: None, tmp_path: Path) -> None:
    (first, one), (second, two) = (run(tmp_path / n, ALGORITHMS["at_grpo"]) for n in ("a", "b"))
    said = lambda records: [  # noqa: E731
        (s.id, s.action, s.logprobs) for r in records for t in r.episode.turns for s in t.samples
    ]
    assert said(first) == said(second)
    assert one["player/grad_norm"] == two["player/grad_norm"]


def test_promise_5_tool_output_has_exactly_no_gradient(asking: None, tmp_path: Path, tiny: Loaded) -> None:
    """The output layer's gradient at every position: it is zero except where sampled tokens are predicted."""
    found, _ = run(tmp_path, ALGORITHMS["grpo"])
    turn: Turn = next(t for r in found for t in r.episode.turns if len(t.samples) > 1)
    calls = list(turn.samples)
    examples = [Example("player", s) for s in calls]
    (batch,) = micro_batches(lay(examples), examples, 10**6, torch.device("cpu"))
    assert len(batch.ids_BL) == 1, "a decision and its calls are one sequence, computed once"
    ids = batch.ids_BL[0].tolist()
    sampled = {len(c.prompt) + n for c in calls for n in range(len(c.action))}
    assert [ids[i] for i in sorted(sampled)] == [token for c in calls for token in c.action]
    assert {int(c) + 1 for c in batch.column_M} == sampled
    seen: list[torch.Tensor] = []

    def keep(module: torch.nn.Module, inputs: Any, output: torch.Tensor) -> None:
        output.retain_grad()
        seen.append(output)

    hook = tiny.model.get_output_embeddings().register_forward_hook(keep)
    try:
        logp_M, _ = predict(tiny.model, batch, 1.0)
        logp_M[batch.prediction_N].sum().backward()
    finally:
        hook.remove()
        tiny.model.zero_grad(set_to_none=True)
    assert sum(len(logits) for logits in seen) == len(sampled), "logits of tool output are never even made"
    assert all(logits.grad is not None and logits.grad.abs().sum() > 0 for logits in seen)
    told = set(range(len(ids))) - sampled - set(range(len(turn.asked)))
    assert ANSWER in render.Renderer(tiny.tokenizer, tiny.stop_ids).tokenizer.decode([ids[i] for i in sorted(told)])
