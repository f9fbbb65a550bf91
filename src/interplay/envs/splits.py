"""Decides which split a level, a question or a task belongs to. Nothing belongs to two splits.

A hash of a level's text decides its split, so a test level is never a training level. Code that draws levels discards
those of other splits, and gives up after `TRIES` draws.
"""

from __future__ import annotations

from interplay.types import seed_of

SPLITS = ("train", "validation", "test")
TRIES = 3_000  # draws after which the options count as too narrow


def split_of(key: str) -> str:
    """The only split in which a level with this key may appear."""
    return SPLITS[seed_of("level", key) % len(SPLITS)]


def split_of_task(seed: int) -> str:
    """The split for which a task's seed was made (see `Env.make_task`)."""
    return SPLITS[seed % 4 % len(SPLITS)]
