"""Tasks of a program: rows of a JSON-lines file, or of a folder with a file for each split."""

from __future__ import annotations

import json
import random
from functools import lru_cache
from pathlib import Path
from typing import Any

from interplay.errors import ConfigError
from interplay.types import seed_of

FEWEST = 10  # the fewest rows of a single file: of every ten rows, one is for validation and one for the test


def row(data: str, split: str, seed: int, index: int) -> dict[str, Any]:
    """Row number `index`: of the training split in a new order on every pass, of the others in the file's order."""
    rows = _rows(data, split)
    at = index % len(rows)
    if split == "train":
        at = _order(len(rows), seed_of("rows", data, seed, index // len(rows)))[at]
    return dict(rows[at])


@lru_cache(maxsize=8)
def _order(count: int, seed: int) -> list[int]:
    order = list(range(count))
    random.Random(seed).shuffle(order)
    return order


@lru_cache(maxsize=16)
def _rows(data: str, split: str) -> list[dict[str, Any]]:
    path = Path(data).expanduser()
    if path.is_dir():
        file = path / f"{split}.jsonl"
        if not file.is_file():
            raise ConfigError(f"env.data is '{data}', which has no {split}.jsonl; expected one file for each split.")
        return _read(file)
    if not path.is_file():
        raise ConfigError(f"env.data is '{data}', and there is no such file; expected a .jsonl file or a folder.")
    every = _read(path)
    if len(every) < FEWEST:
        raise ConfigError(
            f"env.data is '{data}' with {len(every)} rows; expected at least {FEWEST}, as a tenth each is held out for "
            "validation and test, or a folder with train.jsonl, validation.jsonl and test.jsonl."
        )
    kept = {"validation": (8,), "test": (9,)}.get(split, range(8))
    return [one for n, one in enumerate(every) if n % FEWEST in kept]


def _read(file: Path) -> list[dict[str, Any]]:
    out = []
    # A text in JSON may contain U+2028 and U+0085, at which splitlines() would also break.
    for number, line in enumerate(file.read_text(encoding="utf-8").split("\n"), 1):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
        except ValueError as error:
            raise ConfigError(
                f"{file}:{number} is not JSON ({error}); expected an object, one task on a line."
            ) from None
        if not isinstance(found, dict):
            raise ConfigError(f"{file}:{number} is a {type(found).__name__}; expected an object, one task on a line.")
        out.append(found)
    if not out:
        raise ConfigError(f"{file} has no rows; expected a JSON object on each line.")
    return out
