"""Turns to tensors: every path reads as if it stood alone, and only what was sampled is trained.

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
from runs import turn
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel

from interplay.algorithms.losses import Outputs, Targets, policy_loss
from interplay.models import fused
from interplay.models.load import Loaded
from interplay.models.locate import locate
from interplay.training import forward
from interplay.training.batch import MicroBatch, lay, micro_batches
from interplay.training.forward import hidden_states, logprobs, pieces, predict
from interplay.training.learner import token_weights
from interplay.types import Turn

CPU = torch.device("cpu")
HUGE = 1_000_000


def some(rng: random.Random, low: int, high: int) -> tuple[int, ...]:
    return tuple(rng.randrange(6, 600) for _ in range(rng.randint(low, high)))


def conversations(temperature: float = 1.0) -> list[Turn]:
    """Candidates that share prompts, equal replies, kept lines that go on from one of them, strangers, a rewritten
    history that is not merged, and a merged turn whose parent is not here."""
    rng = random.Random(0)
    turns: list[Turn] = []
    for episode in range(3):
        prompt, parent, merged = some(rng, 3, 20), None, False
        for decision in range(3):
            replies = [some(rng, 1, 6) for _ in range(4)]
            replies.append(replies[1])
            for k, reply in enumerate(replies):
                turns.append(turn(f"{episode}/{decision}/{k}", prompt, reply, parent, merged=merged))
            kept = rng.randrange(5)
            parent, merged = f"{episode}/{decision}/{kept}", True
            prompt = prompt + replies[kept] + some(rng, 1, 5)
            if (episode, decision) == (1, 0):
                prompt, merged = some(rng, 4, 9), False
    turns.append(turn("stranger", some(rng, 30, 30), some(rng, 5, 5)))
    turns.append(turn("one token", some(rng, 1, 1), some(rng, 1, 1)))
    turns.append(turn("orphan", some(rng, 12, 12), some(rng, 2, 2), "elsewhere", merged=True))
    for i, t in enumerate(turns):
        t.advantage, t.temperature = (-1.0) ** i * (1 + i % 5) / 3, temperature
    return turns


@pytest.fixture(scope="module")
def plain(tiny: Loaded) -> PreTrainedModel:
    """The same weights without Interplay."""
    return AutoModelForCausalLM.from_pretrained(locate("tiny", 0), attn_implementation="sdpa").eval()


def alone(model: PreTrainedModel, t: Turn) -> tuple[Tensor, Tensor]:
    """Log-probs and entropies of a turn's tokens by a plain forward pass over its one sequence."""
    logits = model(torch.tensor([t.prompt + t.action])).logits[0, len(t.prompt) - 1 : -1].float() / t.temperature
    logp = torch.log_softmax(logits, -1)
    return logp[torch.arange(len(t.action)), torch.tensor(t.action)], -(logp.exp() * logp).sum(-1)


# -- every path reads as if alone -----------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("limit", [1, 60, 300, HUGE])
def test_logprobs_equal_a_plain_forward_pass_per_sequence(
    tiny: Loaded, plain: PreTrainedModel, temperature: float, limit: int
) -> None:
    turns = conversations(temperature)
    with torch.no_grad():
        for t, found in zip(turns, logprobs(tiny.model, turns, limit), strict=True):
            torch.testing.assert_close(torch.tensor(found), alone(plain, t)[0], atol=1e-5, rtol=0, msg=t.id)


def test_logprobs_do_not_depend_on_the_order_of_turns(tiny: Loaded) -> None:
    turns = conversations()
    found = dict(zip((t.id for t in turns), logprobs(tiny.model, turns, HUGE), strict=True))
    mixed = random.Random(1).sample(turns, len(turns))  # also children before their parents
    for t, again in zip(mixed, logprobs(tiny.model, mixed, 200), strict=True):
        assert again == pytest.approx(found[t.id], abs=1e-5)


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
    turns = conversations()
    with torch.no_grad():
        for t, found in zip(turns, logprobs(ours, turns, HUGE), strict=True):
            torch.testing.assert_close(torch.tensor(found), alone(theirs, t)[0], atol=1e-5, rtol=0, msg=t.id)


