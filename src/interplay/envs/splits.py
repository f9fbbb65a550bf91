"""Which split a level, a question or a task belongs to: what is drawn for one split is never drawn for another.

A level's text decides its split by a hash, so that a test level is never a training level. Whoever draws levels throws
away those of other splits, and gives up after `TRIES` draws.
"""

from __future__ import annotations

from interplay.types import seed_of

SPLITS = ("train", "validation", "test")
TRIES = 3_000  # draws before the options are called too narrow


def split_of(key: str) -> str:
    """The one split in which a level with this key may appear."""
    return SPLITS[seed_of("level", key) % len(SPLITS)]


def split_of_task(seed: int) -> str:
    """The split a task's seed was made for (see `Env.make_task`)."""
    return SPLITS[seed % 4 % len(SPLITS)]
