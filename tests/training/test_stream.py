"""Training on a stream: synchronous, or with episodes that continue while the learner works."""

from __future__ import annotations

import asyncio
import copy
import json
import math
import random
import threading
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from runs import Killed, killed_at, make, rows, train

from interplay.config import parse
from interplay.engines.engine import Request
from interplay.engines.local import LocalEngine
from interplay.errors import ConfigError, GuardError
from interplay.models.latch import latch_of
from interplay.rollout import records
from interplay.rollout.league import League
from interplay.rollout.members import Members
from interplay.rollout.resolve import resolve
from interplay.rollout.stream import DrawnTask, Stream
from interplay.training import checkpoint, feed, probe
from interplay.training.checkpoint import file_digest
from interplay.training.feed import Feed
from interplay.training.learning import Learning
from interplay.training.minibatches import token_weights
from interplay.training.snapshots import Snapshots
from interplay.training.tally import Clock
from interplay.training.trainer import Observer, Trainer
from interplay.training.tries import Example
from interplay.types import Episode, Sample

RECIPE: dict[str, Any] = {
    "name": "stream",
    "env": {"name": "tictactoe", "brief": True},
    "policies": {"player": {"base": "tiny-16x1"}},
    "seats": "player",
    "algorithm": {"name": "grpo", "group": 2, "correction": "tis"},
    "sampling": {"max_tokens": 2, "legal": True},
    "rollout": {"tasks": 4},
    "train": {"steps": 6, "lr": 1e-2},
    "eval": {"opponents": ["bot:random"]},
    "records": {"episodes_per_step": 1000, "tensorboard": "off"},
    "checkpoint": {"every": 1, "keep": 100},
}
ADAPTED = {**RECIPE, "policies": {"player": {"base": "tiny-16x1", "adapter": {"rank": 4}}}}
AHEAD = "stream.max_staleness=1"


def consumed(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "stream.jsonl").read_text().splitlines()]


def weights(folder: Path, step: int) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(folder / "checkpoints" / f"step-{step:06d}" / "policies" / "player" / "model.safetensors")


def zero_shares(row: Mapping[str, Any]) -> list[float]:
    """The share of the turns of each role that have no advantage."""
    return [share for key, share in row.items() if key.startswith("credit/zero_share/")]


def test_synchronous_training_samples_a_step_with_its_own_weights(tmp_path: Path) -> None:
    """Task n belongs to step n // tasks, in order, and all its tokens have the newest version."""
    train(tmp_path, RECIPE)
    for row in consumed(tmp_path):
        low, high = row["versions"]["player"]
        assert row["group"] // 4 == row["step"] - 1 == row["drawn_at"] and low == high
    assert [row["group"] for row in consumed(tmp_path)] == list(range(24))


def test_with_staleness_sampling_runs_ahead_within_its_bound(tmp_path: Path) -> None:
    train(tmp_path, RECIPE, AHEAD)
    taken = consumed(tmp_path)
    assert len({row["group"] for row in taken}) == len(taken) == 24
    assert all(row["step"] - 1 - row["drawn_at"] <= 1 for row in taken)
    found = rows(tmp_path)
    assert any(row["stream/staleness"] > 0 for row in found)
    # Which games a step has depends on time. If all games of each group ended alike, there is nothing to learn.
    learned = [row for row in found if set(zero_shares(row)) != {1.0}]
    assert len(learned) >= len(found) / 2
    assert all(row["player/probe"] < 1e-4 and row["player/gap"] < 1e-4 for row in learned)
    assert any(row.get("player/stale_kl", 0.0) > 0 for row in found)
    ages = [[row["stream/age/0"], row["stream/age/1"], row["stream/masked"]] for row in found]
    assert all(sum(shares) == pytest.approx(1.0) for shares in ages) and any(shares[1] > 0 for shares in ages)


def test_a_step_can_be_replayed_from_the_log(tmp_path: Path) -> None:
    """The groups that stream.jsonl names, read from the records and trained on in that order, give the same weights."""
    train(tmp_path, RECIPE, AHEAD)
    step = 4
    wanted = [name for row in consumed(tmp_path) if row["step"] == step for name in row["episodes"]]
    kept = {r.episode.id: r.episode for r in records.read(tmp_path / "episodes.jsonl") if r.step == step}
    again = tmp_path / "again"
    (again / "checkpoints").mkdir(parents=True)
    source = tmp_path / "checkpoints" / f"step-{step - 1:06d}"
    (again / "checkpoints" / source.name).symlink_to(source)
    trainer = make(again, RECIPE, AHEAD)
    before = {name: m.version for name, m in trainer.team.members.items()}
    trainer.follow_learners()
    # What was newest then is newest now; older versions are one training step behind.
    for row in consumed(tmp_path):
        if row["step"] == step:
            for version in row["versions"].get("player", ()):
                if version != before["player"]:
                    trainer.versions.made("player", version, step - 2)
    trainer.learning.learn([kept[name] for name in wanted], Clock())
    found = {k: v.clone() for k, v in trainer.team.members["player"].loaded.model.state_dict().items()}
    trainer.close()
    for name, tensor in weights(tmp_path, step).items():
        assert torch.equal(tensor, found[name]), name