def read(batch: MicroBatch, row: int, column: int) -> tuple[int, ...]:
    """The ids that a column sees, itself included, in order of position."""
    width = batch.ids_BL.shape[1]
    seen = torch.ones(width, width).tril().bool() if batch.mask_B1LL is None else batch.mask_B1LL[row, 0]
    columns = seen[column].nonzero().squeeze(1).tolist()
    places = {int(batch.positions_BL[row, c]): int(batch.ids_BL[row, c]) for c in columns}
    assert sorted(places) == list(range(len(columns))), "each position is seen once"
    return tuple(places[p] for p in sorted(places))


def check_paths(turns: list[Turn], share: bool, limit: int, max_tokens: int) -> None:
    trie = lay(turns, share=share, row_limit=limit)
    met: list[int] = []
    for batch in micro_batches(trie, turns, max_tokens, CPU):
        predictions = [
            (read(batch, r, c), t)
            for r, c, t in zip(batch.row_M.tolist(), batch.column_M.tolist(), batch.target_M.tolist(), strict=True)
        ]
        wanted = [
            (turns[i].prompt + turns[i].action[:k], turns[i].action[k])
            for i in batch.turns
            for k in range(len(turns[i].action))
        ]
        assert [predictions[m] for m in batch.prediction_N.tolist()] == wanted
        assert {*batch.prediction_N.tolist()} == {*range(len(predictions))}, "nothing is predicted but what was sampled"
        met += batch.turns
    assert sorted(met) == list(range(len(turns)))


few = st.integers(6, 7)
short = st.lists(few, min_size=1, max_size=4).map(tuple)


@st.composite
def many_turns(draw: st.DrawFn) -> list[Turn]:
    """Turns over two tokens, so that prompts, replies and whole paths coincide in every way."""
    turns: list[Turn] = []
    for i in range(draw(st.integers(1, 9))):
        parent = draw(st.sampled_from([None, *turns]))
        if parent is None:
            prompt = draw(short)
        else:
            prompt = parent.prompt + parent.action + draw(st.lists(few, max_size=3).map(tuple))
        turns.append(turn(f"t{i}", prompt, draw(short), parent and parent.id, merged=parent is not None))
    return draw(st.permutations(turns))


@settings(deadline=None, max_examples=300, derandomize=True)
@given(many_turns(), st.sampled_from([1, 8, 20, HUGE]), st.sampled_from([1, 16, HUGE]))
def test_promise_5_predictions_are_exactly_the_sampled_tokens_each_after_its_own_path(
    turns: list[Turn], limit: int, max_tokens: int
) -> None:
    check_paths(turns, True, limit, max_tokens)
    check_paths(turns, False, limit, max_tokens)


def test_a_prompt_that_ends_inside_anothers_reply_reads_its_own_path() -> None:
    """Equal paths cut at different places: (P)(345), (P)(3) and, going on from it, (P3)(45)."""
    turns = [
        turn("a", (1, 2), (3, 4, 5)),
        turn("b", (1, 2), (3,)),
        turn("c", (1, 2, 3), (4, 5), parent="b", merged=True),
    ]
    check_paths(turns, True, HUGE, HUGE)


def test_sharing_shares() -> None:
    """Guards the tests above: one row for a conversation with its candidates, each token once."""
    p, kept, other, more = (7, 8, 9), (10, 11), (12,), (13, 14)
    turns = [
        turn("0a", p, kept),
        turn("0b", p, other),
        turn("0c", p, kept),
        turn("1a", p + kept + more, (15,), "0a", merged=True),
        turn("1b", p + kept + more, (16,), "0c", merged=True),
    ]
    trie = lay(turns)
    assert len(trie.rows) == 1
    assert trie.rows[0].length == 3 + 2 + 1 + 2 + 1 + 1
    (batch,) = micro_batches(trie, turns, HUGE, CPU)
    assert len(batch.target_M) == 2 + 1 + 1 + 1  # equal replies are predicted once
    assert len(batch.prediction_N) == sum(len(t.action) for t in turns)
    assert len(lay(turns, share=False).rows) == 5
    assert len(lay([replace(t, merged=False) for t in turns]).rows) == 2


