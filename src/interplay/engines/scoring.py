"""Scoring of given replies, for engines that take token ids."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Sequence
from typing import Any

from interplay.engines.census import census
from interplay.engines.engine import Request, Sampling
from interplay.errors import EngineError
from interplay.types import Completion, MediaSpan, identity


def scoring_requests(
    ids: tuple[int, ...], replies: Sequence[tuple[int, ...]], adapter: str | None, media: tuple[MediaSpan, ...]
) -> list[Request]:
    """A request for each reply to the prompt `ids`."""
    if not all(replies):
        raise EngineError("a reply to be scored has no tokens; expected at least one.")
    known, how = identity(ids, media), Sampling()
    return [
        Request(("score", known, i), ids, 0, how, adapter, forced=reply, media=media) for i, reply in enumerate(replies)
    ]


async def all_scored(answers: Iterable[Coroutine[Any, Any, Completion]]) -> list[tuple[float, ...]]:
    """The log-probs of each answer. Raise if one of them failed."""
    found = await census().gather(answers)
    for completion in found:
        if isinstance(completion, BaseException):
            raise completion
    return [c.logprobs for c in found if isinstance(c, Completion)]
