"""A model's strategy, computed from its own probabilities."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import torch
from transformers.utils import logging as transformers_logging

from interplay.config import parse
from interplay.evaluation.exploitability import exploitability, uniform
from interplay.evaluation.strategies import measure
from interplay.rollout.resolve import resolve
from interplay.rollout.team import Team

DATA: dict[str, Any] = {
    "name": "test",
    "device": "cpu",
    "env": {"name": "kuhn", "brief": True},
    "policies": {"player": {"base": "tiny-16x1"}},
    "seats": "player",
    "algorithm": {"name": "grpo"},
    "sampling": {"max_tokens": 3},
}


def test_a_models_strategy_is_what_it_would_say() -> None:
    """Every decision of Kuhn poker, compared with transformers' own forward pass over prompt and reply."""
    transformers_logging.disable_progress_bar()
    plan = resolve(parse(DATA))
    team = Team(plan.recipe)
    try:
        found = asyncio.run(measure(plan, team))
        member = team.members["player"]
        strays = []
        for (_, prompt), table in found.table.items():
            ids, mass = member.renderer.prompt(prompt).ids, {}
            for text in ("pass", "bet"):
                reply = member.renderer.encode_reply(text)
                with torch.no_grad():
                    logits = member.loaded.model(input_ids=torch.tensor([[*ids, *reply]])).logits[0]
                steps = logits.log_softmax(-1)[len(ids) - 1 : -1]
                mass[text] = steps.gather(1, torch.tensor(reply).unsqueeze(1)).sum().exp().item()
            strays.append(1 - sum(mass.values()))
            assert table == pytest.approx({t: m / sum(mass.values()) for t, m in mass.items()}, abs=1e-4)
    finally:
        team.close()
    assert len(strays) == 12 and found.stray == pytest.approx(sum(strays) / 12, abs=1e-4)
    again = exploitability(plan.task(0), lambda role, prompt, legal: found.table[role, prompt])
    assert found.metrics() == {"eval/exploitability": again.exploitability, "eval/stray": found.stray}


def test_even_play_in_kuhn_is_known() -> None:
    """The start of training: half of NashConv, 11/24."""
    task = resolve(parse(DATA)).task(0)
    assert exploitability(task, uniform).exploitability == pytest.approx(11 / 24)
