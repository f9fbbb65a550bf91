"""Runs whose episodes are played by Ray's actors: the same results, and none lost when a worker is killed."""

from __future__ import annotations

import io
import json
import os
import signal
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from fleets import EPISODES, RECIPE, Watched, add_node, assert_nothing_lost, measured, play
from rich.console import Console
from runs import make
from safetensors.torch import load_file

from interplay.cli.layout import show_layout
from interplay.cli.session import Session
from interplay.config import parse
from interplay.distributed import cluster, rank_actors
from interplay.distributed.engine_actor import EngineActor
from interplay.distributed.layout import layout
from interplay.distributed.rank_actors import RankActor
from interplay.distributed.worker import RolloutWorker
from interplay.errors import ConfigError
from interplay.rollout.records import read
from interplay.rollout.resolve import resolve
from interplay.types import Episode

WORKERS = "cluster.rollout_workers="


class Dying(Watched):
    """A fleet whose first worker is killed when it has got the weights of the second step."""

    async def sync(self) -> None:
        await super().sync()
        if self.updates == 2:
            os.kill(await self.workers[0].pid.remote(), signal.SIGKILL)


def weights(folder: Path, step: int = 3) -> dict[str, torch.Tensor]:
    return load_file(folder / "checkpoints" / f"step-{step:06d}" / "policies" / "player" / "model.safetensors")


@pytest.mark.slow
def test_one_worker_gives_the_bits_of_a_run_without_one_also_when_it_is_killed(tmp_path: Path, nodes: Any) -> None:
    """Its episodes are played again with the same seeds by the worker that takes its place."""
    trainer = make(tmp_path / "alone", RECIPE)
    trainer.train()
    trainer.close()
    assert play(tmp_path / "one", RECIPE, f"{WORKERS}1", fleet=Dying).lost == 1
    assert measured(tmp_path / "one") == measured(tmp_path / "alone")
    alone = weights(tmp_path / "alone")
    assert all(torch.equal(alone[name], found) for name, found in weights(tmp_path / "one").items())
    assert_nothing_lost(tmp_path / "one")


@pytest.mark.slow
def test_two_workers_play_the_same_tasks_with_the_same_seeds_and_may_run_ahead(tmp_path: Path, nodes: Any) -> None:
    """Compared with a run without workers: tasks and seeds are equal, and the log-probs of equal replies to equal
    prompts differ by at most 1e-5, because rounding depends on the batch. Later weights contain this difference too, so
    only replies that were sampled with the first weights are compared. A run that may run ahead trains on the tasks in
    the order in which they end."""
    trainer = make(tmp_path / "alone", RECIPE, "train.steps=2")
    trainer.train()
    trainer.close()
    play(tmp_path / "two", RECIPE, f"{WORKERS}2", "train.steps=2")
    play(tmp_path / "ahead", RECIPE, f"{WORKERS}2", "train.steps=2", "stream.max_staleness=1")
    alone, two, ahead = (played(tmp_path / name) for name in ("alone", "two", "ahead"))
    assert two.keys() == alone.keys() and len(alone) == 2 * EPISODES
    assert assert_same(two, alone) == assert_same(alone, alone) > EPISODES
    assert assert_same(ahead, alone) > 0
    for folder in ("two", "ahead"):
        assert_nothing_lost(tmp_path / folder, steps=2)
        last = [json.loads(line) for line in (tmp_path / folder / "metrics.jsonl").read_text().splitlines()][-1]
        shares = [v for k, v in last.items() if k.startswith(("cluster/idle/", "cluster/engine_idle/"))]
        assert len(shares) == 5 and all(0 <= share <= 1 for share in shares)  # two workers and the learner
        assert last["cluster/update_seconds"] > 0 and last["cluster/update_seconds_per_gb"] > 0


def played(folder: Path) -> dict[str, Episode]:
    """The recorded episodes by their ids."""
    return {record.episode.id: record.episode for record in read(folder / "episodes.jsonl")}


