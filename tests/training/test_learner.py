"""A policy's step changes what it should and nothing else, and never uses broken numbers."""

from __future__ import annotations

import asyncio
import io
import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from runs import example, resampled, rounding, train
from torch import Tensor

from interplay.algorithms.algorithm import CriticSettings
from interplay.algorithms.losses import Outputs, Targets, policy_loss
from interplay.config import TrainSection
from interplay.engines.engine import Request, Sampling
from interplay.engines.local import LocalEngine
from interplay.errors import GuardError
from interplay.models.load import Loaded
from interplay.training import step as step_module
from interplay.training.critic import Critic
from interplay.training.forward import logprobs, pieces
from interplay.training.learner import Objective
from interplay.training.local import LocalLearner
from interplay.training.minibatches import minibatches, rate_factor, token_weights
from interplay.training.tries import Example
from interplay.training.watch import TokenWatch
from interplay.types import Completion, Credit

MakeTiny = Callable[..., Loaded]


def config(**changes: Any) -> TrainSection:
    """Most replies here are written by hand, and their log-probs do not come from an engine, so the gate is opened
    wide."""
    return TrainSection(**({"lr": 1e-3, "weight_decay": 0.1, "steps": 10, "gap_stop": 1e9} | changes))


def ppo(targets: Targets, outputs: Outputs) -> tuple[Tensor, dict[str, Tensor]]:
    return policy_loss(targets, outputs, 0.2, 0.2, None, 0.0, 0.0)


def pulled(targets: Targets, outputs: Outputs) -> tuple[Tensor, dict[str, Tensor]]:
    return policy_loss(targets, outputs, 0.2, 0.2, None, 0.01, 0.1)


def learner(loaded: Loaded, name: str = "player", **changes: Any) -> LocalLearner:
    section = config(**changes)
    return LocalLearner(name, loaded.model, section, section.lr, seed=0)


def examples_of(count: int = 8, seed: int = 0, policy: str = "player") -> list[Example]:
    rng = random.Random(seed)
    some = lambda low, high: [rng.randrange(6, 600) for _ in range(rng.randint(low, high))]  # noqa: E731
    prompts = [some(2, 12) for _ in range(3)]
    return [
        example(f"t{i:02}", prompts[i % 3], some(1, 5), advantage=(-1.0) ** i * (1 + i % 3), policy=policy)
        for i in range(count)
    ]


def sampled(model: Any, count: int = 6, temperature: float = 1.0, seed: int = 0) -> list[Example]:
    """Replies that the engine really samples, with the engine's log-probs."""
    engine = LocalEngine(model, 4096, 8)
    wanted = examples_of(count, seed)

    async def ask() -> list[Completion]:
        sampling = Sampling(temperature, 6)
        requests = [Request((i,), e.sample.prompt, i, sampling) for i, e in enumerate(wanted)]
        return await asyncio.gather(*(engine.generate(r) for r in requests))

    return [
        resampled(e, action=c.tokens, logprobs=c.logprobs, versions=c.versions, temperature=temperature)
        for e, c in zip(wanted, asyncio.run(ask()), strict=True)
    ]


def snapshot(of: LocalLearner) -> dict[str, Tensor]:
    """All bits of the weights and the optimiser state."""
    found = {n: p.detach().clone() for n, p in of.model.named_parameters()}
    for i, state in of.optimizer.state_dict()["state"].items():
        found |= {f"{i}/{k}": torch.as_tensor(v).clone() for k, v in state.items()}
    return found


def same(one: dict[str, Tensor], two: dict[str, Tensor]) -> bool:
    return one.keys() == two.keys() and all(torch.equal(one[k], two[k]) for k in one)


STILL: dict[str, Any] = {"lr": 1e-30, "weight_decay": 0.0, "grad_clip": 1e9}  # steps that move nothing


def gradients(of: LocalLearner) -> dict[str, Tensor]:
    """Each step fills it with the gradients that it applies."""
    found: dict[str, Tensor] = {}

    def keep(*_: Any) -> None:
        found.update({n: p.grad.clone() for n, p in of.model.named_parameters() if p.grad is not None})

    of.optimizer.register_step_pre_hook(keep)
    return found


