"""A model's strategy, read off its own probabilities."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from transformers.utils import logging as transformers_logging

from interplay.algorithms import Independent
from interplay.config import parse
from interplay.evaluation.exploitability import exploitability, uniform
from interplay.evaluation.strategies import measure
from interplay.rollout.resolve import resolve
from interplay.rollout.runner import Runner
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


def test_a_models_strategy_is_what_it_plays() -> None:
    """Every decision of Kuhn poker; the chances are those of masked sampling, which draws off-list replies again."""
    transformers_logging.disable_progress_bar()
    plan = resolve(parse(DATA))
    team = Team.load(plan.recipe)
    try:
        found = asyncio.run(measure(plan, team))
        assert len(found.table) == 12
        assert all(sum(t.values()) == pytest.approx(1.0) for t in found.table.values())
        assert 0.9 < found.stray < 1.0, "random weights hardly ever say a legal word"
        again = exploitability(plan.task(0), lambda role, prompt, legal: found.table[role, prompt])
        assert found.metrics()["eval/exploitability"] == again.exploitability
        runner = Runner(0, plan.recipe.rollout, Independent(), plan.recipe.reward)
        seating = team.seating(plan.seats_for, 1.0, 3, legal=True)
        episodes = asyncio.run(runner.run([plan.task(i) for i in range(900)], seating))
    finally:
        team.close()
    opened = Counter((e.turns[0].messages[0].content, e.turns[0].text) for e in episodes)
    for card in "JQK":
        table = next(t for (role, prompt), t in found.table.items() if role == "p0" and prompt[0].content == card)
        share = opened[card, "bet"] / (opened[card, "bet"] + opened[card, "pass"])
        assert share == pytest.approx(table["bet"], abs=0.1)


def test_even_play_in_kuhn_is_known() -> None:
    """What training begins from: half of NashConv, 11/24."""
    task = resolve(parse(DATA)).task(0)
    assert exploitability(task, uniform).exploitability == pytest.approx(11 / 24)
