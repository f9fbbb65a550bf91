"""Fitted models learn the same values from play that is often cut off as from complete play."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from interplay.algorithms.maddpg import MADDPG
from interplay.algorithms.replay import steps
from interplay.algorithms.vdn import VDN
from interplay.config import RolloutSection
from interplay.envs import Env
from interplay.envs import env as registry
from interplay.evaluation.games import Game, paid
from interplay.evaluation.proving import Contender, Ground
from interplay.rollout.runner import Runner
from interplay.types import Episode, Message, Observation, Rewards, Role, Task


class Chain(Env):
    """Three questions, each worth 1 whatever the answer is."""

    reward_names = ("one",)
    roles = ("p0",)

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.asked = 0

    def observe(self) -> dict[Role, Observation]:
        seen = Observation((Message("user", f"question {self.asked}"),), fresh=True, legal=("a", "b"))
        return {"p0": seen} if self.asked < 3 else {}

    def step(self, actions: dict[Role, str]) -> Rewards:
        self.asked += 1
        return Rewards.team("one", 1.0)

    def outcome(self) -> Rewards:
        return Rewards()

    def state(self) -> str:
        return str(self.asked)


def text_only(episode: Episode) -> Episode:
    for turn in episode.turns:
        turn.observation = replace(turn.observation, legal=())
    return episode


@pytest.mark.parametrize(("name", "legal"), [("vdn", True), ("vdn", False), ("qmix", True), ("maddpg", True)])
def test_a_cut_is_no_end(monkeypatch: pytest.MonkeyPatch, name: str, legal: bool) -> None:
    """Half of the episodes are cut off after two of three questions. The first question is worth 3 and the second 2. If
    the cut were read as an end, they would be worth 2½ and 1½."""
    monkeypatch.setitem(registry.ENVIRONMENTS.classes, "chain", Chain)
    game = Game("chain", "three", "chain", paid, 3.0)
    settings = {"warmup": 0, "updates": 60, "target_every": 1, "group": 2}
    algorithm = Contender(name, settings).algorithm(game)
    assert isinstance(algorithm, VDN | MADDPG)
    ground = Ground(game, algorithm)
    episodes: list[Episode] = []
    for limits in (RolloutSection(), RolloutSection(max_episode_tokens=2)):
        runner = Runner(0, limits, algorithm.plan, ground.reward)
        episodes += asyncio.run(runner.run([ground._task(i) for i in range(8)], ground._seats))
    assert [len(e.line()) for e in episodes] == [3] * 16 + [2] * 16 and episodes[-1].truncated
    if not legal:
        episodes = [text_only(episode) for episode in episodes]
    for _ in range(6):
        algorithm.update(episodes)
    assert values(algorithm, episodes[0]) == pytest.approx([3.0, 2.0, 1.0], abs=0.25)


def values(algorithm: Any, episode: Episode) -> list[float]:
    """The fitted model's value of each decision of an episode."""
    if isinstance(algorithm, VDN):
        played = steps(episode, algorithm.reward)
        found: list[float] = algorithm.value.total(algorithm.value.table(played), played).tolist()
        return found
    asked = [(turn, {"p0": turn.text}, [turn.text]) for turn in episode.line()]
    return [value for (value,) in algorithm.action_values("p0", asked)]
