"""Policies as adapters of one base: trained in one pass, and independent of each other (promises 4, 6 and 9)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from runs import Killed, example, killed_at, train
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from interplay.algorithms.losses import policy_loss
from interplay.cli.export import ExportRequest, export_run
from interplay.config import TrainSection
from interplay.errors import ConfigError
from interplay.models.adapter import Adapter
from interplay.models.load import Loaded
from interplay.models.locate import locate
from interplay.models.lora import new_adapter
from interplay.training import checkpoint
from interplay.training.learner import Objective
from interplay.training.local import LocalLearner
from interplay.training.step import step
from interplay.training.tries import Example

# Two roles, an adapter each, of different ranks, over one base that was imitated into nothing: only adapters learn.
L2: dict[str, Any] = {
    "name": "test",
    "device": "cpu",
    "env": {"name": "tictactoe", "size": 2, "line": 2},
    "policies": {
        "first": {"base": "tiny-16x1", "adapter": {"rank": 4}},
        "second": {"base": "tiny-16x1", "adapter": {"rank": 6, "targets": ["q_proj", "down_proj"]}},
    },
    "seats": {"X": "first", "O": "second"},
    "matchups": [{"share": 0.5, "seats": {"O": "second@start"}}],
    "algorithm": {"name": "grpo", "group": 4, "kl": 0.05},
    "warmstart": {"bot": "bot:random", "episodes": 120, "epochs": 2, "lr": 3e-2, "batch": 32},
    "sampling": {"max_tokens": 2},
    "rollout": {"tasks": 4},
    "train": {"steps": 2, "lr": 1e-2, "minibatches": 2, "weight_decay": 0.1},
    "checkpoint": {"keep": 9},
    "records": {"tensorboard": "off"},
}


def examples_of(policy: str, count: int, seed: int) -> list[Example]:
    generator = torch.Generator().manual_seed(seed)
    out = []
    for i in range(count):
        ids = tuple(torch.randint(6, 600, (9 + i,), generator=generator).tolist())
        out.append(example(f"{policy}{i}", ids[:5], ids[5:], policy=policy, advantage=(-1.0) ** i))
    return out


def tensors(adapter: Adapter | None) -> list[torch.Tensor]:
    assert adapter is not None
    return [t.detach().clone() for pair in adapter.weights.values() for t in pair]


def learners(loaded: Loaded, *names: str, **options: Any) -> list[LocalLearner]:
    """Learners with an adapter each, whose second matrix is not zero, so that no gradient is zero."""
    out = []
    for i, name in enumerate(names):
        adapter = new_adapter(loaded.model, 3 + i, 4.0, [], 10 + i)
        for _, up in adapter.weights.values():
            torch.nn.init.normal_(up, std=0.1, generator=torch.Generator().manual_seed(i))
        config = TrainSection(lr=1e-2, gap_stop=1e9, **options)
        out.append(LocalLearner(name, loaded.model, config, 1e-2, 0, adapter))
        for group in out[-1].optimizer.param_groups:
            group["eps"] = 1e-3  # Adam divides by the size of a gradient; where that is near zero, it is all rounding
    return out


def loss(targets: Any, outputs: Any) -> Any:
    return policy_loss(targets, outputs, 0.2, 0.2, None, 0.01, 0.0)


@pytest.mark.parametrize("limit", [30, 10_000])
def test_adapters_trained_together_move_as_if_trained_alone(make_tiny: Callable[..., Loaded], limit: int) -> None:
    """One forward and backward pass over a mixed batch; each policy has its own minibatches, clipping and
    denominators."""
    loaded = make_tiny(0, "tiny-16x1")
    options = {"micro_batch_tokens": limit, "minibatches": 2, "grad_clip": 0.05}
    batches = {"a": examples_of("a", 7, 1), "b": examples_of("b", 4, 2)}
    together = learners(loaded, "a", "b", **options)
    found = step(together, batches, Objective(loss, keep_zeros=True))
    for i, name in enumerate("ab"):
        alone = learners(loaded, "a", "b", **options)[i]
        expected = alone.step(batches[name], Objective(loss, keep_zeros=True))
        for ours, theirs in zip(tensors(together[i].adapter), tensors(alone.adapter), strict=True):
            torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)
        assert found[name] == pytest.approx(expected, rel=1e-3, abs=1e-5)


def test_promise_4_a_step_of_one_adapter_leaves_base_and_others_bit_identical(make_tiny: Callable[..., Loaded]) -> None:
    """Also with momentum and weight decay: the second policy has an optimiser state that would change it."""
    loaded = make_tiny(0, "tiny-16x1")
    one, two = learners(loaded, "a", "b", weight_decay=0.1)
    two.step(examples_of("b", 4, 1), Objective(loss, keep_zeros=True))
    base = [p.detach().clone() for p in loaded.model.parameters()]
    before = tensors(two.adapter), tensors(one.adapter)
    one.step(examples_of("a", 5, 2), Objective(loss, keep_zeros=True))
    assert all(torch.equal(x, y) for x, y in zip(tensors(two.adapter), before[0], strict=True))
    assert not all(torch.equal(x, y) for x, y in zip(tensors(one.adapter), before[1], strict=True))
    assert all(torch.equal(x, y) for x, y in zip(loaded.model.parameters(), base, strict=True))
    assert all(p.grad is None for p in loaded.model.parameters())


def test_a_recipe_of_two_adapters_shares_one_base_and_moves_both(tmp_path: Path) -> None:
    trainer = train(tmp_path, L2, "rollout.tasks=16")  # as many games as it takes until both have something to learn
    first, second, start = (trainer.team.members[n] for n in ("first", "second", "second@start"))
    assert first.loaded.model is second.loaded.model is start.loaded.model
    assert first.engine is second.engine is start.engine
    # One version for the imitation, and one for each minibatch: two in a step, or one if a policy has one turn in it.
    # How many turns the second has depends on the games, and so on how a machine rounds.
    for name, member in (("first", first), ("second", second)):
        steps = trainer.learners[name].steps
        assert 1 + steps <= member.version <= 1 + 2 * steps and steps > 0
    assert first.version == 5
    assert trainer.parameters()["first"] != trainer.parameters()["second"]
    base = AutoModelForCausalLM.from_pretrained(locate("tiny-16x1", 0))
    for (name, a), b in zip(first.loaded.model.named_parameters(), base.parameters(), strict=True):
        assert torch.equal(a, b), f"{name} of the base moved"
    moved = [x for x, y in zip(tensors(second.adapter), tensors(start.adapter), strict=True) if not torch.equal(x, y)]
    assert moved


def test_the_reference_is_the_base_with_adapters_off(tmp_path: Path) -> None:
    """There is no second copy: the reference consists of the base's own tensors, with an adapter that changes nothing.
    (After an imitation, it is the adapter of that moment.)"""
    data = {k: v for k, v in L2.items() if k not in ("warmstart", "matchups")}
    trainer = train(tmp_path, {**data, "env": {"name": "tictactoe"}, "sampling": {"max_tokens": 2, "legal": True}})
    members = trainer.team.members
    bases = {p.untyped_storage().data_ptr() for p in members["first"].loaded.model.parameters()}
    for name in ("first", "second"):
        then = members[f"{name}@start"]
        assert {p.untyped_storage().data_ptr() for p in then.loaded.model.parameters()} == bases
        assert then.engine is members[name].engine and then.adapter is not None
        assert all(not up.any() for _, up in then.adapter.weights.values()), "adapters off"
        assert any(up.any() for _, up in (members[name].adapter or then.adapter).weights.values()), "it has moved on"
    assert len(trainer.team.engines) == 1


def test_promise_9_a_killed_run_of_adapters_resumes_bit_identical(tmp_path: Path) -> None:
    train(tmp_path / "whole", L2)
    with pytest.raises(Killed):
        train(tmp_path / "cut", L2, observer=killed_at(1))
    train(tmp_path / "cut", L2)
    one, two = (checkpoint.read(tmp_path / n / "checkpoints" / "step-000002") for n in ("whole", "cut"))
    for name in ("first", "second"):
        a, b = (load_file(c.policy(name) / "adapter_model.safetensors") for c in (one, two))
        assert a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def test_a_checkpoint_is_an_adapter_that_peft_loads(tmp_path: Path) -> None:
    """With exactly the logits of the learner."""
    from peft import PeftModel

    trainer = train(tmp_path, L2)
    folder = checkpoint.read(tmp_path / "checkpoints" / "step-000002").policy("second")
    base = AutoModelForCausalLM.from_pretrained(locate("tiny-16x1", 0)).eval()
    peft = PeftModel.from_pretrained(base, folder).eval()
    examples = examples_of("second", 3, 5)
    found = trainer.learners["second"].logprobs(examples)
    for sample, ours in zip((e.sample for e in examples), found, strict=True):
        with torch.no_grad():
            logits = peft(torch.tensor([sample.prompt + sample.action])).logits[0, len(sample.prompt) - 1 : -1]
        expected = logits.log_softmax(-1)[torch.arange(len(sample.action)), torch.tensor(sample.action)]
        torch.testing.assert_close(torch.tensor(ours), expected, atol=1e-4, rtol=0)


def test_one_line_switches_between_one_policy_adapters_and_models(tmp_path: Path) -> None:
    """L1, L2 and L3 are data: the same environment and the same recipe, except for its policies and seats."""
    one = {**L2, "policies": {"player": {"base": "tiny-16x1"}}, "seats": "player", "matchups": []}
    models = {**L2, "policies": {n: {"base": "tiny-16x1"} for n in ("first", "second")}}
    for name, data, engines in (("l1", one, 1), ("l2", {**L2, "matchups": []}, 1), ("l3", models, 2)):
        trainer = train(tmp_path / name, {**data, "algorithm": {"name": "grpo", "group": 4}}, "train.steps=1")
        trainable = [m for n, m in trainer.team.members.items() if n in trainer.learners]
        assert len({id(m.engine) for m in trainable}) == engines


def test_export_writes_what_peft_and_transformers_load(tmp_path: Path) -> None:
    """The adapter itself, and the adapter merged into its base: the same logits."""
    from peft import PeftModel

    train(tmp_path / "run", L2)
    console, run = Console(quiet=True), str(tmp_path / "run")
    export_run(console, run, ExportRequest(tmp_path / "adapter", "second"))
    export_run(console, run, ExportRequest(tmp_path / "whole", "second", merged=True))
    base = AutoModelForCausalLM.from_pretrained(locate("tiny-16x1", 0)).eval()
    peft = PeftModel.from_pretrained(base, tmp_path / "adapter").eval()
    whole = AutoModelForCausalLM.from_pretrained(tmp_path / "whole").eval()
    ids = torch.tensor([[7, 8, 9, 10, 11]])
    with torch.no_grad():
        torch.testing.assert_close(whole(ids).logits, peft(ids).logits, atol=1e-4, rtol=0)
    for policy, to, reason in (
        (None, "new", "say which with --policy"),
        ("secnd", "new", "Did you mean 'second'"),
        ("second", "whole", "holds files already"),
    ):
        with pytest.raises(ConfigError, match=reason):
            export_run(console, run, ExportRequest(tmp_path / to, policy))
    with pytest.raises(ConfigError, match="expected --to FOLDER, --push OWNER/NAME"):
        export_run(console, run, ExportRequest())
    assert 'library_name: "peft"' in (tmp_path / "adapter" / "README.md").read_text()
    assert 'library_name: "transformers"' in (tmp_path / "whole" / "README.md").read_text()
