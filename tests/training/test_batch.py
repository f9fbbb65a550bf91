"""From samples to tensors: every path gives the same result as if it were alone, and only sampled tokens are trained.

The reference is plain transformers, one sequence at a time, without padding, sharing or cutting.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from runs import example, resampled
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel

from interplay.algorithms.losses import Outputs, Targets, policy_loss
from interplay.models import fused
from interplay.models.load import Loaded
from interplay.models.locate import locate
from interplay.training import forward
from interplay.training.batch import MicroBatch, micro_batches
from interplay.training.forward import hidden_states, logprobs, pieces, predict
from interplay.training.minibatches import token_weights
from interplay.training.tries import Example, lay

CPU = torch.device("cpu")
HUGE = 1_000_000


def some(rng: random.Random, low: int, high: int) -> tuple[int, ...]:
    return tuple(rng.randrange(6, 600) for _ in range(rng.randint(low, high)))


def conversations(temperature: float = 1.0) -> list[Example]:
    """Candidates that share prompts, equal replies, kept lines that continue one of them, unrelated samples, a
    rewritten history that extends nothing, and a sample that extends one which is missing."""
    rng = random.Random(0)
    examples: list[Example] = []
    for episode in range(3):
        prompt, before = some(rng, 3, 20), None
        for decision in range(3):
            replies = [some(rng, 1, 6) for _ in range(4)]
            replies.append(replies[1])
            for k, reply in enumerate(replies):
                examples.append(example(f"{episode}/{decision}/{k}", prompt, reply, before))
            kept = rng.randrange(5)
            before = f"{episode}/{decision}/{kept}"
            prompt = prompt + replies[kept] + some(rng, 1, 5)
            if (episode, decision) == (1, 0):
                prompt, before = some(rng, 4, 9), None
    examples.append(example("stranger", some(rng, 30, 30), some(rng, 5, 5)))
    examples.append(example("one token", some(rng, 1, 1), some(rng, 1, 1)))
    examples.append(example("orphan", some(rng, 12, 12), some(rng, 2, 2), "elsewhere"))
    return [
        replace(resampled(e, temperature=temperature), advantage=(-1.0) ** i * (1 + i % 5) / 3)
        for i, e in enumerate(examples)
    ]


@pytest.fixture(scope="module")
def plain(tiny: Loaded) -> PreTrainedModel:
    """The same weights without Interplay."""
    return AutoModelForCausalLM.from_pretrained(locate("tiny", 0), attn_implementation="sdpa").eval()


def alone(model: PreTrainedModel, one: Example) -> tuple[Tensor, Tensor]:
    """Log-probs and entropies of a sample's tokens, by a plain forward pass over its single sequence."""
    s = one.sample
    logits = model(torch.tensor([s.prompt + s.action])).logits[0, len(s.prompt) - 1 : -1].float() / s.temperature
    logp = torch.log_softmax(logits, -1)
    return logp[torch.arange(len(s.action)), torch.tensor(s.action)], -(logp.exp() * logp).sum(-1)


# -- every path reads as if alone -----------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("limit", [1, 60, 300, HUGE])
def test_logprobs_equal_a_plain_forward_pass_per_sequence(
    tiny: Loaded, plain: PreTrainedModel, temperature: float, limit: int
) -> None:
    examples = conversations(temperature)
    with torch.no_grad():
        for e, found in zip(examples, logprobs(tiny.model, examples, limit), strict=True):
            torch.testing.assert_close(torch.tensor(found), alone(plain, e)[0], atol=1e-5, rtol=0, msg=e.sample.id)


def test_logprobs_do_not_depend_on_the_order_of_samples(tiny: Loaded) -> None:
    examples = conversations()
    found = dict(zip((e.sample.id for e in examples), logprobs(tiny.model, examples, HUGE), strict=True))
    mixed = random.Random(1).sample(examples, len(examples))  # also before those that they extend
    for e, again in zip(mixed, logprobs(tiny.model, mixed, 200), strict=True):
        assert again == pytest.approx(found[e.sample.id], abs=1e-5)


