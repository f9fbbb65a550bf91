"""What was sampled: the tokens a model was given, the tokens it drew, and everything needed to train on them.

Text is tokenised once. The ids that are sampled here are the ids that are trained on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from interplay.types.message import Message


class Stop(StrEnum):
    """Why a completion ended."""

    END = "end"  # the end-of-turn token
    LENGTH = "length"  # the token limit


@dataclass(frozen=True, slots=True)
class Completion:
    """What an engine gives back: the sampled ids, the log-prob of each under the distribution it was drawn from, and
    the version of the weights that drew it.

    A remote model gives none of these: then `text` is what it said, and `used` how many tokens its server counted."""

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    versions: tuple[int, ...]
    stop: Stop
    text: str = ""
    used: int = 0


@dataclass(frozen=True, slots=True)
class MediaSpan:
    """Where a picture or a sound stands in a prompt: `length` placeholder ids from `start` on."""

    start: int
    length: int
    digest: str


def identity(ids: tuple[int, ...], media: tuple[MediaSpan, ...]) -> tuple[int, ...]:
    """What tells one prompt from another: its ids, with numbers made from the media's digests in place of their
    placeholders. Prompts that differ in a picture never share a cache block, a trie node or a group.

    >>> identity((1, 9, 9, 2), ()) == (1, 9, 9, 2)
    True
    >>> cat, dog = MediaSpan(1, 2, "ca7"), MediaSpan(1, 2, "d09")
    >>> identity((1, 9, 9, 2), (cat,)) != identity((1, 9, 9, 2), (dog,))
    True
    """
    if not media:
        return ids
    out = list(ids)
    for span in media:
        base = -1 - (int(span.digest, 16) << 20)  # no token id is negative
        out[span.start : span.start + span.length] = range(base, base - span.length, -1)
    return tuple(out)


@dataclass(frozen=True, slots=True)
class Sample:
    """One reply of a model. Nothing in it ever changes; what it is worth is kept beside it, in `Credit`.

    `extends` names the sample whose tokens, prompt and reply, this prompt continues token for token. `mask` lists the
    only replies that could be sampled, as ids, where others were ruled out: the learner rebuilds the same mask.
    `messages` are what was new in this prompt, for people to read; `tool` names the tools that the reply calls.
    `history` says what became of earlier replies in a conversation that an outside program tells (`agents/memory.py`).
    The reply of a remote model has a text and a count of tokens (`used`), and no ids.
    """

    id: str
    prompt: tuple[int, ...]
    action: tuple[int, ...]
    logprobs: tuple[float, ...]
    versions: tuple[int, ...]
    text: str
    temperature: float = 1.0
    mask: tuple[tuple[int, ...], ...] = ()
    media: tuple[MediaSpan, ...] = ()
    extends: str | None = None
    messages: tuple[Message, ...] = ()
    tool: str = ""
    used: int = 0
    seconds: float = 0.0
    history: str = ""

    @property
    def identity(self) -> tuple[int, ...]:
        """The prompt, told apart by its media too."""
        return identity(self.prompt, self.media)

    @property
    def segments(self) -> Iterator[tuple[int, ...] | str]:
        """The prompt in order: runs of ids, and the digests of media between them."""
        at = 0
        for span in self.media:
            if span.start > at:
                yield self.prompt[at : span.start]
            yield span.digest
            at = span.start + span.length
        if at < len(self.prompt):
            yield self.prompt[at:]

    @property
    def size(self) -> int:
        """Tokens that were sampled, here or by a remote model."""
        return len(self.action) or self.used

    @property
    def version(self) -> int:
        """The oldest version that drew a token of it."""
        return min(self.versions, default=0)
