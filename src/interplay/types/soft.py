"""What one agent passes to another through a soft channel, before it becomes vectors."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from interplay.types.message import Media


@dataclass(frozen=True, slots=True)
class SoftMessage:
    """The ids that the sender read and wrote, for the channel `channel`. Engine and learner turn them into vectors with
    the channel's current weights; `version` is that of the weights when the message was sent. Because the digest covers
    all fields, prompts that hold vectors of different versions are different prompts.

    With `tokens`, that many places are added to the receiver's prompt. With 0, the vectors are added to the words
    `over` of the message that carries them."""

    channel: str
    version: int
    ids: tuple[int, ...]
    tokens: int
    over: str = ""

    def media(self) -> Media:
        return Media("soft", json.dumps(asdict(self)).encode())

    @staticmethod
    def read(media: Media) -> SoftMessage:
        found = json.loads(media.data)
        return SoftMessage(**{**found, "ids": tuple(found["ids"])})
