"""Samples: the prompt tokens of a model call, the tokens it sampled, and everything needed to train on them.

Text is tokenised once. The learner trains on the same ids that were sampled.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from interplay.types.message import Media, Message


class Stop(StrEnum):
    """Why a completion ended."""

    END = "end"  # the end-of-turn token
    LENGTH = "length"  # the token limit


@dataclass(frozen=True, slots=True)
class Completion:
    """What an engine returns: the sampled ids, the log-prob of each under the distribution it was drawn from, and the
    version of the weights that sampled it.

    A remote model returns none of these. Its completion has the reply as `text`, and in `used` the number of tokens
    that the server counted."""

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    versions: tuple[int, ...]
    stop: Stop
    text: str = ""
    used: int = 0


@dataclass(frozen=True, slots=True)
class MediaSpan:
    """The place of a picture or a sound in a prompt: `length` ids that stand for it, beginning at `start`. `media` has
    its bytes; None in records, which store them separately."""

    start: int
    length: int
    digest: str
    media: Media | None = field(default=None, repr=False, compare=False)


def identity(ids: tuple[int, ...], media: tuple[MediaSpan, ...]) -> tuple[int, ...]:
    """The ids of a prompt, with the placeholders of its media replaced by numbers made from the media's digests. Two
    prompts that differ only in a picture have different identities, so they never share a cache block, a trie node or
    a group.

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
    """One reply of a model. A sample never changes; its advantage is stored separately, in `Credit`.

    `extends` names the sample that this prompt continues: the prompt begins with that sample's prompt and reply, token
    for token. If the reply was restricted to a list of replies, `mask` holds them as ids, and the learner rebuilds the
    same mask. `messages` are the messages that are new in this prompt, for people to read. `tool` names the tools that
    the reply calls. `history` says how earlier replies were matched in a conversation that an outside program sends
    (`agents/memory.py`). The reply of a remote model has a text and a token count (`used`), and no ids.
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
        """The ids of the prompt, with numbers made from the digests of its media."""
        return identity(self.prompt, self.media)

    @property
    def segments(self) -> Iterator[tuple[int, ...] | str]:
        """The prompt in order: runs of ids, and the digests of the media between them."""
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
        """The number of sampled tokens, also of a remote model."""
        return len(self.action) or self.used

    @property
    def version(self) -> int:
        """The oldest version of the weights that sampled a token of this reply."""
        return min(self.versions, default=0)
