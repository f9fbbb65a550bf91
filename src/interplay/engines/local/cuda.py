"""The runner for a GPU. Prompts are packed without padding, and decoding uses CUDA graphs.

The state of every running sequence is on the GPU, one row each (`kernels.Rows`). There is one graph per bucket of batch
sizes. It holds a whole decoding step: the model, sampling, log-probs, stop checks and the update of each row for its
next token. The host replays the graph several times, and reads the results when the GPU has done all of it; meanwhile
the host does other work, and may start to compute prompts. It writes rows only when sequences join or leave. Everything
runs on one stream, in the order in which the host started it, so a block of the cache that the host gives to another
sequence is written by it only after the steps that were started before. The graphs read weights, adapters and cache in
place, so they stay valid when the values change.

With drafts, each token of a draft gets a row of its own, which reads the sequence's blocks up to itself. A layer writes
the keys of all rows before any row attends to them. The GPU looks the drafts up itself (`kernels.Lookup`), in a graph
that is replayed several times as well. If a reply is masked, the host proposes the drafts and a graph is replayed once.
Without drafts, masked replies are sampled in the graph too, from tries on the GPU (`legal_nodes.py`).
Prompts and replies to be scored have graphs too (`pack.py`), except in batches with pictures or sounds, and in models
whose rotary positions have several axes (M-RoPE).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence as Seq
from functools import cached_property, partial

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from interplay.engines.local.draft_texts import DEPTH, DraftTexts
from interplay.engines.local.drafts import Drafts
from interplay.engines.local.host_rows import STOPS, HostRows, bucket, draft_bucket
from interplay.engines.local.legal_nodes import LegalNodes
from interplay.engines.local.pack import Pack, padded, passes, tiles
from interplay.engines.local.recorder import Recorder
from interplay.engines.local.runner import (
    NO_DRAFTS,
    Cached,
    DraftsOf,
    Drawn,
    DrawnAhead,
    Later,
    NewTokens,
    shift_of,
)
from interplay.engines.local.scheduler import Sequence
from interplay.models import fused, kernels
from interplay.models.rotary import Decoding

# Starting a graph takes microseconds, but torch releases Python's lock for it. If another thread is busy, this one gets
# the lock back only after so many seconds. With Python's default, a busy thread makes an engine step several times as
# long.
_SWITCH, _DEFAULT_SWITCH = 0.0005, 0.005
_TEXT = _NODES = 1 << 20  # tokens of the texts in which drafts are looked up, and nodes of the tries of legal replies


class CudaRunner(Cached):
    least_ranks = 64

    def __init__(self, model: PreTrainedModel, blocks: int, max_rows: int, max_context: int, chunk: int) -> None:
        super().__init__(model, blocks, kernels.PAGE)
        if sys.getswitchinterval() == _DEFAULT_SWITCH:
            sys.setswitchinterval(_SWITCH)
        self.chunk = chunk
        pages = min(-(-max_context // kernels.PAGE), blocks)
        self.most_rows = bucket(max_rows)
        self.rows = kernels.Rows(self.most_rows, pages, STOPS, chunk + 1, _NODES, self.device)
        self._legal = LegalNodes(self.rows.tries)
        self._host, self._ahead = (HostRows(self.most_rows, pages) for _ in range(2))
        self._seated: list[Sequence] = []  # the sequence of each row
        # The number of tokens that each row has sampled, the tokens and their log-probs, copied from the GPU.
        self._results = [
            torch.zeros_like(part, device="cpu", pin_memory=self.device.type == "cuda") for part in self._sampled
        ]
        # What is added to a row's position to get its rotary position, for models whose pictures need it (M-RoPE).
        turned = self.senses is not None and self.senses.family.mrope
        self._shifts = torch.zeros(self.most_rows, dtype=torch.int64, device=self.device) if turned else None
        self._graphs: dict[tuple[int, int, bool], tuple[torch.cuda.CUDAGraph, Tensor]] = {}
        self._pack = Pack(pages, self.device)
        self._passes: dict[tuple[int, bool], tuple[torch.cuda.CUDAGraph, Tensor]] = {}
        self._lookup: kernels.Lookup | None = None
        self._texts = DraftTexts(kernels.NOTHING, 1)
        self._width = 1  # the rows that each sequence has on the GPU
        self._recorder = Recorder(self.device)

    @cached_property
    def _timed(self) -> tuple[torch.cuda.Event, torch.cuda.Event]:
        """Recorded when sampling begins, and when the results are on the host."""
        return torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

    def _begin(self) -> None:
        self._timed[0].record(torch.cuda.current_stream(self.device))

    @property
    def _sampled(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.rows.produced, self.rows.out_tokens, self.rows.out_logprobs

    # -- forward --------------------------------------------------------------------------------------------------

    def _attend(self, table: np.ndarray, starts: np.ndarray, counts: np.ndarray) -> fused.Attend:
        first, offsets = np.arange(len(counts)) * table.shape[1], np.cumsum(counts) - counts
        columns = table.reshape(-1), *tiles(counts), first, offsets, starts, counts
        return self._attends(kernels.Tiles(*(self.to(np.ascontiguousarray(c, np.int32)) for c in columns)))

    def _attends(self, where: kernels.Tiles) -> fused.Attend:
        def attend(layer: int, q_THD: Tensor, scale: float, window: int) -> Tensor:
            return kernels.prefill_attention(q_THD, self.keys[layer], self.values[layer], where, scale, window)

        return attend

    def _logits(self, hidden_TC: Tensor) -> Tensor:
        return kernels.logits(hidden_TC, self.head.weight) if self.head.bias is None else self.head(hidden_TC)

    @torch.inference_mode()
    def _run(self, new: Seq[NewTokens], scored: Seq[Sequence] = ()) -> Tensor:
        if self._shifts is not None or any(n.prompt.media for n in new):
            return super()._run(new, scored)
        # A reply begins in a block of its own. The end of its prompt is computed there again, instead of copied.
        apart = {id(s.blocks) for s in scored if s.copy is not None}
        again = [n.start % self.block_size if id(n.blocks) in apart else 0 for n in new]
        longer = [
            NewTokens(n.prompt, n.blocks, n.start - a, n.prompt.ids[n.start - a : n.start] + n.ids)
            for n, a in zip(new, again, strict=True)
        ]
        hidden = torch.cat([self._pass(part) for part in passes(longer)])
        if not any(again):
            return hidden
        kept = [np.arange(len(n.ids)) >= a for n, a in zip(longer, again, strict=True)]
        return hidden[self.to(np.flatnonzero(np.concatenate(kept)))]

    def _pass(self, new: Seq[NewTokens]) -> Tensor:
        """The hidden states of a pass, computed by a graph."""
        adapters = np.array([self._index(n.prompt.adapter) for n in new])
        count, mixed = sum(len(n.ids) for n in new), bool((adapters >= 0).any())
        size = padded(count)
        self._pack.fill(new, adapters, size)
        if (size, mixed) not in self._passes:
            self._passes[size, mixed] = self._recorder.record(partial(self._packed, size, mixed))
        graph, hidden = self._passes[size, mixed]
        graph.replay()
        return hidden[:count].clone()  # another graph may overwrite them

    def _packed(self, size: int, adapters: bool) -> Tensor:
        given = self._pack.inputs(size)
        ids, positions, slots = (part.long() for part in given[:3])
        mixed = given.adapters if adapters else None
        return self._forward(ids, positions, slots, self._attends(given.where), mixed)

    # -- decoding -------------------------------------------------------------------------------------------------

    @torch.inference_mode()
    def advance(
        self, ongoing: Seq[Sequence], fresh: Seq[Sequence], hurry: bool = False, drafts: DraftsOf = NO_DRAFTS
    ) -> list[Drawn] | Later:
        """Sample tokens for every sequence: up to `chunk` decoding steps, or fewer if no sequence needs that many. With
        `hurry` or drafts there is only one decoding step. The host has to wait only if plain torch samples."""
        self._seat(ongoing, fresh)
        hidden = torch.stack([s.prompt.hidden for s in fresh if s.prompt.hidden is not None]) if fresh else None
        if drafts:
            return self._decode_ahead(len(fresh), hidden, drafts)
        self._legal.place(self._seated)
        one_by_one = not all(map(self._samples, self._seated))
        if self._host.changed or self._width > 1:
            if not one_by_one:
                self._host.nodes[: len(self._seated)] = [self._legal.node(s) for s in self._seated]
            self._upload(self._host, bucket(max(1, len(self._seated))), self._seated)
            self._width = 1
        if one_by_one:
            return self._one_by_one(ongoing, fresh, hidden)
        count, old = len(self._seated), len(self._seated) - len(fresh)
        self._begin()
        self.rows.produced.zero_()
        if hidden is not None:
            part = self.rows.part(old, count)
            kernels.sample_and_advance(self._logits(hidden), part, len(fresh))
        wanted = max(self._legal.left(s) - (i >= old) for i, s in enumerate(self._seated))
        if wanted > 0:
            graph, _ = self._graph(bucket(count), 1, self._host)
            for _ in range(min(1 if hurry else self.chunk, wanted)):
                graph.replay()
        self._send(count)
        return partial(self._drawn, count)

    def _one_by_one(self, ongoing: Seq[Sequence], fresh: Seq[Sequence], hidden: Tensor | None) -> list[Drawn]:
        """Sample one token per sequence in plain torch, if the kernel cannot sample some of them."""
        old = len(ongoing)
        rows = [] if hidden is None else [hidden]
        if old:
            graph, out = self._graph(bucket(len(self._seated)), 0, self._host)
            graph.replay()
            rows.insert(0, out[:old])
        self._host.changed = True
        drawn = self._draw(self._seated, torch.cat(rows))
        self._host.advance(len(drawn), np.ones(len(drawn), np.int64), np.array([[t] for _, (t,), _ in drawn]))
        return drawn

    def _send(self, count: int) -> None:
        """Start to copy the results of the first `count` rows to the host."""
        for target, source in zip(self._results, self._sampled, strict=True):
            target[:count].copy_(source[:count], non_blocking=True)
        self._timed[1].record(torch.cuda.current_stream(self.device))

    def _read(self, count: int) -> list[np.ndarray]:
        """Wait for the results of the first `count` rows."""
        began, copied = self._timed
        copied.synchronize()
        self.seconds = began.elapsed_time(copied) / 1000
        return [part[:count].numpy() for part in self._results]

    def _drawn(self, count: int) -> list[Drawn]:
        """What the seated sequences sampled in the steps that were started last."""
        made, tokens, logprobs = self._read(count)
        self._host.advance(count, made, tokens)
        words, likely = tokens.tolist(), logprobs.tolist()
        return [
            (s, words[i][:n], likely[i][:n]) for i, (s, n) in enumerate(zip(self._seated, made.tolist(), strict=True))
        ]

    def _decode_ahead(self, fresh: int, hidden: Tensor | None, drafts: DraftsOf) -> list[Drawn]:
        """Sample one token for each sequence, and one after each token of its draft, in plain torch. The last `fresh`
        sequences have no draft; they get their first token."""
        seated = self._seated
        counts = np.array([1 + len(drafts.get(s, ())) for s in seated])
        row = np.repeat(np.arange(len(seated)), counts)
        total = len(row)
        guesses = np.array([t for s in seated for t in (-1, *drafts.get(s, ()))], np.int64)
        self._ahead.spread(self._host, row, np.arange(total) - (np.cumsum(counts) - counts)[row], guesses)
        size = draft_bucket(total, self.most_rows)
        self._upload(self._ahead, size, [seated[i] for i in row.tolist()])
        self._host.changed, self._width = True, 1
        graph, out = self._graph(size, 0, self._ahead)
        graph.replay()
        known = [] if hidden is None else [hidden]
        drawn = self._draw(seated, torch.cat([out[: total - fresh], *known]), drafts)
        made = np.array([len(tokens) for _, tokens, _ in drawn])
        table = np.zeros((len(drawn), int(made.max())), np.int64)
        for i, (_, tokens, _) in enumerate(drawn):
            table[i, : len(tokens)] = tokens
        self._host.advance(len(drawn), made, table)
        return drawn

    def _samples(self, sequence: Sequence) -> bool:
        """Whether the GPU's sampling kernel can serve this sequence."""
        sampling = sequence.request.sampling
        return not sampling.cuts and len(sampling.stop) <= STOPS and self._legal.has(sequence)

    def looks_up(self, sequences: Seq[Sequence]) -> bool:
        return all(s.legal is None and self._samples(s) for s in sequences)

    @torch.inference_mode()
    def look_ahead(self, sequences: Seq[Sequence], drafts: Drafts, hurry: bool = False) -> DrawnAhead | None:
        self._seat(sequences, ())
        seated, width = self._seated, 1 + drafts.length
        lookup, count = self._lookup_of(width), len(seated)
        size = draft_bucket(count, self.most_rows // width, 4) * width
        if not self._place(lookup, size, drafts):
            return None
        lookup.told.zero_()
        wanted = max(s.request.sampling.max_tokens - len(s.tokens) for s in seated)
        graph, _ = self._graph(size, width, self._ahead)
        for _ in range(1 if hurry else min(lookup.steps, wanted)):
            graph.replay()
        made, drafted, right = lookup.told[:, :count].cpu().numpy()
        most = int(made.max())
        tokens, logprobs = (a[:count, :most].cpu().numpy() for a in (lookup.out_tokens, lookup.out_logprobs))
        self._host.advance(count, made, tokens)
        drawn = [
            (s, tokens[i, :n].tolist(), logprobs[i, :n].tolist())
            for i, (s, n) in enumerate(zip(seated, made.tolist(), strict=True))
        ]
        return DrawnAhead(drawn, int(drafted.sum()), int(right.sum()))

    def _lookup_of(self, width: int) -> kernels.Lookup:
        """The place on the GPU where drafts of `width - 1` tokens are looked up."""
        if self._lookup is None or self._lookup.width != width:
            steps = max(1, self.chunk // 2)  # each yields several tokens
            self._lookup = kernels.Lookup(self.most_rows // width, width, DEPTH, _TEXT, steps, self.device)
            self._texts = DraftTexts(kernels.NOTHING, width)
            self._graphs = {name: graph for name, graph in self._graphs.items() if name[1] <= 1}
            self._width = 1
        return self._lookup

    def _place(self, lookup: kernels.Lookup, size: int, drafts: Drafts) -> bool:
        """Give each seated sequence its rows, `size` in all, and its texts on the GPU, unless it has them. False if
        there are too many texts."""
        seated, width = self._seated, lookup.width
        if self._width == width and not self._host.changed:
            return True
        # Tokens that were sampled in another way since then are not in the texts.
        spots = self._texts.spots(seated) if self._width == width else None
        if spots is None:
            text = self._texts.lay(seated, drafts)
            if len(text) > len(lookup.text):
                self._texts.clear()
                return False
            lookup.text[: len(text)].copy_(torch.from_numpy(text))
            spots = self._texts.spots(seated)
            assert spots is not None
        lookup.spots[:, : len(seated)].copy_(torch.from_numpy(spots))
        row = np.repeat(np.arange(len(seated)), width)
        self._ahead.repeat(self._host, row)
        self._upload(self._ahead, size, [seated[i] for i in row.tolist()])
        self._host.changed, self._width = False, width
        return True

    def _seat(self, ongoing: Seq[Sequence], fresh: Seq[Sequence]) -> None:
        """Assign rows: the last rows move to the places of sequences that left, and new sequences go to the end."""
        host, still = self._host, set(ongoing)
        seated = self._seated
        for i in range(len(seated) - 1, -1, -1):
            if seated[i] not in still:
                last = seated.pop()
                if i < len(seated):
                    seated[i] = last
                    host.move(len(seated), i)
                host.clear(len(seated))
        for sequence in fresh:
            host.write(len(seated), sequence, self._index(sequence.prompt.adapter))
            seated.append(sequence)

    def _upload(self, host: HostRows, size: int, sequences: Seq[Sequence]) -> None:
        """Copy the rows of a bucket to the GPU. `sequences` has the sequence of each row."""
        host.upload(self.rows, size)
        if self._shifts is not None:
            shifts = np.array([shift_of(s.prompt) for s in sequences], np.int64)
            self._shifts.zero_()[: len(sequences)].copy_(self.to(shifts))

    def _graph(self, size: int, width: int, host: HostRows) -> tuple[torch.cuda.CUDAGraph, Tensor]:
        """The graph for the first `size` rows of `host`, which were uploaded, and its hidden states. Tokens are sampled
        for sequences of `width` rows; 0: no tokens are sampled."""
        adapters = bool((host.adapters[:size] >= 0).any())
        name = (size, width, adapters)
        if name not in self._graphs:
            self._graphs[name] = self._capture(size, width, adapters)
        return self._graphs[name]

    def _capture(self, size: int, width: int, adapters: bool) -> tuple[torch.cuda.CUDAGraph, Tensor]:
        """Capture the graph of a decoding step, which also changes the rows."""
        saved = self.rows.save()
        self.rows.idle(size)
        captured = self._recorder.record(partial(self._step, size, width, adapters))
        self.rows.restore(saved)
        return captured

    def _step(self, size: int, width: int, adapters: bool) -> Tensor:
        rows = self.rows
        lookup = self._lookup if width > 1 else None
        if lookup is not None:
            lookup.draft(rows, size // width)
        where = Decoding(rows.table[:size], rows.seen[:size])

        def attend(layer: int, q_THD: Tensor, scale: float, window: int) -> Tensor:
            return kernels.decode_attention(q_THD, self.keys[layer], self.values[layer], where, scale, window)

        mixed = rows.adapters[:size] if adapters else None
        ids, slots = rows.ids[:size], rows.slots[:size]
        places = rows.positions[:size]
        if self._shifts is not None:  # an idle row has position 0, and the shift of a sequence
            places = (places + self._shifts[:size]).clamp_(min=0)
        if self.fused is not None and width == 1:  # no row reads what another one stores
            hidden = self.fused.forward(ids, places, slots, self.keys, self.values, where, mixed)
        else:
            hidden = self._forward(ids, places, slots, attend, mixed)
        if lookup is not None:
            lookup.accept(self._logits(hidden), rows, size // width)
        elif width:
            kernels.sample_and_advance(self._logits(hidden), rows, size)
        return hidden

    def _weights_moved(self) -> None:
        self._graphs.clear()
        self._passes.clear()
        self._recorder.renew()
