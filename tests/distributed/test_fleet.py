"""What the run does when its actors are lost, with a stand-in for Ray whose actors live in this process."""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fleets
import pytest
from fleets import RECIPE, AnyFleet, Hurried, Watched, assert_nothing_lost
from runs import make, rows

from interplay.distributed import cluster, engine_actor
from interplay.distributed.cluster import RolloutFleet
from interplay.distributed.crew import Crew
from interplay.engines import vllm
from interplay.engines.local import LocalEngine
from interplay.errors import ConfigError, GuardError
from interplay.rollout.judging import JudgedGroup
from interplay.rollout.records import read
from interplay.types import Episode

# The actors of the stand-in compute in the order in which threads end, so nothing here is bit-identical.
DATA = {
    **RECIPE,
    "train": {"steps": 2, "lr": 1e-2},
    "stream": {"deterministic": False},
    "cluster": {"rollout_workers": 1, "engines": 2},
}


class ActorDied(Exception):
    pass


class OutOfMemory(Exception):
    pass


class Handle:
    """An actor. A dead one fails every call, and one that hangs answers none until it is dead."""

    error: type[Exception] = ActorDied

    def __init__(self, made: Any, starts_in: float) -> None:
        self.made, self.dead, self.hangs = made, False, False
        self.begins = time.monotonic() + starts_in

    def __getattr__(self, name: str) -> Any:
        return SimpleNamespace(remote=lambda *given: asyncio.ensure_future(self._call(name, *given)))

    async def _call(self, name: str, *given: Any) -> Any:
        while (self.hangs or time.monotonic() < self.begins) and not self.dead:
            await asyncio.sleep(0.01)
        if self.dead:
            raise self.error("killed")
        if name == "work":
            given = copy.deepcopy(given)  # as Ray sends copies
        found = await getattr(self.made, name)(*given)
        if self.dead:
            raise self.error("killed during a call")
        return found


class FakeRay:
    exceptions = SimpleNamespace(
        RayActorError=ActorDied, OutOfMemoryError=OutOfMemory, ObjectLostError=ReferenceError, RayTaskError=KeyError,
        ObjectStoreFullError=MemoryError, OutOfDiskError=OSError,
    )  # fmt: skip

    starts_in = 0.0  # seconds until a new actor gives its first answer

    def remote(self, kind: Any) -> Any:
        made = lambda *given: Handle(kind(*given), self.starts_in)  # noqa: E731
        return SimpleNamespace(options=lambda **_: SimpleNamespace(remote=made))

    def put(self, what: Any) -> Any:
        return copy.deepcopy(what)  # as Ray's object store holds what it was given at that moment

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 64.0}

    def kill(self, handle: Handle) -> None:
        handle.dead = True


@pytest.fixture(autouse=True)
def ray(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    made = FakeRay()
    monkeypatch.setattr(cluster, "connect", lambda section: made)
    monkeypatch.setattr(engine_actor, "package", lambda: made)
    return made


def play(folder: Path, fleet: type[AnyFleet], *overrides: str) -> AnyFleet:
    made = fleets.play(folder, DATA, *overrides, fleet=fleet)
    assert_nothing_lost(folder, steps=2)
    return made


@pytest.mark.parametrize(
    ("engines", "workers", "error"),
    [(0, 0, ActorDied), (1, 0, ActorDied), (2, 0, OutOfMemory), (2, 1, ActorDied), (0, 1, OutOfMemory)],
)
def test_lost_engines_and_workers_are_replaced_and_no_episode_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engines: int, workers: int, error: type[Exception]
) -> None:
    """They are lost when they have got the weights of the second step. Ray has an error of its own for a process that
    it ends because the machine is short of memory."""
    monkeypatch.setattr(Handle, "error", error)

    class Losing(Watched):
        async def sync(self) -> None:
            await super().sync()
            if self.updates == 2:
                for handle in (*self.engines.actors[:engines], *self.workers[:workers]):
                    handle.dead = True

    fleet = play(tmp_path, Losing)
    assert (fleet.engines.lost, fleet.crew.lost) == (engines, workers)
    assert fleet.metrics()["cluster/engines_lost"] == engines


@pytest.mark.parametrize("policy", ["full weights", "adapter"])
@pytest.mark.parametrize("who", ["rollout worker", "engine"])
def test_the_probe_finds_an_update_that_one_of_several_engines_did_not_get(
    tmp_path: Path, who: str, policy: str
) -> None:
    """The second one is given the version of the new weights, with the tensors of the start. The run stops before
    anything is sampled from them."""

    class Losing(Watched):
        async def _load(self, index: int, sampler: Any) -> None:
            self.first = self._weights if self.updates == 0 else self.first
            newest = self._weights
            if index == 1 and self.updates == 1:
                self._weights = {name: replace(self.first[name], version=new.version) for name, new in newest.items()}
            try:
                await super()._load(index, sampler)
            finally:
                self._weights = newest

    shape = ("cluster.rollout_workers=2", "cluster.engines=0") if who == "rollout worker" else ()
    trainer = make(tmp_path, DATA, *shape, *(("policies.player.adapter={rank=2}",) if policy == "adapter" else ()))
    trainer.make_fleet = Losing
    with pytest.raises(GuardError, match=rf"policy 'player': after the update {who} 1's log-probs differ from the"):
        trainer.train()
    trainer.close()
    assert trainer.step_index == 1 and isinstance(trainer.fleet, Losing) and trainer.fleet.lost == 0


