"""What an algorithm needs before credit: token values, central values, and additional rewards by name."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import runs

from interplay.algorithms.algorithm import CriticSettings
from interplay.config import TrainSection
from interplay.models.load import Loaded
from interplay.training.critic import Critic
from interplay.training.learner import Objective
from interplay.training.local import LocalLearner
from interplay.training.minibatches import token_weights
from interplay.training.trainer import Trainer
from interplay.training.tries import Example
from interplay.types import Keys, MediaSpan, Observation, Sample, Turn

MakeTiny = Callable[..., Loaded]
BASE: dict[str, Any] = {
    "name": "test",
    "device": "cpu",
    "env": {"name": "matrix", "game": "stag_hunt", "rounds": 2},
    "policies": {"player": {"base": "tiny-16x1"}},
    "seats": "player",
    "algorithm": {"name": "mappo", "replicas": 2},
    "warmstart": {"bot": "bot:random", "episodes": 100, "lr": 3e-2, "batch": 16},
    "sampling": {"max_tokens": 4},
    "rollout": {"tasks": 2},
    "train": {"steps": 1, "lr": 1e-3},
    "records": {"tensorboard": "off"},
}


def train(folder: Path, **changes: Any) -> Trainer:
    return runs.train(folder, BASE | changes)


def logged(folder: Path) -> dict[str, float]:
    return json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])


def replies(lengths: Sequence[int]) -> list[Example]:
    return [runs.example(f"t{i}", (7, 8 + i), range(20, 20 + n)) for i, n in enumerate(lengths)]


def test_token_values_stand_before_each_token_and_do_not_depend_on_the_batch(make_tiny: MakeTiny) -> None:
    """The first value is that at the end of the prompt; after training, values depend on the position in the reply."""
    critic = Critic(
        "player", make_tiny(0).model, TrainSection(weight_decay=0.0, grad_clip=10.0), CriticSettings(lr=3e-3, clip=None)
    )
    batch = [
        replace(e, values=(0.0,) * len(e.sample.action), targets=tuple(float(i) for i in range(len(e.sample.action))))
        for e in replies([3, 1, 4])
    ]
    assert critic.values(batch, tokens=True) == [(0.0,) * 3, (0.0,), (0.0,) * 4]
    losses = [critic.step(batch, tokens=True)["value_loss"] for _ in range(60)]
    assert losses[-1] < 0.1 * losses[0]
    together = critic.values(batch, tokens=True)
    for one, values in zip(batch, together, strict=True):
        assert critic.values([one], tokens=True)[0] == pytest.approx(values, abs=1e-4)
        assert values[0] == pytest.approx(critic.values([one])[0][0], abs=1e-4)
        assert list(values) == pytest.approx([float(i) for i in range(len(values))], abs=0.7)


def test_token_advantages_reach_the_loss_in_order(make_tiny: MakeTiny) -> None:
    """One sample with three tokens and their own advantages, and the sample that each token belongs to."""
    learner = LocalLearner("player", make_tiny(0).model, TrainSection(gap_stop=1e9), 1e-3, seed=0)
    batch = replies([3, 2])
    batch[0] = replace(batch[0], advantage=(1.0, -2.0, 3.0))
    seen = []

    def loss(targets: Any, outputs: Any) -> Any:
        seen.append((targets.advantages_N.tolist(), targets.turn_N.tolist(), targets.rollout_logprobs_N.tolist()))
        return outputs.logprobs_N.sum(), {}

    learner.step(batch, Objective(loss))
    found = {tuple(a): t for a, t, _ in seen}
    ((advantages, index),) = found.items()
    by_turn = [[a for i, a in zip(index, advantages, strict=True) if i == n] for n in (0, 1)]
    assert sorted(by_turn) == [[1.0, -2.0, 3.0], [1.0, 1.0]]
    assert seen[0][2] == [-1.0] * 5


def test_a_constant_length_weighs_every_token_alike() -> None:
    """Dr.GRPO: 1 / (replies · length), whatever the lengths of the replies."""
    weight = token_weights(replies([3, 1]), 4)
    assert set(weight.values()) == {1 / 8}


def test_a_central_critic_reads_the_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MAPPO's critic reads the role and the global state, never the policy's own prompt."""
    asked: list[tuple[int, ...]] = []
    values = Critic.values

    def watched(self: Critic, examples: Sequence[Example], tokens: bool = False) -> list[tuple[float, ...]]:
        asked.extend(e.sample.prompt for e in examples)
        return values(self, examples, tokens)

    monkeypatch.setattr(Critic, "values", watched)
    trainer = train(tmp_path)
    texts = {trainer.team.members["player"].renderer.tokenizer.decode(ids) for ids in asked}
    assert texts and all("round" in t and "You are p" in t and "Payoffs" not in t for t in texts)
    assert logged(tmp_path)["player/value_loss"] > 0


