"""The texts of recorded token ids, read from the tokenizers that a run keeps beside its records. Needs no torch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from interplay.errors import InterplayError

TOKENIZERS = "tokenizers"  # a folder of the run, with a file for each policy


class TokenTexts:
    def __init__(self, run: Path) -> None:
        self._read = lru_cache(maxsize=None)(lambda policy: _tokenizer(run / TOKENIZERS, policy))

    def of(self, policy: str, ids: Sequence[int]) -> list[str]:
        """The text of each token. Together they are the text of all: bytes that only the next token completes are
        shown with that token."""
        tokenizer = self._read(policy.partition("@")[0])
        out: list[str] = []
        done, begun = "", 0
        for end in range(1, len(ids) + 1):
            text = tokenizer.decode(list(ids[begun:end]), skip_special_tokens=False)
            if text.endswith("\ufffd") and end < len(ids):  # a part of a character
                out.append("")
                continue
            out.append(text.removeprefix(done))
            done = text
            if len(done) > 200:  # a fresh start now and then, or long texts would be decoded again and again
                begun, done = end, ""
        return out


def _tokenizer(folder: Path, policy: str) -> Any:
    from tokenizers import Tokenizer

    path = folder / f"{policy}.json"
    if not path.is_file():
        raise InterplayError(
            f"'{path}' is missing, so the tokens of '{policy}' have no texts; expected the run's folder."
        )
    return Tokenizer.from_file(str(path))
