"""Each process of a cluster is killed, or made to hang, during a run: the run continues and no episode is lost."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from runs import make, rows
from vllm_fake import fake_vllm

from interplay.config import parse
from interplay.distributed.cluster import RolloutFleet
from interplay.distributed.engine_actor import EngineActor
from interplay.distributed.holder import NewWeights
from interplay.engines.engine import Request, Sampling
from interplay.errors import ResourceError
from interplay.rollout.team import Team

RECIPE: dict[str, Any] = {
    "name": "failures",
    "env": {"name": "tictactoe", "brief": True},
    "policies": {"player": {"base": "tiny-16x1"}},
    "seats": "player",
    "matchups": [{"share": 0.5, "seats": {"O": "player@start"}}],
    "algorithm": {"name": "grpo", "group": 2, "correction": "tis"},
    "sampling": {"max_tokens": 2, "legal": True},
    "rollout": {"tasks": 4},
    "train": {"steps": 3, "lr": 1e-2},
    "eval": {"opponents": ["bot:random"], "before": False, "after": False},
    "records": {"tensorboard": "off"},
    "checkpoint": {"every": 1, "keep": 100},
    "cluster": {"rollout_workers": 1, "worker_cpus": 0.0},
}


class Watched(RolloutFleet):
    """Counts its updates."""

    updates = 0

    async def sync(self) -> None:
        await super().sync()
        self.updates += 1


def play(folder: Path, *overrides: str, fleet: type[RolloutFleet] = RolloutFleet) -> RolloutFleet:
    trainer = make(folder, RECIPE, *overrides)
    trainer.make_fleet = fleet
    try:
        trainer.train()
    finally:
        trainer.close()
    assert isinstance(trainer.fleet, RolloutFleet)
    return trainer.fleet


def assert_nothing_lost(folder: Path) -> None:
    found = rows(folder)
    assert [(row["step"], row["episodes"], row["episodes_failed"]) for row in found] == [(n, 8, 0) for n in (1, 2, 3)]
    assert all(row["player/gap"] < 1e-4 for row in found)


@pytest.mark.slow
def test_a_lost_engine_is_replaced_and_others_serve_its_requests(tmp_path: Path, nodes: Any) -> None:
    """Before the second step one of two engines is killed, and the other one serves; before the third both are, and the
    episodes are played again."""

    class Killing(Watched):
        async def sync(self) -> None:
            await super().sync()
            for actor in self.engines.actors[: {2: 1, 3: 2}.get(self.updates, 0)]:
                os.kill(await actor.pid.remote(), signal.SIGKILL)

    fleet = play(tmp_path, "cluster.engines=2", fleet=Killing)
    assert fleet.engines.lost == 3 and fleet.crew.lost == 0
    assert_nothing_lost(tmp_path)


@pytest.mark.slow
def test_an_engine_samples_on_a_vllm_server_and_ends_when_an_update_fails(nodes: Any) -> None:
    """Against a stand-in for the server."""
    import ray

    with fake_vllm() as fake:
        recipe = parse(RECIPE, ["cluster.engines=1", "engine.kind=vllm", f"engine.url={fake.url}"])
        actor = ray.remote(EngineActor).options(num_cpus=0).remote(recipe.model_dump())
        request = Request(("task", 0), (5, 6, 7), 9, Sampling(0.7, 8, (2,)))
        assert ray.get(actor.generate.remote("player", request)).tokens == fake.reply
        model = Team(parse(RECIPE)).members["player"].loaded.model
        weights = {"player": NewWeights(3, None, {name: p.detach() for name, p in model.named_parameters()})}
        ray.get(actor.update.remote(weights))
        assert "reload_weights" in [call["method"] for call in fake.asked("/collective_rpc")]
        fake.failing.add("/collective_rpc")
        with pytest.raises(ray.exceptions.RayActorError):
            ray.get(actor.update.remote(weights))


def test_weights_that_do_not_fit_anywhere_are_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray")

    def full(_: object) -> None:
        raise ray.exceptions.ObjectStoreFullError("no room")

    fleet = object.__new__(RolloutFleet)
    fleet.ray = ray
    monkeypatch.setattr(ray, "put", full)
    monkeypatch.setattr(RolloutFleet, "_newest", lambda _: {})
    with pytest.raises(ResourceError, match=r"do not fit into Ray's object store.*object-store-memory"):
        asyncio.run(fleet.sync())
