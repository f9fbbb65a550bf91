"""Turn tries into tensors: micro-batches for the learner's forward pass.

Each sample has the indices of the predictions for its sampled tokens; only those are trained. On a CPU, rows are padded
to one length. On a GPU, tries are laid end to end in one row, without padding (`spans.py`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from interplay.models.senses import Shown
from interplay.models.staging import to_device
from interplay.training.spans import Spans
from interplay.training.tries import Example, Node, Row, Spot, Trie
from interplay.types import Sample


@dataclass
class MicroBatch:
    """Rows padded to one length, or one packed row. Of M predictions, the logits at (row, column) predict `target`."""

    ids_BL: Tensor
    positions_BL: Tensor
    mask_B1LL: Tensor | None  # None if no row branches: plain causal attention
    row_M: Tensor
    column_M: Tensor
    target_M: Tensor
    examples: list[int]  # whose predictions are here, by index in the batch
    prediction_N: Tensor  # for each token of those examples, in order, the index of its prediction
    policies: list[str]  # of each row, or of each span in a packed row
    spans: Spans | None = None  # of a packed row; None if rows are padded
    allowed: list[tuple[int, ...] | None] | None = None  # per prediction, if replies were masked: legal tokens
    media: Sequence[Shown] = ()  # pictures and sounds, by their place among all tokens, row after row
    places_3T: Tensor | None = None  # rotary positions of all tokens, row after row (M-RoPE)
    repeated: bool = False  # another process trains on it (see `RowCut`)


class RowCut(NamedTuple):
    """Rows for one micro-batch. If it is `repeated`, another process trains on it: here it is computed with weight 0,
    so that all processes run equally many forward and backward passes."""

    rows: list[int]
    repeated: bool = False


def cuts(trie: Trie, rows: Iterable[int], max_tokens: int, pack: bool = False) -> list[RowCut]:
    """Split `rows` into micro-batches of at most `max_tokens`, longest rows first. With `pack`, there is no padding."""
    out: list[RowCut] = []
    size = 0
    for r in sorted(rows, key=lambda r: (-trie.rows[r].length, r)):
        length = trie.rows[r].length
        before = out[-1].rows if out else []
        size = size + length if pack else trie.rows[before[0] if before else r].length * (len(before) + 1)
        if not before or size > max_tokens:
            out.append(RowCut([]))
            size = length
        out[-1].rows.append(r)
    return out


def micro_batches(
    trie: Trie,
    examples: Sequence[Example],
    max_tokens: int,
    device: torch.device,
    actions: bool = True,
    pack: bool = False,
) -> Iterator[MicroBatch]:
    """Split the rows into micro-batches of at most `max_tokens`, longest rows first. Rows are padded or, with `pack`,
    laid end to end."""
    return collated(trie, examples, cuts(trie, range(len(trie.rows)), max_tokens, pack), device, actions, pack)


def collated(
    trie: Trie, examples: Sequence[Example], parts: Iterable[RowCut], device: torch.device, actions: bool, pack: bool
) -> Iterator[MicroBatch]:
    """The micro-batch of each part. They are made lazily, while the GPU computes."""
    by_row: dict[int, list[int]] = {}
    for i, spot in enumerate(trie.spots):
        by_row.setdefault(spot.row, []).append(i)
    collate = _pack if pack else _collate
    for part in parts:
        batch = collate(trie, examples, part.rows, by_row, device, actions)
        batch.repeated = part.repeated
        yield batch


def _pack(
    trie: Trie,
    examples: Sequence[Example],
    piece: list[int],
    by_row: dict[int, list[int]],
    device: torch.device,
    actions: bool,
) -> MicroBatch:
    """Lay tries end to end, each as spans in depth-first order. Examples do not share predictions."""
    laid, members = list[tuple[Node, int]](), list[int]()
    columns = list[np.ndarray]()
    lengths, depths, policies = list[int](), list[int](), list[str]()
    at = 0
    for r in piece:
        row = trie.rows[r]
        offsets: dict[int, int] = {}
        for chain, depth in _chains(row):
            lengths.append(sum(len(row.nodes[n].tokens) for n in chain))
            depths.append(depth)
            policies.append(row.policy)
            for n in chain:
                node = row.nodes[n]
                offsets[n] = at
                laid.append((node, at))
                at += len(node.tokens)
        for i in by_row.get(r, []):
            spot = trie.spots[i]
            members.append(i)
            columns.append(np.array([offsets[spot.prompt] + len(row.nodes[spot.prompt].tokens) - 1]))
            if actions:
                columns.append(np.arange(len(examples[i].sample.action) - 1) + offsets[spot.action])
    column = np.concatenate(columns)
    said = [examples[i].sample for i in members] if actions else []
    target = np.zeros(len(column), np.int64)
    if actions:
        target = np.fromiter(itertools.chain.from_iterable(s.action for s in said), np.int64, len(column))
    to = partial(to_device, device=device)
    return MicroBatch(
        to(np.fromiter(itertools.chain.from_iterable(n.tokens for n, _ in laid), np.int64, at)).unsqueeze(0),
        to(np.concatenate([np.arange(n.position, n.position + len(n.tokens)) for n, _ in laid])).unsqueeze(0),
        None,
        torch.zeros(len(column), dtype=torch.int64, device=device),
        to(column),
        to(target),
        members,
        torch.arange(len(column), device=device),
        policies,
        Spans.of(lengths, depths, device),
        [a for s in said for a in allowed_by(s)] if any(s.mask for s in said) else None,
        *_media(laid, at, device),
    )


def _media(laid: Sequence[tuple[Node, int]], total: int, device: torch.device) -> tuple[Sequence[Shown], Tensor | None]:
    """The media of nodes that begin at the given tokens of a batch, and the rotary positions of its `total` tokens."""
    shown = [Shown(at + m.start, n.tokens[m.start : m.start + m.length], m) for n, at in laid for m in n.media]
    if laid[0][0].places_3L is None:
        return shown, None
    places = np.zeros((3, total), np.int64)
    for node, at in laid:
        if node.places_3L is not None:
            places[:, at : at + len(node.tokens)] = node.places_3L
    return shown, to_device(places, device)


def _chains(row: Row) -> Iterator[tuple[list[int], int]]:
    """Split a trie into runs of nodes without a branch inside, in depth-first order, each with its depth."""
    children: list[list[int]] = [[] for _ in row.nodes]
    for i, node in enumerate(row.nodes[1:], 1):
        children[node.parent].append(i)
    stack = [(0, 0)]
    while stack:
        first, depth = stack.pop()
        chain = [first]
        while len(children[chain[-1]]) == 1:
            chain += children[chain[-1]]
        yield chain, depth
        stack += [(child, depth + 1) for child in reversed(children[chain[-1]])]


def _collate(
    trie: Trie,
    examples: Sequence[Example],
    piece: list[int],
    by_row: dict[int, list[int]],
    device: torch.device,
    actions: bool,
) -> MicroBatch:
    width = trie.rows[piece[0]].length
    ids = np.zeros((len(piece), width), np.int64)
    positions = np.zeros((len(piece), width), np.int64)
    branching = any(trie.rows[r].branches for r in piece)
    mask = np.zeros((len(piece), width, width), bool) if branching else None
    predictions: dict[tuple[int, int, int, tuple[int, ...] | None], int] = {}  # (row, column, target, allowed) -> index
    members, wanted, laid = list[int](), list[int](), list[tuple[Node, int]]()
    for b, r in enumerate(piece):
        row = trie.rows[r]
        for node in row.nodes:
            span = slice(node.offset, node.offset + len(node.tokens))
            ids[b, span] = node.tokens
            positions[b, span] = np.arange(node.position, node.position + len(node.tokens))
            laid.append((node, b * width + node.offset))
        if mask is not None:
            mask[b] = _visibility(row, width)
        for i in by_row.get(r, []):
            members.append(i)
            may = allowed_by(examples[i].sample) if actions else [None]
            for (column, target), allowed in zip(
                _predicted(row, trie.spots[i], examples[i].sample, actions), may, strict=True
            ):
                wanted.append(predictions.setdefault((b, column, target, allowed), len(predictions)))
    *where, allowed_M = zip(*predictions, strict=True)
    to = partial(to_device, device=device)
    row_M, column_M, target_M = (to(np.array(c)) for c in where)
    return MicroBatch(
        to(ids),
        to(positions),
        None if mask is None else to(mask).unsqueeze(1),
        row_M,
        column_M,
        target_M,
        members,
        to(np.array(wanted)),
        [trie.rows[r].policy for r in piece],
        None,
        list(allowed_M) if any(a is not None for a in allowed_M) else None,
        *_media(laid, len(piece) * width, device),
    )


def allowed_by(sample: Sample) -> list[tuple[int, ...] | None]:
    """The tokens that were allowed at each place of a sample, given those before it; None: any token."""
    if not sample.mask:
        return [None] * len(sample.action)
    out: list[tuple[int, ...] | None] = []
    left = sample.mask
    for place, token in enumerate(sample.action):
        out.append(tuple(sorted({reply[place] for reply in left})))
        left = tuple(r for r in left if r[place] == token and len(r) > place + 1)
    return out


def _visibility(row: Row, width: int) -> np.ndarray:
    """The attention mask of a row: a token sees its own node and those above, up to itself. Padding sees padding, so
    that the softmax stays finite."""
    above = np.zeros((len(row.nodes) + 1, len(row.nodes) + 1), bool)
    for i, node in enumerate(row.nodes):
        if node.parent >= 0:
            above[i] = above[node.parent]
        above[i, i] = True
    above[-1, -1] = True
    lengths = [*(len(node.tokens) for node in row.nodes), width - row.length]  # nodes lie one after another
    return above.repeat(lengths, 0).repeat(lengths, 1) & _triangle(width)


@lru_cache(maxsize=64)
def _triangle(width: int) -> np.ndarray:
    return np.tri(width, dtype=bool)


def _predicted(row: Row, spot: Spot, sample: Sample, actions: bool) -> list[tuple[int, int]]:
    """(predicting column, predicted id) for each sampled token; without `actions`, only the prompt's last column."""
    prompt = row.nodes[spot.prompt]
    last = prompt.offset + len(prompt.tokens) - 1
    if not actions:
        return [(last, 0)]
    start = row.nodes[spot.action].offset
    columns = [last, *range(start, start + len(sample.action) - 1)]
    return list(zip(columns, sample.action, strict=True))
