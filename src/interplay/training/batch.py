"""Turns to tensors: shared beginnings are computed once, nothing is tokenised.

All turns of one policy are laid into token *tries*: a prompt that several candidates answer is one node, equal
replies are one node, and a prompt that extends an earlier turn token for token hangs below that turn's reply. Each
trie is a row; a token attends to its own node and the nodes above it, so every path reads exactly as if it stood
alone. A turn keeps the indices of the predictions that belong to its sampled tokens; only those are trained.

On a GPU tries are laid end to end in one row, without padding (`spans.py`).
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from interplay.training.spans import Spans
from interplay.types import Episode, Turn


def by_policy(episodes: Sequence[Episode], names: Collection[str]) -> dict[str, list[Turn]]:
    """The turns that each of `names` took; those that only estimated a candidate's return are left out."""
    out: dict[str, list[Turn]] = {name: [] for name in names}
    for episode in episodes:
        for turn in episode.turns:
            if turn.policy in out and turn.playout is None:
                out[turn.policy] += turn.whole
    return out


def order(turn: Turn) -> tuple[str, int, str, int, int]:
    """By episode and in the order of play, so that a turn stands behind the one it extends."""
    return turn.keys.episode, turn.decision, turn.role, turn.candidate, turn.call


@dataclass
class Node:
    tokens: tuple[int, ...]
    parent: int  # index in the row, -1 at the root
    offset: int  # where its tokens stand in the row
    position: int  # of its first token in the sequence it belongs to


@dataclass
class Row:
    policy: str = ""
    nodes: list[Node] = field(default_factory=list)
    length: int = 0

    def add(self, tokens: tuple[int, ...], parent: int) -> int:
        above = self.nodes[parent] if parent >= 0 else None
        position = above.position + len(above.tokens) if above else 0
        self.nodes.append(Node(tokens, parent, self.length, position))
        self.length += len(tokens)
        return len(self.nodes) - 1

    @property
    def branches(self) -> bool:
        return any(n.parent != i - 1 for i, n in enumerate(self.nodes))


@dataclass
class Spot:
    """Where a turn stands: its row, the node of its prompt's last part and the node of its reply."""

    row: int
    prompt: int
    action: int


@dataclass
class Trie:
    """The rows of a batch, and where each turn stands in them."""

    rows: list[Row]
    spots: list[Spot]

    @property
    def size(self) -> int:
        """Tokens that are computed."""
        return sum(row.length for row in self.rows)

    @property
    def longest(self) -> int:
        """Of the sequences that are read in it."""
        return max(n.position + len(n.tokens) for row in self.rows for n in row.nodes)


Ends = dict[tuple[str, tuple[int, ...]], tuple[int, int]]  # (policy, full token path) -> (row, node)


def lay(
    turns: Sequence[Turn], share: bool = True, row_limit: int = 16_384, actions: bool = True, branch: bool = True
) -> Trie:
    """Lay `turns` into tries. With `share` off every turn gets a row of its own (for tests and comparison); with
    `branch` off a row is one sequence: a turn is merged only into the turn it extends.

    A row that would pass `row_limit` tokens is left as it is, and the turn starts a new one.
    """
    rows: list[Row] = []
    spots: list[Spot] = []
    ends: Ends = {}
    said = {t.id: len(t.prompt) + len(t.action) for t in turns}
    for turn in turns:
        reply = turn.action if actions else ()
        place = _prompt_place(turn, rows, ends, said, row_limit - len(reply), branch) if share else None
        if place is None:
            rows.append(Row(turn.policy))
            place = (len(rows) - 1, rows[-1].add(turn.prompt, -1))
            ends[turn.policy, turn.prompt] = place
        row, prompt = place
        action = prompt
        if reply:
            path = (turn.policy, turn.prompt + reply)
            known = ends.get(path) if share else None
            # An equal path may be cut elsewhere: a prompt that ends inside another turn's reply.
            if known is not None and known[0] == row and rows[row].nodes[known[1]].parent == prompt:
                action = known[1]
            else:
                action = rows[row].add(reply, prompt)
                ends[path] = (row, action)
        spots.append(Spot(row, prompt, action))
    return Trie(rows, spots)


