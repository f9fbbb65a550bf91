"""How the games of an evaluation are played: with the same batches every time on a CPU, without waiting on a GPU."""

from __future__ import annotations

import asyncio

import pytest
from small import RECIPE

from interplay.config import parse
from interplay.engines.census import census
from interplay.evaluation.field import Field
from interplay.rollout.resolve import resolve
from interplay.rollout.team import Team


@pytest.mark.parametrize("on_cpu", [True, False])
def test_only_on_a_cpu_do_engine_steps_wait_for_slow_environments(
    monkeypatch: pytest.MonkeyPatch, on_cpu: bool
) -> None:
    plan = resolve(parse(RECIPE, ["sampling.legal=true"]), training=False)
    team = Team(plan.recipe, {})
    monkeypatch.setattr(Team, "on_cpu", on_cpu)

    async def play() -> bool:
        await Field(plan, team, 2).play(plan.seats)
        return census().deterministic

    try:
        assert asyncio.run(play()) is on_cpu
    finally:
        team.close()
