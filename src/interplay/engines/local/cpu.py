"""The runner for a CPU. It uses torch's attention over contexts that are gathered from the cache.

Prompts of similar length are attended together as padded rows. For decoding, a `Window` holds the contexts of all
running rows side by side. It is gathered when rows join or leave; otherwise each step only adds the new tokens. So a
step of a tiny model is a few dozen small operations.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as Seq

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import PreTrainedModel

from interplay.engines.local.runner import NO_DRAFTS, Cached, DraftsOf, Drawn, NewTokens, block_table, shift_of
from interplay.engines.local.scheduler import Sequence
from interplay.models.fused import Attend

# Shapes: B rows, Q new tokens of a row, L tokens of its context, H query heads, G key-value heads, D head size.
_MOST_ROWS = 4096  # tokens in a step with drafts; it limits the memory for their logits
_ROOM = 64  # spare tokens in a new window, so that it is not gathered again soon


class CpuRunner(Cached):
    def __init__(self, model: PreTrainedModel, blocks: int, block_size: int, prefill_tokens: int) -> None:
        super().__init__(model, blocks, block_size)
        self._prefill_tokens, self.most_rows = prefill_tokens, _MOST_ROWS
        self._window: Window | None = None

    def _attend(self, table: np.ndarray, starts: np.ndarray, counts: np.ndarray) -> Attend:
        rows = [_Rows(self, table, starts, counts, np.array(part)) for part in self._parts(counts)]

        def attend(layer: int, q_THD: Tensor, scale: float, window: int) -> Tensor:
            out = torch.empty_like(q_THD, memory_format=torch.contiguous_format)
            for part in rows:
                part.attend(layer, q_THD, scale, window, out)
            return out

        return attend

    def _parts(self, counts: np.ndarray) -> Iterator[list[int]]:
        """Group rows of similar width, to pad little: at most `prefill_tokens` tokens per group, including padding."""
        part: list[int] = []
        for i in np.argsort(counts, kind="stable").tolist():
            if part and int(counts[i]) * (len(part) + 1) > self._prefill_tokens:
                yield part
                part = []
            part.append(i)
        yield part

    @torch.inference_mode()
    def advance(
        self, ongoing: Seq[Sequence], fresh: Seq[Sequence], hurry: bool = False, drafts: DraftsOf = NO_DRAFTS
    ) -> list[Drawn]:
        rows = [self.decode_ahead(ongoing, drafts) if drafts else self.decode(ongoing)] if ongoing else []
        hidden = [s.prompt.hidden for s in fresh]
        rows += [torch.stack([h for h in hidden if h is not None])] if hidden else []
        return self._draw([*ongoing, *fresh], torch.cat(rows), drafts)

    def decode(self, sequences: Seq[Sequence]) -> Tensor:
        """The hidden state after each sequence's latest token."""
        window = self._window
        if window is None or window.sequences != sequences or not window.extend():
            window = self._window = Window(self, sequences)
        ids = torch.tensor([s.tokens[-1] for s in sequences])
        return self._forward(ids, window.places, window.slots, window.attend, window.adapters)

    def decode_ahead(self, sequences: Seq[Sequence], drafts: DraftsOf) -> Tensor:
        """The hidden states after each sequence's latest token and after each token of its draft."""
        self._window = None  # its rows get one token at a time
        return self._run(
            [NewTokens(s.prompt, s.blocks, s.length - 1, (s.tokens[-1], *drafts.get(s, ()))) for s in sequences]
        )


