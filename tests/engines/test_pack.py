"""What a pass over new tokens reads on a GPU, at the sizes that are used there."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from interplay.engines.local import pack
from interplay.engines.local.runner import NewTokens
from interplay.models import kernels

PAGE = kernels.PAGE


def some(shapes: list[tuple[int, int]]) -> list[Any]:
    """New sequences, each with its first position and its number of tokens; the "prompt" is an adapter's index."""
    rng = random.Random(0)
    out = []
    for start, count in shapes:
        blocks = [rng.randrange(1, 1 << 20) for _ in range(-(-(start + count) // PAGE) + rng.randrange(3))]
        out.append(NewTokens(rng.randint(-1, 3), blocks, start, tuple(rng.randrange(150_000) for _ in range(count))))  # type: ignore[arg-type]
    return out


RANDOM = random.Random(1)
SHAPES = {
    "as large as a pass": [(0, pack.MOST)],
    "one more": [(0, pack.MOST + 1)],
    "four passes": [(5, 4 * pack.MOST)],
    "as many sequences as a pass has": [(0, 1)] * pack.SEQUENCES,
    "one sequence more": [(3, 1)] * (pack.SEQUENCES + 1),
    "tiles that are hardly filled": [(3, 65)] * 500,
    "the table is full": [(1000 * PAGE - 16, 16)] * pack.SEQUENCES,
    "some of everything": [
        (RANDOM.randrange(300), RANDOM.randint(1, RANDOM.choice([1, 64, 65, 3000]))) for _ in range(90)
    ],
}


@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES)
def test_a_pass_has_every_token_at_its_place(shapes: list[tuple[int, int]]) -> None:
    new, seen = some(shapes), list[tuple[int, int]]()
    places = pack.Pack(1000, torch.device("cpu"))
    for part in pack.passes(new):
        total = sum(len(n.ids) for n in part)
        assert 0 < total <= pack.MOST
        assert len(part) <= pack.SEQUENCES
        size = pack.padded(total)
        places.fill(part, np.array([n.prompt for n in part]), size)
        given = places.inputs(size)
        where = given.where
        assert all(t.data_ptr() % 16 == given.ids.data_ptr() % 16 for t in (*given[:4], *where))
        tiles = [(int(row), int(begin)) for row, begin in zip(where.row, where.begin, strict=True) if row >= 0]
        wanted, at = list[tuple[int, int]](), 0
        for b, (adapter, blocks, start, ids) in enumerate(part):
            mine, line = slice(at, at + len(ids)), range(start, start + len(ids))
            assert given.ids[mine].tolist() == list(ids)
            assert given.positions[mine].tolist() == list(line)
            assert given.slots[mine].tolist() == [blocks[p // PAGE] * PAGE + p % PAGE for p in line]
            assert set(given.adapters[mine].tolist()) == {adapter}
            first, pages = int(where.row_table[b]), -(-line.stop // PAGE)
            assert where.table[first : first + pages].tolist() == list(blocks[:pages])
            assert [int(column[b]) for column in where[4:]] == [at, start, len(ids)]
            wanted += [(b, begin) for begin in range(0, len(ids), kernels.PREFILL_ROWS)]
            seen += zip(line, ids, strict=True)
            at += len(ids)
        assert tiles == wanted
        assert not given.slots[at:].any()
        assert not given.positions[at:].any()
        assert (given.adapters[at:] == -1).all()
    assert seen == [(n.start + i, token) for n in new for i, token in enumerate(n.ids)]
