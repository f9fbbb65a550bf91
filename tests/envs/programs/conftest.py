"""Teams that tests run as programs, and a tiny model that sits in their roles."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from interplay import envs
from interplay.agents.model import ModelAgent
from interplay.agents.render import Renderer
from interplay.algorithms import Independent, SamplingPlan
from interplay.config import RewardSection, RolloutSection
from interplay.engines.engine import Sampling
from interplay.engines.local import LocalEngine
from interplay.rollout.runner import Runner, Seated
from interplay.types import Episode, Policy, Task

TEAMS = Path(__file__).parent / "teams"


@pytest.fixture(autouse=True)
def teams_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(TEAMS))


class Players:
    """One tiny model in every role, sampled as in training."""

    def __init__(self, loaded: Any) -> None:
        self.loaded = loaded
        self.renderer = Renderer(loaded.tokenizer, loaded.stop_ids, loaded.senses)
        self.engine = LocalEngine(loaded.model, tokenizer=loaded.tokenizer)
        self.sampling = Sampling(1.0, 6, loaded.stop_ids)

    def seated(self, roles: Sequence[str]) -> Seated:
        agents = {r: ModelAgent(r, "player", True, self.engine, self.renderer, self.sampling) for r in roles}
        return Seated({r: Policy("player") for r in roles}, agents)

    def play(
        self, tasks: Sequence[Task], plan: SamplingPlan | None = None, seed: int = 0, **limits: Any
    ) -> list[Episode]:
        runner = Runner(seed, RolloutSection(**limits), plan or Independent(), RewardSection())
        roles = envs.make(tasks[0]).roles

        async def run() -> list[Episode]:
            self.engine.flush()  # what is found in the cache changes the last bits
            return await runner.run(tasks, lambda _: self.seated(roles))

        return asyncio.run(run())


@pytest.fixture(scope="module")
def players(tiny: Any) -> Iterator[Players]:
    made = Players(tiny)
    yield made
    made.engine.close()


@pytest.fixture(scope="module")
def sighted(make_tiny: Any) -> Iterator[Players]:
    """A tiny model that takes pictures and sounds."""
    pytest.importorskip("PIL")
    made = Players(make_tiny(base="tiny-av"))
    yield made
    made.engine.close()


@pytest.fixture
def program() -> Callable[..., list[Task]]:
    """`program("small_teams:two", tasks=2, reward=...)`: tasks of a coroutine."""

    def make(
        coroutine: str, reward: str = "small_teams:length", roles: Sequence[str] = ("planner", "solver"),
        tasks: int = 1, rewards: Sequence[str] = ("score",), how: Mapping[str, Any] | None = None,
    ) -> list[Task]:  # fmt: skip
        options = {
            "coroutine": coroutine, "reward": reward, "roles": list(roles), "rewards": list(rewards),
            "program": dict(how or {}),
        }  # fmt: skip
        return [envs.sample_task("program", options, "train", index) for index in range(tasks)]

    return make
