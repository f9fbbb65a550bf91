"""Runs the model over cached sequences: prefills prompts, scores given replies, and samples further tokens.

Tokens are packed: there is one row per new token, and only attention distinguishes sequences. What all runners share is
here; `cpu.py` and `cuda.py` add attention and decoding. The keys and values of a draft that turns out to be wrong stay
in the sequence's own blocks, where nothing reads them: attention ends at the sequence's length.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from types import MappingProxyType
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from interplay.engines.local.drafts import Drafts
from interplay.engines.local.room import zeros
from interplay.engines.local.sampler import restrict, sample, uniforms
from interplay.engines.local.scheduler import CachedPrompt, Piece, Sequence
from interplay.models import fused, senses
from interplay.models.adapter import Adapter
from interplay.models.attention import Packed, using
from interplay.models.lay import perceived, sight
from interplay.models.senses import Overlay, Sight
from interplay.models.shape import cache_shape, decoder_of
from interplay.models.stacked import Bank, Mix, mixing
from interplay.models.staging import to_device

_AHEAD = 16  # number of steps for which random numbers are made at once
Drawn = tuple[Sequence, list[int], list[float]]  # a sequence, its new tokens and their log-probs
Later = Callable[[], list[Drawn]]  # waits until the GPU has sampled these tokens
DraftsOf = Mapping[Sequence, Seq[int]]  # the tokens that some sequences may sample next
NO_DRAFTS: DraftsOf = MappingProxyType({})


class DrawnAhead(NamedTuple):
    """What was sampled with drafts that the runner looked up: how many tokens were drafted, and how many were right."""

    drawn: list[Drawn]
    drafted: int
    right: int


class ModelRunner(Protocol):
    model: PreTrainedModel
    most_rows: int  # tokens that `advance` can compute in one step, drafts included
    seconds: float  # for how long a GPU sampled the tokens that were read last

    def prefill(self, pieces: Seq[Piece], scored: Seq[Sequence] = ()) -> list[list[float]]:
        """Compute pieces of prompts and, in the same forward pass, forced replies to prompts that are complete then.
        When a prompt is complete, the hidden state of its last token is stored in it. Returns the log-probs of the
        tokens of each reply in `scored`."""
        ...

    def copy_blocks(self, copies: Seq[tuple[int, int]]) -> None: ...

    def advance(
        self, ongoing: Seq[Sequence], fresh: Seq[Sequence], hurry: bool = False, drafts: DraftsOf = NO_DRAFTS
    ) -> list[Drawn] | Later:
        """Sample at least one token for every sequence; those in `fresh` get their first. With `hurry` (other requests
        wait for their prompts) it samples few tokens. Ongoing sequences with a draft get one token more than the number
        of its leading tokens that equal the sampled ones. Without drafts, a GPU may sample while the host does other
        work. Then a function is returned that waits for the tokens. It must be called before these sequences are
        sampled again; prompts may be computed before."""
        ...

    def looks_up(self, sequences: Seq[Sequence]) -> bool:
        """Whether the runner can look up drafts for these sequences itself. Then `look_ahead` is used for them, and
        `advance` gets no drafts."""
        ...

    def look_ahead(self, sequences: Seq[Sequence], drafts: Drafts, hurry: bool = False) -> DrawnAhead | None:
        """Sample at least one token for every sequence, with drafts that are looked up in the kept replies and in the
        running ones. None if there is no room for their texts."""
        ...

    def load(self, name: str, adapter: Adapter) -> None: ...

    def unload(self, name: str) -> None: ...


class Drawing:
    """The sampling settings of sequences that are sampled together, one row for each token. A sequence has one row, and
    one more for each token of its draft. Without drafts the rows stay the same at every step."""

    def __init__(self, sequences: Seq[Sequence], drafts: DraftsOf = NO_DRAFTS) -> None:
        self.sequences, self.drafts = list(sequences), drafts
        self._rows = [(s, 0) for s in sequences]
        if drafts:
            self._rows = [(s, ahead) for s in sequences for ahead in range(1 + len(drafts.get(s, ())))]
        self.samplings = [s.request.sampling for s, _ in self._rows]
        self.temperatures = [s.temperature for s in self.samplings]
        self.seeds = np.array([s.request.seed for s, _ in self._rows], np.uint64)
        self.restricted = any(s.restricted for s in sequences)
        self._made, self._next = np.empty((0, len(self._rows))), 0

    def allowed(self) -> list[list[int] | None]:
        """For each row, the tokens that it may sample; None: all of them."""
        return [legal for s in self.sequences for legal in allowed_along(s, self.drafts.get(s, ()))]

    def uniforms(self) -> np.ndarray:
        """One uniform number for the next token of each row. They are made for several steps at once."""
        if self._next == len(self._made):
            position = np.array([len(s.tokens) + ahead for s, ahead in self._rows], np.uint64)
            self._made, self._next = uniforms(self.seeds, position + np.arange(_AHEAD, dtype=np.uint64)[:, None]), 0
        self._next += 1
        return self._made[self._next - 1]


class NewTokens(NamedTuple):
    """Tokens of one sequence to compute. The first of `ids` is token `start`, counted from the start of the prompt."""

    prompt: CachedPrompt
    blocks: Seq[int]
    start: int
    ids: tuple[int, ...]


class Cached(ABC):
    """The parts that all runners share: the model, the cache tensors and the bank of adapters."""

    least_ranks = 1  # initial capacity for adapters, in ranks
    seconds = 0.0

    def __init__(self, model: PreTrainedModel, blocks: int, block_size: int) -> None:
        self.model = model
        self.fused = fused.of(model)
        self.senses = senses.of(model)
        self.decoder = decoder_of(model)
        self.head = model.get_output_embeddings()
        parameter = next(model.parameters())
        self.device, self.dtype, self.block_size = parameter.device, parameter.dtype, block_size
        layers, heads, size = cache_shape(model)
        shape = (blocks * block_size, heads, size)
        self.keys, self.values = ([zeros(shape, self.dtype, self.device) for _ in range(layers)] for _ in range(2))
        self.bank: Bank | None = None
        self._drawing: Drawing | None = None

    def copy_blocks(self, copies: Seq[tuple[int, int]]) -> None:
        source, target = (self.to(self._slots([pair[i] for pair in copies])) for i in (0, 1))
        for tensor in (*self.keys, *self.values):
            tensor[target] = tensor[source]

    def to(self, array: np.ndarray) -> Tensor:
        return to_device(array, self.device)

    def _slots(self, blocks: Seq[int]) -> np.ndarray:
        return (np.asarray(blocks, np.int64)[:, None] * self.block_size + np.arange(self.block_size)).reshape(-1)

    def looks_up(self, sequences: Seq[Sequence]) -> bool:
        return False

    def look_ahead(self, sequences: Seq[Sequence], drafts: Drafts, hurry: bool = False) -> DrawnAhead | None:
        return None

    # -- adapters -------------------------------------------------------------------------------------------------

    def load(self, name: str, adapter: Adapter) -> None:
        bank = self.bank or Bank(self.model, max(self.least_ranks, adapter.rank))
        moved = bank.load(name, adapter) or self.bank is None
        self.bank = bank
        if self.fused is not None:
            if moved:
                self.fused.attach(bank)
            else:
                self.fused.refresh()
        if moved:
            self._weights_moved()

    def unload(self, name: str) -> None:
        assert self.bank is not None
        self.bank.unload(name)
        if self.fused is not None:
            self.fused.refresh()

    def _weights_moved(self) -> None:  # noqa: B027
        """Called when some weights have moved to another place in memory."""

    def _index(self, name: str | None) -> int:
        return -1 if self.bank is None else self.bank.index(name)

    def _indices(self, adapters: Seq[str | None]) -> np.ndarray | None:
        """The adapter index of each row; None if no row has an adapter."""
        if self.bank is None or all(a is None for a in adapters):
            return None
        return np.array([self._index(a) for a in adapters], np.int32)

    # -- forward --------------------------------------------------------------------------------------------------

    def _forward(
        self, ids_T: Tensor, positions_T: Tensor, slots_T: Tensor, attend: fused.Attend, adapters_T: Tensor | None,
        overlay: Overlay | None = None,
    ) -> Tensor:  # fmt: skip
        """The hidden states [T, C] of packed tokens. `attend` reads the cache after their keys were written to it."""
        if self.fused is not None:
            return self.fused.forward(ids_T, positions_T, slots_T, self.keys, self.values, attend, adapters_T, overlay)
        mix = None
        if adapters_T is not None and self.bank is not None:
            mix = Mix(self.bank, self.bank.keep(adapters_T).unsqueeze(0))
        with using(Packed(self.keys, self.values, slots_T, attend)), mixing(mix):
            if overlay is None:
                given = {"input_ids": ids_T.unsqueeze(0)}
            else:
                given = {"inputs_embeds": overlay.lay(self.model.get_input_embeddings()(ids_T)).unsqueeze(0)}
            places = positions_T if overlay is None or overlay.positions_3T is None else overlay.positions_3T
            out = self.decoder(**given, position_ids=places.unsqueeze(-2), use_cache=False)
        return out.last_hidden_state[0]

    @abstractmethod
    def _attend(self, table: np.ndarray, starts: np.ndarray, counts: np.ndarray) -> fused.Attend:
        """The attention function for `counts` new tokens of each sequence, which begin at position `starts`, over the
        sequence's blocks in `table`."""

    @torch.inference_mode()
    def _run(self, new: Seq[NewTokens], scored: Seq[Sequence] = ()) -> Tensor:
        """The hidden states [T, C] of packed new tokens. Those in `scored` may follow prompts that are computed in the
        same pass."""
        counts = np.array([len(n.ids) for n in new], np.int64)
        offsets = np.concatenate([[0], np.cumsum(counts)])
        row = np.repeat(np.arange(len(new)), counts)
        start = np.array([n.start for n in new], np.int64)
        positions = np.arange(offsets[-1]) - offsets[:-1][row] + start[row]
        table = block_table([n.blocks for n in new])
        slots = table[row, positions // self.block_size] * self.block_size + positions % self.block_size
        prompts = [n.prompt for n in new]
        indices = self._indices([p.adapter for p in prompts])
        mixed = None if indices is None else self.to(indices[row])
        ids = self.to(np.fromiter((t for n in new for t in n.ids), np.int64, int(offsets[-1])))
        attend = self._after_copies(scored, self._attend(table, start, counts))
        overlay = self._overlay(prompts, offsets, start) if any(p.media for p in prompts) else None
        return self._forward(ids, self.to(positions), self.to(slots), attend, mixed, overlay)

    def _after_copies(self, sequences: Seq[Sequence], attend: fused.Attend) -> fused.Attend:
        """An attention function that copies the end of each sequence's prompt to the sequence's own block and then
        calls `attend`. When it is called, the layer has written the keys and values of all new tokens, also those of a
        prompt in the same pass."""
        ends = [(s.copy, np.arange(len(s.prompt.ids) % self.block_size)) for s in sequences if s.copy is not None]
        if not ends:
            return attend
        source, target = (
            self.to(np.concatenate([copy[i] * self.block_size + slots for copy, slots in ends])) for i in (0, 1)
        )

        def copied(layer: int, q_THD: Tensor, scale: float, window: int) -> Tensor:
            for cache in (self.keys[layer], self.values[layer]):
                cache[target] = cache[source]
            return attend(layer, q_THD, scale, window)

        return copied

    def _overlay(self, prompts: Seq[CachedPrompt], offsets: np.ndarray, starts: np.ndarray) -> Overlay | None:
        """The features that replace the embeddings of new tokens, and their rotary positions. New tokens may begin or
        end inside a picture, or come after the prompt."""
        at, features, places = list[np.ndarray](), list[Tensor](), list[np.ndarray]()
        for prompt, offset, count, start in zip(prompts, offsets, np.diff(offsets), starts, strict=False):
            line = np.arange(start, start + count)
            sight = self._sight(prompt)
            if sight is not None:
                low, high = np.searchsorted(sight.at_K, (start, start + count))
                at.append(sight.at_K[low:high] - start + offset)
                features.append(sight.features_KC[low:high])
            places.append(_places(line, sight))
        turned = self.senses is not None and self.senses.family.mrope
        if not sum(map(len, at)) and not turned:
            return None
        positions = self.to(np.concatenate(places, 1)) if turned else None
        return Overlay(self.to(np.concatenate(at)), torch.cat(features), positions)

    def _sight(self, prompt: CachedPrompt) -> Sight | None:
        """The media of a prompt; None if it has none."""
        if prompt.media and prompt.sight is None:
            prompt.sight = sight(self.model, prompt.ids, prompt.media)
        return prompt.sight

    def prefill(self, pieces: Seq[Piece], scored: Seq[Sequence] = ()) -> list[list[float]]:
        if self.senses is not None:
            new_media = [s for p in pieces if p.prompt.sight is None for s in perceived(p.prompt.media)]
            self.senses.features(new_media)  # all at once
        new = [NewTokens(p.prompt, p.prompt.blocks, p.start, p.prompt.ids[p.start : p.end]) for p in pieces]
        # The last token of a reply is not computed, because nothing comes after it.
        replies = [NewTokens(s.prompt, s.blocks, len(s.prompt.ids), s.request.forced[:-1]) for s in scored]
        new += replies
        ends = np.cumsum([len(n.ids) for n in new])
        hidden = self._run([n for n in new if n.ids], scored) if ends[-1] else None
        if pieces and hidden is not None:
            last = hidden[self.to(ends[: len(pieces)] - 1)]
            for piece, row in zip(pieces, last, strict=True):
                if piece.end == len(piece.prompt.ids):
                    piece.prompt.hidden = row
                    if piece.prompt.sight is not None:
                        piece.prompt.sight = piece.prompt.sight.done
        states = list[Tensor]()
        for reply, end in zip(replies, ends[len(pieces) :].tolist(), strict=True):
            assert reply.prompt.hidden is not None
            states.append(reply.prompt.hidden.unsqueeze(0))
            if hidden is not None:
                states.append(hidden[end - len(reply.ids) : end])
        return self._forced_logprobs(scored, torch.cat(states)) if scored else []

    # -- sampling -------------------------------------------------------------------------------------------------

    def _logits(self, hidden_TC: Tensor) -> Tensor:
        return self.head(hidden_TC)

    @torch.inference_mode()
    def _draw(self, sequences: Seq[Sequence], hidden_NC: Tensor, drafts: DraftsOf = NO_DRAFTS) -> list[Drawn]:
        """Sample in plain torch, one token for each row of `hidden_NC`: a sequence has one row, and one more for each
        token of its draft. This is the reference implementation, and the only one that supports legal masks, top-k,
        top-p and min-p."""
        drawing = self._drawing
        if drafts or drawing is None or drawing.drafts or drawing.sequences != sequences:
            drawing = self._drawing = Drawing(sequences, drafts)
        logits_NV = self._logits(hidden_NC)
        if drawing.restricted:
            logits_NV = restrict(logits_NV, drawing.samplings, drawing.allowed())
        tokens, logprobs = sample(logits_NV, drawing.temperatures, self.to(drawing.uniforms()))
        return accepted(sequences, drafts, tokens.tolist(), logprobs.tolist())

    @torch.inference_mode()
    def _forced_logprobs(self, sequences: Seq[Sequence], hidden_TC: Tensor) -> list[list[float]]:
        """The log-probs of forced replies, from the states that predict their tokens. Logits are computed in parts, to
        limit memory, and read from the device once for all replies."""
        forced = [s.request.forced for s in sequences]
        heat = [s.request.sampling.temperature or 1.0 for s in sequences for _ in s.request.forced]
        target = self.to(np.array([t for reply in forced for t in reply], np.int64)).unsqueeze(1)
        parts = zip(
            hidden_TC.split(1024),
            target.split(1024),
            self.to(np.array(heat, np.float32)).unsqueeze(1).split(1024),
            strict=True,
        )
        found = []
        for rows, wanted, warm in parts:
            logits = self._logits(rows).float() / warm
            found.append(logits.gather(1, wanted).squeeze(1) - logits.logsumexp(1))
        each = iter(torch.cat(found).tolist())
        return [[next(each) for _ in reply] for reply in forced]


def block_table(blocks: Seq[Seq[int]]) -> np.ndarray:
    """A table with one row of blocks per sequence, padded with the scratch block."""
    table = np.zeros((len(blocks), max(map(len, blocks))), np.int64)
    for i, b in enumerate(blocks):
        table[i, : len(b)] = b
    return table


def _places(line: np.ndarray, sight: Sight | None) -> np.ndarray:
    """The rotary positions [3, n] of the tokens at the places `line` of a sequence."""
    if sight is None or sight.places_3L is None:
        return np.broadcast_to(line + (0 if sight is None else sight.shift), (3, len(line)))
    length = sight.places_3L.shape[1]
    inside = line[line < length]
    after = np.broadcast_to(line[line >= length] + sight.shift, (3, len(line) - len(inside)))
    return np.concatenate((sight.places_3L[:, inside], after), 1)


def shift_of(prompt: CachedPrompt) -> int:
    """What is added to the place of a token after the prompt to get its rotary position."""
    return 0 if prompt.sight is None else prompt.sight.shift


def accepted(sequences: Seq[Sequence], drafts: DraftsOf, tokens: list[int], logprobs: list[float]) -> list[Drawn]:
    """The sampled tokens that count. `tokens` has one token for each row. The first row of a sequence samples its next
    token, and each further row samples the token after one more token of its draft. The first token counts. Each
    further one counts if all tokens of the draft before it were right."""
    if not drafts:
        return [(s, [t], [p]) for s, t, p in zip(sequences, tokens, logprobs, strict=True)]
    out, first = list[Drawn](), 0
    for sequence in sequences:
        draft, count = drafts.get(sequence, ()), 1
        while count <= len(draft) and tokens[first + count - 1] == draft[count - 1]:
            count += 1
        out.append((sequence, tokens[first : first + count], logprobs[first : first + count]))
        first += 1 + len(draft)
    return out


def allowed(sequence: Sequence) -> list[int] | None:
    """The tokens that may come next, if only some replies are legal; otherwise None."""
    return allowed_along(sequence, ())[0]


def allowed_along(sequence: Sequence, draft: Seq[int]) -> list[list[int] | None]:
    """The tokens that may come next, and those that may come after each token of a draft."""
    if sequence.legal is None:
        return [None] * (1 + len(draft))
    node = sequence.legal
    for token in sequence.tokens:
        node = node[token]
    out: list[list[int] | None] = [list(node)]
    for token in draft:
        node = node[token]
        out.append(list(node))
    return out