# -- promise 4: policies are apart ----------------------------------------------------------------------------------


def test_promise_4_a_step_of_one_policy_leaves_the_other_bit_identical(make_tiny: MakeTiny) -> None:
    """Full weights, with momentum and weight decay, from the same folder, so that shared tensors would be noticed."""
    one, two = learner(make_tiny(0), "one"), learner(make_tiny(0), "two")
    for each in (one, two):  # both have momentum, which would move them without a gradient
        each.step(examples_of(policy=each.name), Objective(ppo))
        assert each.optimizer.state_dict()["state"]
    before_one, before_two = snapshot(one), snapshot(two)
    one.step(examples_of(seed=1, policy="one"), Objective(ppo))
    one.imitate(examples_of(seed=2, policy="one"))
    assert same(snapshot(two), before_two)
    assert not same(snapshot(one), before_one)
    assert all(p.grad is None for p in two.model.parameters())
    assert not {p.data_ptr() for p in one.model.parameters()} & {p.data_ptr() for p in two.model.parameters()}


@pytest.mark.parametrize("kind", ["no samples", "no credit", "no advantage"])
def test_promise_4_a_policy_without_anything_to_learn_takes_no_step(make_tiny: MakeTiny, kind: str) -> None:
    """Not even through momentum or weight decay."""
    ours = learner(make_tiny(0))
    ours.step(examples_of(), Objective(ppo))
    before = snapshot(ours)
    advantage = {"no samples": None, "no credit": None, "no advantage": 0.0}[kind]
    examples = [] if kind == "no samples" else [replace(e, advantage=advantage) for e in examples_of()]
    metrics = ours.step(examples, Objective(ppo))
    assert same(snapshot(ours), before)
    assert "loss" not in metrics
    assert metrics["turns"] == (8 if kind == "no advantage" else 0)


def test_samples_without_advantage_count_in_the_mean_but_are_computed_only_where_they_matter(
    make_tiny: MakeTiny,
) -> None:
    ours = learner(make_tiny(0), **STILL)
    examples = [replace(e, advantage=0.0) if i % 2 else e for i, e in enumerate(examples_of())]
    some = [e for e in examples if e.advantage]
    found = gradients(ours)
    ours.step(examples, Objective(ppo))
    left_out = dict(found)
    ours.step(examples, Objective(ppo, "token", True))
    computed = dict(found)
    ours.step(some, Objective(ppo))
    counted, alone = (sum(len(e.sample.action) for e in part) for part in (examples, some))
    limit = rounding(ours.model, sum(len(e.sample.prompt + e.sample.action) for e in examples))
    assert limit < 1e-3 and counted > 1.5 * alone, "a mistake in what is counted would be far larger"
    for name, gradient in left_out.items():
        assert gradient.norm() > 0
        assert (computed[name] - gradient).norm() <= limit * gradient.norm(), name
        assert (found[name] - gradient * (counted / alone)).norm() <= limit * found[name].norm(), name


# -- promise 2: the gate --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("cut", [{}, {"micro_batch_tokens": 20}, {"epochs": 2, "minibatches": 2, "lr": 1e-2}])
def test_promise_2_the_gap_is_nothing_for_what_the_engine_sampled_and_tells_when_it_was_not(
    make_tiny: MakeTiny, temperature: float, cut: dict[str, Any]
) -> None:
    loaded = make_tiny(0)
    examples = sampled(loaded.model, temperature=temperature)
    assert learner(loaded, **cut).step(examples, Objective(ppo))["gap"] < 1e-4  # also after the first minibatch
    fresh = sampled(loaded.model, temperature=temperature, seed=1)
    wrong = fresh[3].sample.logprobs
    fresh[3] = resampled(fresh[3], logprobs=(*wrong[:-1], wrong[-1] + 0.5))
    assert learner(loaded, **cut).step(fresh, Objective(ppo))["gap"] == pytest.approx(0.5, abs=1e-3)