@pytest.mark.parametrize(("level", "sees"), [("turn", "asked"), ("token", "own"), ("central", "state")])
def test_a_critic_reads_the_pictures_of_the_prompt_it_reads(tmp_path: Path, level: str, sees: str) -> None:
    """A turn's value is read at the prompt of its decision, before any tool output; a state has no pictures."""
    central = {"name": "mappo", "replicas": 2}
    algorithm = central if level == "central" else {"name": "ppo", "replicas": 2, "level": level}
    trainer = runs.make(tmp_path, BASE | {"algorithm": algorithm})
    asked, after = (MediaSpan(0, 1, "ca7"),), (MediaSpan(0, 1, "ca7"), MediaSpan(3, 1, "d09"))
    call = Sample("a", (9, 5), (6,), (0.0,), (0,), "@look", media=asked)
    said = Sample("a.1", (9, 5, 6, 9), (7,), (0.0,), (0,), "yes", media=after, extends="a")
    keys = Keys("t", 0, "t#0", 0, "p0", "", "", "")
    turn = Turn("a.1", None, keys, "player", "yes", Observation(()), (call, said), state="start")
    seen = trainer.learning.scorer.seen_by_critic("player", turn)
    trainer.close()
    wanted = {"asked": [(call.prompt, asked)] * 2, "own": [(call.prompt, asked), (said.prompt, after)]}
    if sees == "state":
        assert [s.media for s in seen] == [(), ()] and seen[0].prompt == seen[1].prompt
    else:
        assert [(s.prompt, s.media) for s in seen] == wanted[sees]
    assert [s.extends for s in seen] == [None, "a" if sees == "own" else None]
    assert [(s.id, s.action) for s in seen] == [(s.id, s.action) for s in turn.samples]


def test_ppo_with_token_values_trains(tmp_path: Path) -> None:
    train(tmp_path, algorithm={"name": "ppo", "level": "token", "replicas": 2})
    found = logged(tmp_path)
    assert found["player/value_loss"] > 0 and found["player/grad_norm"] > 0


def test_every_reward_component_is_logged_by_name(tmp_path: Path) -> None:
    """The environment's team and process rewards, and those that the algorithm's settings add; weights change no
    log."""
    train(
        tmp_path,
        env={"name": "interplay.evaluation.games:TwoKeys"},
        algorithm={"name": "grpo", "group": 4, "kl_reward": 0.1, "overlong": {"length": 4, "margin": 4}},
        reward={"process": 0.5, "agent": 2.0, "team": 3.0},
        warmstart={"bot": "bot:random", "episodes": 4, "lr": 1e-4},
    )
    found = logged(tmp_path)
    assert {"reward/solved/team", "reward/illegal/p0", "reward/illegal/p1"} <= found.keys()
    assert found["reward/illegal/p0"] < 0 and found["reward/overlong/p0"] < 0
    assert found["reward/kl/p0"] == pytest.approx(0.0, abs=1e-4), "the reference is the policy itself in the first step"


TEAM = [[[0, 0], [0.5, 0.5]], [[0.5, 0.5], [1, 1]]]


@pytest.mark.slow
@pytest.mark.parametrize(
    "algorithm",
    [
        {"name": "grpo", "group": 8},
        {"name": "at_grpo", "candidates": 4, "keep": "greedy"},
        {"name": "ppo", "replicas": 8, "critic": {"lr": 1e-3}},
        {"name": "mappo", "replicas": 8, "critic": {"lr": 1e-3}},
        {"name": "rae", "replicas": 8},
        {"name": "maddpg", "actor": "gumbel", "group": 8, "warmup": 2},
    ],
    ids=lambda a: a["name"],
)
def test_the_reward_of_a_team_rises(tmp_path: Path, algorithm: dict[str, Any]) -> None:
    """Two policies; each of two words is worth half. In a run that learns nothing, the first and last steps differ only
    by chance: a payoff is between 0 and 1, so its deviation is at most ½, and the mean gain over three seeds has a
    standard error of at most ½·√(2/96)/√3. It exceeds 3.09 standard errors in one of a thousand such runs."""
    gains = []
    for seed in range(3):
        train(
            tmp_path / str(seed),
            seed=seed,
            env={"name": "matrix", "actions": [["heads", "tails"]] * 2, "payoff": TEAM},
            policies={"first": {"base": "tiny-16x1"}, "second": {"base": "tiny-16x1"}},
            seats={"p0": "first", "p1": "second"},
            algorithm=algorithm,
            warmstart=None,
            sampling={"max_tokens": 4, "legal": True},
            rollout={"tasks": 32 if algorithm["name"] == "at_grpo" else 4},
            train={"steps": 20, "lr": 1e-2},
        )
        rows = [json.loads(line) for line in (tmp_path / str(seed) / "metrics.jsonl").read_text().splitlines()]
        first, last = (fmean(r["reward"] for r in part) for part in (rows[:3], rows[-3:]))
        gains.append(last - first)
        assert all(("reward_kept" in r) == (algorithm["name"] == "at_grpo") for r in rows)
        assert all(r.get("reward_kept", r["reward"]) >= r["reward"] for r in rows)
    assert fmean(gains) > 3.09 * 0.5 * math.sqrt(2 / 96) / math.sqrt(3), gains


@pytest.mark.parametrize("name", ["qmix", "maddpg"])
def test_promise_9_networks_of_the_algorithm_are_part_of_the_checkpoint(tmp_path: Path, name: str) -> None:
    """A run that stopped after one step and was resumed is bit-identical to an uninterrupted one."""
    algorithm = {"name": name, "group": 2, "replay": 8, "updates": 2, "batch": 4, "warmup": 0}
    whole = train(tmp_path / "whole", algorithm=algorithm, train={"steps": 2, "lr": 1e-3})
    train(tmp_path / "cut", algorithm=algorithm)
    resumed = train(tmp_path / "cut", algorithm=algorithm, train={"steps": 2, "lr": 1e-3})
    assert whole.algorithm.state_dict() == resumed.algorithm.state_dict()
    one, other = logged(tmp_path / "whole"), logged(tmp_path / "cut")
    same = [k for k in one if k.startswith(("credit/", "reward", "player/"))]
    assert {k: one[k] for k in same} == {k: other[k] for k in same}
