"""Each process of a cluster is killed, or made to hang, during a run: the run continues and no episode is lost."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from fleets import ONE_WORKER, RECIPE, Hurried, Watched, add_node, assert_nothing_lost, measured, play
from rich.console import Console
from runs import make, rows
from vllm_fake import fake_vllm

from interplay.cli.session import Session
from interplay.config import parse
from interplay.distributed import cluster
from interplay.distributed.engine_actor import EngineActor
from interplay.distributed.holder import NewWeights
from interplay.distributed.rank_actors import RankActors
from interplay.engines.engine import Request, Sampling
from interplay.rollout.resolve import resolve
from interplay.rollout.team import Team
from interplay.training.sharded import ShardedLearner
from interplay.training.trainer import Trainer


@pytest.mark.slow
def test_a_lost_engine_is_replaced_and_others_serve_its_requests(tmp_path: Path, nodes: Any) -> None:
    """Before the second step one of two engines is killed, and the other one serves; before the third both are, and the
    episodes are played again."""

    class Killing(Watched):
        async def sync(self) -> None:
            await super().sync()
            for actor in self.engines.actors[: {2: 1, 3: 2}.get(self.updates, 0)]:
                os.kill(await actor.pid.remote(), signal.SIGKILL)

    fleet = play(tmp_path, ONE_WORKER, "cluster.engines=2", fleet=Killing)
    assert fleet.engines.lost == 3 and fleet.crew.lost == 0
    assert_nothing_lost(tmp_path)


@pytest.mark.slow
def test_an_engine_samples_on_a_vllm_server_and_ends_when_an_update_fails(nodes: Any) -> None:
    """Against a stand-in for the server."""
    import ray

    with fake_vllm() as fake:
        recipe = parse(ONE_WORKER, ["cluster.engines=1", "engine.kind=vllm", f"engine.url={fake.url}"])
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


@pytest.mark.slow
def test_a_worker_that_hangs_during_an_update_is_replaced(
    tmp_path: Path, nodes: Any, caplog: pytest.LogCaptureFixture
) -> None:
    class Stopping(Hurried):
        """The worker is stopped, not ended: it takes neither episodes nor weights."""

        async def sync(self) -> None:
            await super().sync()
            if self.updates == 2:
                os.kill(await self.workers[0].pid.remote(), signal.SIGSTOP)
                self.hurry(5.0)
                await super().sync()

    fleet = play(tmp_path, ONE_WORKER, fleet=Stopping)
    assert fleet.crew.lost == 1
    assert "no answer within 5 s (cluster.worker_timeout)" in caplog.text and 5.0 <= fleet.waited < 50.0
    assert_nothing_lost(tmp_path)


@pytest.mark.slow
def test_two_base_models_have_a_group_each_and_a_lost_rank_or_machine_costs_one_restart(
    tmp_path: Path, nodes: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """L3: a base for each seat, each trained by ranks of its own, which are actors of Ray. Each of the two machines has
    one rank. After the first step a rank is killed; after the second a machine, and another one joins."""
    bases = {"policies": {"x": {"base": "tiny-16x1"}, "o": {"base": "tiny-16x2"}}, "seats": {"X": "x", "O": "o"}}
    data = {**ONE_WORKER, **bases, "matchups": []}

    class Killing(Session):
        kills = 0

        def _stepped(self, step: int, metrics: Mapping[str, float]) -> None:
            super()._stepped(step, metrics)
            groups = [learner.group for learner in learners(self.trainer)]
            assert len(groups) == 2 and all(isinstance(group._processes, RankActors) for group in groups)
            if step > self.kills and step < 3:
                self.kills += 1
                if step == 1:
                    os.kill(groups[1].pids[0], signal.SIGKILL)
                else:
                    nodes.remove_node(nodes.list_all_nodes()[-1], allow_graceful=False)
                    add_node(nodes, num_cpus=1)

    session = Killing(Console(file=io.StringIO()), resolve(parse(data, ["train.shard=fsdp"])), tmp_path)
    assert session.run() and session.kills == 2
    assert caplog.text.count("The run goes on from its newest checkpoint") == 2
    assert_nothing_lost(tmp_path, "x", "o")
    assert all(row[f"{name}/probe"] < 1e-4 for row in rows(tmp_path) for name in ("x", "o"))


def learners(trainer: Trainer) -> list[ShardedLearner]:
    return [learner for learner in trainer.learners.values() if isinstance(learner, ShardedLearner)]


@pytest.mark.slow
def test_a_killed_driver_is_resumed_with_the_same_result_and_its_workers_end(tmp_path: Path, nodes: Any) -> None:
    import ray

    alone = make(tmp_path / "alone", RECIPE)
    alone.train()
    alone.close()
    folder, address = tmp_path / "run", f"cluster.address={nodes.address}"
    make(folder, ONE_WORKER).close()  # writes run.json, from which the command below reads the recipe
    program = [sys.executable, "-c", "from interplay.cli.main import main; main()"]
    command = [*program, "train", str(folder), "--resume", address, "cluster.worker_cpus=1"]
    before = ray.available_resources()["CPU"]
    driver = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    metrics, until = folder / "metrics.jsonl", time.monotonic() + 900
    try:
        while not (metrics.is_file() and metrics.read_text().count("\n") >= 2):
            assert driver.poll() is None and time.monotonic() < until
            time.sleep(0.02)
    finally:
        driver.kill()
    driver.wait()
    while ray.available_resources().get("CPU", 0) < before:
        assert time.monotonic() < until
        time.sleep(0.2)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    assert measured(folder) == measured(tmp_path / "alone")


@pytest.mark.slow
def test_a_full_object_store_loses_nothing(tmp_path: Path, nodes: Any) -> None:
    """The store is given more than it holds. Ray moves objects to the disk, and training goes on."""
    import numpy as np
    import ray

    held = [ray.put(np.full(20 * 2**20, i, np.uint8)) for i in range(6)]
    play(tmp_path, ONE_WORKER)
    assert_nothing_lost(tmp_path)
    assert [int(ray.get(ref)[0]) for ref in held] == list(range(6))


# A cluster of its own, whose store has room for two of the objects, and whose disk counts as full from the beginning.
FULL = """
import numpy, os
os.environ["RAY_local_fs_capacity_threshold"] = "0"
from interplay.distributed.connection import package, stored
ray = package()
ray.init(address="local", num_cpus=1, object_store_memory=80 * 2**20, include_dashboard=False, log_to_driver=False)
held = [stored(ray, "the new weights", numpy.zeros(30 * 2**20, numpy.uint8)) for _ in range(8)]
"""


@pytest.mark.slow
def test_weights_that_fit_neither_into_the_store_nor_on_the_disk_are_a_sentence() -> None:
    pytest.importorskip("ray")
    made = subprocess.run([sys.executable, "-c", FULL], capture_output=True, text=True, timeout=1200)
    expected = (
        "ResourceError: the new weights do not fit into Ray's object store (Local disk is full); expected a larger"
    )
    assert made.returncode == 1 and expected in made.stderr


@pytest.mark.slow
def test_a_worker_and_an_engine_that_hang_while_they_play_are_replaced(
    tmp_path: Path, nodes: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The worker is stopped before the second step is played, the engine before the third. Neither has ended, so that
    only the question whether they are there finds it."""
    monkeypatch.setattr(cluster, "_LOOK_EVERY", 1.0)

    class Stopping(Hurried):
        async def sync(self) -> None:
            await super().sync()
            if who := {2: self.workers, 3: self.engines.actors}.get(self.updates):
                os.kill(await who[0].pid.remote(), signal.SIGSTOP)
                self.hurry(5.0)

    fleet = play(tmp_path, ONE_WORKER, "cluster.engines=1", fleet=Stopping)
    assert (fleet.crew.lost, fleet.engines.lost) == (1, 1)
    for who in ("rollout worker 0", "engine 0"):
        assert f"{who} was lost (no answer within 5 s (cluster.worker_timeout))" in caplog.text
    assert_nothing_lost(tmp_path)