def _prompt_place(
    turn: Turn, rows: list[Row], ends: Ends, said: dict[str, int], room: int, branch: bool
) -> tuple[int, int] | None:
    def free(place: tuple[int, int]) -> bool:
        return branch or place[1] == len(rows[place[0]].nodes) - 1

    place = ends.get((turn.policy, turn.prompt))
    if place is not None and free(place) and rows[place[0]].length <= room:
        return place
    if not turn.merged:
        return None
    cut = said.get(turn.parent or "", 0)  # where the turn it extends ended
    above = ends.get((turn.policy, turn.prompt[:cut])) if cut else None
    if above is None or not free(above) or rows[above[0]].length + len(turn.prompt) - cut > room:
        return None
    place = (above[0], rows[above[0]].add(turn.prompt[cut:], above[1]))
    ends[turn.policy, turn.prompt] = place
    return place


@dataclass
class MicroBatch:
    """Rows padded to one length. M predictions: `logits of (row, column)` predict `targets`, at a temperature."""

    ids_BL: Tensor
    positions_BL: Tensor
    mask_B1LL: Tensor | None  # None where no row branches: plain causal attention
    row_M: Tensor
    column_M: Tensor
    target_M: Tensor
    turns: list[int]  # the turns whose predictions are here, by index in the batch
    prediction_N: Tensor  # for every token of those turns, in order, which of the M predictions is its own
    policies: list[str]  # of each row; of each span in a packed row
    spans: Spans | None = None  # of a packed row; None: rows are padded
    allowed: list[tuple[int, ...] | None] | None = None  # per prediction, where replies were masked: what could be said


def micro_batches(
    trie: Trie, turns: Sequence[Turn], max_tokens: int, device: torch.device, actions: bool = True, pack: bool = False
) -> Iterator[MicroBatch]:
    """Cut the rows into pieces of at most `max_tokens`, longest first, each with its turns; padded, or with `pack` laid
    end to end."""
    by_row: dict[int, list[int]] = {}
    for i, spot in enumerate(trie.spots):
        by_row.setdefault(spot.row, []).append(i)
    order = sorted(range(len(trie.rows)), key=lambda r: (-trie.rows[r].length, r))
    collate = _pack if pack else _collate
    piece: list[int] = []
    size = 0
    for r in order:
        length = trie.rows[r].length
        size = size + length if pack else trie.rows[piece[0] if piece else r].length * (len(piece) + 1)
        if piece and size > max_tokens:
            yield collate(trie, turns, piece, by_row, device, actions)
            piece, size = [], length
        piece.append(r)
    if piece:
        yield collate(trie, turns, piece, by_row, device, actions)


def _pack(
    trie: Trie,
    turns: Sequence[Turn],
    piece: list[int],
    by_row: dict[int, list[int]],
    device: torch.device,
    actions: bool,
) -> MicroBatch:
    """Tries one behind the other, each as spans that go down first; every turn has predictions of its own."""
    tokens: list[tuple[int, ...]] = []
    positions: list[np.ndarray] = []
    lengths: list[int] = []
    depths: list[int] = []
    policies: list[str] = []
    members: list[int] = []
    columns: list[np.ndarray] = []
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
                tokens.append(node.tokens)
                positions.append(np.arange(node.position, node.position + len(node.tokens)))
                at += len(node.tokens)
        for i in by_row.get(r, []):
            spot = trie.spots[i]
            members.append(i)
            columns.append(np.array([offsets[spot.prompt] + len(row.nodes[spot.prompt].tokens) - 1]))
            if actions:
                start = offsets[spot.action]
                columns.append(np.arange(start, start + len(turns[i].action) - 1))
    ids = np.fromiter(itertools.chain.from_iterable(tokens), np.int64, at)
    column = np.concatenate(columns)
    target = np.zeros(len(column), np.int64)
    if actions:
        target = np.fromiter(itertools.chain.from_iterable(turns[i].action for i in members), np.int64, len(column))
    to = lambda a: torch.from_numpy(a).to(device)  # noqa: E731
    return MicroBatch(
        to(ids).unsqueeze(0),
        to(np.concatenate(positions)).unsqueeze(0),
        None,
        torch.zeros(len(column), dtype=torch.int64, device=device),
        to(column),
        to(target),
        members,
        torch.arange(len(column), device=device),
        policies,
        Spans.of(lengths, depths, device),
        [a for i in members for a in allowed_by(turns[i])]
        if actions and any(turns[i].masked for i in members)
        else None,
    )


