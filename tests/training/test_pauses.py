"""Between two steps of training on a stream: pauses, and evaluations during them or beside the stream."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from asking import Asking, Eager
from runs import make, rows

from interplay.agents import render
from interplay.engines import pause as pauses
from interplay.engines.engine import Request, Sampling
from interplay.envs import env as registry
from interplay.rollout import line
from interplay.training.trainer import Observer
from interplay.types import Observation, Parameter, Role, Tool

RECIPE: dict[str, Any] = {
    "name": "pauses",
    "env": {"name": "waiting"},
    "policies": {"player": {"base": "tiny-16x1"}},
    "seats": "player",
    "algorithm": {"name": "grpo", "group": 2, "correction": "tis"},
    "sampling": {"max_tokens": 4},
    "tools": {"calls": 3, "workers": 64},
    "rollout": {"tasks": 8},
    "stream": {"max_staleness": 1},
    "train": {"steps": 3, "lr": 1e-2},
    "eval": {"opponents": ["team"], "success": "letters"},
    "records": {"tensorboard": "off"},
}
ADAPTED = {**RECIPE, "policies": {"player": {"base": "tiny-16x1", "adapter": {"rank": 4}}}}


class Waiting(Asking):
    """Its tool takes its time."""

    def observe(self) -> dict[Role, Observation]:
        def answer(what: str) -> str:
            time.sleep(0.05)
            return "Z7"

        seen = super().observe()
        tool = Tool("ask", "Answers.", (Parameter("what", "anything"),), answer)
        return {role: replace(observation, tools=(tool,)) for role, observation in seen.items()}


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(registry.ENVIRONMENTS.classes, "waiting", Waiting)
    monkeypatch.setattr(render, "syntax_of", lambda tokenizer: Eager())
    yield


def test_a_pause_holds_back_what_tools_answer_and_takes_no_time_from_episodes(
    waiting: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The evaluation seems to take longer than an episode may: the test adds half an hour to all clocks. Episodes whose
    tools answer meanwhile sample nothing until it is over, and then go on."""
    trainer = make(tmp_path, RECIPE, "eval.every=1", "rollout.max_episode_seconds=600")
    sampled: list[int] = []
    later = 0.0
    for module in (line, pauses):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + later))

    async def measure(team: Any, step: int, seats: Any) -> dict[str, float]:
        nonlocal later
        stats, loop = team.members["player"].engine.stats, asyncio.get_running_loop()
        before = stats().sampled_tokens
        await asyncio.sleep(0.3)
        while any(thread.name.startswith("tool ") for thread in threading.enumerate()):
            await asyncio.sleep(0.01)  # until they have answered, since tools have a limit too
        if step == 1:
            honest, later = loop.time, 1800.0
            monkeypatch.setattr(loop, "time", lambda: honest() + later)
        await asyncio.sleep(0.3)
        sampled.append(stats().sampled_tokens - before)
        return {}

    trainer.observer = Observer(evaluate=measure)
    trainer.train()
    trainer.close()
    assert sampled == [0, 0, 0]
    assert [row["episodes_failed"] for row in rows(tmp_path)] == [0, 0, 0]


@pytest.mark.parametrize("recipe", [RECIPE, ADAPTED], ids=["full", "adapter"])
def test_an_evaluation_beside_the_stream_does_not_hold_up_steps(
    waiting: None, tmp_path: Path, recipe: dict[str, Any]
) -> None:
    """An engine that always works for the evaluation is never idle, and training goes on."""
    trainer = make(tmp_path, recipe, "eval.every=2", "eval.beside=true", "train.steps=5")
    reached: list[int] = []

    async def measure(team: Any, step: int, seats: Any) -> dict[str, float]:
        member = team.members["player@eval"]
        lengths = [Sampling(max_tokens=n) for n in (29, 31, 37, 41)]  # they never end at the same time
        until = time.monotonic() + 600

        async def ask(number: int) -> None:
            turn = 0
            while trainer.step_index < step + 2 and time.monotonic() < until:
                adapter = None if member.adapter is None else member.name
                key, turn = ("evaluation", number, turn), turn + 1
                await member.engine.generate(Request(key, (1, 2, 3), turn, lengths[number], adapter))

        if step == 2:
            await asyncio.gather(*map(ask, range(4)))
            reached.append(trainer.step_index)
        return {}

    trainer.observer = Observer(evaluate=measure)
    trainer.train()
    trainer.close()
    assert reached == [4]