def test_engines_apart_play_the_snapshot_that_is_seated_and_not_one_that_was_released(tmp_path: Path) -> None:
    """A league in which every step seats another snapshot, with full weights."""
    league = {"every": 1, "capacity": 2, "lineup": 1}
    opponents = [{"share": 1.0, "one": "player", "others": "@league"}]
    trainer = make(tmp_path, {**DATA, "league": league, "matchups": opponents}, "train.steps=3", "cluster.engines=1")
    trainer.make_fleet = Watched
    trainer.train()
    trainer.close()
    assert [row["episodes_failed"] for row in rows(tmp_path)] == [0, 0, 0]
    seated = {str(who) for r in read(tmp_path / "episodes.jsonl") for who in r.episode.seats.values()}
    assert {"player@start", "player@2"} <= seated  # one of them was released before the other was seated


def test_a_reference_is_loaded_by_the_learner_alone(tmp_path: Path) -> None:
    """With full weights it is a whole model, which every worker and every engine would need memory for."""
    trainer = make(tmp_path, {**DATA, "matchups": []}, "algorithm.kl=0.1", "cluster.engines=1")
    trainer.make_fleet = Watched
    trainer.train()
    trainer.close()
    assert isinstance(trainer.fleet, Watched) and {str(who) for who in trainer.snapshots.seated} == {"player@start"}
    assert [handle.made.snapshots for handle in (*trainer.fleet.workers, *trainer.fleet.engines.actors)] == [set()] * 2


# A frozen policy compares the episodes of a task, marks them, and compares each with an episode of the start.
JUDGES = {
    "group": {"kind": "pairwise", "who": "critic", "against": "group"},
    "marks": {"kind": "pointwise", "who": "critic", "marks": "expected", "scale": [1, 3]},
    "start": {"kind": "pairwise", "who": "critic", "against": "player@start"},
}
JUDGED = {
    **{key: value for key, value in DATA.items() if key not in ("matchups", "cluster")},
    "policies": {"player": {"base": "tiny-16x1"}, "critic": {"base": "tiny-16x2", "trainable": False}},
    "judges": JUDGES,
    "train": {"steps": 1},
}


def verdicts(folder: Path) -> dict[str, list[tuple[str, float | None]]]:
    """What each judge gave, by episode."""
    found = [record.episode for record in read(folder / "episodes.jsonl")]
    return {e.id: [(x.name, x.value) for x in e.rewards if x.name in JUDGES] for e in found}


@pytest.mark.slow
@pytest.mark.parametrize("engines", [0, 2])
def test_judges_that_are_policies_are_asked_by_workers_and_give_what_they_give_without_workers(
    tmp_path: Path, engines: int
) -> None:
    """All engines are lost when the first judge is asked; then it is asked again."""

    class Losing(Watched):
        asked = 0

        async def judge(self, name: str, episodes: Sequence[Episode]) -> JudgedGroup:
            self.asked += 1
            if self.asked == 1:
                for handle in self.engines.actors:
                    handle.dead = True
            return await super().judge(name, episodes)

    alone = make(tmp_path / "alone", JUDGED)
    alone.train()
    alone.close()
    trainer = make(tmp_path / "two", JUDGED, "cluster.rollout_workers=2", f"cluster.engines={engines}")
    trainer.make_fleet = Losing
    trainer.train()
    trainer.close()
    assert isinstance(trainer.fleet, Losing) and trainer.fleet.engines.lost == engines
    assert trainer.fleet.asked == 4 * len(JUDGES)  # about four tasks
    assert trainer.team.members["critic"].engine.stats().sampled_tokens == 0  # in the process of the run
    mine, theirs = verdicts(tmp_path / "two"), verdicts(tmp_path / "alone")
    assert mine.keys() == theirs.keys() and len(mine) == fleets.EPISODES
    for name, given in mine.items():
        assert {judge for judge, _ in given} == JUDGES.keys()
        assert [judge for judge, _ in given] == [judge for judge, _ in theirs[name]]
        assert [value for _, value in given] == pytest.approx([value for _, value in theirs[name]], abs=1e-4)
    keys = ("judge/", "judge_tokens")
    (first,), (expected,) = rows(tmp_path / "two"), rows(tmp_path / "alone")
    assert (first["episodes"], first["episodes_failed"]) == (fleets.EPISODES, 0)
    assert {k: v for k, v in first.items() if k.startswith(keys)} == pytest.approx(
        {k: v for k, v in expected.items() if k.startswith(keys)}, abs=1e-4
    )
    assert first["judge/group/coverage"] == 1.0