def test_grouped_heads_go_through_the_same_masks() -> None:
    config = LlamaConfig(
        vocab_size=640, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=256, initializer_range=0.2,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        theirs = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval()
    ours = AutoModelForCausalLM.from_config(config, attn_implementation="interplay").eval()
    ours.load_state_dict(theirs.state_dict())
    examples = conversations()
    with torch.no_grad():
        for e, found in zip(examples, logprobs(ours, examples, HUGE), strict=True):
            torch.testing.assert_close(torch.tensor(found), alone(theirs, e)[0], atol=1e-5, rtol=0, msg=e.sample.id)


def read(batch: MicroBatch, row: int, column: int) -> tuple[int, ...]:
    """The ids that a column sees, including itself, in order of position."""
    width = batch.ids_BL.shape[1]
    seen = torch.ones(width, width).tril().bool() if batch.mask_B1LL is None else batch.mask_B1LL[row, 0]
    columns = seen[column].nonzero().squeeze(1).tolist()
    places = {int(batch.positions_BL[row, c]): int(batch.ids_BL[row, c]) for c in columns}
    assert sorted(places) == list(range(len(columns))), "each position is seen once"
    return tuple(places[p] for p in sorted(places))


def check_paths(examples: list[Example], share: bool, limit: int, max_tokens: int) -> None:
    trie = lay(examples, share=share, row_limit=limit)
    met: list[int] = []
    for batch in micro_batches(trie, examples, max_tokens, CPU):
        predictions = [
            (read(batch, r, c), t)
            for r, c, t in zip(batch.row_M.tolist(), batch.column_M.tolist(), batch.target_M.tolist(), strict=True)
        ]
        wanted = [
            (sample.prompt + sample.action[:k], sample.action[k])
            for sample in (examples[i].sample for i in batch.examples)
            for k in range(len(sample.action))
        ]
        assert [predictions[m] for m in batch.prediction_N.tolist()] == wanted
        assert {*batch.prediction_N.tolist()} == {*range(len(predictions))}, "nothing is predicted but what was sampled"
        met += batch.examples
    assert sorted(met) == list(range(len(examples)))


few = st.integers(6, 7)
short = st.lists(few, min_size=1, max_size=4).map(tuple)


@st.composite
def many_examples(draw: st.DrawFn) -> list[Example]:
    """Samples over two tokens, so that prompts, replies and whole paths coincide in every way."""
    examples: list[Example] = []
    for i in range(draw(st.integers(1, 9))):
        before = draw(st.sampled_from([None, *(e.sample for e in examples)]))
        if before is None:
            prompt = draw(short)
        else:
            prompt = before.prompt + before.action + draw(st.lists(few, max_size=3).map(tuple))
        examples.append(example(f"t{i}", prompt, draw(short), before and before.id))
    return draw(st.permutations(examples))


@settings(max_examples=300)
@given(many_examples(), st.sampled_from([1, 8, 20, HUGE]), st.sampled_from([1, 16, HUGE]))
def test_promise_5_predictions_are_exactly_the_sampled_tokens_each_after_its_own_path(
    examples: list[Example], limit: int, max_tokens: int
) -> None:
    check_paths(examples, True, limit, max_tokens)
    check_paths(examples, False, limit, max_tokens)


def test_a_prompt_that_ends_inside_anothers_reply_reads_its_own_path() -> None:
    """Equal paths that are cut at different places: (P)(345), (P)(3) and, continuing it, (P3)(45)."""
    examples = [
        example("a", (1, 2), (3, 4, 5)),
        example("b", (1, 2), (3,)),
        example("c", (1, 2, 3), (4, 5), "b"),
    ]
    check_paths(examples, True, HUGE, HUGE)


def test_sharing_shares() -> None:
    """Guards the tests above: a conversation with its candidates is one row, and each token is computed once."""
    p, kept, other, more = (7, 8, 9), (10, 11), (12,), (13, 14)
    examples = [
        example("0a", p, kept),
        example("0b", p, other),
        example("0c", p, kept),
        example("1a", p + kept + more, (15,), "0a"),
        example("1b", p + kept + more, (16,), "0c"),
    ]
    trie = lay(examples)
    assert len(trie.rows) == 1
    assert trie.rows[0].length == 3 + 2 + 1 + 2 + 1 + 1
    (batch,) = micro_batches(trie, examples, HUGE, CPU)
    assert len(batch.target_M) == 2 + 1 + 1 + 1  # equal replies are predicted once
    assert len(batch.prediction_N) == sum(len(e.sample.action) for e in examples)
    assert len(lay(examples, share=False).rows) == 5
    assert len(lay([resampled(e, extends=None) for e in examples]).rows) == 2


@pytest.mark.parametrize("limit", [10, 30, 100])
def test_a_row_stays_within_its_limit_unless_one_sample_alone_is_longer(limit: int) -> None:
    examples = conversations()
    longest = max(len(e.sample.prompt) + len(e.sample.action) for e in examples)
    trie = lay(examples, row_limit=limit)
    assert all(r.length <= max(limit, longest) for r in trie.rows)
    for batch in micro_batches(trie, examples, limit, CPU):
        assert batch.ids_BL.numel() <= max(limit, longest)


def test_the_critic_reads_every_prompt_to_its_end_and_no_further() -> None:
    examples = conversations()
    for limit in (1, 40, HUGE):
        seen: Counter[int] = Counter()
        for batch in micro_batches(lay(examples, row_limit=limit, actions=False), examples, limit, CPU, actions=False):
            for i, m in zip(batch.examples, batch.prediction_N.tolist(), strict=True):
                assert read(batch, int(batch.row_M[m]), int(batch.column_M[m])) == examples[i].sample.prompt
                seen[i] += 1
        assert seen == Counter(range(len(examples)))


def test_the_critic_reads_states_that_are_shorter_than_what_they_are_said_to_extend() -> None:
    """A state critic uses its own prompts, which extend nothing, although their samples did."""
    first = example("a", (7,) * 12, (8,) * 12)
    states = [(9,) * 6, (9,) * 5 + (8,), (9,) * 6]
    examples = [
        resampled(first, prompt=states[0]),
        *(example(f"b{i}", s, (8,), "a") for i, s in enumerate(states)),
    ]
    for limit in (1, 3, 7, HUGE):
        for batch in micro_batches(lay(examples, row_limit=limit, actions=False), examples, limit, CPU, actions=False):
            for i, m in zip(batch.examples, batch.prediction_N.tolist(), strict=True):
                assert read(batch, int(batch.row_M[m]), int(batch.column_M[m])) == examples[i].sample.prompt


# -- promise 5: gradients -------------------------------------------------------------------------------------------


def test_promise_5_no_gradient_reaches_padding_or_what_stands_after_the_last_sampled_token(tiny: Loaded) -> None:
    """The gradient by the embedding of each column is exactly zero if no trained token comes after it."""
    model = tiny.model
    examples = [
        example("long", range(10, 30), (40, 41, 42)),
        example("short", (50, 51), (52, 53)),  # padded
        example("fork a", (60, 61, 62), (63, 64)),
        example("fork b", (60, 61, 62), (65, 66)),
        example("after b", (60, 61, 62, 65, 66, 67), (68,), "fork b"),
    ]
    kept: list[Tensor] = []

    def keep(module: torch.nn.Module, inputs: object, output: Tensor) -> None:
        output.retain_grad()
        kept.append(output)

    hook = model.get_input_embeddings().register_forward_hook(keep)
    try:
        (batch,) = micro_batches(lay(examples), examples, HUGE, CPU)
        logp_M, _ = predict(model, batch, 1.0)
        members = [examples[i].sample for i in batch.examples]
        weight = torch.tensor([0.0 if s.id == "fork a" else 1.0 for s in members for _ in s.action])
        (logp_M[batch.prediction_N] * weight).sum().backward()
    finally:
        hook.remove()
        model.zero_grad(set_to_none=True)
    (embedded,) = kept
    assert embedded.grad is not None
    reached = embedded.grad.abs().sum(-1) > 0
    for row in range(len(batch.ids_BL)):
        moved = {int(i) for i, r in zip(batch.ids_BL[row], reached[row], strict=True) if r}
        if 10 in moved:
            assert moved == {*range(10, 30), 40, 41}, "the last reply token predicts nothing"
        elif 50 in moved:
            assert moved == {50, 51, 52}
        else:
            # Through "fork b" to what comes after it; its sibling, of weight zero, is not touched.
            assert moved == {60, 61, 62, 65, 66, 67}
    assert int(reached.sum()) == 22 + 3 + 6  # padding, whose id is 0, is not among them
    assert torch.equal(embedded.grad[~reached], torch.zeros_like(embedded.grad[~reached]))


def test_promise_5_only_the_sampled_tokens_are_predicted(tiny: Loaded) -> None:
    """The output layer is not computed for prompts, observations and padding."""
    examples = conversations()
    asked: list[int] = []
    hook = tiny.model.get_output_embeddings().register_forward_hook(lambda m, i, o: asked.append(len(i[0])))
    try:
        batches = list(micro_batches(lay(examples, share=False), examples, HUGE, CPU))
        for batch in batches:
            predict(tiny.model, batch, 1.0)
    finally:
        hook.remove()
    assert sum(asked) == sum(len(e.sample.action) for e in examples)
    columns = {(i, int(r), int(c)) for i, b in enumerate(batches) for r, c in zip(b.row_M, b.column_M, strict=True)}
    assert len(columns) == sum(asked)


# -- promise 6: cutting ---------------------------------------------------------------------------------------------


def objective(examples: Sequence[Example], logp: Tensor, entropy: Tensor, average: str) -> Tensor:
    """A loss with every term, over the tokens of `examples` in order."""
    weights = token_weights(ALL, average)
    flat = lambda f: torch.tensor([f(e) for e in examples for _ in e.sample.action])  # noqa: E731
    old = torch.tensor([x for e in examples for x in OLD[e.sample.id]])
    targets = Targets(flat(lambda e: e.advantage), old, flat(lambda e: weights[e.sample.id]), old - 0.3)
    return policy_loss(targets, Outputs(logp, entropy), 0.2, 0.28, 3.0, entropy=0.01, kl=0.1)[0]


ALL = conversations(0.7)
OLD = {e.sample.id: [-5.0 - 0.1 * (k + i % 7) for k in range(len(e.sample.action))] for i, e in enumerate(ALL)}


def gradients(model: PreTrainedModel, losses: Sequence[Tensor]) -> tuple[float, dict[str, Tensor]]:
    for loss in losses:
        loss.backward()
    found = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    model.zero_grad(set_to_none=True)
    return sum(x.item() for x in losses), found


@pytest.fixture(scope="module", params=["token", "turn"])
def reference(request: pytest.FixtureRequest, plain: PreTrainedModel) -> tuple[str, float, dict[str, Tensor]]:
    """Loss and gradients by plain transformers, each sample alone."""
    return (request.param, *gradients(plain, [objective([e], *alone(plain, e), request.param) for e in ALL]))


@pytest.mark.parametrize(
    ("share", "merged", "limit"),
    [
        (True, True, HUGE),
        (True, True, 200),
        (True, True, 1),
        (False, True, HUGE),
        (False, True, 90),
        (True, False, 150),
    ],
)
def test_promise_6_loss_and_gradients_do_not_depend_on_sharing_merging_or_cutting(
    tiny: Loaded, reference: tuple[str, float, dict[str, Tensor]], share: bool, merged: bool, limit: int
) -> None:
    average, expected_loss, expected = reference
    examples = ALL if merged else [resampled(e, extends=None) for e in ALL]
    losses = []
    for batch in micro_batches(lay(examples, share=share, row_limit=limit), examples, limit, CPU):
        logp_M, entropy_M = predict(tiny.model, batch, 0.7)
        members = [examples[i] for i in batch.examples]
        losses.append(objective(members, logp_M[batch.prediction_N], entropy_M[batch.prediction_N], average))
    if limit == 1:
        assert len(losses) >= len(examples)
    loss, found = gradients(tiny.model, losses)
    assert loss == pytest.approx(expected_loss, abs=1e-5)
    assert found.keys() == expected.keys()
    assert max(g.abs().max().item() for g in expected.values()) > 1e-2
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, expected[name], atol=1e-5, rtol=1e-4, msg=name)