def _chains(row: Row) -> Iterator[tuple[list[int], int]]:
    """The nodes of a trie as runs that nothing branches off within, each followed by those below it, with their
    depths."""
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
    turns: Sequence[Turn],
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
    members: list[int] = []
    wanted: list[int] = []
    for b, r in enumerate(piece):
        row = trie.rows[r]
        for node in row.nodes:
            span = slice(node.offset, node.offset + len(node.tokens))
            ids[b, span] = node.tokens
            positions[b, span] = np.arange(node.position, node.position + len(node.tokens))
        if mask is not None:
            mask[b] = _visibility(row, width)
        for i in by_row.get(r, []):
            members.append(i)
            may = allowed_by(turns[i]) if actions else [None]
            for (column, target), allowed in zip(_predicted(row, trie.spots[i], turns[i], actions), may, strict=True):
                wanted.append(predictions.setdefault((b, column, target, allowed), len(predictions)))
    *where, allowed_M = zip(*predictions, strict=True)
    row_M, column_M, target_M = (torch.tensor(c, device=device) for c in where)
    to = lambda a: torch.from_numpy(a).to(device)  # noqa: E731
    return MicroBatch(
        to(ids),
        to(positions),
        None if mask is None else to(mask).unsqueeze(1),
        row_M,
        column_M,
        target_M,
        members,
        torch.tensor(wanted, device=device),
        [trie.rows[r].policy for r in piece],
        allowed=list(allowed_M) if any(a is not None for a in allowed_M) else None,
    )


def allowed_by(turn: Turn) -> list[tuple[int, ...] | None]:
    """What could be said at each token of a turn, given those before it; None: anything."""
    if not turn.masked:
        return [None] * len(turn.action)
    out: list[tuple[int, ...] | None] = []
    left = turn.masked
    for place, token in enumerate(turn.action):
        out.append(tuple(sorted({reply[place] for reply in left})))
        left = tuple(r for r in left if r[place] == token and len(r) > place + 1)
    return out


def _visibility(row: Row, width: int) -> np.ndarray:
    """Who sees whom in a row: own node and the nodes above, nothing later. Padding sees itself, to stay finite."""
    above = np.zeros((len(row.nodes) + 1, len(row.nodes) + 1), bool)
    node_of = np.full(width, len(row.nodes))
    for i, node in enumerate(row.nodes):
        if node.parent >= 0:
            above[i] = above[node.parent]
        above[i, i] = True
        node_of[node.offset : node.offset + len(node.tokens)] = i
    above[-1, -1] = True
    return above[node_of[:, None], node_of[None, :]] & np.tri(width, dtype=bool)


def _predicted(row: Row, spot: Spot, turn: Turn, actions: bool) -> list[tuple[int, int]]:
    """(column that predicts, predicted id) for each sampled token; without actions: the prompt's last column."""
    prompt = row.nodes[spot.prompt]
    last = prompt.offset + len(prompt.tokens) - 1
    if not actions:
        return [(last, 0)]
    start = row.nodes[spot.action].offset
    columns = [last, *range(start, start + len(turn.action) - 1)]
    return list(zip(columns, turn.action, strict=True))
