"""Each policy has its own optimiser, rate, frozen steps and turn to learn; and an interrupted run resumes exactly."""

from __future__ import annotations

import inspect
import itertools
import multiprocessing
import random
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from runs import Killed, killed_at, make, train

from interplay.config import TrainSection, parse
from interplay.errors import ConfigError, GuardError
from interplay.models.adapter import Adapter
from interplay.models.load import Loaded
from interplay.rollout.resolve import resolve
from interplay.training import checkpoint
from interplay.training.learner import Learner
from interplay.training.optimizers import load_moments, make_optimizer
from interplay.training.trainer import Observer, Trainer

TINY = {"base": "tiny-16x1"}
TWO: dict[str, Any] = {
    "name": "test",
    "device": "cpu",
    "env": {"name": "tictactoe"},
    "policies": {"first": {**TINY, "lr": 5e-2}, "second": {**TINY, "adapter": {"rank": 2}}},
    "seats": {"X": "first", "O": "second"},
    "algorithm": {"name": "grpo", "group": 4},
    "sampling": {"max_tokens": 2, "legal": True},
    "rollout": {"tasks": 4},
    "train": {"steps": 4, "lr": 1e-2, "weight_decay": 0.1},
    "checkpoint": {"keep": 9},
    "records": {"tensorboard": "off"},
}


def state(folder: Path, step: int) -> dict[str, Any]:
    """Everything of each policy that a step could change: weights, moments, step count."""
    found = checkpoint.read(folder / "checkpoints" / f"step-{step:06d}")
    weights = {f"{p.relative_to(found.folder)}": p.read_bytes() for p in sorted(found.folder.rglob("*.safetensors"))}
    return {"weights": weights, "learners": found.state()["learners"]}


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, Mapping):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


def moved(folder: Path, name: str, steps: int) -> list[bool]:
    """Whether each step changed a policy's weights; a step that did not must not have changed anything else."""
    states = [state(folder, s) for s in range(steps + 1)]
    out = []
    for a, b in itertools.pairwise(states):
        weights = [{k: v for k, v in s["weights"].items() if f"/{name}/" in k} for s in (a, b)]
        out.append(weights[0] != weights[1])
        assert out[-1] or same(a["learners"][name], b["learners"][name]), "moments or counts changed"
    return out


def test_who_learns_when_is_a_function_of_the_recipe() -> None:
    plan = resolve(parse(TWO, ["policies.first.frozen=[[1, 3], [7]]"]))
    assert [plan.updated(s) == ["second"] for s in range(8)] == [False, True, True, False, False, False, False, True]
    plan = resolve(parse(TWO, ["train.update=alternating", "train.update_period=2", "policies.second.frozen=[[6]]"]))
    names = [n for s in range(8) for n in plan.updated(s)]
    assert names == ["first", "first", "second", "second", "first", "first", "first", "first"]
    assert plan.settings("first").steps == plan.settings("second").steps == 2, "of four steps of training"


def test_a_policys_keys_go_over_those_of_train() -> None:
    own = ["policies.second.schedule=linear", "policies.second.grad_clip=0.5", "policies.second.warmup_steps=3"]
    plan = resolve(parse(TWO, own))
    first, second = plan.settings("first"), plan.settings("second")
    assert (first.lr, first.schedule, first.grad_clip, first.warmup_steps) == (5e-2, "constant", 1.0, 0)
    assert (second.lr, second.schedule, second.grad_clip, second.warmup_steps) == (1e-2, "linear", 0.5, 3)
    for window in ("[3, 1]", "[]", "[-1, 2]", "[1, 2, 3]"):
        with pytest.raises(ConfigError, match=r"frozen has the window .* expected \[first, end\]"):
            parse(TWO, [f"policies.first.frozen=[{window}]"])


def test_a_frozen_policy_stays_bit_identical_momentum_included(tmp_path: Path) -> None:
    """It has momentum and weight decay that would change it; the other policy continues."""
    trainer = train(tmp_path, TWO, "policies.first.frozen=[[1, 3]]")
    assert moved(tmp_path, "first", 4) == [True, False, False, True]
    assert moved(tmp_path, "second", 4) == [True] * 4
    assert trainer.team.members["first"].version == 2 and trainer.team.members["second"].version == 4


def test_policies_learn_in_turns(tmp_path: Path) -> None:
    train(tmp_path, TWO, "train.update=alternating")
    assert moved(tmp_path, "first", 4) == [True, False, True, False]
    assert moved(tmp_path, "second", 4) == [False, True, False, True]


