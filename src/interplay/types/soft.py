"""What one agent passes to another through a soft channel, before it becomes vectors."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

from interplay.types.message import Media
from interplay.types.sample import MediaSpan


@dataclass(frozen=True, slots=True)
class SoftMedia(Media):
    """A soft message among the media of a prompt. `seen` are the pictures and sounds of the sender's prompt; a record
    has only their digests."""

    seen: tuple[MediaSpan, ...] = field(default=(), repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class SoftMessage:
    """The ids that the sender read and wrote, for the channel `channel`. Engine and learner turn them into vectors with
    the channel's current weights; `version` is that of the weights when the message was sent. Because the digest covers
    all fields, prompts that hold vectors of different versions are different prompts.

    If `tokens` is not 0, that many places are added to the receiver's prompt. If it is 0, the vectors are added to the
    embeddings of `over`, the text of the message that carries them. `digests` are those of the pictures and sounds that
    the sender saw."""

    channel: str
    version: int
    ids: tuple[int, ...]
    tokens: int
    over: str = ""
    digests: tuple[str, ...] = ()

    def media(self, seen: tuple[MediaSpan, ...] = ()) -> SoftMedia:
        return SoftMedia("soft", json.dumps(asdict(self)).encode(), seen=seen)

    @staticmethod
    def read(media: Media) -> SoftMessage:
        found = json.loads(media.data)
        return SoftMessage(**{**found, "ids": tuple(found["ids"]), "digests": tuple(found["digests"])})
