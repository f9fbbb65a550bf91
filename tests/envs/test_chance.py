"""Enumerating chance: every random outcome comes once, with its probability, and nothing else changes."""

from __future__ import annotations

import math
import random
from collections import Counter

import pytest

from interplay.envs import chance, make, sample_task
from interplay.envs import env as registry
from interplay.envs.env import Env
from interplay.errors import EnvError
from interplay.types import Message, Observation, Rewards, Role, Task


class Dice(Env):
    """A card of three, then a coin; heads also throws a die."""

    reward_names = ()
    roles = ("a",)

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.log = [self.rng.choice("xyz")]

    def observe(self) -> dict[Role, Observation]:
        return {"a": Observation((Message("user", "?"),), legal=("go", "real"))} if len(self.log) == 1 else {}

    def step(self, actions: dict[Role, str]) -> Rewards:
        if actions["a"] == "real":
            self.log.append(str(self.rng.random()))
        elif self.rng.randrange(2):
            self.log.append("tails")
        else:
            self.log.append(f"heads {self.rng.sample(range(1, 4), 2)}")
        return Rewards()

    def outcome(self) -> Rewards:
        return Rewards()

    def state(self) -> str:
        return " ".join(self.log)


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> Task:
    monkeypatch.setitem(registry.ENVIRONMENTS.classes, "dice", Dice)
    return sample_task("dice", {})


def test_every_start_and_every_step_come_up_once_with_their_odds(task: Task) -> None:
    """Draws that depend on earlier draws are followed, and all probabilities add up to 1."""
    begun = list(chance.starts(task))
    assert [(round(p, 9), env.state()) for p, env in begun] == [(round(1 / 3, 9), card) for card in "xyz"]
    env = begun[1][1]
    ways = {after.state(): p for p, (after, _) in chance.steps(env, {"a": "go"})}
    assert len(ways) == 7 and math.isclose(sum(ways.values()), 1.0)
    assert ways["y tails"] == 0.5 and math.isclose(ways["y heads [3, 1]"], 1 / 12)
    assert env.state() == "y", "the original is not stepped"


def test_what_is_enumerated_goes_on_as_an_ordinary_environment(task: Task) -> None:
    """The enumerating generator is not left in the environment."""
    for _, env in chance.starts(task):
        assert type(env.rng) is random.Random and isinstance(env.fork(), Dice)


def test_dealing_in_fact_agrees_with_the_enumeration() -> None:
    """Kuhn has six deals, equally likely; Leduc thirty, of nine kinds."""
    assert sorted(round(p, 9) for p, _ in chance.starts(sample_task("kuhn", {}))) == [round(1 / 6, 9)] * 6
    listed: Counter[str] = Counter()
    for p, env in chance.starts(sample_task("leduc", {})):
        listed[env.state()] += p
    dealt = Counter(make(sample_task("leduc", {}, index=i)).state() for i in range(3_000))
    assert len(listed) == 9 and listed.keys() == dealt.keys()
    assert all(abs(dealt[s] / 3_000 - p) < 0.03 for s, p in listed.items())


def test_what_cannot_be_listed_is_refused_in_a_sentence(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real numbers and too many ways."""
    ((_, env), *_) = chance.starts(task)
    with pytest.raises(EnvError, match="draws real numbers or bits"):
        list(chance.steps(env, {"a": "real"}))
    monkeypatch.setattr(chance, "LIMIT", 3)
    with pytest.raises(EnvError, match="there are more than 3 random outcomes here"):
        list(chance.steps(env, {"a": "go"}))