@pytest.mark.parametrize("limit", [10, 30, 100])
def test_a_row_stays_within_its_limit_unless_one_turn_alone_is_longer(limit: int) -> None:
    turns = conversations()
    longest = max(len(t.prompt) + len(t.action) for t in turns)
    trie = lay(turns, row_limit=limit)
    assert all(r.length <= max(limit, longest) for r in trie.rows)
    for batch in micro_batches(trie, turns, limit, CPU):
        assert batch.ids_BL.numel() <= max(limit, longest)


def test_the_critic_reads_every_prompt_to_its_end_and_no_further() -> None:
    turns = conversations()
    for limit in (1, 40, HUGE):
        seen: Counter[int] = Counter()
        for batch in micro_batches(lay(turns, row_limit=limit, actions=False), turns, limit, CPU, actions=False):
            for i, m in zip(batch.turns, batch.prediction_N.tolist(), strict=True):
                assert read(batch, int(batch.row_M[m]), int(batch.column_M[m])) == turns[i].prompt
                seen[i] += 1
        assert seen == Counter(range(len(turns)))


def test_the_critic_reads_states_that_are_shorter_than_the_turn_they_follow() -> None:
    """A state critic swaps in prompts of its own, which extend nothing though their turns did."""
    first = turn("a", (7,) * 12, (8,) * 12)
    states = [(9,) * 6, (9,) * 5 + (8,), (9,) * 6]
    turns = [
        replace(first, prompt=states[0]),
        *(turn(f"b{i}", s, (8,), "a", merged=True) for i, s in enumerate(states)),
    ]
    for limit in (1, 3, 7, HUGE):
        for batch in micro_batches(lay(turns, row_limit=limit, actions=False), turns, limit, CPU, actions=False):
            for i, m in zip(batch.turns, batch.prediction_N.tolist(), strict=True):
                assert read(batch, int(batch.row_M[m]), int(batch.column_M[m])) == turns[i].prompt


# -- promise 5: gradients -------------------------------------------------------------------------------------------


def test_promise_5_no_gradient_reaches_padding_or_what_stands_after_the_last_sampled_token(tiny: Loaded) -> None:
    """The gradient by the embedding of each column: exactly zero where nothing that is trained comes after."""
    model = tiny.model
    turns = [
        turn("long", range(10, 30), (40, 41, 42)),
        turn("short", (50, 51), (52, 53)),  # padded
        turn("fork a", (60, 61, 62), (63, 64)),
        turn("fork b", (60, 61, 62), (65, 66)),
        turn("after b", (60, 61, 62, 65, 66, 67), (68,), "fork b", merged=True),
    ]
    kept: list[Tensor] = []

    def keep(module: torch.nn.Module, inputs: object, output: Tensor) -> None:
        output.retain_grad()
        kept.append(output)

    hook = model.get_input_embeddings().register_forward_hook(keep)
    try:
        (batch,) = micro_batches(lay(turns), turns, HUGE, CPU)
        logp_M, _ = predict(model, batch, 1.0)
        weight = torch.tensor([0.0 if turns[i].id == "fork a" else 1.0 for i in batch.turns for _ in turns[i].action])
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
            # Through "fork b" to the turn after it; its sibling, of weight zero, is not touched.
            assert moved == {60, 61, 62, 65, 66, 67}
    assert int(reached.sum()) == 22 + 3 + 6  # padding, whose id is 0, is not among them
    assert torch.equal(embedded.grad[~reached], torch.zeros_like(embedded.grad[~reached]))


def test_promise_5_only_the_sampled_tokens_are_predicted(tiny: Loaded) -> None:
    """The output layer is never even asked about prompts, observations and padding."""
    turns = conversations()
    asked: list[int] = []
    hook = tiny.model.get_output_embeddings().register_forward_hook(lambda m, i, o: asked.append(len(i[0])))
    try:
        batches = list(micro_batches(lay(turns, share=False), turns, HUGE, CPU))
        for batch in batches:
            predict(tiny.model, batch, 1.0)
    finally:
        hook.remove()
    assert sum(asked) == sum(len(t.action) for t in turns)
    columns = {(i, int(r), int(c)) for i, b in enumerate(batches) for r, c in zip(b.row_M, b.column_M, strict=True)}
    assert len(columns) == sum(asked)


