"""The texts of recorded token ids, from the tokenizers that a run saves beside its records. Needs no torch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from interplay.errors import InterplayError

TOKENIZERS = "tokenizers"  # a folder in the run folder, with a file for each policy


class TokenTexts:
    def __init__(self, run: Path) -> None:
        self._read = lru_cache(maxsize=None)(lambda policy: _tokenizer(run / TOKENIZERS, policy))

    def of(self, policy: str, ids: Sequence[int]) -> list[str]:
        """The text of each token. Joined, they are the text of all tokens. A character that is split over several
        tokens is shown with the token that completes it."""
        tokenizer = self._read(policy.partition("@")[0])

        def decode(part: Sequence[int]) -> str:
            return str(tokenizer.decode(list(part), skip_special_tokens=False))

        whole, told = decode(ids), 0
        out: list[str] = []
        # Tokens from `start` on are decoded together. Those before `read` are context, since some tokenizers decode
        # the first token of a text differently. The context ends after `base` characters of the whole text.
        start, read, base, context = 0, 0, 0, ""
        for end in range(1, len(ids) + 1):
            text = decode(ids[start:end])
            new, until = text[len(context) :], told
            if end == len(ids):
                until = len(whole)
            elif text.startswith(context) and whole.startswith(new, base):
                until = max(told, base + len(new))
            out.append(whole[told:until])
            told = until
            if told > base and whole[told - 1] != "\ufffd":  # it does not end inside a character
                start, read = read, end
                base, context = told, decode(ids[start:read])
        return out


def _tokenizer(folder: Path, policy: str) -> Any:
    from tokenizers import Tokenizer

    path = folder / f"{policy}.json"
    if not path.is_file():
        raise InterplayError(
            f"'{path}' is missing, so the tokens of '{policy}' cannot be shown as text; expected the folder of the run."
        )
    return Tokenizer.from_file(str(path))
