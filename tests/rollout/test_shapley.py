"""Shapley credit of teams that are too large for all orders: coalitions are played on forks, and shares are fair."""

from __future__ import annotations

import itertools
import math
import random
from statistics import fmean
from typing import Any, ClassVar

import pytest

from interplay.algorithms import credit
from interplay.algorithms.shapley import Shapley
from interplay.config import RewardSection
from interplay.envs import Env
from interplay.types import Credit, Episode, Message, Observation, Rewards, Role, Task

EIGHT = tuple(f"p{i}" for i in range(8))


class Quorum(Env):
    """Eight roles vote at once, in several rounds. In round n the team earns 1 if more than n of them say yes."""

    reward_names = ("quorum",)
    roles = EIGHT
    rounds: ClassVar[int] = 7

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.votes: list[dict[Role, str]] = []

    def observe(self) -> dict[Role, Observation]:
        if len(self.votes) == self.rounds:
            return {}
        return {r: Observation((Message("user", f"{r}, round {len(self.votes)}: yes?"),)) for r in self.roles}

    def step(self, actions: dict[Role, str]) -> Rewards:
        self.votes.append(dict(actions))
        return Rewards.team("quorum", float(sum(text == "yes" for text in actions.values()) >= len(self.votes)))

    def outcome(self) -> Rewards:
        return Rewards()

    def state(self) -> str:
        return str(len(self.votes))


def shares(episode: Episode, given: Credit) -> list[dict[Role, float]]:
    """The shares of each decision."""
    out: dict[int, dict[Role, float]] = {}
    for turn in episode.line():
        out.setdefault(turn.decision, {})[turn.role] = given.advantage(turn) or 0.0
    return list(out.values())


@pytest.fixture
def played(table: Any, known_as: Any) -> list[dict[Role, float]]:
    algorithm = Shapley(Shapley.Settings(continuation="none", default="no"), RewardSection())
    game = table(lambda call: "yes", env=known_as("quorum", Quorum), plan=algorithm.plan)
    given = Credit()
    episodes = game.play(2)
    algorithm.credit(episodes, given)
    return [share for episode in episodes for share in shares(episode, given)]


def test_eight_identical_agents_share_equally(played: list[dict[Role, float]]) -> None:
    """The role that completes the quorum adds all of it, and every role stands at that place equally often: an eighth
    each, at every decision, for every quorum. (Sums of 48 gains of 0 or 1/48 have a rounding error below 48 · 2⁻⁵³.)"""
    assert len(played) == 14
    for found in played:
        assert found == pytest.approx(dict.fromkeys(EIGHT, 1 / 8), abs=48 * 2**-53)


def test_the_shares_of_a_decision_are_all_that_the_team_added(played: list[dict[Role, float]]) -> None:
    for found in played:
        assert math.fsum(found.values()) == pytest.approx(1.0, abs=48 * 8 * 2**-53)


def exact(worth: dict[str, float], role: Role) -> float:
    """φ by its formula: over all coalitions of the others, weighted by the number of orders that begin with them."""
    others = [r for r in EIGHT if r != role]
    total = 0.0
    for size in range(8):
        weight = math.factorial(size) * math.factorial(7 - size) / math.factorial(8)
        for before in itertools.combinations(others, size):
            total += weight * (worth[credit.coalition({*before, role})] - worth[credit.coalition(before)])
    return total


def test_orders_differ_from_decision_to_decision_and_shares_are_right_on_average() -> None:
    """A game without symmetries: over many decisions, the mean share of each role is its Shapley value within 4.5
    standard errors, and the error of one decision has the size that `orders` states: R / (2·√3)."""
    rng = random.Random(7)
    subsets = [s for k in range(9) for s in itertools.combinations(EIGHT, k)]
    worth = {credit.coalition(s): rng.uniform(0, 1) for s in subsets}
    found = [credit.shapley(worth, EIGHT, credit.order_seed(Task("t", "quorum", 5), "t#0", d)) for d in range(400)]
    assert len({tuple(f.values()) for f in found}) == 400
    for role in EIGHT:
        values = [f[role] for f in found]
        gains = [worth[credit.coalition({*s, role})] - worth[credit.coalition(s)] for s in subsets if role not in s]
        mean = fmean(values)
        spread = math.sqrt(fmean((v - mean) ** 2 for v in values))
        assert spread <= (max(gains) - min(gains)) / (2 * math.sqrt(3))
        assert abs(mean - exact(worth, role)) < 4.5 * spread / math.sqrt(len(values))


@pytest.mark.parametrize("size", [5, 7, 8, 12, 25])
def test_every_role_stands_at_every_place_and_before_every_other_equally_often(size: int) -> None:
    roles = [f"p{i}" for i in range(size)]
    ways = credit.orders(roles, 3)
    for role in roles:
        places = [order.index(role) for order in ways]
        assert {places.count(n) for n in range(size)} == {len(ways) // size}
        assert {sum(o.index(role) < o.index(other) for o in ways) for other in roles if other != role} == {
            len(ways) // 2
        }
