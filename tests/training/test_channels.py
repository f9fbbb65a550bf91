"""Soft channels in training: a channel is a policy of its own, and it solves a game that words cannot."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from runs import Killed, killed_at, make, rows, train

import interplay as ip
from interplay.algorithms import Independent
from interplay.cli.export import ExportRequest, export_run
from interplay.config import parse
from interplay.errors import CheckpointError, ConfigError, ModelError
from interplay.evaluation import ablation
from interplay.models.channel import load_channel
from interplay.rollout.records import read
from interplay.rollout.resolve import resolve
from interplay.rollout.runner import Runner
from interplay.rollout.team import Speech
from interplay.training import checkpoint
from interplay.training.trainer import Trainer
from interplay.types import SoftMessage

GAME: dict[str, Any] = {
    "name": "test",
    "device": "cpu",
    "env": {"name": "signalling", "states": 4},
    "policies": {n: {"base": "tiny-16x1", "adapter": {"rank": 4}} for n in ("speaker", "listener")},
    "seats": {"sender": "speaker", "receiver": "listener"},
    "channels": {"hint": {"sender": "sender", "receiver": "receiver", "tokens": 2, "size": 8, "heads": 2}},
    "algorithm": {"name": "grpo", "group": 4},
    "sampling": {"max_tokens": 2, "legal": True},
    "rollout": {"tasks": 4},
    "train": {"steps": 2, "lr": 1e-2},
}


def weights(trainer: Trainer) -> dict[str, list[torch.Tensor]]:
    """All trained tensors, by policy and channel."""
    found = {n: [t for pair in m.adapter.weights.values() for t in pair] if m.adapter else []
             for n, m in trainer.team.members.items() if n in trainer.learners}  # fmt: skip
    found |= {n: list(c.parameters()) for n, c in trainer.team.pool.channels.items()}
    return {n: [t.detach().clone() for t in tensors] for n, tensors in found.items()}


def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("fuse", ["tokens", "gated"])
def test_a_run_trains_the_channel_and_leaves_the_base_as_it_is(tmp_path: Path, fuse: str) -> None:
    trainer = make(tmp_path, GAME, f"channels.hint.fuse={fuse}")
    before = weights(trainer)
    base = [p.detach().clone() for p in trainer.team.members["listener"].loaded.model.parameters()]
    trainer.train()
    after = weights(trainer)
    assert not same(before["hint"], after["hint"]) and not same(before["listener"], after["listener"])
    assert same(base, list(trainer.team.members["listener"].loaded.model.parameters()))
    assert trainer.team.pool.channels["hint"].version == 2
    assert all(row["listener/gap"] < 1e-4 and row["listener/probe"] < 1e-4 for row in rows(tmp_path))
    assert all(row["hint/grad_norm"] > 0 for row in rows(tmp_path))
    trainer.close()


def test_promise_4_a_step_of_the_agents_leaves_the_channel_bit_identical_and_the_other_way_round(
    tmp_path: Path,
) -> None:
    """Momentum and weight decay included: the policies that are frozen in the second step have a state by then."""
    decay = "train.weight_decay=0.1"
    for frozen, resting in (("policies.listener.frozen=[[1]]", {"listener", "hint"}), ("channels.hint.lr=1e-3", set())):
        trainer = make(tmp_path / str(len(resting)), GAME, decay, frozen)
        seen: list[dict[str, list[torch.Tensor]]] = []
        trainer.observer.stepped = lambda step, metrics, t=trainer, s=seen: s.append(weights(t))  # type: ignore[misc]
        trainer.train()
        trainer.close()
        assert {name for name in seen[0] if same(seen[0][name], seen[1][name])} == resting
    unmoved = make(tmp_path / "held", GAME, "channels.hint.trainable=false")
    before = weights(unmoved)
    unmoved.train()
    assert same(before["hint"], weights(unmoved)["hint"]) and not same(before["listener"], weights(unmoved)["listener"])
    unmoved.close()


def test_a_killed_run_with_a_channel_resumes_bit_identical(tmp_path: Path) -> None:
    steps = ("train.steps=3", "checkpoint.every=1", "train.minibatches=2")
    train(tmp_path / "whole", GAME, *steps)
    with pytest.raises(Killed):
        train(tmp_path / "cut", GAME, *steps, observer=killed_at(2))
    train(tmp_path / "cut", GAME, *steps)
    assert rows(tmp_path / "cut") == rows(tmp_path / "whole")
    found = [checkpoint.latest(tmp_path / name / "checkpoints") for name in ("cut", "whole")]
    one, other = (load_channel(c.policy("hint")) for c in found if c is not None)
    assert same(list(one.parameters()), list(other.parameters()))


def test_a_run_stores_what_was_sent_and_with_which_version(tmp_path: Path) -> None:
    train(tmp_path, GAME, "records.episodes_per_step=99")
    for record in read(tmp_path / "episodes.jsonl"):
        sender, receiver = record.episode.turns
        (sent,) = (m for message in receiver.observation.messages for m in message.media)
        message = SoftMessage.read(sent)
        assert message.ids == sender.last.prompt + sender.last.action
        assert (message.channel, message.version, message.tokens) == ("hint", record.step - 1, 2)
        assert [(m.length, m.digest) for m in receiver.last.media] == [(2, sent.digest)] and not sender.last.media


def test_a_channel_is_exported_by_its_name_and_cannot_change_its_shape_within_a_run(tmp_path: Path) -> None:
    train(tmp_path / "run", GAME)
    export_run(Console(), str(tmp_path / "run"), ExportRequest(tmp_path / "out", "hint"))
    assert load_channel(tmp_path / "out").shape.tokens == 2
    with pytest.raises(ConfigError, match="no base to be merged into"):
        export_run(Console(), str(tmp_path / "run"), ExportRequest(tmp_path / "merged", "hint", merged=True))
    with pytest.raises(CheckpointError, match=r"channels\.hint\.tokens is 3, but"):
        make(tmp_path / "run", GAME, "channels.hint.tokens=3")
    (tmp_path / "out" / "channel_config.json").unlink()
    with pytest.raises(ModelError, match="holds no channel"):
        load_channel(tmp_path / "out")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("channels.hint.sender=nobody", "channels.hint.sender is 'nobody'"),
        ("channels.hint.sender=receiver", "expected fuse = 'gated', or two different roles"),
        ("channels.hint.heads=3", "expected a size divisible by heads"),
        ("channels.speaker={sender='sender', receiver='receiver'}", "has the name of a policy"),
        ("policies.speaker={base='openai:x', trainable=false}", "expected a policy with its weights here"),
        ("policies.speaker={base='tiny-16x1'}", "has no adapter, but a channel needs a base that stays"),
        ("policies.listener.trainable=false", "learns from the loss of its receiver"),
        ("engine.kind=vllm", "takes no vectors: set 'local'"),
        ("train.shard=fsdp", "whose processes have no channels"),
        ("cluster.rollout_workers=1", "have engines of their own: set 0"),
        ("algorithm={name='ppo'}", "a critic does not read vectors"),
        ("warmstart={bot='bot:solver', base=true}", "changes the base that it reads with"),
        ("matchups=[{share=0.5, seats={sender='speaker@start'}}]", "older copies of a policy"),
    ],
)
def test_what_a_channel_cannot_join_is_refused_in_one_sentence(change: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        resolve(parse(GAME, [change]))


def test_a_channel_and_older_weights_are_refused() -> None:
    stale = ["stream.max_staleness=1", "algorithm.correction=tis"]
    with pytest.raises(ConfigError, match="lets a channel change while its prompt is used: set 0"):
        resolve(parse(GAME, stale))
    bot = ["seats.sender=bot:random", "eval.opponents=['speaker']"]
    with pytest.raises(ConfigError, match=r"seats\.sender is 'bot:random'; expected a policy with its weights here"):
        resolve(parse(GAME, bot))
    two = "channels.more={sender='sender', receiver='receiver', fuse='gated'}"
    with pytest.raises(ConfigError, match="two gated channels go to one role"):
        resolve(parse(GAME, ["channels.hint.fuse=gated", two]))


def test_in_a_tree_the_receiver_gets_what_the_kept_candidate_of_the_sender_said(tmp_path: Path) -> None:
    tree = "algorithm={name='at_grpo', candidates=3, continuation='playout', keep='uniform'}"
    train(tmp_path, GAME, tree, "env.talk=true", "records.episodes_per_step=99", "records.playouts=true")
    said: set[tuple[int, ...]] = set()
    for record in read(tmp_path / "episodes.jsonl"):
        turns = record.episode.turns
        senders = {t.last.prompt + t.last.action for t in turns if t.role == "sender"}
        (kept,) = (t for t in turns if t.role == "sender" and t.kept and t.playout is None)
        for turn in (t for t in turns if t.role == "receiver"):
            (sent,) = (m for message in turn.observation.messages for m in message.media)
            ids = SoftMessage.read(sent).ids
            assert ids in senders if turn.playout is not None else ids == kept.last.prompt + kept.last.action
        said |= senders
    assert len(said) > 4, "senders said different things"
    assert all(row["listener/gap"] < 1e-4 for row in rows(tmp_path))


def test_a_channel_joins_agents_on_two_bases(tmp_path: Path) -> None:
    """L3: each base reads or is written to in its own hidden size, and both stay as they are."""
    trainer = make(tmp_path, GAME, "policies.speaker.base=tiny-32x1")
    models = [trainer.team.members[name].loaded.model for name in ("speaker", "listener")]
    before = [[p.detach().clone() for p in model.parameters()] for model in models]
    trainer.train()
    shape = trainer.team.pool.channels["hint"].shape
    assert (shape.source, shape.hidden) == (32, 16)
    assert all(row["listener/gap"] < 1e-4 and row["hint/grad_norm"] > 0 for row in rows(tmp_path))
    assert all(same(old, list(model.parameters())) for old, model in zip(before, models, strict=True))
    trainer.close()


def test_muting_is_an_ablation_and_never_reuses_games_that_were_played_with_the_channel(tmp_path: Path) -> None:
    train(tmp_path, GAME, "train.steps=1")
    asked = ("eval.opponents=['team']", "eval.success=match", "eval.games=6", "eval.legal=true")
    report = ip.evaluate(tmp_path, *asked, "eval.ablations=['mute']", quiet=True)
    (change,) = report.muted
    assert (change.what, change.games) == ("hint muted", 6) and change.won_drop is not None
    (saved,) = (tmp_path / "eval").glob("*.jsonl")
    assert len(saved.read_text().splitlines()) == 2, "with the channel, and muted"
    silent = ip.evaluate(tmp_path, *asked, "channels.hint.mute=true", quiet=True)
    assert len(saved.read_text().splitlines()) == 3
    assert silent.entries[0].result.win_rate == pytest.approx(change.won.value)
    with pytest.raises(ConfigError, match=r"no \[channels\] to mute"):
        ablation.check(resolve(parse(GAME, ["channels={}", "eval.ablations=['mute']"])))


ALONE: dict[str, Any] = {
    **GAME,
    "env": {"name": "signalling", "states": 4, "view": "image", "alone": True},
    "policies": {"player": {"base": "tiny-vl-16x1", "adapter": {"rank": 4}}},
    "seats": {"receiver": "player"},
    "channels": {"sight": {"sender": "receiver", "receiver": "receiver", "fuse": "gated", "size": 8, "heads": 2}},
}


def test_a_fusion_adapter_adds_what_an_agent_sees_to_its_own_words(tmp_path: Path) -> None:
    """The prompt has the words alone, and the run stores the pictures."""
    pytest.importorskip("PIL")
    trainer = train(tmp_path, ALONE)
    assert all(row["player/gap"] < 1e-4 and row["player/probe"] < 1e-4 for row in rows(tmp_path))
    assert rows(tmp_path)[-1]["sight/gate"] != 0 and trainer.team.pool.channels["sight"].version == 2
    renderer = trainer.team.members["player"].renderer
    pictures = set()
    for record in read(tmp_path / "episodes.jsonl"):
        (turn,) = record.episode.turns
        (span,) = turn.last.media
        place = slice(span.start, span.start + span.length)
        assert renderer.decode(turn.last.prompt[place])[0] == "number?"
        (sent,) = (m for message in turn.observation.messages for m in message.media)
        (digest,) = SoftMessage.read(sent).digests
        pictures.add(digest)
    assert len(pictures) > 1 and {p.stem for p in (tmp_path / "media").glob("*.png")} == pictures


def test_a_sender_that_sees_passes_its_picture_on(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    base = [f"policies.{name}.base=tiny-vl-16x1" for name in ("speaker", "listener")]
    train(tmp_path, GAME, "env.view=image", *base)
    assert all(row["listener/gap"] < 1e-4 and row["hint/grad_norm"] > 0 for row in rows(tmp_path))
    for record in read(tmp_path / "episodes.jsonl"):
        sender, receiver = record.episode.turns
        (sent,) = (m for message in receiver.observation.messages for m in message.media)
        assert SoftMessage.read(sent).digests == tuple(m.digest for m in sender.last.media) != ()


def test_a_fusion_adapter_needs_an_eye_and_words(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"but its base reads text alone; expected a base that sees or hears"):
        make(tmp_path, ALONE, "policies.player.base=tiny-16x1", "env.view=text")
    pytest.importorskip("PIL")
    hearing = {**ALONE, "env": {"name": "hearing"}, "policies": {"player": {"base": "tiny-av-16x1", "adapter": {}}}}
    deaf = {"sender": "listener", "receiver": "listener", "fuse": "gated"}
    with pytest.raises(ConfigError, match="has no words to add vectors to"):
        train(tmp_path / "hearing", {**hearing, "seats": {"listener": "player"}, "channels": {"ear": deaf}})


@pytest.mark.parametrize("data", [GAME, ALONE], ids=["channel", "fusion"])
def test_imitation_trains_the_channel_too_and_then_gives_it_a_new_optimiser(
    tmp_path: Path, data: dict[str, Any]
) -> None:
    if data is ALONE:
        pytest.importorskip("PIL")
    warm = {"bot": "bot:solver", "episodes": 16, "epochs": 3, "batch": 16}
    trainer = make(tmp_path, {**data, "warmstart": warm}, "train.steps=0")
    (name,) = trainer.channels
    before = weights(trainer)[name]
    trainer.train()
    assert not same(before, weights(trainer)[name]) and trainer.team.pool.channels[name].version == 3
    assert not trainer.channels[name].optimizer.state_dict()["state"]
    trainer.close()


@pytest.mark.slow
def test_the_recipe_solves_a_game_that_the_same_agents_play_at_chance_if_muted(tmp_path: Path) -> None:
    """Four states. Chance is 1/4; its bound is four standard errors of 200 games."""
    small = ("env.states=4", "rollout.tasks=16", "train.steps=40", "device=cpu")
    bare = ("eval.every=0", "eval.before=false", "eval.after=false")
    run = ip.train("recipes/signalling/channel.toml", *small, *bare, run=tmp_path, quiet=True).folder
    chance = 0.25 + 4 * (0.25 * 0.75 / 200) ** 0.5
    assert matched(run) > 0.9
    assert matched(run, "channels.hint.mute=true") < chance


def matched(run: Path, *changes: str) -> float:
    """The share of 200 held-out games in which the receiver names the state."""
    with ip.load(run, *changes) as team:
        plan, recipe = team.plan, team.plan.recipe
        seating = team.team.seating(lambda _: plan.seats, Speech(1.0, recipe.sampling.max_tokens, True))
        runner = Runner(0, recipe.rollout, Independent(1), recipe.reward)
        played = asyncio.run(runner.run([team.task(i) for i in range(200)], seating))
    return sum(r.value or 0.0 for e in played for r in e.rewards if r.name == "match") / len(played)