class _Rows:
    """Some of the packed sequences, as padded rows."""

    def __init__(
        self, runner: Cached, table: np.ndarray, starts: np.ndarray, counts: np.ndarray, rows: np.ndarray
    ) -> None:
        self.keys, self.values = runner.keys, runner.values
        offsets = (np.cumsum(counts) - counts)[rows]
        starts, counts = starts[rows], counts[rows]
        width, context = int(counts.max()), int((starts + counts).max())
        column = np.arange(width)
        inside = column < counts[:, None]
        self.shape = len(rows), width
        # Padding repeats the row's last token; its result is discarded.
        self.source = torch.from_numpy((offsets[:, None] + np.minimum(column, counts[:, None] - 1)).reshape(-1))
        self.spots = torch.from_numpy(np.flatnonzero(inside))
        self.targets = self.source[self.spots]
        at = np.arange(context)
        size = runner.block_size
        pages = np.minimum(at // size, table.shape[1] - 1)
        self.context = torch.from_numpy((table[rows][:, pages] * size + at % size).reshape(-1))
        self.apart = torch.from_numpy((starts[:, None] + np.minimum(column, counts[:, None] - 1))[:, :, None] - at)
        self._masks: dict[int, Tensor] = {}  # by window size; shared by all layers

    def attend(self, layer: int, q_THD: Tensor, scale: float, window: int, out_THD: Tensor) -> None:
        q = q_THD.index_select(0, self.source).unflatten(0, self.shape).transpose(1, 2)
        k, v = (self._read(cache[layer]) for cache in (self.keys, self.values))
        if window not in self._masks:
            self._masks[window] = ((self.apart >= 0) & (self.apart < window)).unsqueeze(1)
        mixed = scaled_dot_product_attention(
            q, k, v, attn_mask=self._masks[window], scale=scale, enable_gqa=q.shape[1] != k.shape[1]
        )
        out_THD.index_copy_(0, self.targets, mixed.transpose(1, 2).flatten(0, 1).index_select(0, self.spots))

    def _read(self, cache: Tensor) -> Tensor:
        """Read whole rows of the cache at a time, which is fast because a row is contiguous in memory."""
        found = cache.flatten(1).index_select(0, self.context)
        return found.view(self.shape[0], -1, *cache.shape[1:]).transpose(1, 2)


class Window:
    """The contexts that the decoding rows attend to, side by side: keys as [B·G, D, L] and values as [B·G, L, D]. Every
    step adds one token to each row."""

    def __init__(self, runner: Cached, sequences: Seq[Sequence]) -> None:
        self.sequences, self._runner = list(sequences), runner
        self._lengths = np.array([s.length for s in sequences])
        size, used = runner.block_size, int(self._lengths.max())
        self._table = block_table([s.blocks for s in sequences])
        at = np.arange(used)
        pages = np.minimum(at // size, self._table.shape[1] - 1)
        context = torch.from_numpy((self._table[:, pages] * size + at % size).reshape(-1))
        longest = max([s.end for s in sequences])
        rows, room = len(sequences), min(used + _ROOM, longest)
        self._rows, self._room = rows, room
        self._keys = [self._gather(k, context, (0, 2, 3, 1)) for k in runner.keys]
        self._values = [self._gather(v, context, (0, 2, 1, 3)) for v in runner.values]
        indices = runner._indices([s.prompt.adapter for s in sequences])
        self.adapters = None if indices is None else torch.from_numpy(indices)
        shifts = [] if runner.senses is None else [shift_of(s.prompt) for s in sequences]
        self._shifts = torch.tensor(shifts) if any(shifts) else None
        G, D = runner.keys[0].shape[1:]
        self._at = torch.arange(room)
        last = torch.from_numpy(self._lengths - 1).unsqueeze(1)
        self._seen = torch.zeros((rows, room), dtype=runner.keys[0].dtype).masked_fill_(self._at > last, -torch.inf)
        # Indices into the flattened tensors at which the latest token's key, value and visibility are written.
        self._key_spots = (torch.arange(rows * G * D).view(rows, -1) * room + last).flatten()
        self._value_spots = (torch.arange(rows * G).view(rows, -1) * room + last).flatten()
        self._seen_spots = torch.arange(rows) * room + last.squeeze(1)
        self._place()

    def _gather(self, cache: Tensor, context: Tensor, order: tuple[int, ...]) -> Tensor:
        G, D = cache.shape[1:]
        out = torch.zeros([(self._rows, self._room, G, D)[i] for i in order], dtype=cache.dtype)
        found = cache.flatten(1).index_select(0, context).view(self._rows, -1, G, D).permute(order)
        out[tuple(slice(n) for n in found.shape)] = found
        return out

    def extend(self) -> bool:
        """Account for one more token in every row. False if the window is too short for it."""
        self._lengths += 1
        if int(self._lengths.max()) > self._room:
            return False
        for spots in (self._key_spots, self._value_spots, self._seen_spots):
            spots.add_(1)
        self._seen.view(-1).index_fill_(0, self._seen_spots, 0.0)
        self._place()
        return True

    def _place(self) -> None:
        """Set the positions and cache slots of the rows' latest tokens."""
        size, at = self._runner.block_size, self._lengths - 1
        self.positions = torch.from_numpy(at)
        self.places = self.positions if self._shifts is None else self.positions + self._shifts  # for rotary angles
        self.slots = torch.from_numpy(self._table[np.arange(self._rows), at // size] * size + at % size)
        self._used = int(self._lengths.max())
        self._masks: dict[int, Tensor] = {}

    def _mask(self, window: int) -> Tensor:
        """The attention mask [B, 1, L]: 0 for tokens that a row sees, −∞ for the others."""
        if window not in self._masks:
            mask = self._seen[:, : self._used]
            if window < self._used:
                apart = self.positions.unsqueeze(1) - self._at[: self._used]
                mask = mask.masked_fill(apart >= window, -torch.inf)
            self._masks[window] = mask.unsqueeze(1)
        return self._masks[window]

    def attend(self, layer: int, q_BHD: Tensor, scale: float, window: int) -> Tensor:
        B, H, D = q_BHD.shape
        keys, values, used = self._keys[layer], self._values[layer], self._used
        new_k, new_v = (cache[layer].index_select(0, self.slots) for cache in (self._runner.keys, self._runner.values))
        keys.view(-1).put_(self._key_spots, new_k.view(-1))
        values.view(-1, D).index_copy_(0, self._value_spots, new_v.view(-1, D))
        groups = B * new_k.shape[1]
        q = (q_BHD * scale).view(groups, -1, D)
        scores = torch.bmm(q, keys.view(groups, D, -1)[:, :, :used]).view(B, H, used).add_(self._mask(window))
        weights = torch.softmax(scores, dim=-1).view(groups, -1, used)
        return torch.bmm(weights, values.view(groups, -1, D)[:, :used]).view(B, H, D)
