"""PPO's bootstrap if a limit cuts episodes off, in real training runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from interplay import envs
from interplay.algorithms import credit
from interplay.algorithms.ppo import PPO
from interplay.config import RewardSection, parse
from interplay.rollout.resolve import resolve
from interplay.rollout.team import speech_of
from interplay.training.critic import view_of
from interplay.training.trainer import Trainer
from interplay.training.tries import Example
from interplay.types import Credit, Episode, Role, Sample

BASE: dict[str, Any] = {
    "name": "test",
    "device": "cpu",
    "env": {"name": "tictactoe"},
    "policies": {"player": {"base": "tiny-16x1"}},
    "seats": "player",
    "reward": {"gamma": 0.5},
    "sampling": {"max_tokens": 4, "legal": True},
    "rollout": {"tasks": 4, "max_episode_tokens": 8},
    "train": {"steps": 3, "lr": 1e-3},
    "records": {"tensorboard": "off"},
}


def expected(trainer: Trainer, episode: Episode) -> tuple[Role, float]:
    """Whose move it was when the episode was cut off, and the critic's value of the prompt; found by playing again."""
    recipe, name = trainer.plan.recipe, "player"
    env = envs.make(episode.task)
    agents = {r: trainer.team.agent(r, who, speech_of(recipe)) for r, who in episode.seats.items()}
    for turn in episode.line():
        view = agents[turn.role].look(env.observe()[turn.role])
        agents[turn.role].commit(view, turn)
        env.step({turn.role: turn.text})
    ((role, observation),) = env.observe().items()
    prompt = agents[role].look(observation).prompt
    assert prompt is not None
    ids = prompt.ids
    if "central" in trainer.algorithm.needs:
        ids = view_of(trainer.team.members[name].renderer, role, env.state())
    ((value,),) = trainer.learners[name].values([Example(name, Sample("", ids, (), (), (), ""))], False)
    return role, value


@pytest.mark.parametrize(
    "algorithm",
    [{"name": "ppo"}, {"name": "ppo", "level": "token"}, {"name": "mappo"}],
    ids=["turn", "token", "central"],
)
def test_a_cut_episode_bootstraps_from_the_state_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, algorithm: dict[str, Any]
) -> None:
    """Every game is cut off; replies get a penalty for their length. For the role that had to move, the last target is
    its reward plus γ times the critic's value of the board it would have seen. It is unknown where the other role's
    last turn led, so this turn is not trained."""
    settings = {**algorithm, "critic": {"lr": 3e-2}, "overlong": {"length": 4, "margin": 4}}
    trainer = Trainer(resolve(parse({**BASE, "algorithm": settings})), tmp_path)
    compared: list[tuple[float | None, float]] = []
    untrained: list[float | None] = []
    inner = PPO.credit

    def watched(self: PPO, episodes: Sequence[Episode], given: Credit) -> Any:
        found = [expected(trainer, e) for e in episodes]
        metrics = inner(self, episodes, given)
        for episode, (role, value) in zip(episodes, found, strict=True):
            assert episode.truncated
            for mover in episode.seats:
                last = episode.line(mover)[-1]
                target = given.targets.get(last.last.id, (None,))[-1]
                if mover == role:
                    reward = credit.mix(last.rewards, mover, RewardSection())
                    compared.append((target, reward + 0.5 * value))
                else:
                    untrained.append(target)
        return metrics

    monkeypatch.setattr(PPO, "credit", watched)
    trainer.train()
    trainer.close()
    assert len(compared) == len(untrained) == 12
    assert max(abs(wanted) for _, wanted in compared) > 0.05, "the critic has learned something to tell apart"
    for target, wanted in compared:
        assert target == pytest.approx(wanted, abs=1e-5)
    assert untrained == [None] * 12
