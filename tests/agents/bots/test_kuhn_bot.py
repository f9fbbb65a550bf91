"""Kuhn's equilibria cannot be exploited, and are played with the stated probabilities."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping

import pytest

from interplay.agents.bots import make_bot
from interplay.agents.bots.kuhn import EquilibriumBot
from interplay.envs import make, sample_task
from interplay.envs.games.kuhn import Kuhn
from interplay.errors import ConfigError
from interplay.evaluation.exploitability import StrategyPrompt, exploitability
from interplay.types import Role


def equilibrium(setting: str) -> EquilibriumBot:
    bot = make_bot(f"equilibrium{setting}", "kuhn")
    assert isinstance(bot, EquilibriumBot)
    return bot


@pytest.mark.parametrize("setting", ["", ":0", ":0.2", ":0.3333"])
def test_the_bot_is_an_equilibrium(setting: str) -> None:
    """Worth -1/18 to the first player, exploitability 0, for every alpha."""
    bot = equilibrium(setting)

    def strategy(role: Role, prompt: StrategyPrompt, legal: tuple[str, ...]) -> Mapping[str, float]:
        card, *betting = prompt[-1].content.split()
        bet = bot.bets(card, tuple(betting))
        return {"pass": 1 - bet, "bet": bet}

    found = exploitability(sample_task("kuhn", {"brief": True}), strategy)
    assert abs(found.exploitability) < 1e-12
    assert math.isclose(found.values["p0"], -1 / 18, abs_tol=1e-12)


@pytest.mark.parametrize(("card", "before", "chance"), [("J", (), 0.2), ("K", (), 0.6), ("Q", ("bet",), 1 / 3)])
def test_it_acts_with_the_stated_chance(card: str, before: tuple[str, ...], chance: float) -> None:
    """The random choice comes from the given generator."""
    env = make(sample_task("kuhn", {}))
    assert isinstance(env, Kuhn)
    env.cards, env.betting = (card, "?") if not before else ("?", card), before
    (role,) = env.observe()
    bot, rng = equilibrium(":0.2"), random.Random(0)
    bets = sum(bot.act(env, role, rng) == "bet" for _ in range(3_000))
    assert abs(bets / 3_000 - chance) < 0.03


@pytest.mark.parametrize("setting", [":-0.1", ":0.4", ":x", ":nan"])
def test_a_wrong_alpha_is_refused(setting: str) -> None:
    """Outside this range there is no equilibrium."""
    with pytest.raises(ConfigError, match="has a wrong alpha; expected a number from 0 to 1/3"):
        equilibrium(setting)