def test_a_policy_per_turn_is_trained_turn_by_turn(tmp_path: Path) -> None:
    """As in MAPoRL: first the policy of the first turn, then that of the second."""
    data = {
        **TWO,
        "policies": {
            "one": {**TINY, "adapter": {"rank": 2}, "frozen": [[2]]},
            "two": {**TINY, "adapter": {"rank": 2}, "frozen": [[0, 2]]},
        },
        "seats": {"X@1": "one", "X": "two", "O": "bot:random"},
    }
    train(tmp_path, data, "rollout.tasks=4")
    assert moved(tmp_path, "one", 4) == [True, True, False, False]
    assert moved(tmp_path, "two", 4) == [False, False, True, True]


@pytest.mark.parametrize(
    "overrides",
    [
        ("train.update=alternating", "train.schedule=cosine"),
        ("policies.first.frozen=[[1, 3]]", "policies.second.schedule=linear"),
        ("train.optimizer=adamw_8bit", "policies.first.base=tiny-64x1", "policies.second.optimizer=adamw"),
    ],
    ids=["alternating", "frozen", "8-bit"],
)
def test_promise_9_a_killed_run_resumes_bit_identical_whatever_the_schedule(
    tmp_path: Path, overrides: tuple[str, ...]
) -> None:
    train(tmp_path / "whole", TWO, *overrides)
    with pytest.raises(Killed):
        train(tmp_path / "cut", TWO, *overrides, observer=killed_at(2))
    train(tmp_path / "cut", TWO, *overrides)
    assert same(state(tmp_path / "whole", 4), state(tmp_path / "cut", 4))


def test_eight_bit_moments_are_a_quarter_and_move_alike(make_tiny: Callable[..., Loaded]) -> None:
    """Small tensors keep fp32; large ones use one byte per number, and the weights end close to those of AdamW."""
    models = {kind: make_tiny(0).model for kind in ("adamw", "adamw_8bit")}
    held = {}
    for kind, model in models.items():
        optimizer = make_optimizer(model.parameters(), TrainSection(optimizer=kind), 1e-3)  # type: ignore[arg-type]
        generator = torch.Generator().manual_seed(0)
        for _ in range(3):
            for p in model.parameters():
                p.grad = torch.randn(p.shape, generator=generator)
            optimizer.step()
        held[kind] = sum(
            t.nbytes for s in optimizer.state.values() for k, t in s.items() if torch.is_tensor(t) and "qmap" not in k
        )
    assert held["adamw_8bit"] < 0.3 * held["adamw"]
    before = make_tiny(0).model
    for a, b, c in zip(*(m.parameters() for m in (*models.values(), before)), strict=True):
        assert (a - b).norm() < 0.1 * (a - c).norm()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="pages are a GPU's")
@pytest.mark.parametrize(("kind", "gap"), [("paged_adamw", 1e-5), ("paged_adamw_8bit", 0.05)])
def test_paged_moments_lie_in_managed_memory_move_alike_and_resume(kind: str, gap: float) -> None:
    pytest.importorskip("bitsandbytes")

    def trained(kind: str, reloaded: bool = False) -> tuple[torch.Tensor, dict[str, Any]]:
        config = TrainSection(optimizer=kind)  # type: ignore[arg-type]
        parameter = torch.nn.Parameter(torch.zeros(512, 512, device="cuda"))
        generator = torch.Generator("cuda").manual_seed(0)
        optimizer = make_optimizer([parameter], config, 1e-3)
        for step in range(6):
            if reloaded and step == 3:
                state = optimizer.state_dict()
                optimizer = make_optimizer([parameter], config, 1e-3)
                load_moments(optimizer, state)
            parameter.grad = torch.randn(512, 512, device="cuda", generator=generator)
            optimizer.step()
        return parameter.detach(), optimizer.state[parameter]

    plain, _ = trained("adamw")
    paged, state = trained(kind)
    assert state["state1"].is_paged and (paged - plain).norm() < gap * plain.norm()
    assert torch.equal(paged, trained(kind, reloaded=True)[0])