def test_a_killed_run_issues_again_what_it_had_not_trained_on(tmp_path: Path) -> None:
    """With the same tasks and seeds: after the resume every task was trained on exactly once, and none was skipped."""
    with pytest.raises(Killed):
        train(tmp_path, RECIPE, AHEAD, "checkpoint.every=2", observer=killed_at(3))
    train(tmp_path, RECIPE, AHEAD, "checkpoint.every=2")
    taken = [row["group"] for row in consumed(tmp_path)]
    assert sorted(taken) == sorted(set(taken)) and len(taken) == 24
    assert {row["step"] for row in consumed(tmp_path)} == set(range(1, 7))
    assert max(taken) - len(taken) < 8, "no task was left out for good"
    names = {r.episode.task.id for r in records.read(tmp_path / "episodes.jsonl")}
    assert names == {f"tictactoe-train-0-{n}" for n in taken}


GROWS = {"kind": "staged", "success": "win", "threshold": 0.01, "window": 8}
CHOOSERS: dict[str, dict[str, Any]] = {
    "staged": {"curriculum": {**GROWS, "stages": [{"size": 2, "line": 2}, {"size": 3}, {"size": 3, "line": 2}]}},
    "replay": {"curriculum": {"kind": "replay", "success": "win", "replay": 0.9}},
    "league": {
        "league": {"every": 1, "capacity": 2, "lineup": 2, "draw": "latest"},
        "matchups": [{"share": 0.9, "one": "player", "others": "@league"}],
    },
}


@pytest.mark.parametrize("name", CHOOSERS)
def test_what_is_issued_again_are_the_same_tasks_against_the_same_opponents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """They were drawn before the last step, with the curriculum and the league as they were then. Curriculum and league
    have changed since, but the tasks that a resumed run issues again have not."""
    drawn: dict[int, Any] = {}
    draw = Feed._draw

    def noted(self: Feed, number: int) -> DrawnTask:
        found = draw(self, number)
        drawn[number] = found.task, {r: str(who) for r, who in self._seats[number].items()}, found.at
        return found

    monkeypatch.setattr(Feed, "_draw", noted)
    data = {**RECIPE, **CHOOSERS[name]}
    with pytest.raises(Killed):
        train(tmp_path, data, AHEAD, observer=killed_at(3))
    before, again = dict(drawn), json.loads((tmp_path / "checkpoints/step-000003/trainer.json").read_text())["stream"]
    assert again["again"] and all(before[n][2] < 3 for n in again["again"]), "drawn before the last step"
    drawn.clear()
    train(tmp_path, data, AHEAD, "train.steps=5")
    assert {n: drawn[n] for n in again["again"]} == {n: before[n] for n in again["again"]}
    assert len({row["group"] for row in consumed(tmp_path)}) == len(consumed(tmp_path)) == 20
    moves = {json.dumps(origin) for origin in again["origins"].values()}
    now = json.loads((tmp_path / "checkpoints/step-000005/trainer.json").read_text())
    kind = "league" if name == "league" else "curriculum"
    assert all(json.loads(origin)[kind] != now[kind] for origin in moves), "something has changed since"


def everything(trainer: Any) -> dict[str, Any]:
    """What a run holds between two steps: weights, optimisers, curriculum, league, versions, open tasks."""
    found = {f"weights/{k}": v.clone() for k, v in trainer.team.members["player"].loaded.model.state_dict().items()}
    rest = {
        "optimiser": trainer.learners["player"].state_dict(),
        "curriculum": None if trainer.curriculum is None else trainer.curriculum.state_dict(),
        "league": None if trainer.league is None else trainer.league.state_dict(),
        "version": trainer.team.members["player"].version,
        "tokens": dict(trainer.tokens),
        "stream": trainer.stream,
    }
    return found | flat(copy.deepcopy(rest))


def flat(tree: Any, path: str = "") -> dict[str, Any]:
    if isinstance(tree, dict):
        return {k: v for key, value in tree.items() for k, v in flat(value, f"{path}/{key}").items()}
    if isinstance(tree, list | tuple):
        return {k: v for i, value in enumerate(tree) for k, v in flat(value, f"{path}/{i}").items()}
    return {path: tree}


