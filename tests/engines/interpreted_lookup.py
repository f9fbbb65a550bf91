"""Run by test_cuda.py under TRITON_INTERPRET=1: drafts that the GPU looks up, and the tokens that it keeps of them, are
those of a plain search. Random texts of few different tokens have many matches of all lengths."""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass, field
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
import quick_triton  # noqa: F401

from interplay.models import kernels

SEATS, WIDTH, DEPTH, WORDS, PAGES = 4, 4, 3, 4, 6


@dataclass
class Seat:
    """A sequence as plain Python values. `latest` are its last tokens, and `searched` is the text before them."""

    searched: list[int]
    latest: list[int]
    length: int
    count: int
    limit: int
    stop: int
    active: bool
    begin: int = 0
    tail: int = 0
    draft: list[int] = field(default_factory=list)

    def look_up(self, text: list[int]) -> None:
        """The draft is what followed the longest occurrence of the last tokens, of several the last one."""
        best = 0, 0
        for place in range(self.begin, self.begin + len(self.searched) + len(self.latest) + 1):
            equal = 0
            while equal < DEPTH and text[place - equal - 1] == text[self.tail - equal - 1] >= 0:
                equal += 1
            if text[place] >= 0:
                best = max(best, (equal, place))
        most = min(WIDTH - 1, self.limit - self.count - 1)
        guess = text[best[1] : best[1] + most] if best[0] and self.active else []
        self.draft = guess[: next((i for i, t in enumerate(guess) if t in (-1, self.stop)), most)]

    def keep(self, sampled: list[int]) -> list[int]:
        """The tokens that count of those that its rows sampled."""
        kept: list[int] = []
        for token, guess in zip(sampled, [*self.draft, -1], strict=True):
            if not self.active:
                break
            kept.append(token)
            self.active = token != self.stop and self.count + len(kept) < self.limit
            if token != guess:
                break
        return kept


def seat(rng: random.Random) -> Seat:
    searched = [rng.choice([-1, *range(WORDS)] + [1, 2] * rng.randint(0, 2)) for _ in range(rng.randint(1, 60))]
    latest = [rng.randrange(WORDS) for _ in range(rng.randint(1, 5))]
    count = rng.randint(1, 9)
    length, limit = rng.randint(count + 1, 60), count + rng.randint(1, 6)
    return Seat(searched, latest, length, count, limit, rng.randint(-1, WORDS), rng.random() < 0.8)


def laid(seats: list[Seat], lookup: kernels.Lookup, rows: kernels.Rows) -> list[int]:
    """Write the seats to the GPU's tensors; return the text."""
    text = [-1] * DEPTH
    for b, one in enumerate(seats):
        one.begin = len(text)
        text += [*one.searched, -1, *one.latest]
        one.tail = len(text)
        text += [-1] * 8
        lookup.spots[:, b] = torch.tensor((one.begin, len(text), one.tail))
        head = b * WIDTH
        rows.ids[head], rows.lengths[head], rows.counts[head] = one.latest[-1], one.length, one.count
        rows.limits[head], rows.active[head], rows.stops[head : head + WIDTH, 0] = one.limit, one.active, one.stop
    lookup.text[: len(text)] = torch.tensor(text)
    return text


def trial(rng: random.Random) -> tuple[int, int]:
    lookup = kernels.Lookup(SEATS, WIDTH, DEPTH, 1000, 2, torch.device("cpu"))
    rows = kernels.Rows(SEATS * WIDTH, PAGES, 1, 1, 1, torch.device("cpu"))
    rows.table.copy_(torch.arange(SEATS * PAGES).view(SEATS, PAGES).repeat_interleave(WIDTH, 0))
    seats = [seat(rng) for _ in range(SEATS)]
    text = laid(seats, lookup, rows)
    lookup.draft(rows, SEATS)
    logits = torch.full((SEATS * WIDTH, 2 * WORDS), -1e9)
    said = []
    for b, one in enumerate(seats):
        one.look_up(text)
        assert int(lookup.told[1, b]) == len(one.draft), (b, one)
        said.append([t if rng.random() < 0.7 else rng.randrange(2 * WORDS) for t in [*one.draft, rng.randrange(WORDS)]])
        for j in range(WIDTH):
            row, at, there = b * WIDTH + j, one.length - 1 + j, one.active and j <= len(one.draft)
            slot = (b * PAGES + at // kernels.PAGE) * kernels.PAGE + at % kernels.PAGE
            assert (int(rows.seen[row]), int(rows.slots[row])) == ((at + 1, slot) if there else (0, 0)), (b, j, one)
            logits[row, said[b][j] if there else 0] = 0.0
            if there:
                assert int(rows.ids[row]) == ([one.latest[-1], *one.draft])[j]
                assert (int(rows.positions[row]), int(rows.counts[row])) == (at, one.count + j)
    lookup.accept(logits, rows, SEATS)
    for b, one in enumerate(seats):
        kept = one.keep(said[b])
        n, head = len(kept), b * WIDTH
        assert (int(lookup.told[0, b]), int(lookup.told[2, b])) == (n, max(0, n - 1)), (b, one, kept)
        assert lookup.out_tokens[b, :n].tolist() == kept == lookup.text[one.tail : one.tail + n].tolist()
        assert int(lookup.text[one.tail + n]) == -1 and int(lookup.spots[2, b]) == one.tail + n
        assert (int(rows.lengths[head]), int(rows.counts[head])) == (one.length + n, one.count + n)
        assert bool(rows.active[head]) is one.active
        assert not kept or int(rows.ids[head]) == kept[-1]
    return sum(len(one.draft) for one in seats), int(lookup.told[2].sum())


def main() -> None:
    rng = random.Random(0)
    found = [trial(rng) for _ in range(16)]
    drafted, accepted = (sum(column) for column in zip(*found, strict=True))
    assert drafted > accepted > 20, (drafted, accepted)
    print("equal")


if __name__ == "__main__":
    main()