def test_an_optimiser_that_cannot_be_is_refused(
    make_tiny: Callable[..., Loaded], monkeypatch: pytest.MonkeyPatch
) -> None:
    parameters = list(make_tiny(0, "tiny-16x1").model.parameters())
    with pytest.raises(ConfigError, match=r"'paged_adamw_8bit', which needs a GPU driver.*expected 'adamw_8bit'"):
        make_optimizer(parameters, TrainSection(optimizer="paged_adamw_8bit"), 1e-3)
    monkeypatch.setitem(__import__("sys").modules, "bitsandbytes", None)
    with pytest.raises(ConfigError, match=r"needs bitsandbytes; install it with pip install 'interplay\[optimizers\]'"):
        make_optimizer(parameters, TrainSection(optimizer="adamw_8bit"), 1e-3)


def test_promise_2_swapped_adapters_are_found_before_anything_moves(tmp_path: Path) -> None:
    """Turns are drawn with one role's adapter and trained with the other's: the gate stops the step."""
    adapters = {n: {**TINY, "adapter": {"rank": 2}} for n in ("first", "second")}
    trainer = Trainer(resolve(parse({**TWO, "policies": adapters})), tmp_path)
    members = trainer.team.members
    for i, name in enumerate(adapters):  # not zero, or swapping would change nothing
        adapter = members[name].adapter
        assert adapter is not None
        with torch.no_grad():
            for _, up in adapter.weights.values():
                up.normal_(std=1.0, generator=torch.Generator().manual_seed(i))
        members[name].publish(1)

    def weights(adapter: Adapter | None) -> list[torch.Tensor]:
        assert adapter is not None
        return [t.detach().clone() for pair in adapter.weights.values() for t in pair]

    one, two = (trainer.learners[n] for n in adapters)
    one.adapter, two.adapter = two.adapter, one.adapter
    before = weights(one.adapter), weights(two.adapter)
    with pytest.raises(GuardError, match="the samples were not drawn from these weights"):
        trainer.train()
    assert same(before, (weights(one.adapter), weights(two.adapter)))
    trainer.close()


def test_no_weights_are_copied_between_learner_and_engine(tmp_path: Path) -> None:
    """The engine's model is the learner's, tensor by tensor, before and after training; so is the base of adapters."""
    trainer = Trainer(resolve(parse(TWO, ["train.steps=1"])), tmp_path)
    engines: dict[str, Any] = {n: m.engine for n, m in trainer.team.members.items()}

    def places(model: Any) -> list[int]:
        return [p.untyped_storage().data_ptr() for p in model.parameters()]

    before = {n: places(e.runner.model) for n, e in engines.items()}
    trainer.train()
    for name, learner in trainer.learners.items():
        assert places(learner.model) == places(engines[name].runner.model) == before[name]
    stepped: Learner = trainer.learners["first"]
    assert [p.untyped_storage().data_ptr() for p in stepped.masters.own] == before["first"]
    trainer.close()


def test_the_best_by_an_evaluation_is_kept(tmp_path: Path) -> None:
    scores = iter([0.2, 0.9, 0.4, 0.9])

    async def evaluate(team: Any, step: int, seats: Any) -> dict[str, float]:
        return {"eval/win_rate/bot:random": next(scores)}

    overrides = ("checkpoint.best=eval/win_rate/bot:random", "checkpoint.keep=1", "eval.every=1")
    trainer = train(tmp_path, TWO, *overrides, observer=Observer(evaluate=evaluate))
    assert trainer.best == (2, 0.9), "of equals the first"
    assert sorted(p.name for p in (tmp_path / "checkpoints").iterdir()) == ["best", "step-000002", "step-000004"]
    assert checkpoint.read(tmp_path / "checkpoints" / "best").step == 2
    with pytest.raises(ConfigError, match="eval/win_rate/bot:random"):
        resolve(parse(TWO, ["checkpoint.best=eval/winrate/bot:random", "eval.every=1"]))
    with pytest.raises(ConfigError, match=r"checkpoint\.best names 'rewrd'.*Did you mean 'reward'"):
        train(tmp_path / "other", TWO, "checkpoint.best=rewrd", "train.steps=1")


