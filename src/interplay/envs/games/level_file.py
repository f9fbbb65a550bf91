"""Puzzle levels from a file, divided between the splits."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import Field

from interplay.config import Section
from interplay.errors import ConfigError


class FileOptions(Section):
    """Options of puzzles whose levels can also come from a file."""

    file: str = Field("", description="read the levels from this file instead of drawing them")
    holdout: bool = Field(True, description="divide the file's levels between the splits; false: all splits use all")


def from_file(
    rng: random.Random, data: Mapping[str, Any], reader: Callable[[str], Sequence[str]], mine: Callable[[str], bool]
) -> str:
    """The text of one level from `data["file"]`, from this split's part unless `holdout` is off."""
    path = Path(data["file"])
    try:
        stamp = path.stat().st_mtime_ns
        texts = _texts(path, stamp, reader)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"env.file is '{path}', which cannot be read: {error}; expected a text file.") from None
    if not texts:
        raise ConfigError(f"env.file is '{path}', which contains no level; expected at least one.")
    if not data["holdout"]:
        return rng.choice(texts)
    for text in rng.sample(texts, len(texts)):
        if mine(text):
            return text
    raise ConfigError(
        f"env.file is '{path}', whose {len(texts)} levels leave none for this split; expected more levels, or "
        "env.holdout = false."
    )


@lru_cache(maxsize=16)
def _texts(path: Path, stamp: int, reader: Callable[[str], Sequence[str]]) -> tuple[str, ...]:
    return tuple(reader(path.read_text(encoding="utf-8-sig")))
