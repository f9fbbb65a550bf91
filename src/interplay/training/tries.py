"""Samples laid into token tries: what they share is computed once, nothing is tokenised.

A prompt that several candidates answer is one node, equal replies are one node, and a prompt that extends an earlier
sample token for token hangs below that sample's reply. Each trie is a row; a token attends to its own node and the
nodes above it, so every path reads exactly as if it stood alone. Prompts that differ in a picture or a sound never
share a node.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from interplay.types import Advantage, Episode, Sample, Turn


@dataclass(frozen=True, slots=True)
class Example:
    """A sample as the learner takes it: whose it is, and its credit. Without an advantage it is not trained. `share` is
    how much of one sample it counts as in the loss's mean (`algorithm.Weighed`).

    `values` and `targets` are a critic's: one number at the end of the prompt, or one before each sampled token."""

    policy: str
    sample: Sample
    advantage: Advantage | None = None
    reference: tuple[float, ...] | None = None
    values: tuple[float, ...] = ()
    targets: tuple[float, ...] | None = None
    lags: tuple[int, ...] | None = None  # training steps since each token's weights; None: all are the newest
    share: float = 1.0

    @property
    def has_signal(self) -> bool:
        """Whether some token has an advantage other than zero."""
        return any(self.advantage) if isinstance(self.advantage, tuple) else bool(self.advantage)


def by_policy(episodes: Sequence[Episode], names: Collection[str]) -> dict[str, list[Turn]]:
    """The turns that each of `names` took; those that only estimated a candidate's return are left out."""
    out: dict[str, list[Turn]] = {name: [] for name in names}
    for episode in episodes:
        for turn in episode.turns:
            if turn.policy in out and turn.playout is None:
                out[turn.policy].append(turn)
    return out


def order(turn: Turn) -> tuple[str, int, str, int]:
    """By episode and in the order of play, so that a turn stands behind the one it extends."""
    return turn.keys.episode, turn.decision, turn.role, turn.candidate


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
    """Where an example stands: its row, the node of its prompt's last part and the node of its reply."""

    row: int
    prompt: int
    action: int


@dataclass
class Trie:
    """The rows of a batch, and where each example stands in them."""

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


Ends = dict[tuple[str, tuple[int, ...]], tuple[int, int]]  # (policy, identity of the whole path) -> (row, node)


def lay(
    examples: Sequence[Example], share: bool = True, row_limit: int = 16_384, actions: bool = True, branch: bool = True
) -> Trie:
    """Lay `examples` into tries. With `share` off every one gets a row of its own (for tests and comparison); with
    `branch` off a row is one sequence: an example is merged only into the one it extends.

    A row that would pass `row_limit` tokens is left as it is, and the example starts a new one.
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
            place = (len(rows) - 1, rows[-1].add(sample.prompt, -1))
            ends[policy, asked] = place
        row, prompt = place
        action = prompt
        if reply:
            path = (policy, asked + reply)
            known = ends.get(path) if share else None
            # An equal path may be cut elsewhere: a prompt that ends inside another sample's reply.
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
    place = (above[0], rows[above[0]].add(sample.prompt[cut:], above[1]))
    ends[policy, asked] = place
    return place
