"""Critics: their random numbers depend on the run's seed, and a state critic learns what follows the state."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from interplay.algorithms import credit
from interplay.config import RewardSection, parse
from interplay.rollout.resolve import resolve
from interplay.rollout.runner import Runner, Seated
from interplay.rollout.stream import Group
from interplay.training import critic as critics
from interplay.training.feed import Feed
from interplay.training.trainer import Trainer
from interplay.training.tries import Example
from interplay.types import Episode, Sample, Task, Turn

BASE: dict[str, Any] = {
    "name": "test",
    "device": "cpu",
    "env": {"name": "matrix", "game": "stag_hunt", "rounds": 2},
    "policies": {"player": {"base": "tiny-16x1"}},
    "seats": "player",
    "algorithm": {"name": "ppo"},
    "sampling": {"max_tokens": 4},
    "rollout": {"tasks": 2},
    "train": {"steps": 1, "lr": 1e-3, "minibatches": 2},
    "records": {"tensorboard": "off"},
}


def trainer(folder: Path, **changes: Any) -> Trainer:
    return Trainer(resolve(parse({**BASE, **changes})), folder)


SHAPING = {"overlong": {"length": 2, "margin": 2}, "kl_reward": 0.1}
JUDGE = {"taste": {"kind": "pointwise", "who": "gold:payoff", "scope": "reply"}}


@pytest.mark.parametrize(
    ("shaping", "judges", "given"),
    [(SHAPING, {}, {"overlong", "kl"}), ({}, JUDGE, {"taste"})],
    ids=["shaping", "judge"],
)
def test_a_state_is_worth_what_comes_after_it_and_nothing_that_is_paid_for_the_reply_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shaping: dict[str, Any], judges: dict[str, Any], given: set[str]
) -> None:
    """Two rounds, in which each reply gets a penalty for its length and its drift, or the reward of a judge. The target
    of the state after a first turn is the return from the second turn on. What the first reply itself was paid is
    already in its outlook."""
    told: list[float] = []
    inner = critics.Critic.step

    def seen(self: critics.Critic, given: Sequence[Example], tokens: bool = False) -> dict[str, float]:
        told.extend(e.targets[0] for e in given if e.targets is not None)
        return inner(self, given, tokens)

    kept: list[list[Turn]] = []
    learn = critics.StateCritic.learn

    def watched(self: critics.StateCritic, lines: Sequence[Sequence[Turn]]) -> dict[str, float]:
        kept.extend(list(line) for line in lines)
        return learn(self, lines)

    monkeypatch.setattr(critics.Critic, "step", seen)
    monkeypatch.setattr(critics.StateCritic, "learn", watched)
    algorithm = {"name": "coma", "candidates": 2, **shaping}
    sampling = {"max_tokens": 4, "legal": True}
    train = {"steps": 2, "lr": 1e-2}
    made = trainer(tmp_path, algorithm=algorithm, sampling=sampling, train=train, judges=judges)
    made.train()
    made.close()
    assert len(kept) == 2 * 2 * 2 and all(len(line) == 2 for line in kept)
    assert all(given <= {r.name for r in turn.rewards} for line in kept for turn in line)
    assert told == pytest.approx([credit.returns(line, RewardSection())[1] for line in kept], abs=1e-12)


@pytest.mark.parametrize("stream", [{}, {"max_staleness": 1, "stale": "drop"}], ids=["failed", "too old"])
def test_a_state_critic_keeps_nothing_of_episodes_that_are_not_learned_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stream: dict[str, Any]
) -> None:
    """Every second episode fails after its last turn, or those that are a step old are dropped. The states that they
    led to once stayed in memory until the end of the run."""
    lost: list[Episode] = []
    play, pull = Runner.episode, Feed._keep_fresh

    async def episode(self: Runner, task: Task, replica: int, seated: Seated) -> Episode:
        found = await play(self, task, replica, seated)
        if not stream and int(task.id.rpartition("-")[2]) % 2 == 0:
            found.error = "ToolError: planted"
            lost.append(found)
        return found

    def keep_fresh(self: Feed, group: Group) -> bool:
        played = list(group.played)
        found = pull(self, group)
        lost.extend(e for e in played if e not in group.played)
        return found

    monkeypatch.setattr(Runner, "episode", episode)
    monkeypatch.setattr(Feed, "_keep_fresh", keep_fresh)
    algorithm = {"name": "coma", "candidates": 2, "correction": "tis"}
    changes = {"stream": stream, "sampling": {"max_tokens": 4, "legal": True}, "train": {"steps": 3, "lr": 1e-2}}
    made = trainer(tmp_path, algorithm=algorithm, **changes)
    lags = made.versions.lags
    monkeypatch.setattr(made.versions, "lags", lambda *given: tuple(3 * lag for lag in lags(*given)))
    held, arrived = made.learning.state_critic, set()
    assert held is not None
    note = held.arrived
    monkeypatch.setattr(held, "arrived", lambda *given: (arrived.add(given[2].id), note(*given)))
    made.train()
    made.close()
    gone = {turn.id for e in lost for turn in e.turns}
    assert len(gone & arrived) >= 4, "otherwise there was nothing to drop"
    assert not gone & set(held._arrived)


def examples(count: int) -> list[Example]:
    """Prompts of one token each, with targets 0, 1, 2, …"""
    samples = [Sample(f"s{i}", (7, 8 + i), (9,), (-1.0,), (0,), "") for i in range(count)]
    return [Example("player", sample, values=(0.0,), targets=(float(i),)) for i, sample in enumerate(samples)]


def test_a_critics_minibatches_are_drawn_as_the_recipes_seed_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three seeds shuffle the critic's examples in three ways."""
    drawn: list[list[list[str]]] = []
    inner = critics.minibatches

    def seen(given: Sequence[Example], config: Any, seed: int) -> list[list[Example]]:
        parts = inner(given, config, seed)
        drawn.append([[e.sample.id for e in part] for part in parts])
        return parts

    monkeypatch.setattr(critics, "minibatches", seen)
    for n, seed in enumerate((0, 0, 1)):
        made = trainer(tmp_path / str(n), seed=seed)
        made.critics["player"].step(examples(16))
        made.close()
    assert drawn[0] == drawn[1]
    assert drawn[0] != drawn[2]


