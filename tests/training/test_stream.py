"""Training on a stream: synchronous, or with episodes that continue while the learner works."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from runs import Killed, killed_at, make, rows, train

from interplay.config import parse
from interplay.errors import ConfigError, GuardError
from interplay.rollout import records
from interplay.rollout.resolve import resolve
from interplay.training.minibatches import token_weights
from interplay.training.tally import Clock
from interplay.training.tries import Example
from interplay.types import Sample

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
AHEAD = "stream.max_staleness=1"


def consumed(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "stream.jsonl").read_text().splitlines()]


def weights(folder: Path, step: int) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(folder / "checkpoints" / f"step-{step:06d}" / "policies" / "player" / "model.safetensors")


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
    assert all(row["player/probe"] < 1e-4 and row["player/gap"] < 1e-4 for row in found)
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
    assert rows(tmp_path)[-1]["stream/dropped"] > 0
    assert all(row["stream/staleness"] == 0 for row in rows(tmp_path))


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


ADAPTED = {**RECIPE, "policies": {"player": {"base": "tiny-16x1", "adapter": {"rank": 4}}}}


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
    """And the event loop continues meanwhile."""
    import threading

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
