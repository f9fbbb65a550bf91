"""The texts in which a GPU looks up drafts, one after the other in one array.

The texts of a prompt are the prompt itself, earlier replies to it, and the replies of the running sequences that have
this prompt. All sequences of a prompt search all its texts. A running reply has room for its largest number of tokens,
and the GPU writes each token there when it is sampled. There is a gap between any two texts, so that no match crosses
from one to the next. A reply is preceded by the last tokens of its prompt, so that its first tokens can be found too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence as Seq

import numpy as np

from interplay.engines.local.drafts import ORDERS, Drafts
from interplay.engines.local.scheduler import Sequence

DEPTH = ORDERS[0]  # the largest number of last tokens that are compared


class DraftTexts:
    """`gap` is the number that stands for no token, and `width` the largest number of tokens that are read at a place
    beyond the last text."""

    def __init__(self, gap: int, width: int) -> None:
        self._gap, self._margin = gap, np.full(max(DEPTH, width), gap, np.int32)
        # For each sequence: where its prompt's texts begin and end, and where its own reply begins.
        self._places: dict[Sequence, tuple[int, int, int]] = {}

    def spots(self, sequences: Seq[Sequence]) -> np.ndarray | None:
        """For each sequence, where its texts begin and end, and the place after its latest token [3, n]. None if the
        array has no text of one of them."""
        places = [self._places.get(s) for s in sequences]
        if any(place is None for place in places):
            return None
        found = np.array(places, np.int64).T
        found[2] += [len(s.tokens) for s in sequences]
        return found

    def lay(self, sequences: Seq[Sequence], drafts: Drafts) -> np.ndarray:
        """Make the array for these sequences."""
        by_prompt: dict[int, list[Sequence]] = defaultdict(list)
        for sequence in sequences:
            by_prompt[drafts.name(sequence)].append(sequence)
        parts = [self._margin]
        self._places = {}
        end = len(self._margin)
        for name, members in by_prompt.items():
            begin = end
            prompt = np.array(members[0].request.ids, np.int32)
            start, gap = prompt[-DEPTH:], self._margin[:1]
            pieces = [prompt, gap]
            for reply in drafts.replies(name):
                pieces += [start, np.frombuffer(reply, np.int32), gap]
            own = [begin + sum(map(len, pieces))]
            for sequence in members:
                room = np.full(sequence.request.sampling.max_tokens + 1, self._gap, np.int32)
                room[: len(sequence.tokens)] = sequence.tokens
                pieces += [start, room]
                own.append(own[-1] + len(start) + len(room))
            parts += pieces
            end = own[-1]
            for sequence, at in zip(members, own, strict=False):
                self._places[sequence] = begin, end, at + len(start)
        return np.concatenate([*parts, self._margin])

    def clear(self) -> None:
        self._places = {}