def assert_same(found: Mapping[str, Episode], expected: Mapping[str, Episode]) -> int:
    """Compare the episodes that both have; return how many tokens were compared."""
    tokens = 0
    for name in found.keys() & expected.keys():
        one, other = found[name], expected[name]
        assert (one.task, one.replica, one.seats) == (other.task, other.replica, other.seats)
        mine, theirs = ([s for turn in e.turns for s in turn.samples] for e in (one, other))
        if any(version for sample in (*mine, *theirs) for version in sample.versions):
            continue
        for a, b in zip(mine, theirs, strict=True):
            assert (a.prompt, a.action) == (b.prompt, b.action)
            assert a.logprobs == pytest.approx(b.logprobs, rel=0, abs=1e-5)
            tokens += len(a.logprobs)
    return tokens


@pytest.mark.slow
def test_a_lost_node_costs_a_worker_and_no_episode(tmp_path: Path, nodes: Any) -> None:
    """The second node is killed before a step is played, and another one joins."""

    class Losing(Watched):
        async def sync(self) -> None:
            await super().sync()
            if self.updates == 2:
                nodes.remove_node(nodes.list_all_nodes()[-1], allow_graceful=False)
                add_node(nodes, num_cpus=1)

    assert play(tmp_path, RECIPE, f"{WORKERS}2", fleet=Losing).lost == 1
    assert_nothing_lost(tmp_path)


def watched(kind: type[Any], folder: Path, noted: Path) -> type[Any]:
    """An actor that notes what it opens for writing, creates, renames or removes in `folder`: what Python does by an
    audit hook, what safetensors does by a wrapper, and what other code creates is writable for its group."""
    inside, notes = str(folder.resolve()), str(noted)

    class Watching(kind):  # type: ignore[misc]
        def __init__(self, *given: Any) -> None:
            import safetensors.torch

            def note(what: str, *paths: Any) -> None:
                if any(os.path.realpath(str(path)).startswith(inside) for path in paths):
                    with open(notes, "a") as file:
                        file.write(f"{kind.__name__} {what} {paths}\n")

            def hook(event: str, found: tuple[Any, ...]) -> None:
                if event in ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink"):
                    note(event, *found[:2])
                elif event == "open" and isinstance(found[2], int) and found[2] & (os.O_WRONLY | os.O_RDWR):
                    note(event, found[0])

            def save(tensors: Any, path: Any, **rest: Any) -> None:
                note("safetensors", path)
                written(tensors, path, **rest)

            written = safetensors.torch.serialize_file
            safetensors.torch.serialize_file = save
            sys.addaudithook(hook)
            os.umask(0o002)
            super().__init__(*given)

    return Watching


