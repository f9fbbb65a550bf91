"""From samples to log-probs: the learner's forward pass, on a CPU and on a GPU.

On a GPU, sequences are packed without padding, and models of a known architecture use fused kernels (`packed.py`).
Otherwise the model runs with the code of transformers; on a CPU, tries are padded rows. Log-probs are fp32, after
temperature. They are computed from hidden states in pieces, so the full [tokens, vocabulary] matrix is never in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from interplay.errors import GuardError
from interplay.models import senses
from interplay.models.adapter import Adapter
from interplay.models.attention import Causal, Layout, Masked, using
from interplay.models.lay import overlay, perceived
from interplay.models.senses import Overlay
from interplay.models.shape import decoder_of
from interplay.models.stacked import Mix, Stacked, mixing
from interplay.models.staging import to_device
from interplay.training.batch import MicroBatch, collated, micro_batches
from interplay.training.direct import direct
from interplay.training.logits import CPU_LOGITS
from interplay.training.ranks import ranks_of
from interplay.training.spans import Varlen
from interplay.training.tries import Example, Trie, lay

SHARDED = "interplay_predict"  # the method of a sharded model that gathers the weights that it needs (`shards.py`)
Predict = Callable[[MicroBatch, float, Mix | None, bool], tuple[Tensor, Tensor]]
GAIN = 0.6  # share prefixes on a GPU if at most this fraction of the tokens remains
FEW = 1024  # tokens whose kernels take longer to launch than to run; sharing prefixes doubles their number


def pieces(
    model: PreTrainedModel, examples: Sequence[Example], max_tokens: int, actions: bool = True
) -> Iterator[MicroBatch]:
    """The examples as micro-batches for this model's device. They are made lazily, while the GPU computes. If several
    processes train the model, each gets a part of the examples, and equally many micro-batches."""
    packed = model.device.type == "cuda"
    trie = lay(examples, row_limit=max_tokens, actions=actions)
    if packed and any(row.branches for row in trie.rows):
        apart = lay(examples, row_limit=max_tokens, actions=actions, branch=False)
        if not _pays(model, trie, apart):
            trie = apart
    if any(e.sample.media for e in examples):
        _turn(model, trie)
    ranks = ranks_of(model)
    if ranks.size == 1:
        return micro_batches(trie, examples, max_tokens, model.device, actions, packed)
    return collated(trie, examples, ranks.cuts(trie, max_tokens, packed), model.device, actions, packed)


def _pays(model: PreTrainedModel, shared: Trie, apart: Trie) -> bool:
    """Whether sharing prefixes is worth it on a GPU. It takes one more attention call for each level of branches, which
    does not pay for few tokens, such as those of the probe after an update. There are kernels for that in half
    precision only, and none with a sliding window."""
    window = getattr(model.config, "sliding_window", None) or shared.longest
    fits = model.dtype in (torch.bfloat16, torch.float16) and shared.longest <= window
    return fits and apart.size > FEW and shared.size <= GAIN * apart.size


def _turn(model: PreTrainedModel, trie: Trie) -> None:
    """Set the rotary positions of all nodes, if the model's pictures need it (M-RoPE)."""
    sense = senses.of(model)
    if sense is None or not sense.family.mrope:
        return
    for row in trie.rows:
        ends: list[int] = []
        for node in row.nodes:
            start = ends[node.parent] if node.parent >= 0 else 0
            node.places_3L, end = sense.places(node.tokens, perceived(node.media), start)
            ends.append(end)


def _overlay(model: PreTrainedModel, batch: MicroBatch) -> Overlay | None:
    """The pictures, sounds and vectors of a batch; None if it has none."""
    if not batch.media:
        return None
    return overlay(model, batch.media, batch.places_3T)