def test_the_gap_and_the_entropy_of_recorded_tokens_are_noted_from_before_the_step(make_tiny: MakeTiny) -> None:
    loaded = make_tiny(0)
    examples = sampled(loaded.model)
    wrong = examples[3].sample.logprobs
    examples[3] = resampled(examples[3], logprobs=(*wrong[:-1], wrong[-1] + 0.5))
    noted = Credit()
    recorded = examples[1:]
    watch = TokenWatch(noted, {e.sample.id for e in recorded})
    moving = {"epochs": 2, "minibatches": 2, "lr": 1e-2, "gap_stop": 1.0}
    found = learner(loaded, **moving).step(examples, Objective(ppo, watch=watch))
    watch.write()
    assert examples[0].sample.id not in noted.gap, "it is not recorded"
    assert all(len(noted.gap[e.sample.id]) == len(noted.entropy[e.sample.id]) == len(e.sample.action) for e in recorded)
    gaps = [g for e in recorded for g in noted.gap[e.sample.id]]
    assert max(map(abs, gaps)) == pytest.approx(found["gap"], rel=0.01)  # three digits are kept
    assert noted.gap[examples[3].sample.id][-1] == pytest.approx(-0.5, abs=1e-3)
    assert all(0 < h < math.log(loaded.model.config.vocab_size) for h in noted.entropy[examples[1].sample.id])


def test_promise_2_a_log_prob_that_is_not_a_number_is_no_small_gap(make_tiny: MakeTiny) -> None:
    loaded = make_tiny(0)
    examples = sampled(loaded.model)
    examples[2] = resampled(examples[2], logprobs=(math.nan, *examples[2].sample.logprobs[1:]))
    before = [p.detach().clone() for p in loaded.model.parameters()]
    with pytest.raises(GuardError, match=r"disagree by inf in log-prob, more than train\.gap_stop"):
        learner(loaded).step(examples, Objective(ppo))
    assert all(torch.equal(a, b) for a, b in zip(before, loaded.model.parameters(), strict=True)), "no step was taken"


def test_samples_of_different_temperatures_are_refused(make_tiny: MakeTiny) -> None:
    examples = examples_of()
    examples[0] = resampled(examples[0], temperature=0.5)
    with pytest.raises(GuardError, match=r"temperatures, \[0.5, 1.0\]; expected the same"):
        learner(make_tiny(0)).step(examples, Objective(ppo))


def test_the_engine_samples_from_the_weights_as_they_are_after_a_step(make_tiny: MakeTiny) -> None:
    """Publishing copies nothing: the step changes the tensors in place."""
    loaded = make_tiny(0)
    engine = LocalEngine(loaded.model, 1024, 8)
    places = [p.data_ptr() for p in engine.runner.model.parameters()]
    ask = Request((0,), (7, 8, 9), 1, Sampling(1.0, 6))
    before = asyncio.run(engine.generate(ask))
    ours = learner(loaded, lr=1e-2)
    ours.step(examples_of(), Objective(ppo))
    assert [p.data_ptr() for p in ours.model.parameters()] == places
    engine.update(1)
    after = asyncio.run(engine.generate(ask))
    assert after.logprobs != before.logprobs
    again = example("again", ask.ids, after.tokens)
    assert ours.logprobs([again])[0] == pytest.approx(after.logprobs, abs=1e-4)