@pytest.mark.slow
@pytest.mark.parametrize("name", CHOOSERS)
def test_random_kills_resume_with_the_same_state_tasks_and_seeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A run that samples ahead is killed seven times: before or after it pulls, learns, works in a pause, writes its
    records, or writes a checkpoint; the seed chooses. Each time it goes on with exactly what the last checkpoint held.
    A task that is issued again has the same opponents, and its replies are sampled with the same seeds."""
    rng, saved = random.Random(name), dict[int, dict[str, Any]]()
    calls = {"left": 0}
    tasks: dict[int, set[str]] = {}
    seeds: dict[tuple[Any, ...], set[int]] = {}
    asked: list[tuple[Any, ...]] = []
    draw, generate, save = Feed._draw, LocalEngine.generate, Trainer.save

    def counted() -> None:
        calls["left"] -= 1
        if calls["left"] == 0:
            raise Killed

    def dangerous(where: Any, what: str) -> None:
        work = getattr(where, what)

        async def awaited(*given: Any) -> Any:
            counted()
            found = await work(*given)
            counted()
            return found

        def done(*given: Any) -> Any:
            counted()
            found = work(*given)
            counted()
            return found

        monkeypatch.setattr(where, what, awaited if asyncio.iscoroutinefunction(work) else done)

    def noted(self: Feed, number: int) -> DrawnTask:
        found = draw(self, number)
        seats = {r: str(who) for r, who in self._seats[number].items()}
        tasks.setdefault(number, set()).add(f"{found.task} {seats}")
        return found

    async def sampled(self: LocalEngine, request: Request) -> Any:
        seeds.setdefault(request.key, set()).add(request.seed)
        asked.append(request.key)
        return await generate(self, request)

    def keep(self: Trainer) -> None:
        save(self)
        saved[self.step_index] = everything(self)

    monkeypatch.setattr(Feed, "_draw", noted)
    monkeypatch.setattr(LocalEngine, "generate", sampled)
    monkeypatch.setattr(Trainer, "save", keep)
    for where, what in (
        (Feed, "pull"), (Learning, "learn"), (Trainer, "_between"), (Trainer, "_write"), (checkpoint, "save"),
        (checkpoint, "prune"),
    ):  # fmt: skip
        dangerous(where, what)
    data, kills = {**RECIPE, **CHOOSERS[name]}, 0
    while kills < 7:
        trainer = make(tmp_path, data, AHEAD, "train.steps=8")
        if saved:
            held = everything(trainer)
            before = saved.get(trainer.step_index)
            assert before is not None or trainer.step_index == max(saved) + 1, "only the newest checkpoint may be cut"
            for key, value in (before or held).items():
                assert torch.equal(value, held[key]) if isinstance(value, torch.Tensor) else value == held[key], key
        calls["left"] = rng.randint(3, 14)
        try:
            trainer.train()
        except Killed:
            kills += 1
        else:
            break
        finally:
            trainer.close()
    assert kills >= 4, "the run has ended before it was killed often"
    calls["left"] = 0
    train(tmp_path, data, AHEAD, "train.steps=8")
    assert all(len(found) == 1 for found in tasks.values()), "a number always names the same task and opponents"
    assert all(len(found) == 1 for found in seeds.values()) and len(asked) > len(seeds), "some were asked again"
    taken = [row["group"] for row in consumed(tmp_path)]
    assert len(taken) == len(set(taken)) == 32 and {row["step"] for row in consumed(tmp_path)} == set(range(1, 9))
    assert max(taken) - len(taken) < 8, "no task was left out for good"


def test_a_group_that_took_many_steps_is_issued_again_after_a_resume(tmp_path: Path) -> None:
    """The others have overtaken it, so that it is older than max_staleness."""
    train(tmp_path, RECIPE, AHEAD, "train.steps=4")
    papers = tmp_path / "checkpoints/step-000004/trainer.json"
    saved = json.loads(papers.read_text())
    saved["stream"]["again"] = [1, *saved["stream"]["again"][1:]]
    manifest = papers.with_name("MANIFEST.json")
    papers.write_text(json.dumps(saved))
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), papers.name: file_digest(papers)}))
    train(tmp_path, RECIPE, AHEAD)
    assert 1 in [row["group"] for row in consumed(tmp_path) if row["step"] > 4]


def test_dropping_stale_episodes_replaces_their_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An episode with a token that is too old is not trained on at all; the batch is still full."""
    trainer = make(tmp_path, RECIPE, AHEAD, "stream.stale=drop", "train.steps=3")
    real = trainer.versions.lags
    monkeypatch.setattr(
        trainer.versions, "lags", lambda name, versions, step: tuple(3 * lag for lag in real(name, versions, step))
    )
    trainer.train()
    trainer.close()
    assert all(row["episodes"] == 8 for row in rows(tmp_path))
    dropped = rows(tmp_path)[-1]["stream/dropped"]
    assert dropped > 0 and all(row["stream/staleness"] == 0 for row in rows(tmp_path))
    train(tmp_path, RECIPE, AHEAD, "stream.stale=drop", "train.steps=4")
    assert rows(tmp_path)[-1]["stream/dropped"] >= dropped, "a resumed run goes on counting"


