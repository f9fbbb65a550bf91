"""Lay samples into token tries, so that shared prefixes are computed once. Nothing is tokenised here.

A prompt that several candidates answer is one node, equal replies are one node, and a prompt that extends an earlier
sample token for token is a child of that sample's reply. Each trie is a row. A token attends to its own node and the
nodes above it, so the result for each path is the same as if it were computed alone. Prompts that differ in a picture
or a sound never share a node.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from interplay.types import Advantage, Episode, MediaSpan, Sample, Turn


@dataclass(frozen=True, slots=True)
class Example:
    """A sample as the learner uses it, with its policy and its credit. A sample without an advantage is not trained on.
    `share` is its weight, in samples, in the mean of the loss (`algorithm.Weighed`).

    `decision` names the decision that the sample belongs to. With `train.whole_decisions`, the samples of one decision
    are trained on in the same optimiser step (`minibatches.py`); a sample without a name is trained on alone.

    `values` and `targets` are for a critic: one number at the end of the prompt, or one before each sampled token."""

    policy: str
    sample: Sample
    advantage: Advantage | None = None
    reference: tuple[float, ...] | None = None
    values: tuple[float, ...] = ()
    targets: tuple[float, ...] | None = None
    lags: tuple[int, ...] | None = None  # age of each token's weights in training steps; None: all newest
    share: float = 1.0
    decision: str = ""

    @property
    def has_signal(self) -> bool:
        """Whether some token has an advantage other than zero."""
        return any(self.advantage) if isinstance(self.advantage, tuple) else bool(self.advantage)


def by_policy(episodes: Sequence[Episode], names: Collection[str]) -> dict[str, list[Turn]]:
    """The turns that each of the policies `names` took. Turns of playouts are left out."""
    out: dict[str, list[Turn]] = {name: [] for name in names}
    for episode in episodes:
        for turn in episode.turns:
            if turn.policy in out and turn.playout is None:
                out[turn.policy].append(turn)
    return out


def order(turn: Turn) -> tuple[str, int, str, int]:
    """A sort key: by episode and in the order of play, so that a turn comes after the one it extends."""
    return turn.keys.episode, turn.decision, turn.role, turn.candidate


@dataclass
class Node:
    tokens: tuple[int, ...]
    parent: int  # index in the row, -1 at the root
    offset: int  # where its tokens begin in the row
    position: int  # of its first token in the sequence it belongs to
    media: tuple[MediaSpan, ...] = ()  # places counted from the node's first token
    places_3L: np.ndarray | None = None  # rotary positions, if they differ from the positions (M-RoPE)


@dataclass
class Row:
    policy: str = ""
    nodes: list[Node] = field(default_factory=list)
    length: int = 0

    def add(self, tokens: tuple[int, ...], parent: int, media: tuple[MediaSpan, ...] = ()) -> int:
        above = self.nodes[parent] if parent >= 0 else None
        position = above.position + len(above.tokens) if above else 0
        self.nodes.append(Node(tokens, parent, self.length, position, media))
        self.length += len(tokens)
        return len(self.nodes) - 1

    @property
    def branches(self) -> bool:
        return any(n.parent != i - 1 for i, n in enumerate(self.nodes))


@dataclass
class Spot:
    """The place of an example: its row, the node of the last part of its prompt, and the node of its reply."""

    row: int
    prompt: int
    action: int


@dataclass
class Trie:
    """The rows of a batch, and the place of each example in them."""

    rows: list[Row]
    spots: list[Spot]

    @property
    def size(self) -> int:
        """The number of tokens that are computed."""
        return sum(row.length for row in self.rows)

    @property
    def longest(self) -> int:
        """The length of the longest path from a root."""
        return max(n.position + len(n.tokens) for row in self.rows for n in row.nodes)


Ends = dict[tuple[str, tuple[int, ...]], tuple[int, int]]  # (policy, identity of the whole path) -> (row, node)


def lay(
    examples: Sequence[Example], share: bool = True, row_limit: int = 16_384, actions: bool = True, branch: bool = True
) -> Trie:
    """Lay `examples` into tries. With `share` off, each example gets its own row (for tests and comparison). With
    `branch` off, a row is one sequence: an example can only continue the end of a row.

    An example that would make a row longer than `row_limit` tokens starts a new row.
    """
    rows: list[Row] = []
    spots: list[Spot] = []
    ends: Ends = {}
    said = {e.sample.id: len(e.sample.prompt) + len(e.sample.action) for e in examples}
    for example in examples:
        sample, policy, asked = example.sample, example.policy, example.sample.identity
        reply = sample.action if actions else ()
        place = _prompt_place(example, rows, ends, said, row_limit - len(reply), branch) if share else None
        if place is None:
            rows.append(Row(policy))
            place = (len(rows) - 1, rows[-1].add(sample.prompt, -1, sample.media))
            ends[policy, asked] = place
        row, prompt = place
        action = prompt
        if reply:
            path = (policy, asked + reply)
            known = ends.get(path) if share else None
            # An equal path may be split into nodes differently: a prompt can end inside the reply of another sample.
            if known is not None and known[0] == row and rows[row].nodes[known[1]].parent == prompt:
                action = known[1]
            else:
                action = rows[row].add(reply, prompt)
                ends[path] = (row, action)
        spots.append(Spot(row, prompt, action))
    return Trie(rows, spots)


def _prompt_place(
    example: Example, rows: list[Row], ends: Ends, said: dict[str, int], room: int, branch: bool
) -> tuple[int, int] | None:
    def free(place: tuple[int, int]) -> bool:
        return branch or place[1] == len(rows[place[0]].nodes) - 1

    sample, policy, asked = example.sample, example.policy, example.sample.identity
    place = ends.get((policy, asked))
    if place is not None and free(place) and rows[place[0]].length <= room:
        return place
    if sample.extends is None:
        return None
    cut = said.get(sample.extends, 0)  # where the sample that it extends ended
    above = ends.get((policy, asked[:cut])) if cut else None
    if above is None or not free(above) or rows[above[0]].length + len(sample.prompt) - cut > room:
        return None
    media = tuple(replace(m, start=m.start - cut) for m in sample.media if m.start >= cut)
    place = (above[0], rows[above[0]].add(sample.prompt[cut:], above[1], media))
    ends[policy, asked] = place
    return place