@pytest.mark.parametrize(("share", "limit"), [(True, HUGE), (True, 120), (False, HUGE), (False, 1)])
def test_promise_6_loss_and_gradients_do_not_depend_on_packing(
    tiny: Loaded,
    reference: tuple[str, float, dict[str, Tensor]],
    monkeypatch: pytest.MonkeyPatch,
    share: bool,
    limit: int,
) -> None:
    """Sequences are laid end to end in one row without padding, as on a GPU, with attention span by span."""
    monkeypatch.setattr(fused, "of", lambda model: None)  # a GPU's kernels have tests of their own
    average, expected_loss, expected = reference
    losses, padding = [], 0
    for batch in micro_batches(lay(ALL, share, limit, branch=False), ALL, limit, CPU, pack=True):
        assert batch.spans is not None and len(batch.ids_BL) == 1
        padding += batch.ids_BL.numel() - sum(batch.spans.lengths)
        logp_M, entropy_M = predict(tiny.model, batch, 0.7)
        members = [ALL[i] for i in batch.examples]
        losses.append(objective(members, logp_M[batch.prediction_N], entropy_M[batch.prediction_N], average))
    assert padding == 0 and (len(losses) == 1) == (limit == HUGE)
    loss, found = gradients(tiny.model, losses)
    assert loss == pytest.approx(expected_loss, abs=1e-5)
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, expected[name], atol=1e-5, rtol=1e-4, msg=name)