@pytest.mark.slow
def test_promise_9_a_run_killed_at_random_twenty_times_ends_with_the_same_weights(tmp_path: Path) -> None:
    """At any point of a step: while playing, scoring, learning, publishing or saving."""
    overrides = ("train.steps=6", "train.update=alternating", "checkpoint.best=reward", "checkpoint.keep=2")
    train(tmp_path / "whole", TWO, *overrides)
    rng = random.Random(0)
    places = ("_reward", "_score", "_credit", "_batch", "_step", "_record", "_between", "_log", "save")
    kills = 0
    while kills < 20:
        trainer = make(tmp_path / "cut", TWO, *overrides)
        if trainer.step_index == 6:
            # The end was reached between kills: go back a little, as a run with a lost checkpoint does.
            trainer.close()
            newest = checkpoint.latest(tmp_path / "cut" / "checkpoints")
            assert newest is not None
            (newest.folder / "state.pt").write_bytes(b"lost")
            continue
        _kill_inside(trainer, rng.choice(places), rng.random() < 0.5)
        try:
            trainer.train()
        except Killed:
            kills += 1
        finally:
            trainer.close()
    train(tmp_path / "cut", TWO, *overrides)
    assert same(state(tmp_path / "whole", 6), state(tmp_path / "cut", 6))
    rows = [(tmp_path / n / "metrics.jsonl").read_text().count("\n") for n in ("whole", "cut")]
    assert rows == [6, 6], "no step is counted twice"


RUN = """
import time
from pathlib import Path
from transformers.utils import logging
from interplay.config import parse
from interplay.rollout.resolve import resolve
from interplay.training.trainer import Observer, Trainer
logging.disable_progress_bar()
seen = []
def stepped(step, metrics):
    seen.append(step)
    told.send(step)
    if life is not None and len(seen) > life:
        time.sleep(1000)  # who kills it may be slow: it takes at most one step more than it should
trainer = Trainer(resolve(parse(data, ["checkpoint.share=1"])), Path(folder), Observer(stepped=stepped))
trainer.train()
trainer.close()
told.send(None)
"""


@pytest.mark.long
@pytest.mark.slow
def test_promise_9_twenty_times_kill_minus_nine_at_moments_nobody_chose(tmp_path: Path) -> None:
    """Full weights against an adapter, a league, and a reference that is refreshed: the final state is bit-identical to
    that of an uninterrupted run, and so is every snapshot."""
    steps = 41  # more than twenty times the one of a life, and the one that it may end before it is killed
    data = {
        **TWO,
        "algorithm": {"name": "grpo", "group": 2, "kl": 0.01, "kl_refresh": 3},
        "league": {"every": 2, "capacity": 3},
        "matchups": [{"share": 0.5, "one": "first", "others": "@league"}],
        "rollout": {"tasks": 2},
        "train": {"steps": steps, "lr": 1e-2, "schedule": "linear"},
        "checkpoint": {"keep": 2},
    }
    forks = multiprocessing.get_context("forkserver")
    forks.set_forkserver_preload(["interplay.training.trainer"])
    rng, times = random.Random(0), list[float]()

    def play(folder: Path, life: int | None) -> int | None:
        """The run is killed in the step after `life` more steps; without `life` it runs to the end."""
        told, telling = forks.Pipe(duplex=False)
        given = {"data": data, "folder": str(folder), "told": telling, "life": life}
        process = forks.Process(target=exec, args=(RUN, given))
        process.start()
        telling.close()
        seen: list[int | None] = []
        while life is None or len(seen) < life:
            assert told.poll(600), "no step in ten minutes"
            seen.append(told.recv())
            if seen[-1] is None:
                break
            times.append(time.monotonic())
        if life is not None:
            time.sleep(rng.uniform(0.0, (times[steps - 1] - times[0]) / (steps - 1)))  # a step of the first run
            process.kill()
        process.join()
        assert process.exitcode == (0 if life is None else -signal.SIGKILL)
        return seen[-1] if seen else 0

    assert play(tmp_path / "whole", None) is None
    reached = [play(tmp_path / "cut", 1) for _ in range(20)]
    assert reached[-1] is not None and reached[-1] < steps
    play(tmp_path / "cut", None)
    assert same(state(tmp_path / "whole", steps), state(tmp_path / "cut", steps))
    one, other = (checkpoint.read(tmp_path / n / "checkpoints" / f"step-{steps:06d}").trainer for n in ("whole", "cut"))
    assert {k: one[k] for k in ("league", "snapshots", "versions", "guards")} == {
        k: other[k] for k in ("league", "snapshots", "versions", "guards")
    }
    assert (tmp_path / "cut" / "metrics.jsonl").read_text().count("\n") == steps


def _kill_inside(trainer: Trainer, place: str, after: bool) -> None:
    owner = trainer if hasattr(trainer, place) else trainer.learning
    whole = getattr(owner, place)

    def cut(*args: Any) -> Any:
        if after:
            whole(*args)
        raise Killed

    async def cut_later(*args: Any) -> Any:
        if after:
            await whole(*args)
        raise Killed

    setattr(owner, place, cut_later if inspect.iscoroutinefunction(whole) else cut)
