"""Chat messages, and the pictures and sounds that belong to them."""

from __future__ import annotations

import hashlib
from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

MediaKind = Literal["image", "audio", "soft"]
ENDINGS: Mapping[MediaKind, str] = {"image": ".png", "audio": ".wav", "soft": ".json"}  # of the files of media


@dataclass(frozen=True, slots=True)
class Media:
    """A picture (a PNG file), a sound (a WAV file) or a message through a soft channel (JSON, `soft.py`). It is
    identified by the digest of its bytes: two media with the same digest are equal, and records store the bytes
    once."""

    kind: MediaKind
    data: bytes = field(repr=False, compare=False)
    digest: str = ""

    def __post_init__(self) -> None:
        if not self.digest:
            found = hashlib.blake2b(self.data, digest_size=16, person=self.kind.encode()).hexdigest()
            object.__setattr__(self, "digest", found)

    @property
    def file(self) -> str:
        """The name of its file in a folder of media."""
        return f"{self.digest}{ENDINGS[self.kind]}"


class Pictured(str):
    """A tool's answer that has pictures or sounds besides its words, such as a screenshot."""

    media: tuple[Media, ...]

    def __new__(cls, words: str, media: tuple[Media, ...]) -> Pictured:
        made = super().__new__(cls, words)
        made.media = media
        return made

    def __reduce__(self) -> tuple[type[Pictured], tuple[str, tuple[Media, ...]]]:  # for copies and pickles
        return type(self), (str(self), self.media)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that a model made, as chat APIs write it: `arguments` is JSON text."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Spoken:
    """A reply as chat APIs write it, with its words separate from its tool calls. `pieces` are the texts of the sampled
    tokens, if they were requested. `refused` says why there is no reply: the prompt is longer than the model can
    read."""

    content: str
    calls: tuple[ToolCall, ...] = ()
    pieces: tuple[str, ...] = ()
    refused: str = ""

    def __str__(self) -> str:
        return self.content


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message. `role` is the chat role (system, user, assistant or tool), not the seat. `name` says who speaks
    if several speakers share a chat role. A tool's message answers the call `tool_call_id`.

    A model that cannot read pictures or sounds gets only the text."""

    role: str
    content: str
    name: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    media: tuple[Media, ...] = ()

    def __hash__(self) -> int:  # used in prompt caches; only the two fields that nearly always differ are hashed
        return hash((self.role, self.content))

    @property
    def words(self) -> Message:
        """The message without its media."""
        return self.only(())

    def only(self, kinds: Container[str]) -> Message:
        """The message with those of its media that are of these kinds."""
        kept = tuple(m for m in self.media if m.kind in kinds)
        return self if len(kept) == len(self.media) else replace(self, media=kept)