def test_masked_tokens_are_counted_and_their_turns_stay_in_the_baseline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every token that is not of the newest weights counts as too old: no episode is dropped, the advantages of a group
    are those of all its episodes, and the share of masked tokens is reported."""
    trainer = make(tmp_path, RECIPE, AHEAD, "algorithm.average=turn")
    real = trainer.versions.lags
    monkeypatch.setattr(
        trainer.versions, "lags", lambda name, versions, step: tuple(3 * lag for lag in real(name, versions, step))
    )
    trainer.train()
    trainer.close()
    found = rows(tmp_path)
    assert all(row["episodes"] == 8 and row["stream/dropped"] == 0 for row in found)
    assert any(row["stream/masked"] > 0 for row in found)
    assert all(row["stream/age/1"] == 0 for row in found), "1 becomes 3, which is too old"
    old = {row["step"] for row in found if row["stream/masked"] > 0}
    kept = [r for r in records.read(tmp_path / "episodes.jsonl") if r.step in old]
    assert kept
    for step in old:
        for task in {r.episode.task.id for r in kept if r.step == step}:
            group = [r for r in kept if (r.step, r.episode.task.id) == (step, task)]
            for role in "XO":
                sums = [_return(r.episode, role) for r in group]
                means = [_advantage(r, role) for r in group]
                if sums[0] != sums[1]:
                    assert sum(means) == pytest.approx(0.0, abs=1e-6) and means[0] * (sums[0] - sums[1]) > 0


def _return(episode: Episode, role: str) -> float:
    return sum(r.value or 0.0 for r in episode.rewards.of(role))


def _advantage(record: Any, role: str) -> float:
    """The advantage of the role's first turn."""
    first = next(t for t in record.episode.turns if t.role == role)
    found = record.credit.advantages[first.last.id]
    return found if isinstance(found, float) else found[0]


@pytest.mark.parametrize("adapted", [False, True], ids=["full weights", "adapter"])
def test_every_optimiser_step_makes_a_version(tmp_path: Path, adapted: bool) -> None:
    """Three minibatches are three versions. With S = 0 the tokens of a step have the last version of the step before;
    with full weights and S = 1 a token may also have one from the middle of a step."""
    data = ADAPTED if adapted else RECIPE
    train(tmp_path, data, "train.minibatches=3", "train.steps=3", "rollout.tasks=6")
    seen = {row["step"]: row["versions"]["player"] for row in consumed(tmp_path)}
    first = seen[1][0]
    assert seen == {1: [first] * 2, 2: [first + 3] * 2, 3: [first + 6] * 2}


@pytest.mark.parametrize("kept", ["recompute", "keep"])
def test_the_recipe_says_what_happens_to_a_running_requests_cache(tmp_path: Path, kept: str) -> None:
    trainer = make(tmp_path, RECIPE, AHEAD, f"stream.cache={kept}")
    engine: Any = trainer.team.members["player"].engine
    assert engine.keep_cache is (kept == "keep")
    trainer.close()


def test_the_engine_may_read_the_weights_until_the_optimiser_writes(tmp_path: Path) -> None:
    """A reader gets in during every forward pass of a training step, and during none of the optimiser's writes."""
    trainer = make(tmp_path, RECIPE, "train.steps=1")
    learner: Any = trainer.learners["player"]
    latch, during = latch_of(learner.model), list[tuple[str, bool]]()

    def read() -> bool:
        entered = threading.Event()

        def enter() -> None:
            with latch.reading():
                entered.set()

        threading.Thread(target=enter, daemon=True).start()
        return entered.wait(0.2 if latch._writer is not None else 30)

    def watched(owner: Any, name: str, what: str) -> None:
        real = getattr(owner, name)

        def call(*given: Any, **named: Any) -> Any:
            if threading.current_thread().name == "interplay-learner":
                during.append((what, read()))
            return real(*given, **named)

        setattr(owner, name, call)

    watched(learner.model.base_model, "forward", "forward")
    watched(learner.optimizer, "step", "optimiser")
    trainer.train()
    trainer.close()
    assert ("forward", True) in during and ("optimiser", False) in during
    assert not {("forward", False), ("optimiser", True)} & set(during)