@pytest.mark.parametrize("level", ["turn", "token"])
def test_ppo_trains_in_a_role_that_it_shares_with_a_frozen_policy(tmp_path: Path, level: str) -> None:
    """The player takes the first turn of each role, a frozen policy the second: the player learns only from its own."""
    policies = {"player": {"base": "tiny-16x1"}, "rival": {"base": "tiny-16x1", "trainable": False}}
    seats = {"p0@1": "player", "p0": "rival", "p1@1": "player", "p1": "rival"}
    sampling = {"max_tokens": 4, "legal": True}
    made = trainer(
        tmp_path,
        policies=policies,
        seats=seats,
        sampling=sampling,
        algorithm={"name": "ppo", "level": level},
        rollout={"tasks": 8},
    )
    before = [p.detach().clone() for p in made.learners["player"].model.parameters()]
    made.train()
    made.close()
    row = json.loads((tmp_path / "metrics.jsonl").read_text())
    assert row["turns_per_episode"] == 4 and row["player/turns"] == 2 * 8
    assert any((a != b).any() for a, b in zip(before, made.learners["player"].model.parameters(), strict=True))


# -- the scale of returns ---------------------------------------------------------------------------------------------


def large(count: int, scale: float = 300.0) -> list[Example]:
    """Two kinds of prompts, worth 10 · `scale` and 8 · `scale`."""
    kinds = [Sample(f"s{i}", (7, 8 + i % 2), (9,), (-1.0,), (0,), "") for i in range(count)]
    return [Example("player", s, values=(0.0,), targets=(scale * (10.0 - 2 * (i % 2)),)) for i, s in enumerate(kinds)]


def test_mappos_critic_learns_returns_of_any_size(tmp_path: Path) -> None:
    """Returns of 3,000 and 2,400: after 60 steps at its learning rate the critic distinguishes them. Without the scale,
    a head that starts at 0 moves by about the learning rate per step, and would still be near 0."""
    made = trainer(tmp_path, algorithm={"name": "mappo", "critic": {"lr": 3e-3}})
    critic = made.critics["player"]
    made.close()
    batch = large(8)
    for _ in range(60):
        critic.step(batch)
    found = [value for (value,) in critic.values(batch[:2])]
    assert found == pytest.approx([3000.0, 2400.0], abs=60.0)


def test_values_stay_what_they_are_when_the_scale_moves(tmp_path: Path) -> None:
    """PopArt: returns a hundred times larger arrive, and no value changes. Single precision, values below 1,000."""
    made = trainer(tmp_path, algorithm={"name": "mappo", "critic": {"lr": 3e-3}})
    critic = made.critics["player"]
    made.close()
    batch = large(8, 1.0)
    for _ in range(20):
        critic.step(batch)
    before = critic.values(batch)
    assert critic.scale is not None
    critic.scale.follow([1000.0, -500.0], critic.head)
    assert critic.scale.deviation > 10.0
    for (then,), (now,) in zip(before, critic.values(batch), strict=True):
        assert now == pytest.approx(then, abs=1000 * 2**-20)


def test_normalisation_is_on_for_mappo_alone_and_can_be_turned_off() -> None:
    def normalises(**algorithm: Any) -> bool:
        critic = resolve(parse({**BASE, "algorithm": algorithm})).algorithm.critic
        assert critic is not None
        return critic.normalise

    assert normalises(name="mappo") and normalises(name="mappo", critic={"lr": 1e-3})
    assert not normalises(name="ppo") and not normalises(name="mappo", critic={"normalise": False})


def test_a_normalised_critic_goes_on_from_a_checkpoint_bit_for_bit(tmp_path: Path) -> None:
    made = [trainer(tmp_path / str(n), algorithm={"name": "mappo"}).critics["player"] for n in range(2)]
    made[0].step(large(8))
    made[1].load_state_dict(copy.deepcopy(made[0].state_dict()))
    found = []
    for critic in made:
        critic.step(large(8, 100.0))
        found.append(critic.values(large(2)))
    assert found[0] == found[1]
