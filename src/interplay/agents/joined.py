"""Agents that are joined by soft channels: what the sender read and wrote goes into the receiver's next prompt.

An agent can be joined to itself: its pictures and sounds are then fused into its words.

All state is in the agents themselves: the prompt and the reply that each committed last. So every candidate and every
playout of a tree passes on its own prompt and reply.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol, runtime_checkable

from interplay.agents.player import Player, View
from interplay.agents.render import Said
from interplay.agents.soft import ChannelLink
from interplay.engines.engine import Engine
from interplay.errors import ConfigError
from interplay.types import Media, MediaSpan, Message, Observation, Role, SoftMedia, SoftMessage


@runtime_checkable
class JoinedPlayer(Protocol):
    """A player that can send and receive vectors."""

    engine: Engine
    links: tuple[ChannelLink, ...]
    said: Said | None
    history: tuple[Message, ...]


def look(players: Mapping[Role, Player], seen: Mapping[Role, Observation]) -> dict[Role, View]:
    """What each of the roles that must act sees, with what channels pass on to it."""
    return {role: players[role].look(with_vectors(players, role, o)) for role, o in seen.items()}


def with_vectors(players: Mapping[Role, Player], role: Role, observation: Observation) -> Observation:
    """The observation of a role, whose last message carries what its channels pass on. A sender passes on nothing if it
    has not acted yet, or if it is not a model on the base that the channel reads with. Nothing is passed on twice."""
    receiver = players[role]
    # This runs in every turn. `isinstance` with a protocol looks up each of its attributes, so links are tested first.
    if not getattr(receiver, "links", ()) or not isinstance(receiver, JoinedPlayer):
        return observation
    if observation.call is not None or not observation.messages:
        raise ConfigError(
            f"channels.{receiver.links[0].channel.name} goes to {role}, whose prompts an outside program writes; "
            "expected an environment that writes them itself."
        )
    messages = tuple(_fused(m, role, receiver) for m in observation.messages)
    known = set() if observation.fresh else {m.digest for message in receiver.history for m in message.media}
    *before, last = messages
    others = {r: player for r, player in players.items() if r != role}
    new = [m for m in _sent(others, receiver, last.content) if m.digest not in known]
    return replace(observation, messages=(*before, replace(last, media=(*new, *last.media))))


def _fused(message: Message, role: Role, receiver: JoinedPlayer) -> Message:
    """A message whose pictures and sounds are fused into its words, if a channel of the role to itself does that."""
    own = next((link.channel for link in receiver.links if link.sender == role), None)
    seen = [m for m in message.media if m.kind in receiver.engine.capabilities.media]
    if own is None or not seen:
        return message
    _refuse_wordless(own.name, message.content)
    soft = SoftMessage(own.name, own.version, (), 0, message.content, tuple(m.digest for m in seen))
    return replace(message, media=(soft.media(tuple(MediaSpan(0, 0, m.digest, m) for m in seen)),))


def _sent(players: Mapping[Role, Player], receiver: JoinedPlayer, words: str) -> Sequence[Media]:
    out: list[Media] = []
    for link in receiver.links:
        sender, channel = players.get(link.sender), link.channel
        if isinstance(sender, JoinedPlayer) and sender.said is not None and sender.engine is link.engine:
            ids, tokens = sender.said.prompt.ids + sender.said.action, channel.shape.tokens
            if not tokens:
                _refuse_wordless(channel.name, words)
            seen = tuple(span for span in sender.said.prompt.media if not isinstance(span.media, SoftMedia))
            digests = tuple(span.digest for span in seen)
            message = SoftMessage(channel.name, channel.version, ids, tokens, "" if tokens else words, digests)
            out.append(message.media(seen))
    return out


def _refuse_wordless(channel: str, words: str) -> None:
    if not words:
        raise ConfigError(
            f"channels.{channel}.fuse is 'gated', but the message that carries it has no words to add vectors to; "
            "expected an environment whose messages have words, or fuse = 'tokens'."
        )