def test_the_stream_lives_on_one_event_loop_that_goes_on_while_the_learner_works(tmp_path: Path) -> None:
    """The learner waits inside its step until the event loop has run something; a blocked loop would never do so."""
    trainer = make(tmp_path, RECIPE, "train.steps=3")
    loops: list[asyncio.AbstractEventLoop] = []
    pull, learn, save = Feed.pull, trainer.learning.learn, trainer.save
    ran: list[tuple[str, bool]] = []

    async def noted() -> Any:
        loops.append(asyncio.get_running_loop())
        return await pull(trainer.feed)

    def alive(what: str) -> None:
        beat = threading.Event()
        loops[-1].call_soon_threadsafe(beat.set)
        ran.append((what, beat.wait(600)))

    def learned(*given: Any) -> Any:
        alive("learn")
        return learn(*given)

    def saved() -> None:
        if loops:  # the first checkpoint is written before the stream begins
            alive("save")
        save()

    trainer.learning.learn = learned  # type: ignore[method-assign]
    trainer.save = saved  # type: ignore[method-assign]
    run = trainer._one_step

    async def stepped() -> Any:
        trainer.feed.pull = noted  # type: ignore[method-assign]
        return await run()

    trainer._one_step = stepped  # type: ignore[method-assign]
    trainer.train()
    trainer.close()
    assert len(loops) == 3 and len({id(loop) for loop in loops}) == 1
    assert ran == [("learn", True), ("save", True)] * 3


