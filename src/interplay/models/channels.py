"""The soft channels of a base model: engine and learner share them, as they share the model.

The sender's base reads what the sender read and wrote. It is frozen, so it reads each sequence of tokens only once. The
vectors for the receiver are computed whenever they are needed, with the channel's current weights.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import PreTrainedModel

from interplay.errors import ModelError
from interplay.models import senses
from interplay.models.attention import Causal, using
from interplay.models.channel import Channel, ChannelShape
from interplay.models.senses import Overlay
from interplay.models.shape import decoder_of
from interplay.models.stacked import mixing
from interplay.types import MediaSpan, SoftMedia, SoftMessage, identity

KEPT_BYTES = 1 << 28  # of hidden states that are kept in memory


class Channels:
    """The channels that go to agents on this base, by name, and for each of them the base that its sender has."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        self.by_name: dict[str, Channel] = {}
        self._readers: dict[str, Channels] = {}
        self._lock = threading.Lock()
        self._read: OrderedDict[tuple[int, ...], Tensor] = OrderedDict()
        self._size = 0

    @property
    def hidden(self) -> int:
        return int(self.model.get_input_embeddings().weight.shape[1])

    def shape(self, tokens: int, size: int, heads: int, reader: Channels | None = None) -> ChannelShape:
        """The shape of a new channel to this base. `reader` has the sender's base; None: the same base."""
        table = self.model.get_input_embeddings().weight
        scale = float(table.detach().float().pow(2).mean().sqrt())
        return ChannelShape((reader or self).hidden, self.hidden, tokens, size, heads, scale)

    def add(self, channel: Channel, reader: Channels | None = None) -> None:
        reader = reader or self
        if (channel.shape.source, channel.shape.hidden) != (reader.hidden, self.hidden):
            raise ModelError(
                f"channel '{channel.name}' leads from a hidden size of {channel.shape.source} to one of "
                f"{channel.shape.hidden}, and these bases have {reader.hidden} and {self.hidden}; expected a channel "
                "that was trained with these bases."
            )
        self.by_name[channel.name] = channel.to(self.model.device)
        self._readers[channel.name] = reader

    def forget(self) -> None:
        """Drop the hidden states, because the base has changed."""
        with self._lock:
            self._read.clear()
            self._size = 0

    def vectors(self, span: MediaSpan, ids: Sequence[int]) -> Tensor:
        """The vectors [N, C] in the places of a span. `ids` are the prompt's ids in these places. The vectors have
        gradients if the channel is trained now."""
        if span.media is None:
            raise ModelError(
                f"a prompt has the soft message {span.digest}, whose content is missing; expected the media that the "
                "prompt was made with."
            )
        message = SoftMessage.read(span.media)
        channel = self.by_name.get(message.channel)
        if channel is None:
            raise ModelError(
                f"a prompt has a message of channel '{message.channel}', which this model does not have; add it to "
                "[channels]."
            )
        words_NC = self.model.get_input_embeddings().weight.detach()[torch.tensor(ids, device=self.model.device)]
        seen = span.media.seen if isinstance(span.media, SoftMedia) else ()
        if len(seen) != len(message.digests):
            raise ModelError(
                f"the soft message {span.digest} has only the digests of its pictures; expected the pictures too."
            )
        source_LS = self._readers[channel.name].source(message.ids, seen)
        return channel(source_LS.to(words_NC.device), words_NC)

    def source(self, ids: tuple[int, ...], seen: tuple[MediaSpan, ...]) -> Tensor:
        """The base's last hidden states [L, C] over a sender's tokens, or the features of what the receiver sees."""
        if not ids:  # what the receiver itself sees
            return self._features(seen)
        known = identity(ids, seen)
        with self._lock:
            found = self._read.get(known)
            if found is not None:
                self._read.move_to_end(known)
                return found
        # One sequence at a time, so that the result does not depend on what else is computed: a resumed run starts with
        # nothing kept. The learner uses what the engine computed, so it must be an ordinary tensor.
        with torch.inference_mode(False), torch.no_grad(), using(Causal()), mixing(None):
            made: Tensor = decoder_of(self.model)(**self._inputs(ids, seen), use_cache=False).last_hidden_state[0]
            made = made.float()
        if made.is_cuda:
            torch.cuda.current_stream().synchronize()  # engine and learner may use them on streams of their own
        with self._lock:
            if known not in self._read:
                self._read[known] = made
                self._size += made.nbytes
            while self._size > KEPT_BYTES and len(self._read) > 1:
                self._size -= self._read.popitem(last=False)[1].nbytes
        return made

    @torch.no_grad()
    def _features(self, seen: tuple[MediaSpan, ...]) -> Tensor:
        """The features of pictures and sounds, from a frozen eye or ear."""
        sense = senses.of(self.model)
        if sense is None:
            raise ModelError(
                "a channel fuses what its receiver sees, and its model reads only text; expected a base that sees or "
                "hears."
            )
        found = sense.features(seen)
        return torch.cat([found[span.digest] for span in seen])

    def _inputs(self, ids: tuple[int, ...], seen: tuple[MediaSpan, ...]) -> dict[str, Tensor]:
        """What the base reads: the ids, with the features of pictures and sounds in their places."""
        device = self.model.device
        tokens, positions = torch.tensor([ids], device=device), torch.arange(len(ids), device=device).unsqueeze(0)
        sense = senses.of(self.model)
        if not seen or sense is None:
            return {"input_ids": tokens, "position_ids": positions}
        sight = sense.sight(ids, seen)
        laid = Overlay(torch.from_numpy(sight.at_K).to(device), sight.features_KC)
        if sight.places_3L is not None:
            positions = torch.from_numpy(sight.places_3L).to(device).unsqueeze(1)
        embeds = laid.lay(self.model.get_input_embeddings()(tokens[0])).unsqueeze(0)
        return {"inputs_embeds": embeds, "position_ids": positions}


def of(model: PreTrainedModel) -> Channels | None:
    """The channels to a model; None if it has none."""
    found: Channels | None = getattr(model, "_interplay_channels", None)
    return found


def attached(model: PreTrainedModel) -> Channels:
    """The channels to a model, which get attached to it if it has none."""
    found = of(model)
    if found is None:
        found = Channels(model)
        object.__setattr__(model, "_interplay_channels", found)
    return found
