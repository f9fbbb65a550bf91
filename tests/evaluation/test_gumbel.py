"""MADDPG's Gumbel actor on tables: the gradient is that of the mean over decisions, for any number of legal replies."""

from __future__ import annotations

import asyncio
import math
import random

import pytest
import torch

from interplay.algorithms.losses import gumbel_loss
from interplay.algorithms.maddpg import MADDPG
from interplay.envs import Env
from interplay.envs import env as registry
from interplay.evaluation.games import Game, paid
from interplay.evaluation.proving import Contender, Ground
from interplay.types import Message, Observation, Rewards, Role, Task, seed_of

WORDS = (("a", "b"), ("a", "b", "c", "d"), ("a", "b", "c"))


class Widening(Env):
    """Three questions with two, four and three legal answers; an answer is worth its place in the list."""

    reward_names = ("place",)
    roles = ("p0",)

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.said: list[str] = []

    def observe(self) -> dict[Role, Observation]:
        if len(self.said) == len(WORDS):
            return {}
        return {"p0": Observation((Message("user", f"question {len(self.said)}"),), legal=WORDS[len(self.said)])}

    def step(self, actions: dict[Role, str]) -> Rewards:
        place = float(WORDS[len(self.said)].index(actions["p0"]))
        self.said.append(actions["p0"])
        return Rewards.team("place", place)

    def outcome(self) -> Rewards:
        return Rewards()

    def state(self) -> str:
        return repr(self.said)


def test_a_decision_weighs_the_same_whatever_its_number_of_legal_replies(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gradient of the policy's logits is that of the mean over decisions of the straight-through sample's value,
    written out with autograd. Terms have size 1 and about ten are added, in single precision."""
    monkeypatch.setitem(registry.ENVIRONMENTS.classes, "widening", Widening)
    game = Game("widening", "the last word", "widening", paid, 5.0)
    maddpg = Contender("maddpg", {"actor": "gumbel", "warmup": 0}).algorithm(game)
    assert isinstance(maddpg, MADDPG)
    ground = Ground(game, maddpg, tasks=3)
    episodes = asyncio.run(ground.runner.run([ground._task(i) for i in range(3)], ground._seats))
    for _ in range(10):
        maddpg.update(episodes)
    turns = [t for e in episodes for t in e.line()]
    given = ground._score(turns)
    maddpg.credit(episodes, given)
    table = ground.tables["p0"]
    weighed = [x for turn in turns for x in maddpg.weighed(turn.last, given)]
    (found,) = torch.autograd.grad(ground._loss("p0", weighed, given), table.logits)

    logits = table.logits.detach().clone().requires_grad_()
    losses = []
    for turn in turns:
        legal = turn.observation.legal
        (values,) = maddpg.action_values("p0", [(turn, {"p0": turn.text}, legal)])
        rng = random.Random(seed_of("gumbel", maddpg.seed, maddpg.steps, turn.id))
        noise = torch.tensor([[-math.log(rng.expovariate(1.0)) for _ in legal]])
        logprobs = torch.log_softmax(logits[turn.last.prompt[0], : len(legal)], dim=0)
        losses.append(gumbel_loss(logprobs.unsqueeze(0), torch.tensor([values]), noise, 1.0))
    (wanted,) = torch.autograd.grad(torch.stack(losses).mean(), logits)
    assert wanted.abs().max() > 0.01, "there is something to compare"
    assert torch.allclose(found, wanted, rtol=0, atol=10 * 2**-23)