@pytest.mark.slow
def test_snapshots_are_written_and_read_while_the_event_loop_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Snapshots of a league, a rollback, a refreshed reference, and copies for an evaluation beside the stream: each
    waits until the event loop has run something. A blocked loop would never do so."""
    loops: list[asyncio.AbstractEventLoop] = []
    ran: list[tuple[str, bool]] = []

    def beats(cls: type, name: str) -> None:
        work = getattr(cls, name)

        def beating(self: Any, *given: Any) -> Any:
            if loops:  # some are written before the stream begins
                beat = threading.Event()
                loops[-1].call_soon_threadsafe(beat.set)
                ran.append((name, beat.wait(600)))
            return work(self, *given)

        monkeypatch.setattr(cls, name, beating)

    for cls, name in ((Snapshots, "keep"), (Members, "freeze"), (Members, "restore")):
        beats(cls, name)
    advance = Stream.advance
    monkeypatch.setattr(Stream, "advance", lambda s, v: loops.append(asyncio.get_running_loop()) or advance(s, v))
    alarm = {"panel": ["bot:random"], "games": 2, "drop": 1.0}
    data = {**RECIPE, **CHOOSERS["league"], "league": {**CHOOSERS["league"]["league"], "alarm": alarm}}

    async def measured(team: Any, step: int, seats: Any) -> dict[str, float]:
        return {}

    fallen = iter([None, "it lost too much", *[None] * 10])
    monkeypatch.setattr(League, "symptom", lambda *_: next(fallen))
    kl = ("algorithm.kl=0.1", "algorithm.kl_refresh=2")
    often = ("train.steps=4", "eval.every=1", "eval.beside=true", *kl)
    train(tmp_path, data, AHEAD, *often, observer=Observer(evaluate=measured))
    assert {name for name, _ in ran} == {"keep", "freeze", "restore"}
    assert all(alive for _, alive in ran), ran


def test_an_evaluation_beside_the_stream_measures_frozen_copies(tmp_path: Path) -> None:
    """It begins after its step and ends when it likes; its metrics come with the next evaluation, or at the end, and
    name the step that they are of. The copies are those of that step, although the policy has gone on."""
    trainer = make(tmp_path, RECIPE, AHEAD, "eval.every=2", "eval.beside=true", "train.steps=4")
    member = trainer.team.members
    frozen: dict[int, list[dict[str, torch.Tensor]]] = {}
    seated: dict[int, set[str]] = {}

    def tensors(name: Any) -> dict[str, torch.Tensor]:
        return {k: v.clone() for k, v in member[str(name)].loaded.model.state_dict().items()}

    async def measure(team: Any, step: int, seats: Any) -> dict[str, float]:
        seated[step] = {str(who) for who in seats.values()}
        frozen[step] = [tensors("player@eval")]
        while trainer.step_index == step and step < 4:
            await asyncio.sleep(0.001)
        frozen[step].append(tensors("player@eval"))
        return {"eval/score": float(step)}

    trainer.observer = Observer(evaluate=measure)
    trainer.train()
    trainer.close()
    assert seated == {2: {"player@eval"}, 4: {"player@eval"}}
    for step, copies in frozen.items():
        assert all(torch.equal(v, copy[k]) for copy in copies for k, v in weights(tmp_path, step).items()), step
    assert [(row["step"], row["eval/step"]) for row in rows(tmp_path) if "eval/step" in row] == [(4, 2.0)]


def test_an_evaluation_in_a_pause_measures_the_newest_version(tmp_path: Path) -> None:
    """Without `eval.beside`, nothing is sampled for training meanwhile."""
    trainer = make(tmp_path, RECIPE, AHEAD, "eval.every=1", "train.steps=3")
    found: list[tuple[bool, bool, set[str]]] = []

    async def measure(team: Any, step: int, seats: Any) -> dict[str, float]:
        engine: Any = team.members["player"].engine
        before = engine.stats().sampled_tokens
        await asyncio.sleep(0.05)
        newest = trainer.versions.newest("player") == engine.version
        found.append((newest, engine.stats().sampled_tokens == before, {str(who) for who in seats.values()}))
        return {}

    trainer.observer = Observer(evaluate=measure)
    trainer.train()
    trainer.close()
    assert found == [(True, True, {"player"})] * 3


def test_a_snapshot_stays_in_memory_while_an_episode_plays_against_it(tmp_path: Path) -> None:
    """The league holds two snapshots, and each step adds one. A group that is being played may name an older one, which
    is released only when the group has been pulled. Snapshots come and go only while the stream is paused."""
    trainer = make(tmp_path, {**RECIPE, **CHOOSERS["league"]}, AHEAD, "train.steps=5")
    gone: list[str] = []
    moved: list[str] = []
    seat = trainer.snapshots.seat

    def watched(wanted: Any) -> None:
        if not hasattr(trainer, "feed"):  # before the stream begins
            seat(wanted)
            return
        if trainer.step_index and not trainer.feed.stream.pause.on:
            moved.extend(map(str, trainer.snapshots.seated ^ set(wanted)))
        playing = {who for seats in trainer.feed._seats.values() for who in feed.snapshots_in(seats)}
        gone.extend(str(who) for who in playing - set(wanted))
        seat(wanted)

    trainer.snapshots.seat = watched  # type: ignore[method-assign]
    released: list[str] = []
    release = trainer.team.pool.release
    trainer.team.pool.release = lambda who: released.append(str(who)) or release(who)  # type: ignore[method-assign]
    trainer.train()
    trainer.close()
    assert gone == moved == [] and released


def test_uncorrected_losses_are_refused_ahead_of_training() -> None:
    with pytest.raises(ConfigError, match=r"algorithm.correction is 'none'; expected 'tis' or 'icepop'"):
        resolve(parse(RECIPE, [AHEAD, "algorithm.correction=none"]))
    with pytest.raises(ConfigError, match=r"stream.deterministic is true, but with stream.max_staleness = 1"):
        resolve(parse(RECIPE, [AHEAD, "stream.deterministic=true"]))


def example(name: str, size: int, lags: tuple[int, ...] | None = None) -> Example:
    return Example("p", Sample(name, (1,), (2,) * size, (-1.0,) * size, (0,) * size, ""), 1.0, lags=lags)


def test_stale_tokens_leave_the_denominator() -> None:
    """For every kind of average: tokens, samples, or a constant length per sample."""
    mixed = [example("a", 4, (2, 2, 1, 0)), example("b", 2), example("c", 3, (5, 5, 5))]
    assert token_weights(mixed, "token", 1) == {"a": 1 / 4, "b": 1 / 4, "c": 0.0}
    assert token_weights(mixed, "turn", 1) == {"a": 1 / 4, "b": 1 / 4, "c": 0.0}
    assert token_weights(mixed, 10, 1) == {"a": 1 / 20, "b": 1 / 20, "c": 0.0}


def test_stale_tokens_have_no_gradient(tmp_path: Path) -> None:
    """Two batches that differ only in the log-probs and advantages of stale tokens change the weights in the same
    way."""
    from dataclasses import replace

    from interplay.training.learner import Objective

    moved = []
    for other in (False, True):
        trainer = make(tmp_path / str(other), RECIPE)
        learner = trainer.learners["player"]
        samples = [
            Sample(f"s{i}", (3, 4, 5 + i), (20, 21 + i, 22), (-5.0, -5.0, -5.0), (0, 0, 0), "") for i in range(3)
        ]
        found = learner.logprobs([Example("player", s) for s in samples])
        samples = [replace(s, logprobs=tuple(lp)) for s, lp in zip(samples, found, strict=True)]
        lags = ((2, 0, 1), (0, 0, 0), (2, 2, 2))
        examples = [
            Example("player", s, (0.5, 0.5, -0.5), lags=lag if any(lag) else None)
            for s, lag in zip(samples, lags, strict=True)
        ]
        if other:
            odd = replace(samples[0], logprobs=(-9.0, *samples[0].logprobs[1:]))
            examples[0] = replace(examples[0], sample=odd, advantage=(7.0, 0.5, -0.5))
            examples[2] = replace(examples[2], advantage=(9.0, 9.0, 9.0))
        learner.step(examples, Objective(trainer.algorithm.loss, "token", True, 1))
        moved.append({k: v.clone() for k, v in learner.model.state_dict().items()})
        trainer.close()
    for name in moved[0]:
        torch.testing.assert_close(moved[0][name], moved[1][name], atol=0, rtol=0)


@pytest.mark.parametrize("count", [1, 4])
def test_stale_kl_is_a_mean_over_stale_tokens_however_the_step_is_cut(tmp_path: Path, count: int) -> None:
    """One of four samples is stale, so with four minibatches only one of them has stale tokens."""
    from dataclasses import replace

    from interplay.training.learner import Objective

    trainer = make(tmp_path, RECIPE, f"train.minibatches={count}", AHEAD)
    learner = trainer.learners["player"]
    samples = [Sample(f"s{i}", (3, 4, 5 + i), (20, 21), (-5.0, -5.0), (0, 0), "") for i in range(4)]
    found = learner.logprobs([Example("player", s) for s in samples])
    samples = [replace(s, logprobs=tuple(x + 0.5 * (n == 0) for x in found[n])) for n, s in enumerate(samples)]
    examples = [Example("player", s, 1.0, lags=None if n else (1, 1)) for n, s in enumerate(samples)]
    metrics = learner.step(examples, Objective(trainer.algorithm.loss, "token", True, 1))
    trainer.close()
    assert metrics["stale_kl"] == pytest.approx(math.expm1(-0.5) + 0.5, rel=1e-5)


@pytest.mark.parametrize("recipe", [RECIPE, ADAPTED], ids=["full", "adapter"])
def test_a_policy_takes_no_step_if_all_its_tokens_are_too_old(tmp_path: Path, recipe: dict[str, Any]) -> None:
    """Otherwise momentum and weight decay would change its weights, and its entropy would be reported as 0."""
    from dataclasses import replace

    from interplay.training.learner import Objective

    trainer = make(tmp_path, recipe, AHEAD, "train.weight_decay=0.1")
    learner = trainer.learners["player"]
    written: list[bool] = []
    learner.written = lambda: written.append(True)
    samples = [Sample(f"s{i}", (3, 4, 5 + i), (20, 21), (-5.0, -5.0), (0, 0), "") for i in range(4)]
    found = []
    for lags in (None, (2, 3)):
        now = learner.logprobs([Example("player", s) for s in samples])
        mine = [replace(s, logprobs=tuple(lp)) for s, lp in zip(samples, now, strict=True)]
        examples = [Example("player", s, 1.0, lags=lags) for s in mine]
        metrics = learner.step(examples, Objective(trainer.algorithm.loss, "token", False, 1))
        found.append({k: v.detach().clone() for k, v in learner.weights().items()})
    trainer.close()
    assert len(written) == 1 and all(torch.equal(v, found[1][k]) for k, v in found[0].items())
    assert metrics["stale_kl"] == pytest.approx(0.0, abs=1e-6) and "entropy" not in metrics


# -- the probe --------------------------------------------------------------------------------------------------------


def refused(trainer: Any) -> None:
    try:
        with pytest.raises(GuardError, match="The engine does not use the weights that were trained"):
            trainer.train()
    finally:
        trainer.close()


def keep_old_head(trainer: Any) -> None:
    """Give the engine a copy of the output layer, which training does not reach."""
    runner = trainer.team.members["player"].engine.runner
    old = torch.nn.Linear(*reversed(runner.head.weight.shape), bias=False)
    with torch.no_grad():
        old.weight.copy_(runner.head.weight)
    runner.head = old


@pytest.mark.parametrize(
    "how", [(), ("stream.deterministic=false",), (AHEAD,)], ids=["deterministic", "not deterministic", "ahead"]
)
def test_the_probe_finds_an_output_layer_that_kept_old_weights(tmp_path: Path, how: tuple[str, ...]) -> None:
    trainer = make(tmp_path, RECIPE, *how)
    keep_old_head(trainer)
    refused(trainer)
    assert trainer.step_index == 1, "found after the first update"


def test_the_probe_finds_an_adapter_that_was_not_delivered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = make(tmp_path, ADAPTED)
    engine: Any = trainer.team.members["player"].engine
    monkeypatch.setattr(engine, "load", lambda name, adapter, version: None)
    refused(trainer)


PAIR = {
    **RECIPE,
    "policies": {
        "x": {"base": "tiny-16x1", "adapter": {"rank": 4}},
        "o": {"base": "tiny-16x1", "adapter": {"rank": 4}},
    },
    "seats": {"X": "x", "O": "o"},
}


def test_adapters_of_one_base_are_probed_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The probe of both takes one forward pass of the engine, and one of the learner."""
    from interplay.training import forward

    trainer = make(tmp_path, PAIR, "train.steps=2")
    runner: Any = trainer.team.members["x"].engine.runner
    passes: list[str] = []

    def noted(name: str, call: Any) -> Any:
        return lambda *given: passes.append(name) or call(*given)

    compare = trainer.probe.compare

    async def watched(updated: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(runner, "_forward", noted("engine", runner._forward))
            patch.setattr(forward, "hidden_states", noted("learner", forward.hidden_states))
            return await compare(updated)

    trainer.probe.compare = watched  # type: ignore[method-assign]
    trainer.train()
    trainer.close()
    assert sorted(passes) == ["engine", "engine", "learner", "learner"], "once in each of two steps"
    assert all(row[f"{name}/probe"] < 1e-4 for row in rows(tmp_path) for name in "xo")


@pytest.mark.parametrize("whose", ["x", "o"])
def test_the_probe_names_the_policy_whose_adapter_was_not_delivered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whose: str
) -> None:
    trainer = make(tmp_path, PAIR)
    engine: Any = trainer.team.members[whose].engine
    load = engine.load
    monkeypatch.setattr(engine, "load", lambda name, *given: None if name == whose else load(name, *given))
    try:
        with pytest.raises(GuardError, match=f"policy '{whose}': after the update the engine's log-probs differ"):
            trainer.train()
    finally:
        trainer.close()