class _Largest(TorchDispatchMode):
    """Records the size of the largest tensor that any operation makes."""

    numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for made in out if isinstance(out, tuple | list) else (out,):
            if isinstance(made, torch.Tensor):
                self.numbers = max(self.numbers, made.numel())
        return out


@pytest.mark.parametrize("masked", [False, True])
def test_log_probs_are_made_in_pieces_with_the_same_gradients(
    tiny: Loaded, monkeypatch: pytest.MonkeyPatch, masked: bool
) -> None:
    """The full [predictions, vocabulary] matrix never exists, forward or backward; a large vocabulary costs only
    time."""
    examples = [example(f"t{i}", (5, 6, 7 + i), (20 + i, 21, 22, 23)) for i in range(30)]
    if masked:  # some of them, so that pieces with and without a mask meet
        said = [e.sample.action for e in examples[::2]]
        examples[::2] = [resampled(e, mask=(a, (*a[:2], 40, 41))) for e, a in zip(examples[::2], said, strict=True)]
    vocabulary = tiny.model.config.vocab_size
    (batch,) = pieces(tiny.model, examples, 10_000)
    found = []
    for limit in (1 << 24, 5 * vocabulary):
        monkeypatch.setattr(forward, "CPU_LOGITS", limit)
        tiny.model.zero_grad()
        with _Largest() as largest:
            logp_M, entropy_M = predict(tiny.model, batch, 0.7)
            (logp_M.sum() + entropy_M.sum()).backward()
        gradients = [p.grad.clone() for p in tiny.model.parameters() if p.grad is not None]
        found.append((logp_M.detach(), entropy_M.detach(), gradients, largest.numbers))
    tiny.model.zero_grad()
    whole, cut = found
    count = len(batch.target_M)
    assert whole[3] == count * vocabulary > cut[3], "weights' gradients are larger than a piece of the logits"
    for a, b in zip(whole[:2], cut[:2], strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)
    for a, b in zip(whole[2], cut[2], strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


def test_hidden_states_are_those_of_the_predicting_columns(tiny: Loaded) -> None:
    examples = [example("a", (7, 8, 9), (10, 11))]
    (batch,) = micro_batches(lay(examples), examples, HUGE, CPU)
    with torch.no_grad():
        found = hidden_states(tiny.model, batch)
        whole = tiny.model.base_model(torch.tensor([[7, 8, 9, 10, 11]])).last_hidden_state[0]
    torch.testing.assert_close(found, whole[[2, 3]], atol=1e-6, rtol=0)