def hidden_states(model: PreTrainedModel, batch: MicroBatch, mix: Mix | None = None, recompute: bool = False) -> Tensor:
    """The hidden states [M, C] at the predicting columns."""
    flat = batch.row_M * batch.ids_BL.shape[1] + batch.column_M
    overlay = _overlay(model, batch)
    if batch.spans is not None:
        from interplay.models import fused

        blocks = fused.of(model)
        if blocks is not None:
            from interplay.training import packed

            out = packed.hidden_states(blocks, batch, mix, recompute, overlay)
            return out.index_select(0, flat)
    layout: Layout
    if batch.spans is not None:
        layout = Varlen(batch.spans)
    else:
        layout = Causal() if batch.mask_B1LL is None else Masked(batch.mask_B1LL, batch.positions_BL)
    decoder = decoder_of(model)
    given: dict[str, Tensor] = {"input_ids": batch.ids_BL, "position_ids": batch.positions_BL}
    if overlay is not None:
        embeds = overlay.lay(model.get_input_embeddings()(batch.ids_BL).flatten(0, 1))
        given = {"inputs_embeds": embeds.unflatten(0, batch.ids_BL.shape), "position_ids": batch.positions_BL}
        if overlay.positions_3T is not None:
            given["position_ids"] = overlay.positions_3T.unflatten(1, batch.ids_BL.shape)
    with using(layout), mixing(mix), _computed_again(decoder, layout, mix) if recompute else nullcontext():
        found = decoder(**given, use_cache=False).last_hidden_state
    return found.flatten(0, 1).index_select(0, flat)


@contextmanager
def _computed_again(decoder: nn.Module, layout: Layout, mix: Mix | None) -> Iterator[None]:
    """Inside, layers keep only their inputs. The backward pass runs them again with the same layout and adapters."""

    @contextmanager
    def as_before() -> Iterator[None]:
        with using(layout), mixing(mix):
            yield

    again = partial(checkpoint, use_reentrant=False, context_fn=lambda: (nullcontext(), as_before()))
    blocks: list[Any] = [m for m in decoder.modules() if isinstance(m, GradientCheckpointingLayer)]
    for block in blocks:  # transformers needs both flags; blocks themselves have no dropout
        block.gradient_checkpointing, block.training, block._gradient_checkpointing_func = True, True, again
    try:
        yield
    finally:
        for block in blocks:
            block.gradient_checkpointing, block.training = False, False


class AdapterMixer:
    """The adapters of policies that share a model, stacked once for many micro-batches."""

    def __init__(self, model: PreTrainedModel, adapters: Mapping[str, Adapter]) -> None:
        self._order = {name: i for i, name in enumerate(adapters)}
        self._source = Stacked(model, list(adapters.values())) if adapters else None

    def mix(self, batch: MicroBatch) -> Mix | None:
        """Select the adapter of the policy for each row or span; None if there are no adapters."""
        source = self._source
        if source is None:
            return None
        whose, device = np.array([self._order[p] for p in batch.policies]), batch.ids_BL.device
        if batch.spans is None:
            return Mix(source, source.keep(to_device(whose, device)).unsqueeze(1))
        return Mix(source, source.keep(to_device(whose.repeat(batch.spans.lengths), device)).unsqueeze(0))

    def collect(self) -> None:
        """Add the gradients of the stacked tensors to those of the adapters' own tensors."""
        if self._source is not None:
            self._source.collect()


def predict(
    model: PreTrainedModel, batch: MicroBatch, temperature: float, mix: Mix | None = None, recompute: bool = False
) -> tuple[Tensor, Tensor]:
    """Log-probs and entropies of the M predictions."""
    sharded: Predict | None = getattr(model, SHARDED, None)
    return (sharded or partial(predict_here, model))(batch, temperature, mix, recompute)