# -- promise 6: cutting ---------------------------------------------------------------------------------------------


def objective(turns: Sequence[Turn], logp: Tensor, entropy: Tensor, average: str) -> Tensor:
    """A loss with every term, over the tokens of `turns` in order."""
    weights = token_weights(ALL, average)
    flat = lambda f: torch.tensor([f(t) for t in turns for _ in t.action])  # noqa: E731
    old = torch.tensor([x for t in turns for x in OLD[t.id]])
    targets = Targets(flat(lambda t: t.advantage), old, flat(lambda t: weights[t.id]), old - 0.3)
    return policy_loss(targets, Outputs(logp, entropy), 0.2, 0.28, 3.0, entropy=0.01, kl=0.1)[0]


ALL = conversations(0.7)
OLD = {t.id: [-5.0 - 0.1 * (k + i % 7) for k in range(len(t.action))] for i, t in enumerate(ALL)}


def gradients(model: PreTrainedModel, losses: Sequence[Tensor]) -> tuple[float, dict[str, Tensor]]:
    for loss in losses:
        loss.backward()
    found = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    model.zero_grad(set_to_none=True)
    return sum(x.item() for x in losses), found


@pytest.fixture(scope="module", params=["token", "turn"])
def reference(request: pytest.FixtureRequest, plain: PreTrainedModel) -> tuple[str, float, dict[str, Tensor]]:
    """Loss and gradients by plain transformers: each turn alone."""
    return (request.param, *gradients(plain, [objective([t], *alone(plain, t), request.param) for t in ALL]))


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
    turns = ALL if merged else [replace(t, merged=False) for t in ALL]
    losses = []
    for batch in micro_batches(lay(turns, share=share, row_limit=limit), turns, limit, CPU):
        logp_M, entropy_M = predict(tiny.model, batch, 0.7)
        members = [turns[i] for i in batch.turns]
        losses.append(objective(members, logp_M[batch.prediction_N], entropy_M[batch.prediction_N], average))
    if limit == 1:
        assert len(losses) >= len(turns)
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
    """Laid end to end in one row without padding, as on a GPU, and attended to span by span."""
    monkeypatch.setattr(fused, "of", lambda model: None)  # a GPU's kernels have tests of their own
    average, expected_loss, expected = reference
    losses, padding = [], 0
    for batch in micro_batches(lay(ALL, share, limit, branch=False), ALL, limit, CPU, pack=True):
        assert batch.spans is not None and len(batch.ids_BL) == 1
        padding += batch.ids_BL.numel() - sum(batch.spans.lengths)
        logp_M, entropy_M = predict(tiny.model, batch, 0.7)
        members = [ALL[i] for i in batch.turns]
        losses.append(objective(members, logp_M[batch.prediction_N], entropy_M[batch.prediction_N], average))
    assert padding == 0 and (len(losses) == 1) == (limit == HUGE)
    loss, found = gradients(tiny.model, losses)
    assert loss == pytest.approx(expected_loss, abs=1e-5)
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, expected[name], atol=1e-5, rtol=1e-4, msg=name)


class _Largest(TorchDispatchMode):
    """Notes the size of the largest tensor that any operation makes."""

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
    """[predictions, vocabulary] never exists, forward or backward; a large vocabulary costs time, not memory."""
    turns = [turn(f"t{i}", (5, 6, 7 + i), (20 + i, 21, 22, 23)) for i in range(30)]
    if masked:  # some of them, so that pieces with and without a mask meet
        turns[::2] = [replace(t, masked=(t.action, (*t.action[:2], 40, 41))) for t in turns[::2]]
    vocabulary = tiny.model.config.vocab_size
    (batch,) = pieces(tiny.model, turns, 10_000)
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
    turns = [turn("a", (7, 8, 9), (10, 11))]
    (batch,) = micro_batches(lay(turns), turns, HUGE, CPU)
    with torch.no_grad():
        found = hidden_states(tiny.model, batch)
        whole = tiny.model.base_model(torch.tensor([[7, 8, 9, 10, 11]])).last_hidden_state[0]
    torch.testing.assert_close(found, whole[[2, 3]], atol=1e-6, rtol=0)
