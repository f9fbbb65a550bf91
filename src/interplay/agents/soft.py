"""The places of soft messages in the text of a prompt.

A chat template writes text, so the place of a soft message is marked in it by two characters that have no meaning of
their own. The text between them is what the vectors are added to; it is empty if the vectors are tokens of their own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from interplay.types import Media, Role, SoftMessage

if TYPE_CHECKING:
    from interplay.engines.engine import Engine
    from interplay.models.channel import Channel

OPEN, CLOSE = "\ue0f0", "\ue0f1"  # from Unicode's private use area
_MARKS = re.compile(f"[{OPEN}{CLOSE}]")


@dataclass(frozen=True)
class ChannelLink:
    """A channel to an agent, the role that it comes from, and the engine of a sender whose tokens it can read."""

    channel: Channel
    sender: Role
    engine: Engine


def softly(media: Sequence[Media]) -> list[Media]:
    """The soft messages among media."""
    return [m for m in media if m.kind == "soft"]


def marked(text: str, media: Sequence[Media]) -> str:
    """The text of a message with marks for its soft messages. Marks that stand in the text itself are removed."""
    text = _MARKS.sub("", text)
    read = [SoftMessage.read(m) for m in softly(media)]
    front = (OPEN + CLOSE) * sum(bool(one.tokens) for one in read)
    return front + (f"{OPEN}{text}{CLOSE}" if any(not one.tokens for one in read) else text)


def parted(text: str) -> list[str]:
    """The text split at the marks: outside, inside, outside, and so on."""
    return _MARKS.split(text)
