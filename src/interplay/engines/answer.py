"""Checks the answer of a chat-completions server, and says what is wrong with a bad one.

A failure of the server must never become a move of the model. So an answer is accepted only if it is complete: it has a
text that the model ended itself or that reached the token limit, and a token count that is possible.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

_READ = 20_000  # characters of a server's text that are kept
_LONGEST_TOKEN = 1_000  # characters; more than the longest token of any tokenizer


class BadAnswer(Exception):
    """`what` says what the server did, as the rest of a sentence after "remote model 'm' at URL". `words` is the text
    of the server, if any. It is kept separate because it may contain the key.
    """

    def __init__(self, what: str, words: str = "") -> None:
        super().__init__(what, words)
        self.what, self.words = what, words


@dataclass(frozen=True, slots=True)
class Answer:
    """`used` tokens were sampled; `cut` says that the model reached the token limit."""

    text: str
    used: int
    cut: bool


def read_answer(body: bytes, limit: object) -> Answer:
    """The first choice of a chat completion; raises `BadAnswer`. `limit` is the largest allowed number of tokens."""
    if not body:
        raise BadAnswer("answered with an empty body")
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):  # RecursionError: thousands of nested brackets
        raise BadAnswer("answered with something that is not JSON", words_of(body)) from None
    choices = data.get("choices") if isinstance(data, dict) and not data.get("error") else None
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        raise BadAnswer("answered with something that is not a chat completion", words_of(body))
    reason = choice.get("finish_reason")
    if reason not in ("stop", "length"):
        raise BadAnswer("ended its answer with a finish_reason other than 'stop' and 'length'", _repr(reason))
    cut = reason == "length"
    text, used = _text(message, cut), _count(data.get("usage"), limit)
    if len(text) > _LONGEST_TOKEN * used:
        raise BadAnswer("counted its tokens wrong", f"{used} for {len(text)} characters")
    return Answer(text, used, cut)


def words_of(body: bytes) -> str:
    """The message of an error object, or the beginning of the body if it is not an error object."""
    try:
        error = json.loads(body)["error"]
        text = str(error["message"] if isinstance(error, dict) else error)
    except (ValueError, KeyError, TypeError, RecursionError):
        text = body[: 4 * _READ].decode("utf-8", "replace")
    return text[:_READ]


def _text(message: dict[str, Any], cut: bool) -> str:
    text = message.get("content")
    if text is None:
        text = message.get("refusal")  # a refusal is a reply of the model too
    if text in (None, ""):
        if cut:  # a reasoning model that spent its whole limit on thinking
            return ""
        raise BadAnswer("answered without text")
    if not isinstance(text, str):
        raise BadAnswer("answered with a content that is not text", _repr(text))
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadAnswer("answered with text that is not valid Unicode (half of a surrogate pair)") from None
    return text


def _count(usage: object, limit: object) -> int:
    used = usage.get("completion_tokens") if isinstance(usage, dict) else None
    most = limit if isinstance(limit, int) else None
    if type(used) is not int or used < 1 or (most is not None and used > most):
        expected = "at least 1" if most is None else f"1 to {most}"
        raise BadAnswer(f"counted its tokens wrong (usage.completion_tokens; expected {expected})", _repr(used))
    return used


def _repr(value: object) -> str:
    return repr(value)[:_READ]