def test_the_ratio_at_the_first_minibatch_is_one_or_the_step_is_refused(
    make_tiny: MakeTiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several minibatches need the log-probs from before the first one: a separate pass, which must agree."""
    loaded = make_tiny(0)
    several: dict[str, Any] = {"minibatches": 2, "epochs": 2, "lr": 1e-2}
    found = learner(loaded, **several).step(sampled(loaded.model), Objective(ppo))
    assert found["ratio"] == pytest.approx(1.0, abs=1e-4) and found["clip_share"] > 0, "later ones did move"
    honest = step_module.logprobs
    monkeypatch.setattr(step_module, "logprobs", lambda *given: [[x + 0.05 for x in each] for each in honest(*given)])
    fresh = sampled(loaded.model)
    open_gate = learner(loaded, **several).step(fresh, Objective(ppo))
    assert open_gate["ratio"] == pytest.approx(math.exp(0.05), abs=1e-3)
    before = [p.detach().clone() for p in loaded.model.parameters()]
    examples = [resampled(e, logprobs=tuple(x + 0.05 for x in e.sample.logprobs)) for e in sampled(loaded.model)]
    with pytest.raises(
        GuardError, match=r"at the first minibatch the ratio .* is 1\.0513, .*the limit is train\.gap_stop"
    ):
        learner(loaded, **several, gap_stop=0.01).step(examples, Objective(ppo))
    assert all(torch.equal(a, b) for a, b in zip(before, loaded.model.parameters(), strict=True)), "no step was taken"


@pytest.mark.parametrize("average", ["token", "turn", 64])
def test_entropy_is_a_mean_over_what_was_computed(make_tiny: MakeTiny, average: str | int) -> None:
    """Samples without advantage have no gradient and are left out: they must not make the entropy look small."""
    loaded = make_tiny(0)
    examples = sampled(loaded.model, 8)
    whole = learner(loaded, **STILL).step(examples, Objective(ppo, average))["entropy"]
    assert 1.0 < whole < math.log(loaded.model.config.vocab_size)
    some = [replace(e, advantage=0.0) if i else e for i, e in enumerate(examples)]
    assert learner(loaded, **STILL).step(some, Objective(ppo, average))["entropy"] == pytest.approx(whole, rel=0.3)


# -- promise 6: cutting, through the whole step ---------------------------------------------------------------------


@pytest.mark.parametrize("average", ["token", "turn"])
def test_promise_6_loss_gradients_and_metrics_do_not_depend_on_the_size_of_micro_batches(
    make_tiny: MakeTiny, average: str
) -> None:
    loaded = make_tiny(0)
    examples = [replace(e, reference=tuple(x - 0.2 for x in e.sample.logprobs)) for e in sampled(loaded.model, 9)]
    results = []
    for limit in (1, 25, 70, 10_000):
        ours = learner(loaded, micro_batch_tokens=limit, **STILL)
        found = gradients(ours)
        count = len(list(pieces(ours.model, examples, limit)))
        results.append((count, ours.step(examples, Objective(pulled, average, True)), found))
    assert len({pieces for pieces, _, _ in results}) == 4
    _, metrics, expected = results[-1]
    for _, other, found in results[:-1]:
        for key in ("loss", "entropy", "kl_ref", "kl_old", "clip_share"):
            assert other[key] == pytest.approx(metrics[key], abs=1e-5)
        for name, gradient in found.items():
            torch.testing.assert_close(gradient, expected[name], atol=1e-5, rtol=1e-4, msg=name)


# -- broken numbers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_reward_that_is_not_a_number_stops_the_step_before_the_weights_move(make_tiny: MakeTiny, bad: float) -> None:
    ours = learner(make_tiny(0))
    ours.step(examples_of(), Objective(ppo))
    before = snapshot(ours)
    examples = examples_of()
    examples[2] = replace(examples[2], advantage=bad)
    with pytest.raises(GuardError, match=r"policy 'player' got a loss of .*the step was not taken"):
        ours.step(examples, Objective(ppo))
    assert same(snapshot(ours), before)
    assert all(p.grad is None for p in ours.model.parameters()), "nothing is left over for the next step"
    assert math.isfinite(ours.step(examples_of(), Objective(ppo))["grad_norm"])


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_critic_is_not_moved_by_a_target_that_is_not_a_number(make_tiny: MakeTiny, bad: float) -> None:
    critic = Critic("player", make_tiny(0).model, config(), CriticSettings(lr=1e-3, clip=None))
    examples = [replace(e, targets=(0.5,)) for e in examples_of()]
    critic.step(examples)
    before = [p.detach().clone() for p in critic.module.parameters()]
    examples[1] = replace(examples[1], targets=(bad,))
    with pytest.raises(GuardError, match="critic"):
        critic.step(examples)
    assert all(torch.equal(a, b) for a, b in zip(before, critic.module.parameters(), strict=True))
    assert all(p.grad is None for p in critic.module.parameters())


# -- learning -------------------------------------------------------------------------------------------------------


def test_a_step_makes_good_replies_likelier_and_bad_ones_less_so(make_tiny: MakeTiny) -> None:
    loaded = make_tiny(0)
    examples = [example("good", (7, 8, 9), (10, 11)), example("bad", (7, 8, 9), (20, 21), advantage=-1.0)]
    ours = learner(loaded)
    before = [sum(lp) for lp in ours.logprobs(examples)]
    ours.step(examples, Objective(ppo))
    after = [sum(lp) for lp in ours.logprobs(examples)]
    assert after[0] > before[0] + 0.01
    assert after[1] < before[1] - 0.01


def test_imitation_lowers_the_mean_negative_log_likelihood(make_tiny: MakeTiny) -> None:
    loaded = make_tiny(0)
    ours = learner(loaded, lr=3e-3, micro_batch_tokens=30)
    examples = examples_of()
    tokens = [x for lp in logprobs(loaded.model, examples, 10_000) for x in lp]
    losses = [ours.imitate(examples) for _ in range(8)]
    assert losses[0] == pytest.approx(-sum(tokens) / len(tokens), abs=1e-4)
    assert losses[-1] < 0.7 * losses[0]
    assert losses == sorted(losses, reverse=True)


def test_gradients_are_clipped_to_the_recipes_norm(make_tiny: MakeTiny) -> None:
    ours = learner(make_tiny(0), grad_clip=0.01)
    found = gradients(ours)
    metrics = ours.step(examples_of(), Objective(ppo))
    assert metrics["grad_norm"] > 0.1  # as it was
    assert math.sqrt(sum(g.pow(2).sum().item() for g in found.values())) == pytest.approx(0.01, rel=1e-3)


def test_a_critic_starts_at_zero_and_learns_a_constant(make_tiny: MakeTiny) -> None:
    critic = Critic("player", make_tiny(0).model, config(weight_decay=0.0), CriticSettings(lr=3e-3, clip=None))
    examples = [replace(e, targets=(0.7,)) for e in examples_of()]
    assert critic.values(examples) == [(0.0,)] * len(examples)
    losses = [critic.step(examples)["value_loss"] for _ in range(30)]
    assert losses[0] == pytest.approx(0.5 * 0.49, abs=1e-6)
    assert losses[-1] < 0.01
    assert [value for (value,) in critic.values(examples)] == pytest.approx([0.7] * len(examples), abs=0.2)


def test_a_critic_reads_the_end_of_the_prompt_whatever_the_batch(make_tiny: MakeTiny) -> None:
    loaded = make_tiny(0)
    torch.manual_seed(0)
    found = []
    for limit in (1, 30, 10_000):
        critic = Critic("player", loaded.model, config(micro_batch_tokens=limit), CriticSettings(lr=1e-3, clip=None))
        torch.nn.init.ones_(critic.head.weight)
        found.append([value for (value,) in critic.values(examples_of())])
    with torch.no_grad():
        alone = [
            loaded.model.base_model(torch.tensor([e.sample.prompt])).last_hidden_state[0, -1].sum().item()
            for e in examples_of()
        ]
    for values in found:
        assert values == pytest.approx(alone, abs=1e-4)


def test_critic_gradients_do_not_depend_on_cutting(make_tiny: MakeTiny) -> None:
    """Promise 6 for the critic: one step from the same start has the same result."""
    after = []
    for limit in (1, 10_000):
        critic = Critic(
            "player",
            make_tiny(0).model,
            config(micro_batch_tokens=limit, weight_decay=0.0),
            CriticSettings(lr=1e-3, clip=0.2),
        )
        torch.nn.init.constant_(critic.head.weight, 0.1)
        examples = [replace(e, targets=(0.1 * i,), values=(0.3,)) for i, e in enumerate(examples_of())]
        loss = critic.step(examples)["value_loss"]
        moments = critic.optimizer.state_dict()["state"]
        after.append((loss, {k: v["exp_avg"] for k, v in moments.items()}))
    assert after[0][0] == pytest.approx(after[1][0], abs=1e-5)
    for key, momentum in after[0][1].items():
        torch.testing.assert_close(momentum, after[1][1][key], atol=1e-5, rtol=1e-4)


# -- schedules and minibatches --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ({"schedule": "constant"}, {0: 1.0, 5: 1.0, 99: 1.0}),
        ({"schedule": "constant", "warmup_steps": 4}, {0: 0.25, 1: 0.5, 2: 0.75, 3: 1.0, 4: 1.0}),
        ({"schedule": "linear", "final_lr": 0.1}, {0: 1.0, 5: 0.55, 9: 0.19, 10: 0.1, 15: 0.1}),
        ({"schedule": "linear", "final_lr": 0.0, "warmup_steps": 2}, {0: 0.5, 1: 1.0, 2: 1.0, 6: 0.5, 10: 0.0}),
        ({"schedule": "cosine", "final_lr": 0.1}, {0: 1.0, 5: 0.55, 10: 0.1, 12: 0.1}),
        (
            {"schedule": "cosine", "final_lr": 0.2, "warmup_steps": 2},
            {1: 1.0, 2: 1.0, 4: 0.2 + 0.8 * 0.5 * (1 + math.sqrt(0.5)), 6: 0.6, 10: 0.2},
        ),
        ({"schedule": "linear", "warmup_steps": 10}, {0: 0.1, 9: 1.0, 10: 1.0, 11: 0.1}),  # all of it is warm-up
    ],
)
def test_learning_rate_schedules_by_hand(section: dict[str, Any], expected: dict[int, float]) -> None:
    assert {s: rate_factor(config(**section), s) for s in expected} == pytest.approx(expected)


def test_the_schedule_reaches_the_optimiser_and_counts_training_steps(make_tiny: MakeTiny) -> None:
    section = {"schedule": "linear", "final_lr": 0.0, "steps": 4, "warmup_steps": 2, "minibatches": 3, "epochs": 2}
    ours = learner(make_tiny(0), lr=0.008, **section)
    seen = []
    for _ in range(4):
        ours.step(examples_of(), Objective(ppo))
        seen.append(ours.optimizer.param_groups[0]["lr"])
    assert seen == pytest.approx([0.004, 0.008, 0.008, 0.004])
    ours.reset_optimizer(0.001)
    assert ours.optimizer.param_groups[0]["lr"] == pytest.approx(0.001)
    assert ours.optimizer.state_dict()["state"] == {}, "momentum of imitation does not leak into what follows"


@pytest.mark.parametrize(("count", "parts"), [(8, 1), (8, 4), (10, 4), (3, 5), (1, 1)])
def test_minibatches_cover_every_sample_once_per_epoch(count: int, parts: int) -> None:
    examples = examples_of(count)
    section = config(epochs=3, minibatches=parts)
    found = minibatches(examples, section, seed=1)
    assert len(found) % 3 == 0
    per_epoch = len(found) // 3
    assert per_epoch <= parts
    assert all(found), "no minibatch is empty"
    for epoch in range(3):
        ids = [e.sample.id for part in found[epoch * per_epoch : (epoch + 1) * per_epoch] for e in part]
        assert sorted(ids) == sorted(e.sample.id for e in examples)
    assert found == minibatches(examples, section, seed=1)
    assert minibatches([], section, seed=1) == []


def test_the_replies_to_one_decision_are_trained_on_in_the_same_optimiser_step() -> None:
    """Their prompt is then computed once, and each step compares them."""
    examples = [replace(e, decision=f"game/{i // 4}X") for i, e in enumerate(examples_of(24))]
    found = minibatches(examples, config(epochs=2, minibatches=3, whole_decisions=True), seed=1)
    assert [len(part) for part in found] == [8] * 6
    for part in found:
        assert set(Counter(e.decision for e in part).values()) == {4}
    assert found[:3] != found[3:], "every epoch is shuffled again"
    apart = minibatches(examples, config(epochs=2, minibatches=3), seed=1)
    assert any(set(Counter(e.decision for e in part).values()) != {4} for part in apart)


def test_a_trainer_names_the_decision_of_each_candidate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Example] = []

    def watched(examples: Sequence[Example], section: TrainSection, seed: int) -> list[list[Example]]:
        seen.extend(examples)
        return minibatches(examples, section, seed)

    monkeypatch.setattr(step_module, "minibatches", watched)
    recipe = {
        "name": "test", "device": "cpu", "env": {"name": "tictactoe", "size": 2, "line": 2},
        "policies": {"player": {"base": "tiny-16x1"}}, "seats": "player", "sampling": {"max_tokens": 2, "legal": True},
        "algorithm": {"name": "at_grpo", "candidates": 3, "kl": 0.1}, "rollout": {"tasks": 4},
        "train": {"steps": 1, "minibatches": 2}, "records": {"tensorboard": "off"},
    }  # fmt: skip
    train(tmp_path, recipe)
    decisions: dict[str, list[Example]] = {}
    for e in seen:
        decisions.setdefault(e.decision, []).append(e)
    assert len(decisions) > 4
    assert {len(replies) for replies in decisions.values()} == {3}
    assert all(len({e.sample.prompt for e in replies}) == 1 for replies in decisions.values())


def test_minibatches_are_shuffled_by_seed_and_epoch() -> None:
    examples = examples_of(30)
    cut = lambda seed: minibatches(examples, config(epochs=2, minibatches=3), seed)  # noqa: E731
    assert cut(1)[:3] != cut(1)[3:]
    assert cut(1) != cut(2)


def test_later_minibatches_are_clipped_against_the_policy_before_the_first(make_tiny: MakeTiny) -> None:
    loaded = make_tiny(0)
    examples = examples_of()
    before = logprobs(loaded.model, examples, 10_000)
    seen: list[float] = []

    def watch(targets: Targets, outputs: Outputs) -> tuple[Tensor, dict[str, Tensor]]:
        seen.extend(targets.old_logprobs_N.tolist())
        return ppo(targets, outputs)

    ours = learner(loaded, lr=1e-2, epochs=2, minibatches=2)
    metrics = ours.step(examples, Objective(watch))
    assert sorted(seen) == pytest.approx(sorted(x for lp in before for x in lp * 2), abs=1e-5)
    assert metrics["kl_old"] > 1e-4


@pytest.mark.parametrize("average", ["token", "turn"])
def test_token_weights_add_up_to_one(average: str) -> None:
    examples = examples_of()
    weights = token_weights(examples, average)
    sizes = {e.sample.id: len(e.sample.action) for e in examples}
    assert sum(weights[name] * size for name, size in sizes.items()) == pytest.approx(1.0)
    each = {round(weights[name] * (size if average == "turn" else 1), 12) for name, size in sizes.items()}
    assert len(each) == 1, "every sample weighs the same, or every token does"


# -- state ----------------------------------------------------------------------------------------------------------


def through_a_file(state: Any) -> Any:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def test_promise_9_a_learner_restored_from_its_state_goes_on_bit_identically(make_tiny: MakeTiny) -> None:
    section: dict[str, Any] = {"schedule": "cosine", "warmup_steps": 1, "epochs": 2, "minibatches": 2}
    ours = learner(make_tiny(0), **section)
    for seed in range(2):
        ours.step(examples_of(seed=seed), Objective(ppo))
    weights, state = through_a_file((ours.model.state_dict(), ours.state_dict()))
    twin = learner(make_tiny(1), **section)
    twin.model.load_state_dict(weights)
    twin.load_state_dict(state)
    assert same(snapshot(ours), snapshot(twin))
    for seed in (2, 3):
        examples = examples_of(seed=seed)
        assert ours.step(examples, Objective(ppo)) == twin.step(examples, Objective(ppo))
    assert same(snapshot(ours), snapshot(twin))
    forgetful = learner(make_tiny(1), **section)  # guards this test: the optimiser's state matters
    forgetful.model.load_state_dict(weights)
    for seed in (2, 3):
        forgetful.step(examples_of(seed=seed), Objective(ppo))
    assert not same(snapshot(ours), snapshot(forgetful))


def test_promise_9_a_critic_restored_from_its_state_goes_on_bit_identically(make_tiny: MakeTiny) -> None:
    section = config(epochs=2, minibatches=2)
    examples = [replace(e, targets=(0.1 * i,), values=(0.0,)) for i, e in enumerate(examples_of())]
    ours = Critic("player", make_tiny(0).model, section, CriticSettings(lr=1e-3, clip=0.5))
    ours.step(examples)
    twin = Critic("player", make_tiny(1).model, section, CriticSettings(lr=1e-3, clip=0.5))
    twin.load_state_dict(through_a_file(ours.state_dict()))
    assert ours.values(examples) == twin.values(examples)
    assert ours.step(examples) == twin.step(examples)
    assert ours.values(examples) == twin.values(examples)
