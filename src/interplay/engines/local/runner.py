"""Runs the model over cached sequences: prefill of prompts, scoring of given replies, one more token for each.

This is the plain runner, for a CPU: rows are right-padded, padding writes to the scratch block, attention is torch's.
`cuda.py` does the same on a GPU. The cache tensors live here.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as Seq
from typing import Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from interplay.engines.engine import Adapter
from interplay.engines.local.adapters import Bank, Mix, mixing
from interplay.engines.local.attention import Paged, using
from interplay.engines.local.sampler import restrict, sample, uniforms
from interplay.engines.local.scheduler import Piece, Sequence

T = TypeVar("T")
Drawn = tuple[Sequence, list[int], list[float]]  # a sequence, its new tokens and their log-probs


class Runner(Protocol):
    def prefill(self, pieces: Seq[Piece]) -> None:
        """Compute pieces of prompts; a prompt that is whole keeps the hidden state of its last token."""
        ...

    def copy_blocks(self, copies: Seq[tuple[int, int]]) -> None: ...

    def score(self, sequences: Seq[Sequence]) -> list[list[float]]:
        """The log-probs of each sequence's forced reply."""
        ...

    def advance(self, ongoing: Seq[Sequence], fresh: Seq[Sequence], hurry: bool = False) -> list[Drawn]:
        """Sample at least one token for every sequence; those of `fresh` get their first. In a hurry (others wait for
        their prompts) it comes back soon."""
        ...

    def load(self, name: str, adapter: Adapter) -> None: ...

    def unload(self, name: str) -> None: ...