def predict_here(
    model: PreTrainedModel, batch: MicroBatch, temperature: float, mix: Mix | None, recompute: bool
) -> tuple[Tensor, Tensor]:
    """`predict` for a model whose output layer has all of its weights on this device."""
    hidden_MC = hidden_states(model, batch, mix, recompute)
    head = model.get_output_embeddings()
    if hidden_MC.is_cuda and head.bias is None and batch.allowed is None:
        from interplay.training.logprobs import LogProbs

        logp_M, entropy_M = direct(LogProbs, hidden_MC, head.weight, batch.target_M, temperature)
        return logp_M, entropy_M
    size = max(1, CPU_LOGITS // head.weight.shape[0])
    parts = []
    for start in range(0, len(hidden_MC), size):
        piece = slice(start, start + size)
        given = head, hidden_MC[piece], batch.target_M[piece], temperature, batch.allowed and batch.allowed[piece]
        if len(hidden_MC) <= size:
            return _from_hidden(*given)
        parts.append(checkpoint(_from_hidden, *given, use_reentrant=False, preserve_rng_state=False))
    logp_M, entropy_M = (torch.cat(found) for found in zip(*parts, strict=True))
    return logp_M, entropy_M


def _from_hidden(
    head: nn.Module,
    hidden_MC: Tensor,
    target_M: Tensor,
    temperature: float,
    allowed: Sequence[tuple[int, ...] | None] | None,
) -> tuple[Tensor, Tensor]:
    logits_MV = head(hidden_MC).float() / temperature
    if allowed is not None and any(tokens is not None for tokens in allowed):  # the same mask as in the engine
        logits_MV = logits_MV.masked_fill(_forbidden(allowed, logits_MV), -1e30)
    logp_MV = torch.log_softmax(logits_MV, dim=-1)
    entropy_M = -(logp_MV.exp() * logp_MV).sum(-1)
    return logp_MV.gather(1, target_M.unsqueeze(1)).squeeze(1), entropy_M


def _forbidden(allowed: Sequence[tuple[int, ...] | None], logits_MV: Tensor) -> Tensor:
    """The mask of forbidden tokens. It is written for all rows at once, since a loop would take longer than the
    model."""
    masked = [i for i, tokens in enumerate(allowed) if tokens is not None]
    spots = [(i, t) for i in masked for t in allowed[i] or ()]
    to = lambda numbers: torch.tensor(numbers, device=logits_MV.device)  # noqa: E731
    out = torch.zeros_like(logits_MV, dtype=torch.bool)
    out[to(masked)] = True
    rows, tokens = zip(*spots, strict=True)
    out[to(rows), to(tokens)] = False
    return out


@torch.no_grad()
def logprobs(
    model: PreTrainedModel, examples: Sequence[Example], max_tokens: int, adapters: Mapping[str, Adapter] | None = None
) -> list[list[float]]:
    """log π(action | prompt) of each sample under `model`, at the temperature of sampling. If `adapters` are given,
    each sample uses that of its policy."""
    out: list[list[float]] = [[] for _ in examples]
    mixer = AdapterMixer(model, adapters or {})
    read: list[tuple[list[int], Tensor]] = []  # not at once, because the host waits for the device when it reads
    for batch in pieces(model, examples, max_tokens):
        logp_M, _ = predict(model, batch, temperature_of(examples), mixer.mix(batch))
        if not batch.repeated:
            read.append((batch.examples, logp_M.index_select(0, batch.prediction_N)))
    for members, logp_N in read:
        flat, at = logp_N.tolist(), 0
        for i in members:
            end = at + len(examples[i].sample.action)
            out[i], at = flat[at:end], end
    found = ranks_of(model).everywhere(out)
    return out if len(found) == 1 else [next(filter(None, each), []) for each in zip(*found, strict=True)]


def temperature_of(examples: Sequence[Example]) -> float:
    temperatures = {e.sample.temperature for e in examples}
    if len(temperatures) != 1:
        raise GuardError(
            f"replies of one policy were sampled at different temperatures, {sorted(temperatures)}; expected the same "
            "temperature for all replies that are trained together."
        )
    return temperatures.pop()
