"""Runs with a learner that is sharded over processes learn the same, survive a kill and can resume without shards."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import signal
from collections.abc import Collection, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from fleets import slowness
from rich.console import Console
from runs import make, rows, train
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from interplay.cli.export import ExportRequest, export_run
from interplay.cli.session import Session
from interplay.config import parse
from interplay.errors import ConfigError, LearnerLost
from interplay.models.locate import locate
from interplay.rollout.resolve import resolve
from interplay.training.sharded import ShardedLearner
from interplay.training.trainer import Observer, Trainer

RECIPE: dict[str, Any] = {
    "name": "sharded",
    "env": {"name": "tictactoe", "brief": True},
    "policies": {"player": {"base": "tiny-16x2"}},
    "seats": "player",
    "algorithm": {"name": "grpo", "group": 2, "correction": "tis"},
    "sampling": {"max_tokens": 2, "legal": True},
    "rollout": {"tasks": 4},
    "train": {"steps": 3, "lr": 1e-2, "minibatches": 2},
    "eval": {"opponents": ["bot:random"], "before": False, "after": False},
    "records": {"tensorboard": "off"},
    "checkpoint": {"every": 1, "share": 1, "keep": 100},
}
TWO = ("train.shard=fsdp", "cluster.learners=2")


def weights(folder: Path, step: int) -> dict[str, torch.Tensor]:
    return load_file(folder / "checkpoints" / f"step-{step:06d}" / "policies" / "player" / "model.safetensors")


def learned(row: Mapping[str, Any]) -> dict[str, float]:
    return {k: v for k, v in row.items() if k.startswith("player/") and k.split("/")[1] not in ("gap", "gap_mean")}


def test_a_run_with_two_ranks_learns_what_a_run_without_shards_learns(tmp_path: Path) -> None:
    """And it continues without shards from where it stopped."""
    train(tmp_path / "plain", RECIPE, "train.steps=1")
    train(tmp_path / "two", RECIPE, "train.steps=2", *TWO)
    (plain, *_), two = rows(tmp_path / "plain"), rows(tmp_path / "two")
    assert learned(two[0]) == pytest.approx(learned(plain), rel=1e-4, abs=1e-5)
    for row in two:  # the engine has the weights that were trained, also after the second update
        assert row["player/probe"] < 1e-4 and row["player/gap"] < 1e-4
    assert any(
        not torch.equal(a, b) for a, b in zip(*(weights(tmp_path / "two", n).values() for n in (1, 2)), strict=True)
    )
    train(tmp_path / "two", RECIPE, "train.steps=3")
    assert [row["step"] for row in rows(tmp_path / "two")] == [1, 2, 3]
    assert rows(tmp_path / "two")[2]["player/gap"] < 1e-4


def test_a_critic_beside_two_ranks_learns_what_it_learns_beside_one_process(tmp_path: Path) -> None:
    """The critic stays whole, in the process of the run."""
    data = {**RECIPE, "algorithm": {"name": "ppo"}, "train": {**RECIPE["train"], "steps": 1}}
    for name, overrides in {"plain": (), "two": TWO}.items():
        train(tmp_path / name, data, *overrides)
    (plain,), (two,) = rows(tmp_path / "plain"), rows(tmp_path / "two")
    assert "player/value_loss" in learned(plain)
    assert learned(two) == pytest.approx(learned(plain), rel=1e-4, abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("adapter", [False, True], ids=["full weights", "adapter"])
def test_a_sharded_run_is_exported_as_a_folder_that_transformers_loads(tmp_path: Path, adapter: bool) -> None:
    """The exported model has the log-probs that the engine of the run has after the last update, which the probe has
    compared with those of the ranks."""
    how = ("policies.player.adapter={rank=2}",) if adapter else ()
    trainer = make(tmp_path / "run", RECIPE, "train.steps=1", *TWO, *how)
    try:
        trainer.train()
        member, prompt, reply = trainer.team.members["player"], (7, 8, 9), (10, 11)
        (expected,) = asyncio.run(member.engine.score(prompt, [reply], "player" if adapter else None))
    finally:
        trainer.close()
    assert rows(tmp_path / "run")[0]["player/probe"] < 1e-4
    export_run(Console(quiet=True), str(tmp_path / "run"), ExportRequest(tmp_path / "model", merged=adapter))
    found, start = (
        AutoModelForCausalLM.from_pretrained(source) for source in (tmp_path / "model", locate("tiny-16x2", 0))
    )
    with torch.no_grad():
        mine, before = (model(torch.tensor([prompt + reply])).logits[0].log_softmax(-1) for model in (found, start))
    places = [(len(prompt) - 1 + i, token) for i, token in enumerate(reply)]
    assert [float(mine[place]) for place in places] == pytest.approx(expected, abs=1e-5)
    assert [float(before[place]) for place in places] != pytest.approx(expected, abs=1e-3)  # it has learned


class Sending(Session):
    """A session that sends signals once, in the middle of the third step: `numbers` are sent to the second rank, and
    with `everybody` to the other rank and to the process of the run too. The first rank stands still until then, and
    the second one cannot end the step without it, however late this process comes on a busy machine."""

    numbers: tuple[signal.Signals, ...] = ()
    everybody = False
    sent = 0

    def _stepped(self, step: int, metrics: Mapping[str, float]) -> None:
        super()._stepped(step, metrics)
        if step != 2 or self.sent:
            return
        group = group_of(self.trainer)
        ranks, receive, send = group._processes, group._processes.receive, group._processes.send

        def signalled(waiting: Collection[int], seconds: float) -> Any:
            """Called when both ranks have been sent the step."""
            ranks.receive, ranks.send = receive, send
            assert not receive(waiting, 0.0)  # none of them has answered yet
            self.sent += 1
            for pid in (*group.pids, os.getpid()) if self.everybody else group.pids[1:]:
                for number in self.numbers:
                    os.kill(pid, number)
            os.kill(group.pids[0], signal.SIGCONT)
            return receive(waiting, seconds)

        def stopping(rank: int, *call: Any) -> None:
            send(rank, *call)
            if rank == 0:  # the other one has not been asked yet
                os.kill(group.pids[0], signal.SIGSTOP)

        def ask(method: str, *arguments: Any) -> Any:
            if method == "step" and not self.sent:
                ranks.receive, ranks.send = signalled, stopping
            return asked(method, *arguments)

        asked, group.ask = group.ask, ask


def group_of(trainer: Trainer) -> Any:
    learner = trainer.learners["player"]
    assert isinstance(learner, ShardedLearner)
    return learner.group


@pytest.mark.slow
def test_signals_to_a_whole_run_end_it_with_a_checkpoint_and_a_killed_rank_costs_a_restart_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """SIGTERM and SIGUSR1 reach all processes of a job. The ranks finish the step, and the run ends with a checkpoint
    of it. If a rank is killed, all ranks start again from the newest checkpoint, and the weights are the same."""
    ended = Sending(Console(file=io.StringIO()), resolve(parse(RECIPE, (*TWO, "train.steps=4"))), tmp_path / "ended")
    ended.numbers, ended.everybody = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1), True
    assert not ended.run() and ended.sent == 1
    assert [row["step"] for row in rows(tmp_path / "ended")] == [1, 2, 3] and ended.trainer.saved_step == 3
    assert "goes on from its newest checkpoint" not in caplog.text
    killed = Sending(Console(file=io.StringIO()), resolve(parse(RECIPE, TWO)), tmp_path / "killed")
    killed.numbers = (signal.SIGKILL,)
    slower = slowness()
    assert killed.run() and killed.sent == 1
    slower = max(slower, slowness())
    told = r"(has ended \(killed by signal 9\)|lost contact with the others \(.*\))\. All 2 ranks.*\(1 of 3\)"
    assert len(re.findall(told, caplog.text)) == caplog.text.count("goes on from its newest checkpoint") == 1
    assert rows(tmp_path / "killed") == rows(tmp_path / "ended")
    times = [json.loads(line)["time"] for line in (tmp_path / "killed" / "metrics.jsonl").read_text().splitlines()]
    # Seconds in which the ranks must have started again, if no other work uses the processors.
    assert max(b - a for a, b in pairwise(times)) < 60.0 * slower
    whole = weights(tmp_path / "ended", 3)
    assert all(torch.equal(whole[name], found) for name, found in weights(tmp_path / "killed", 3).items())


@pytest.mark.slow
def test_adapters_on_one_base_share_its_ranks_and_one_that_hangs_ends_the_wait(tmp_path: Path) -> None:
    """A rank is stopped, and the other one waits for it in vain."""
    data = {**RECIPE, "policies": {"player": {"base": "tiny-16x2", "per": "role", "adapter": {"rank": 2}}}}
    killed = Observer()
    trainer = make(tmp_path, data, *TWO, "stream.max_staleness=1")
    first, second = trainer.learners.values()
    assert first.shares is second.shares

    def kill(step: int, metrics: Mapping[str, float]) -> None:
        assert all(value < 1e-4 for key, value in metrics.items() if key.endswith("/probe"))
        assert isinstance(first, ShardedLearner)
        first.load_state_dict(first.state_dict())
        first.state_dict()  # written to the file from which the ranks have just loaded
        if step == 2:
            os.kill(first.group.pids[1], signal.SIGSTOP)
            first.group._timeout = 3.0

    killed.stepped = kill
    trainer.observer = killed
    with pytest.raises(LearnerLost, match=r"rank (0, )?1 of the learner gave no answer within 3 s.*newest checkpoint"):
        trainer.train()
    trainer.close()


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (("cluster.learners=2",), "cluster.learners is 2, but train.shard is 'none'"),
        (("train.gather=step",), "train.gather is 'step', but train.shard is 'none'"),
        ((*TWO, "train.optimizer=adamw_8bit"), "works on whole tensors; expected 'adamw'"),
        ((*TWO, "warmstart={bot='bot:random', base=true}"), "warmstart.base is true"),
    ],
)
def test_what_a_sharded_learner_cannot_do_is_refused_with_the_key_to_change(
    overrides: tuple[str, ...], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        resolve(parse(RECIPE, overrides))
