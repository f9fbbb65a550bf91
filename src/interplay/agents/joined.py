"""Agents that are joined by soft channels: what the sender read and wrote goes into the receiver's next prompt.

All state is in the agents themselves: the prompt and the reply that each committed last. So every candidate and every
playout of a tree passes on its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol, runtime_checkable

from interplay.agents.player import Player, View
from interplay.agents.render import Said
from interplay.agents.soft import Link
from interplay.engines.engine import Engine
from interplay.errors import ConfigError
from interplay.types import Media, Message, Observation, Role, SoftMessage


@runtime_checkable
class Joined(Protocol):
    """A player that can send and receive vectors."""

    engine: Engine
    links: tuple[Link, ...]
    said: Said | None
    history: tuple[Message, ...]


def look(players: Mapping[Role, Player], seen: Mapping[Role, Observation]) -> dict[Role, View]:
    """What each of the roles that must act sees, with what channels pass on to it."""
    return {role: players[role].look(with_vectors(players, role, o)) for role, o in seen.items()}


def with_vectors(players: Mapping[Role, Player], role: Role, observation: Observation) -> Observation:
    """The observation of a role, whose last message carries what its channels pass on. A sender that has not acted yet,
    or is no model on the receiver's base, passes on nothing, and nothing is passed on twice."""
    receiver = players[role]
    if not isinstance(receiver, Joined) or not receiver.links:
        return observation
    if observation.call is not None or not observation.messages:
        raise ConfigError(
            f"channels.{receiver.links[0].channel.name} goes to {role}, whose prompts an outside program writes; "
            "expected an environment that writes them itself."
        )
    known = set() if observation.fresh else {m.digest for message in receiver.history for m in message.media}
    *before, last = observation.messages
    new = [m for m in _sent(players, receiver, last.content) if m.digest not in known]
    return replace(observation, messages=(*before, replace(last, media=(*new, *last.media)))) if new else observation


def _sent(players: Mapping[Role, Player], receiver: Joined, words: str) -> Sequence[Media]:
    out = []
    for link in receiver.links:
        sender, channel = players.get(link.sender), link.channel
        if isinstance(sender, Joined) and sender.said is not None and sender.engine is receiver.engine:
            ids, tokens = sender.said.prompt.ids + sender.said.action, channel.shape.tokens
            if not tokens and not words:
                raise ConfigError(
                    f"channels.{channel.name}.fuse is 'gated', but the message that carries it has no words to add "
                    "vectors to; expected fuse = 'tokens'."
                )
            message = SoftMessage(channel.name, channel.version, ids, tokens, "" if tokens else words)
            out.append(message.media())
    return out
