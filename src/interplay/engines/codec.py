"""Turns text into token ids and back.

For the short texts of a turn, the code of `transformers` around a tokenizer's backend takes several times as long as
the backend itself, so the backend is called directly. A tokenizer without a backend, or whose class adds its own code
around the backend, is called as usual.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_SHARED = ("transformers.tokenization_utils_base", "transformers.tokenization_utils_tokenizers")
_STEPS = ("__call__", "_encode_plus", "decode", "_decode")


class TokenCodec:
    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.tokenizer = tokenizer
        self.backend = _backend(tokenizer)

    def encode(self, text: str) -> tuple[int, ...]:
        """The ids of a text, to which no special tokens are added."""
        return self.encode_all([text])[0] if text else ()

    def encode_all(self, texts: Sequence[str]) -> list[tuple[int, ...]]:
        """The ids of texts. The backend encodes them outside of Python's lock, so that an engine's thread can work
        meanwhile, and does not compute where in the text each token begins. It uses threads of its own, unless
        TOKENIZERS_PARALLELISM is false; where it is true, the process must not fork."""
        if self.backend is None:
            return [
                tuple(self.tokenizer(text, add_special_tokens=False)["input_ids"]) if text else () for text in texts
            ]
        return [tuple(found.ids) for found in self.backend.encode_batch_fast(texts, add_special_tokens=False)]

    def decode(self, ids: Sequence[int]) -> str:
        """The exact text of ids, with special tokens."""
        if self.backend is None:
            found = self.tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
            return str(found)
        return str(self.backend.decode(ids, skip_special_tokens=False))


def _backend(tokenizer: PreTrainedTokenizerBase) -> Any:
    """The tokenizer's backend (of the package `tokenizers`); None if it must not be called directly."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    steps = [kind for kind in type(tokenizer).__mro__ if any(name in vars(kind) for name in _STEPS)]
    if backend is None or any(kind.__module__ not in _SHARED for kind in steps):
        return None
    tokenizer("", add_special_tokens=False)  # turns truncation and padding off in the backend
    return backend
