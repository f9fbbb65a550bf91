"""Drafts: guesses of the tokens that running requests will sample next.

They come from texts that reinforcement learning has anyway: earlier replies to the same prompt, the replies that other
running requests sample to it now (siblings in a group or a tree), the prompt itself, and the reply so far. A draft is
what followed the latest occurrence of a request's last few tokens in these texts. Where only one legal token remains,
that token is the draft. The engine samples every token itself and uses a draft only while it equals what was sampled,
so a wrong draft costs time and changes nothing else.
"""

from __future__ import annotations

import threading
from array import array
from collections import OrderedDict, deque
from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import torch

from interplay.engines.local.scheduler import LegalTrie, Sequence

ORDERS = (6, 3, 2, 1)  # numbers of last tokens that are looked up, the most specific first
REPLIES = 8  # earlier replies that are kept for each prompt
_FEW = 8  # tokens that are added one by one, because that is faster than preparing to add many at once
KEPT_TOKENS = 1 << 22  # of earlier replies, over all prompts; 4 bytes each


class Drafts:
    """Makes drafts of at most `length` tokens, and keeps finished replies for later requests with the same prompt."""

    def __init__(self, length: int, kept_tokens: int = KEPT_TOKENS) -> None:
        self.length, self._limit = length, kept_tokens
        # By the hash of the prompt, the prompt used last at the end. Two prompts with the same hash do no harm.
        self._replies: OrderedDict[int, deque[array[int]]] = OrderedDict()
        self.kept = 0  # tokens
        self._lock = threading.Lock()  # a checkpoint may be written while the engine's thread adds replies
        self._readers: dict[Sequence, _Reader] = {}

    def propose(self, sequences: Seq[Sequence]) -> dict[Sequence, list[int]]:
        """A draft for each of the sequences that has one. The sequences are all that run now."""
        self._follow(sequences)
        found = {s: self._draft(s, self._readers[s]) for s in sequences}
        return {s: draft for s, draft in found.items() if draft}

    def remember(self, sequence: Sequence) -> None:
        """Keep a finished reply."""
        with self._lock:
            self._keep(self.name(sequence), array("i", sequence.tokens))

    @staticmethod
    def name(sequence: Sequence) -> int:
        """The name of a sequence's prompt."""
        return hash(sequence.request.identity)

    def replies(self, name: int) -> Seq[array[int]]:
        """The replies to a prompt that are kept, the oldest first."""
        return self._replies.get(name, ())

    def _keep(self, name: int, reply: array[int]) -> None:
        replies = self._replies.setdefault(name, deque())
        self._replies.move_to_end(name)
        replies.append(reply)
        self.kept += len(reply)
        if len(replies) > REPLIES:
            self.kept -= len(replies.popleft())
        while self.kept > self._limit and len(self._replies) > 1:
            self.kept -= sum(map(len, self._replies.popitem(last=False)[1]))

    def state_dict(self) -> dict[str, Any]:
        """The replies that are kept. A resumed run needs them to sample in the same batches, hence to the same bits."""
        with self._lock:
            each = [(name, reply) for name, replies in self._replies.items() for reply in replies]
        return {
            "names": torch.tensor([name for name, _ in each], dtype=torch.int64),
            "lengths": torch.tensor([len(reply) for _, reply in each], dtype=torch.int64),
            "tokens": torch.tensor([token for _, reply in each for token in reply], dtype=torch.int32),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        replies = state["tokens"].split(state["lengths"].tolist())
        with self._lock:
            for name, reply in zip(state["names"].tolist(), replies, strict=True):
                self._keep(name, array("i", reply.tolist()))

    def _follow(self, sequences: Seq[Sequence]) -> None:
        """Give every sequence a reader that has its newest tokens, and drop the readers of those that left. Sequences
        with the same prompt share a pool, which is dropped with its last reader."""
        self._readers = {s: self._readers[s] for s in sequences if s in self._readers}
        pools = {reader.name: reader.pool for reader in self._readers.values()}
        for sequence in sequences:
            reader = self._readers.get(sequence)
            if reader is None:
                name, ids = self.name(sequence), sequence.request.ids
                begin = ids[-ORDERS[0] :]
                if name not in pools:
                    pools[name] = _Pool(ids, [[*begin, *reply] for reply in self.replies(name)], len(begin))
                reader = self._readers[sequence] = _Reader(name, pools[name], list(begin), len(begin))
            reader.read(sequence.tokens)

    def _draft(self, sequence: Sequence, reader: _Reader) -> list[int]:
        sampling = sequence.request.sampling
        count = min(self.length, sampling.max_tokens - len(sequence.tokens) - 1)
        if count <= 0:
            return []
        guess = reader.pool.after(reader.text, count)
        if sequence.legal is not None:
            return _legal(sequence.legal, sequence.tokens, guess, count)
        end = next((i for i, token in enumerate(guess) if token in sampling.stop), len(guess))
        return guess[:end]


class _Pool:
    """The texts of one prompt. For every few tokens that occur in them, it knows where their latest occurrence
    continues."""

    def __init__(self, prompt: Seq[int], replies: Seq[Seq[int]], begin: int) -> None:
        self._next: dict[tuple[int, ...], tuple[Seq[int], int]] = {}
        self.add(prompt, 0)
        for reply in replies:
            self.add(reply, begin)

    def add(self, text: Seq[int], start: int) -> None:
        """Add the tokens of a text from `start` on."""
        end = len(text)
        if end - start <= _FEW:
            for at in range(start, end):
                place = text, at
                for n in ORDERS:
                    if n <= at:
                        self._next[tuple(text[at - n : at])] = place
            return
        for n in ORDERS:
            first = max(start, n)
            if first < end:
                before = zip(*(text[first - n + i : end - n + i] for i in range(n)), strict=True)
                self._next.update(zip(before, zip(repeat(text), range(first, end)), strict=False))

    def after(self, text: list[int], count: int) -> list[int]:
        """Up to `count` tokens that may follow a text."""
        last, out = text[-ORDERS[0] :], list[int]()
        while len(out) < count:
            found = next((hit for n in ORDERS if (hit := self._next.get(tuple(last[-n:]))) is not None), None)
            if found is None:
                break
            source, at = found
            piece = source[at : at + count - len(out)]
            out += piece
            last = [*last, *piece][-ORDERS[0] :]
        return out


@dataclass(slots=True)
class _Reader:
    """The text of a running sequence: the end of its prompt (`begin` tokens), then its reply."""

    name: int
    pool: _Pool
    text: list[int]
    begin: int

    def read(self, tokens: list[int]) -> None:
        start = len(self.text)
        new = tokens[start - self.begin :]
        if new:
            self.text += new
            self.pool.add(self.text, start)


def _legal(trie: LegalTrie, tokens: Seq[int], guess: Seq[int], count: int) -> list[int]:
    """The longest draft that stays in the trie and does not end it: the only legal token where there is only one,
    otherwise that of the guess, if it is legal and everything before it is as guessed."""
    for token in tokens:
        trie = trie[token]
    out: list[int] = []
    while len(out) < count:
        at = len(out)
        if len(trie) == 1:
            (token,) = trie
        elif at < len(guess) and guess[at] in trie and out == list(guess[:at]):
            token = guess[at]
        else:
            break
        trie = trie[token]
        if not trie:
            break
        out.append(token)
    return out