def test_the_probe_finds_a_scale_that_is_applied_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    trainer = make(tmp_path, ADAPTED)
    engine: Any = trainer.team.members["player"].engine
    load = engine.load
    monkeypatch.setattr(
        engine, "load", lambda name, adapter, version: load(name, replace(adapter, scale=2 * adapter.scale), version)
    )
    refused(trainer)


def test_the_probe_finds_prefix_blocks_that_were_computed_with_old_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = make(tmp_path, RECIPE)
    engine: Any = trainer.team.members["player"].engine
    monkeypatch.setattr(engine.scheduler, "flush", lambda: None)
    refused(trainer)
    assert trainer.step_index == 1, "found after the first update"


def test_the_probe_of_a_rounded_model_allows_unlikely_tokens_more() -> None:
    """In bf16 the log-prob of an unlikely token has a larger error. A difference of that size at likely tokens, or a
    log-prob that is no number, still stops the run."""
    learner: Any = SimpleNamespace(rounded=True, config=parse(RECIPE).train)
    assert learner.config.gap_mean_stop == 0.1
    unlikely = probe._checked("the engine's", learner, [[-10.0, -12.0]], [[-10.2, -11.8]])
    assert unlikely == pytest.approx(0.2 * (1 / 10 + 1 / 12) / 2)
    for ours, theirs in ([-0.4, -0.9], [-0.6, -0.7]), ([-10.0, -0.5], [-10.1, float("nan")]):
        with pytest.raises(GuardError, match="over 2 recent tokens"):
            probe._checked("the engine's", learner, [ours], [theirs])
    learner.rounded = False
    with pytest.raises(GuardError, match="gap_stop"):
        probe._checked("the engine's", learner, [[-10.0]], [[-10.2]])


def test_the_probe_scores_an_equal_reply_to_an_equal_prompt_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = make(tmp_path, RECIPE, "train.steps=1", "rollout.tasks=16")
    engine: Any = trainer.team.members["player"].engine
    asked: list[Any] = []
    score = engine.score

    def noted(ids: Any, replies: Any, *rest: Any) -> Any:
        asked.append((ids, *replies))
        return score(ids, replies, *rest)

    monkeypatch.setattr(engine, "score", noted)
    trainer.train()
    trainer.close()
    assert len(asked) == len(set(asked)) > 8, "32 games begin with the same prompt"


def test_a_step_takes_place_on_the_learners_own_thread(tmp_path: Path) -> None:
    trainer = make(tmp_path, RECIPE, "train.steps=1")
    threads: list[str] = []
    learn = trainer.learning.learn

    def watched(*given: Any) -> Any:
        threads.append(threading.current_thread().name)
        return learn(*given)

    trainer.learning.learn = watched  # type: ignore[method-assign]
    trainer.train()
    trainer.close()
    assert threads == ["interplay-learner"]
