"""The host's copy of the rows on the GPU: the state of every running sequence, one row each."""

from __future__ import annotations

import numpy as np

from interplay.engines.local.scheduler import Sequence
from interplay.models import kernels
from interplay.models.staging import staged

STOPS = 8  # stop ids per request that the GPU checks
_STEPS = [1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 896, 1024]


def bucket(rows: int) -> int:
    return next((s for s in _STEPS if s >= rows), -(-rows // 256) * 256)


def draft_bucket(rows: int, most: int, least: int = 8) -> int:
    """The bucket for a step with drafts. There are only a few, because the number of rows changes at every step and
    each bucket needs a graph of its own."""
    return min(most, max(least, 1 << (rows - 1).bit_length()))


class HostRows:
    """The host's copy of the rows, as arrays over all rows. It is copied to the GPU only when a sequence joins or
    leaves."""

    def __init__(self, rows: int, pages: int) -> None:
        self.ids, self.lengths, self.counts, self.limits, self.seeds = (np.zeros(rows, np.int64) for _ in range(5))
        self.temperatures = np.ones(rows, np.float32)
        self.adapters, self.nodes = (np.full(rows, -1, np.int32) for _ in range(2))
        self.fresh = np.zeros(rows, bool)  # the row has got no token since it was assigned
        self.stops = np.full((rows, STOPS), -1, np.int64)
        self.table = np.zeros((rows, pages), np.int32)
        self.pages = np.zeros(rows, np.int64)
        self.changed = False
        self._columns: tuple[np.ndarray, ...] = (
            self.ids, self.lengths, self.counts, self.limits, self.seeds, self.temperatures, self.adapters, self.nodes,
            self.fresh, self.stops, self.table, self.pages,
        )  # fmt: skip

    def write(self, row: int, sequence: Sequence, adapter: int) -> None:
        sampling = sequence.request.sampling
        self.lengths[row], self.counts[row] = len(sequence.prompt.ids), len(sequence.tokens)
        self.limits[row], self.fresh[row] = sampling.max_tokens, True
        self.seeds[row] = sequence.request.seed
        self.temperatures[row], self.adapters[row] = sampling.temperature, adapter
        self.stops[row] = -1
        self.stops[row, : min(STOPS, len(sampling.stop))] = sampling.stop[:STOPS]
        self.table[row, : len(sequence.blocks)] = sequence.blocks
        self.pages[row] = len(sequence.blocks)
        self.changed = True

    def move(self, source: int, target: int) -> None:
        for column in self._columns:
            column[target] = column[source]
        self.changed = True

    def clear(self, row: int) -> None:
        self.lengths[row] = self.pages[row] = 0
        self.adapters[row] = self.nodes[row] = -1
        self.changed = True

    def advance(self, count: int, made: np.ndarray, tokens: np.ndarray) -> None:
        """Record that each row got `made` more tokens."""
        self.lengths[:count] += made
        self.counts[:count] += made
        got = made > 0
        self.fresh[:count][got] = False
        self.ids[:count][got] = tokens[np.arange(count)[got], made[got] - 1]

    def spread(self, source: HostRows, row: np.ndarray, ahead: np.ndarray, guesses: np.ndarray) -> None:
        """Become several rows for each row of `source`: row i is row `row[i]` after `ahead[i]` tokens of a draft, the
        last of which is `guesses[i]`."""
        self.repeat(source, row)
        count = len(row)
        self.lengths[:count] += ahead
        self.counts[:count] += ahead
        self.ids[:count] = np.where(ahead > 0, guesses, self.ids[:count])

    def repeat(self, source: HostRows, row: np.ndarray) -> None:
        """Become copies of rows of `source`: row i is its row `row[i]`."""
        count = len(row)
        pages = int(source.pages[row].max(initial=1))
        for mine, theirs in zip(self._columns, source._columns, strict=True):
            if mine is self.table:
                mine[:count, :pages] = theirs[row, :pages]
            else:
                mine[:count] = theirs[row]
        self.lengths[count:] = self.pages[count:] = 0
        self.adapters[count:] = self.nodes[count:] = -1

    def upload(self, rows: kernels.Rows, size: int) -> None:
        """Copy all rows of a bucket to the GPU. A fresh row has the length of its prompt; the sampling kernel advances
        it."""
        lengths, pages = self.lengths[:size], int(self.pages[:size].max(initial=1))
        live = (lengths > 0) & ~self.fresh[:size]
        at = np.maximum(lengths - 1, 0)
        slots = self.table[np.arange(size), at // kernels.PAGE] * kernels.PAGE + at % kernels.PAGE
        put = lambda target, array: target.copy_(  # noqa: E731
            staged(np.ascontiguousarray(array), target.device), non_blocking=True
        )
        put(rows.ids[:size], self.ids[:size])
        put(rows.positions[:size], at)
        put(rows.slots[:size], np.where(live, slots, 0))
        put(rows.seen[:size], np.where(live, lengths, 0))
        put(rows.lengths[:size], lengths)
        put(rows.active[:size], (lengths > 0).astype(np.int32))
        put(rows.counts[:size], self.counts[:size])
        put(rows.limits[:size], self.limits[:size])
        put(rows.seeds[:size], self.seeds[:size])
        put(rows.temperatures[:size], self.temperatures[:size])
        put(rows.adapters[:size], self.adapters[:size])
        put(rows.nodes[:size], self.nodes[:size])
        put(rows.stops[:size], self.stops[:size])
        put(rows.table[:size, :pages], self.table[:size, :pages])
        self.changed = False