def test_a_worker_that_hangs_during_an_update_is_replaced(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Hanging(Hurried):
        async def sync(self) -> None:
            if self.updates == 1:
                self.workers[0].hangs = True
                self.hurry(0.2)
            await super().sync()

    fleet = play(tmp_path, Hanging, "cluster.engines=0")
    assert fleet.crew.lost == 1
    assert "rollout worker 0 was lost (no answer within 0.2 s (cluster.worker_timeout))" in caplog.text
    assert 0.2 <= fleet.waited < 10.0


@pytest.mark.slow
def test_an_engine_that_starts_a_server_has_the_time_that_a_server_has(
    tmp_path: Path, ray: FakeRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers nothing while its server starts, which may take longer than any answer later. It is lost once and
    starts again."""
    monkeypatch.setattr(vllm, "open_engine", lambda model, section, ranks, cpu: LocalEngine(model))
    ray.starts_in = 4.0

    class Losing(Watched):
        async def sync(self) -> None:
            await super().sync()
            if self.updates == 2:
                self.engines.actors[0].dead = True

    limits = ("cluster.worker_timeout=3", "engine.start_timeout=60")
    fleet = play(tmp_path, Losing, "engine.kind=vllm", "cluster.engines=1", *limits)
    assert (fleet.engines.lost, fleet.crew.lost) == (1, 0)


def test_a_signal_during_an_update_ends_the_run_with_a_checkpoint(tmp_path: Path) -> None:
    """The run does not wait for the worker that hangs, which would be lost after `cluster.worker_timeout`."""

    class Hanging(Watched):
        async def sync(self) -> None:
            if self.updates == 1:
                self.workers[0].hangs = True
                trainer.interrupt.ask()
            await super().sync()

    trainer = make(tmp_path, DATA, "cluster.engines=0")
    trainer.make_fleet = Hanging
    trainer.train()
    trainer.close()
    assert isinstance(trainer.fleet, Hanging)
    assert trainer.saved_step == trainer.step_index == 1 and trainer.fleet.updates == 1
    assert trainer.fleet.lost == 0


@pytest.mark.parametrize("who", ["workers", "engines"])
def test_a_worker_or_an_engine_that_hangs_while_it_plays_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, who: str
) -> None:
    """Nobody else would notice: an episode may take long, so the call that plays it has no time limit."""

    class Hanging(Hurried):
        async def sync(self) -> None:
            await super().sync()
            if self.updates == 2:
                actor = self.workers[0] if who == "workers" else self.engines.actors[0]
                actor.hangs = True
                monkeypatch.setattr(cluster, "_LOOK_EVERY", 0.1)
                self.hurry(0.2)

    fleet = play(tmp_path, Hanging, "cluster.engines=1")
    assert (fleet.crew.lost, fleet.engines.lost) == ((1, 0) if who == "workers" else (0, 1))
    assert "no answer within 0.2 s (cluster.worker_timeout)" in caplog.text and 0.2 <= fleet.waited < 10.0


def test_an_actor_that_is_always_lost_ends_the_run_with_a_sentence(tmp_path: Path) -> None:
    class Hopeless(RolloutFleet):
        async def _is_alive(self, actor: Any) -> None:
            raise TimeoutError

    async def work(actor: Any) -> None:
        await fleet._is_alive(actor)

    trainer = make(tmp_path, DATA)
    fleet = Hopeless(trainer)

    async def tried() -> Awaitable[None] | None:
        return await fleet.crew.do(0, work, restarts=1)

    with pytest.raises(Exception, match=r"rollout worker 0 was lost 2 times \(cluster.restarts\)"):
        asyncio.run(tried())
    trainer.close()


def test_a_recipe_that_an_actor_refuses_ends_the_run_at_once(ray: FakeRay) -> None:
    """Ray says so in the text of its error."""
    said = "The actor died because of an error raised in its creation task, at 10.0.0.1\n  File x\n"

    async def ask(actor: Any) -> None:
        raise ActorDied(
            f"{said}interplay.errors.ConfigError: engine.kind is 'vllm', and 'python' has no vLLM; do this."
        )

    async def welcome(index: int) -> None:
        raise AssertionError("it was replaced")

    crew = Crew(ray, "engine", 1, lambda: Handle(None, 0.0), welcome)
    with pytest.raises(ConfigError, match=r"^engine.kind is 'vllm', and 'python' has no vLLM; do this\.$"):
        asyncio.run(crew.do(0, ask, restarts=3))


def test_a_new_actor_is_asked_nothing_before_it_was_welcomed(ray: FakeRay) -> None:
    """It may need long to start. Somebody else who asks it meanwhile must not take it for lost."""
    ready: list[object] = []

    async def welcome(index: int) -> None:
        await asyncio.sleep(0.05)
        ready.append(crew.actors[index])

    async def ask(actor: Any) -> str:
        if actor not in ready:
            raise TimeoutError
        return "here"

    async def both() -> list[str]:
        first = asyncio.ensure_future(crew.do(0, ask, restarts=1))
        await asyncio.sleep(0.01)  # the actor is being replaced now
        return await asyncio.gather(first, crew.do(0, ask, restarts=1))

    crew = Crew(ray, "engine", 1, lambda: Handle(None, 0.0), welcome)
    assert asyncio.run(both()) == ["here", "here"] and crew.lost == 1