class Cached:
    """What every runner has: the model's parts, the cache tensors, the bank of adapters."""

    def __init__(self, model: PreTrainedModel, blocks: int, block_size: int) -> None:
        self.model = model
        self.decoder = model.base_model
        self.head = model.get_output_embeddings()
        parameter = next(model.parameters())
        self.device, self.dtype, self.block_size = parameter.device, parameter.dtype, block_size
        layers, heads, size = cache_shape(model)
        shape = (blocks * block_size, heads, size)
        self.keys = [torch.zeros(shape, dtype=self.dtype, device=self.device) for _ in range(layers)]
        self.values = [torch.zeros_like(k) for k in self.keys]
        self.bank: Bank | None = None

    def copy_blocks(self, copies: Seq[tuple[int, int]]) -> None:
        source, target = (self.to(self._slots([pair[i] for pair in copies])) for i in (0, 1))
        for tensor in (*self.keys, *self.values):
            tensor[target] = tensor[source]

    def load(self, name: str, adapter: Adapter) -> None:
        if self.bank is None:
            self.bank = Bank(self.model, adapter.rank)
        self.bank.load(name, adapter)

    def unload(self, name: str) -> None:
        assert self.bank is not None
        self.bank.unload(name)

    def to(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(self.device)

    def _slots(self, blocks: Seq[int]) -> np.ndarray:
        return (np.asarray(blocks, np.int64)[:, None] * self.block_size + np.arange(self.block_size)).reshape(-1)

    def _logits(self, hidden_TC: Tensor) -> Tensor:
        return self.head(hidden_TC)

    def _index(self, name: str | None) -> int:
        return -1 if self.bank is None else self.bank.index(name)

    @torch.inference_mode()
    def _draw(self, sequences: Seq[Sequence], hidden_NC: Tensor) -> list[Drawn]:
        """One token for each sequence, in plain torch: the reference, and the way for legal masks and cuts."""
        samplings = [s.request.sampling for s in sequences]
        logits_NV = self._logits(hidden_NC)
        if any(s.legal is not None for s in sequences) or any(s.cuts for s in samplings):
            logits_NV = restrict(logits_NV, samplings, [allowed(s) for s in sequences])
        seeds = np.array([s.request.seed for s in sequences], np.uint64)
        positions = np.array([len(s.tokens) for s in sequences], np.uint64)
        temperatures = torch.tensor([s.temperature for s in samplings], device=self.device)
        tokens, logprobs = sample(logits_NV, temperatures, self.to(uniforms(seeds, positions)))
        return [(s, [t], [p]) for s, t, p in zip(sequences, tokens.tolist(), logprobs.tolist(), strict=True)]

    @torch.inference_mode()
    def _forced_logprobs(self, sequences: Seq[Sequence], hidden: Seq[Tensor]) -> list[list[float]]:
        """`hidden[i]` are the states that predict each token of reply i; logits are made a few rows at a time."""
        out = []
        for sequence, rows in zip(sequences, hidden, strict=True):
            heat = sequence.request.sampling.temperature or 1.0
            target = torch.tensor(sequence.request.forced, device=self.device)
            logprobs: list[float] = []
            for part, wanted in zip(rows.split(1024), target.split(1024), strict=True):
                logits = self._logits(part).float() / heat
                logprobs += (logits.gather(1, wanted.unsqueeze(1)).squeeze(1) - logits.logsumexp(1)).tolist()
            out.append(logprobs)
        return out


class ModelRunner(Cached):
    def __init__(self, model: PreTrainedModel, blocks: int, block_size: int, prefill_tokens: int) -> None:
        super().__init__(model, blocks, block_size)
        self._prefill_tokens = prefill_tokens

    def prefill(self, pieces: Seq[Piece]) -> None:
        for batch in self._batches(pieces, [p.end - p.start for p in pieces]):
            self._prefill(batch)

    def _batches(self, items: Seq[T], widths: Seq[int]) -> Iterator[list[T]]:
        """Passes of at most `prefill_tokens` with their padding; rows of like width pad least."""
        batch: list[T] = []
        for i in sorted(range(len(items)), key=widths.__getitem__):
            if batch and widths[i] * (len(batch) + 1) > self._prefill_tokens:
                yield batch
                batch = []
            batch.append(items[i])
        if batch:
            yield batch

    def _prefill(self, pieces: list[Piece]) -> None:
        new = [p.prompt.ids[p.start : p.end] for p in pieces]
        starts = np.array([p.start for p in pieces])
        slots = [self._slots(p.prompt.blocks) for p in pieces]
        hidden_BQC = self._forward(new, starts, slots, [p.prompt.adapter for p in pieces])
        last = torch.tensor([len(n) - 1 for n in new], device=self.device)
        hidden_BC = hidden_BQC[torch.arange(len(new), device=self.device), last]
        for piece, row in zip(pieces, hidden_BC, strict=True):
            if piece.end == len(piece.prompt.ids):
                piece.prompt.hidden = row

    def score(self, sequences: Seq[Sequence]) -> list[list[float]]:
        out: dict[Sequence, list[float]] = {}
        for batch in self._batches(sequences, [len(s.request.forced) for s in sequences]):
            out.update(zip(batch, self._score(batch), strict=True))
        return [out[s] for s in sequences]

    def _score(self, sequences: list[Sequence]) -> list[list[float]]:
        replies = [s.request.forced for s in sequences]
        starts = np.array([len(s.prompt.ids) for s in sequences])
        hidden_BQC = self._forward(replies, starts, [s.slots for s in sequences], [s.prompt.adapter for s in sequences])
        rows = []
        for i, sequence in enumerate(sequences):
            assert sequence.prompt.hidden is not None
            rows.append(torch.cat([sequence.prompt.hidden.unsqueeze(0), hidden_BQC[i, : len(replies[i]) - 1]]))
        return self._forced_logprobs(sequences, rows)

    def advance(self, ongoing: Seq[Sequence], fresh: Seq[Sequence], hurry: bool = False) -> list[Drawn]:
        hidden = [s.prompt.hidden for s in fresh]
        rows = [self.decode(ongoing)] if ongoing else []
        rows += [torch.stack([h for h in hidden if h is not None])] if hidden else []
        return self._draw([*ongoing, *fresh], torch.cat(rows))

    def decode(self, sequences: Seq[Sequence]) -> Tensor:
        """The hidden state after each sequence's latest token."""
        new = [(s.tokens[-1],) for s in sequences]
        starts = np.array([s.length - 1 for s in sequences])
        return self._forward(new, starts, [s.slots for s in sequences], [s.prompt.adapter for s in sequences])[:, 0]

    @torch.inference_mode()
    def _forward(
        self, new: Seq[Seq[int]], starts: np.ndarray, slots: Seq[np.ndarray], adapters: Seq[str | None]
    ) -> Tensor:
        """Hidden states [B, Q, C] of `new` tokens that begin at position `starts` of their sequences."""
        counts = np.array([len(n) for n in new])
        rows, width, context = len(new), int(counts.max()), int((starts + counts).max())
        ids = np.zeros((rows, width), np.int64)
        write = np.zeros((rows, width), np.int64)
        read = np.zeros((rows, context), np.int64)
        for i, tokens in enumerate(new):
            start, count = int(starts[i]), int(counts[i])
            ids[i, :count] = tokens
            write[i, :count] = slots[i][start : start + count]
            read[i, : start + count] = slots[i][: start + count]
        # Padding is thrown away, but must index the rotary table and see something: it stands where the row ends.
        positions = np.minimum(starts[:, None] + np.arange(width), (starts + counts - 1)[:, None])
        apart = positions[:, :, None].astype(np.int32) - np.arange(context, dtype=np.int32)
        layout = Paged(self.keys, self.values, self.to(write), self.to(read), self.to(apart))
        mix = None
        if self.bank is not None and any(a is not None for a in adapters):
            indices = torch.tensor([[self._index(a)] for a in adapters], device=self.device)
            mix = Mix(self.bank, self.bank.keep(indices))
        with using(layout), mixing(mix):
            out = self.decoder(input_ids=self.to(ids), position_ids=self.to(positions), use_cache=False)
        return out.last_hidden_state


def cache_shape(model: PreTrainedModel) -> tuple[int, int, int]:
    """(layers, key-value heads, head size) of the cache."""
    config = model.config.get_text_config()
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return config.num_hidden_layers, heads, size


def allowed(sequence: Sequence) -> list[int] | None:
    """What may follow now, where only some replies are legal."""
    if sequence.legal is None:
        return None
    node = sequence.legal
    for token in sequence.tokens:
        node = node[token]
    return list(node)
