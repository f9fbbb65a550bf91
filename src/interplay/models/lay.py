"""Finds what replaces embeddings in prompts: the features of pictures and sounds, and the vectors of soft channels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from interplay.errors import ModelError
from interplay.models import channels, senses
from interplay.models.channels import Channels
from interplay.models.senses import Overlay, Senses, Shown, Sight
from interplay.types import MediaSpan


def is_soft(span: MediaSpan) -> bool:
    """Whether a span holds the vectors of a channel."""
    return span.media is not None and span.media.kind == "soft"


def perceived(media: Sequence[MediaSpan]) -> list[MediaSpan]:
    """The spans of pictures and sounds."""
    return [span for span in media if not is_soft(span)]


def sight(model: PreTrainedModel, ids: Sequence[int], media: Sequence[MediaSpan]) -> Sight:
    """What is laid over the embeddings of one prompt, in the order of its places."""
    seen, soft = perceived(media), [span for span in media if is_soft(span)]
    found = _senses(model).sight(ids, seen) if seen else None
    if not soft:
        assert found is not None
        return found
    wires = _channels(model)
    at = [np.arange(s.start, s.start + s.length) for s in soft]
    laid = [wires.vectors(s, ids[s.start : s.start + s.length]) for s in soft]
    if found is not None:
        at, laid = [found.at_K, *at], [found.features_KC.to(laid[0].dtype), *laid]
    places = np.concatenate(at)
    order = np.argsort(places)
    features = torch.cat(laid)[torch.from_numpy(order).to(laid[0].device)]
    return Sight(places[order], features, found.places_3L if found else None, found.shift if found else 0)


def overlay(model: PreTrainedModel, shown: Sequence[Shown], positions_3T: Tensor | None) -> Overlay:
    """What is laid over the embeddings of a batch, with gradients to channels and eyes that are trained."""
    seen, soft = [s for s in shown if not is_soft(s.span)], [s for s in shown if is_soft(s.span)]
    found = _senses(model).overlay(seen, positions_3T) if seen else None
    if not soft:
        assert found is not None
        return found
    wires = _channels(model)
    known: dict[tuple[str, tuple[int, ...]], Tensor] = {}
    for one in soft:
        if (one.span.digest, one.ids) not in known:
            known[one.span.digest, one.ids] = wires.vectors(one.span, one.ids)
    vectors = torch.cat([known[one.span.digest, one.ids] for one in soft])
    at = torch.from_numpy(np.concatenate([one.start + np.arange(len(one.ids)) for one in soft])).to(vectors.device)
    if found is not None:
        at, vectors = torch.cat((found.at_K, at)), torch.cat((found.features_KC.to(vectors.dtype), vectors))
    return Overlay(at, vectors, positions_3T)


def _senses(model: PreTrainedModel) -> Senses:
    found = senses.of(model)
    if found is None:
        raise ModelError(
            "a sample has a picture or a sound, and its model reads only text; expected a model that sees or hears."
        )
    return found


def _channels(model: PreTrainedModel) -> Channels:
    found = channels.of(model)
    if found is None:
        raise ModelError("a prompt has vectors of a channel, and no channel goes to its model; add it to [channels].")
    return found