@pytest.mark.slow
def test_only_the_process_of_the_run_writes_the_run_folder(
    tmp_path: Path, nodes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker, an engine apart and a rank of the learner are given the run folder to read, and write nothing there."""
    folder, noted = tmp_path / "run", tmp_path / "noted.txt"
    folder.mkdir()
    for module, kind in ((cluster, RolloutWorker), (cluster, EngineActor), (rank_actors, RankActor)):
        monkeypatch.setattr(module, kind.__name__, watched(kind, folder, noted))
    plan = resolve(parse(RECIPE, [f"{WORKERS}1", "cluster.worker_cpus=0", "cluster.engines=1", "train.shard=fsdp"]))
    before = os.umask(0o022)
    try:
        session = Session(Console(file=io.StringIO()), plan, folder)
        assert session.run()
    finally:
        os.umask(before)
    assert_nothing_lost(folder)
    assert not noted.exists(), noted.read_text()
    files = [path for path in folder.rglob("*") if not path.is_symlink()]
    assert len(files) > 10 and not [path for path in files if path.stat().st_mode & stat.S_IWGRP]


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (("engine={kind='vllm'}",), "each worker samples with a local engine of its own"),
        (("device=cuda",), "device is 'cuda', but cluster.worker_gpus is 0"),
        (("device=cuda", "cluster.engines=1"), "device is 'cuda', but cluster.engine_gpus is 0"),
        (("cluster.engines=2", "engine={kind='vllm', url='http://h:1'}"), "engine.url names one server"),
        (("cluster.engines=2", "cluster.rollout_workers=0"), "they sample for rollout workers"),
        (
            ("cluster.address=auto", "cluster.rollout_workers=0"),
            "cluster.address is 'auto', but nothing would run there",
        ),
    ],
)
def test_what_rollout_workers_cannot_do_is_refused(overrides: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        resolve(parse(RECIPE, [f"{WORKERS}2", *overrides]))


def test_the_plan_of_a_cluster_lists_its_processes_without_starting_any() -> None:
    shared = ["train.shard=fsdp", "cluster.learners=4"]
    found = {row.what.split(" (")[0]: row for row in layout(resolve(parse(RECIPE, [f"{WORKERS}3", *shared])))}
    assert {name: row.count for name, row in found.items()} == {"the run": 1, "learner ranks": 4, "rollout workers": 3}
    assert all(row.memory > 0 and row.gpus == 0 for row in found.values())


def test_the_printed_plan_says_what_all_processes_need_together() -> None:
    """The process of the run has one CPU, and each of the three workers two."""
    said, wanted = io.StringIO(), [f"{WORKERS}3", "cluster.worker_cpus=2", "device=cpu"]
    show_layout(Console(file=said, width=80), "recipes/tictactoe/at_grpo.toml", wanted)
    assert "In all: 7 CPUs and 0 GPUs." in said.getvalue()
    *_, where = said.getvalue().splitlines()  # a sentence is one line in a narrow terminal too
    others = "Ray places the others in a cluster that the run starts on this machine."
    assert where == f"The process of the run is on this machine. {others}"


def test_a_cluster_with_gpus_is_planned_on_a_machine_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    wanted = ["device=cuda", f"{WORKERS}2", "cluster.worker_gpus=0.5", "train.shard=fsdp", "cluster.learners=2"]
    found = {row.what.split(" (")[0]: row for row in layout(resolve(parse(RECIPE, wanted)))}
    assert {name: row.gpus for name, row in found.items()} == {"the run": 1, "learner ranks": 1, "rollout workers": 0.5}


def test_the_plan_counts_what_each_process_loads_and_no_gpu_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """References are in the process of the run alone. A vLLM server of an engine uses the GPUs of that engine. Ranks
    that are child processes use the GPU of the run too."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    ranks = ["device=cuda", "train.shard=fsdp", "cluster.learners=2"]
    apart = [*ranks, f"{WORKERS}2", "cluster.engines=3", "cluster.engine_gpus=1", "algorithm.kl=0.1", "matchups=[]"]
    for kind in ("local", "vllm"):
        rows = {row.what.split(" (")[0]: row for row in layout(resolve(parse(RECIPE, [*apart, f"engine.kind={kind}"])))}
        assert rows.keys() == {"the run", "learner ranks", "rollout workers", "engines"}
        assert rows["the run"].memory == 2 * rows["engines"].memory > 0
        assert sum(row.count * row.gpus for row in rows.values() if not row.shared) == 1 + 2 + 3
    run, children = layout(resolve(parse(RECIPE, ranks)))
    assert run.shared and not children.shared and children.count * children.gpus == 2


def test_with_engines_apart_a_worker_loads_no_weights() -> None:
    given = parse(RECIPE, [f"{WORKERS}1", "cluster.engines=1", "policies.player.adapter={rank=2}"])
    worker = RolloutWorker(given.model_dump(), engines=[object()])
    assert {p.device.type for m in worker.team.members.values() for p in m.loaded.model.parameters()} == {"meta"}
    rows = {row.what: row for row in layout(resolve(given))}
    assert rows["rollout workers"].memory == 0 < rows["engines"].memory
