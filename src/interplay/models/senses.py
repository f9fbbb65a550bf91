"""Models that see or hear: the features of pictures and sounds, and where these go in a prompt.

The eye or ear of a model is its vision or audio encoder, with the projection to the embeddings of the language model.
A processor turns a picture or a sound into ids (placeholders, in some families with marks between them) and into the
input of the model's eye or ear. Its features replace the embeddings of the placeholders inside the span that the prompt
records. A placeholder outside of a span, such as one that the model sampled, is an ordinary token.

Engine and learner share one `Senses` per model. While the eye is frozen, features are computed once for each picture
and kept by its digest. When the eye learns, they are computed again after every optimiser step.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from interplay.config import SensesSection
from interplay.errors import ModelError
from interplay.models import eye
from interplay.models.encode import encode
from interplay.models.families import Family
from interplay.models.perceive import Perceived, perceive
from interplay.models.shape import decoder_of
from interplay.types import Media, MediaKind, MediaSpan

KEPT_BYTES = 1 << 31  # of processed media and features that are kept in memory
TOGETHER = 1 << 26  # most numbers of input that the eye gets in one call


@dataclass(frozen=True)
class Overlay:
    """The changes that media make among T packed tokens: the embeddings at the places `at_K` are replaced by
    `features_KC`. `positions_3T` are rotary positions of three axes; None: the ordinary ones."""

    at_K: Tensor
    features_KC: Tensor
    positions_3T: Tensor | None = None

    def lay(self, embeds_TC: Tensor) -> Tensor:
        """The embeddings with the features in their places. No gradient flows to the embedding of a placeholder."""
        return embeds_TC.index_copy(0, self.at_K, self.features_KC.to(embeds_TC.dtype))


@dataclass(frozen=True)
class Shown:
    """A span among the flattened tokens of a batch: where it begins there, and its ids."""

    start: int
    ids: tuple[int, ...]
    span: MediaSpan


@dataclass(frozen=True)
class Sight:
    """The media of one prompt: the places of their placeholders, their features, and (M-RoPE) the rotary positions of
    all ids. A token after the prompt has the rotary position of its place plus `shift`."""

    at_K: np.ndarray
    features_KC: Tensor
    places_3L: np.ndarray | None
    shift: int

    @property
    def done(self) -> Sight:
        """What remains of it when the whole prompt is computed: only the shift."""
        return Sight(self.at_K[:0].copy(), self.features_KC.new_empty((0, self.features_KC.shape[1])), None, self.shift)


@dataclass(frozen=True)
class _Known:
    """A medium that was processed. Once there are features, it may be kept without `inputs`."""

    seen: Perceived
    features: Tensor | None = None
    version: int = -1  # of the eye that made the features

    @property
    def size(self) -> int:
        inputs = self.seen.inputs
        return sum(t.nbytes for t in inputs.values()) + (0 if self.features is None else self.features.nbytes)


class Senses:
    """`learns` says whether the eye is trained together with the model's full weights. `max_pixels` limits the size of
    a picture (a larger one is made smaller), `limit` the number of media in a prompt; 0 is no limit."""

    def __init__(self, model: PreTrainedModel, processor: Any, family: Family) -> None:
        self.model, self.processor, self.family = model, processor, family
        self.kinds: frozenset[MediaKind] = frozenset({family.kind})
        if getattr(model.config, "sounds_as_pictures", False):
            self.kinds |= {"audio"}
        self.token: str = processor.image_token if family.kind == "image" else processor.audio_token
        self.token_id = int(processor.tokenizer.convert_tokens_to_ids(self.token))
        self.learns = False
        self.max_pixels = self.limit = 0
        self.version = 0
        self._eye: tuple[int, eye.Eye] | None = None  # with the version of the weights that it copied
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._size = 0  # bytes of what is known
        self._lock = threading.Lock()
        self.freeze()

    # -- the eye --------------------------------------------------------------------------------------------------

    @property
    def parts(self) -> list[nn.Module]:
        """The modules of the eye or ear: everything under the head that is not the language model."""
        decoder = decoder_of(self.model)
        return [m for m in self.model.base_model.children() if m is not decoder]

    def freeze(self) -> None:
        for part in self.parts:
            part.requires_grad_(False)

    @property
    def thawed(self) -> bool:
        """Whether the eye's weights can change now."""
        return any(p.requires_grad for part in self.parts for p in part.parameters())

    def moved(self) -> None:
        """Called when the eye's weights have changed: kept features are not used any more."""
        self.version += 1

    def see_like(self, other: Senses | SensesSection) -> None:
        """Use the limits of `other` for the size and the number of media."""
        self.max_pixels, self.limit = other.max_pixels, other.limit

    # -- media ----------------------------------------------------------------------------------------------------

    def ids(self, media: Media) -> tuple[int, ...]:
        """The ids that stand for a medium in a prompt."""
        return self._seen(media.digest, media).seen.ids

    def _seen(self, digest: str, media: Media | None) -> _Known:
        with self._lock:
            known = self._known.get(digest)
            if known is not None:
                self._known.move_to_end(digest)
                return known
        return self._keep(digest, _Known(self._perceived(digest, media)))

    def _perceived(self, digest: str, media: Media | None) -> Perceived:
        if media is None:
            raise ModelError(
                f"a prompt refers to the medium {digest}, but its bytes are missing; expected the media that the "
                "prompt was made with."
            )
        found = perceive(self.processor, self.token, media, self.max_pixels)
        inputs = {n: t.to(self.model.dtype) if t.is_floating_point() else t for n, t in found.inputs.items()}
        return replace(found, inputs=inputs)

    def _keep(self, digest: str, known: _Known) -> _Known:
        with self._lock:
            before = self._known.pop(digest, None)
            self._size += known.size - (0 if before is None else before.size)
            self._known[digest] = known
            while self._size > KEPT_BYTES and len(self._known) > 1:
                self._size -= self._known.popitem(last=False)[1].size
        return known

    def features(self, spans: Sequence[MediaSpan]) -> dict[str, Tensor]:
        """The features [n, C] of each medium, by digest. They have gradients if the eye is trained now."""
        needed = {span.digest: span.media for span in spans}
        thawed = self.thawed
        if thawed and torch.is_grad_enabled():
            return self._computed(needed)
        known = {digest: self._seen(digest, media) for digest, media in needed.items()}
        version = self.version
        found = {d: k.features for d, k in known.items() if k.features is not None and k.version == version}
        missing = {d: m for d, m in needed.items() if d not in found}
        together = self.model.device.type == "cuda"
        with torch.inference_mode(False), torch.no_grad():  # the learner uses features that the engine computed
            # On a CPU they are computed one by one, so that their bits do not depend on what else is computed with
            # them: a resumed run starts without those of a frozen eye, and the probe may run beside other requests.
            for batch in [missing] if together else [{d: m} for d, m in missing.items()]:
                for digest, made in self._computed(batch).items():
                    found[digest] = made
                    seen = known[digest].seen
                    kept = seen if thawed else Perceived(seen.ids, {}, seen.grid)
                    self._keep(digest, _Known(kept, made, version))
        if missing and self.model.device.type == "cuda":
            torch.cuda.current_stream().synchronize()  # engine and learner may use them on streams of their own
        for made in found.values() if self.model.device.type == "cuda" else ():
            made.record_stream(torch.cuda.current_stream())  # they may be dropped before this stream has read them
        return found

    def _computed(self, needed: dict[str, Media | None]) -> dict[str, Tensor]:
        """Run the eye. Media whose inputs have the same shapes are computed together."""
        groups: dict[tuple[object, ...], list[tuple[str, dict[str, Tensor]]]] = defaultdict(list)
        for digest, media in needed.items():
            inputs = self._seen(digest, media).seen.inputs
            if not inputs:  # they were dropped when the features were made
                inputs = self._perceived(digest, media).inputs
            groups[tuple((name, t.shape[1:]) for name, t in inputs.items())].append((digest, inputs))
        out: dict[str, Tensor] = {}
        for group in groups.values():
            count = max(1, TOGETHER // max(1, sum(t.numel() for t in group[0][1].values())))
            for start in range(0, len(group), count):
                part = group[start : start + count]
                made = self._encoded([inputs for _, inputs in part])
                out |= {digest: features for (digest, _), features in zip(part, made, strict=True)}
        return out

    def _encoded(self, media: Sequence[dict[str, Tensor]]) -> list[Tensor]:
        if self.thawed or not eye.suits(self.model):
            return encode(self.model, media)
        if self._eye is None or self._eye[0] != self.version or self._eye[1].device != self.model.device:
            self._eye = None  # free the old copies first
            self._eye = self.version, eye.Eye(self.model)
        return self._eye[1].features(media)

    # -- places ---------------------------------------------------------------------------------------------------

    def _pads(self, ids: Sequence[int]) -> np.ndarray:
        return np.flatnonzero(np.asarray(ids) == self.token_id)

    def places(self, ids: Sequence[int], media: Sequence[MediaSpan], start: int = 0) -> tuple[np.ndarray, int]:
        """The rotary positions [3, n] of ids that begin at position `start`, and the position after them."""
        out = np.empty((3, len(ids)), np.int64)
        at = 0
        for span in media:
            grid = self._seen(span.digest, span.media).seen.grid
            assert grid is not None
            first = span.start + int(self._pads(ids[span.start : span.start + span.length])[0])
            out[:, at:first] = start + np.arange(first - at)
            start, at = start + first - at, first + grid[0] * grid[1]
            out[:, first:at] = start + np.indices((1, *grid)).reshape(3, -1)
            start += max(grid)
        out[:, at:] = start + np.arange(len(ids) - at)
        return out, start + len(ids) - at

    def sight(self, ids: Sequence[int], media: Sequence[MediaSpan]) -> Sight:
        """Where the features of a prompt's media go."""
        features = self.features(media)
        at = np.concatenate([s.start + self._pads(ids[s.start : s.start + s.length]) for s in media])
        laid = torch.cat([features[s.digest] for s in media])
        _refuse_mismatch(len(at), laid)
        if not self.family.mrope:
            return Sight(at, laid, None, 0)
        places, end = self.places(ids, media)
        return Sight(at, laid, places, end - len(ids))

    def overlay(self, shown: Sequence[Shown], positions_3T: Tensor | None) -> Overlay:
        """The features of a batch, with gradients if the eye is trained."""
        features = self.features([s.span for s in shown])
        at = np.concatenate([s.start + self._pads(s.ids) for s in shown])
        laid = torch.cat([features[s.span.digest] for s in shown])
        _refuse_mismatch(len(at), laid)
        return Overlay(torch.from_numpy(at).to(laid.device), laid, positions_3T)


def _refuse_mismatch(places: int, features_KC: Tensor) -> None:
    if places != len(features_KC):
        raise ModelError(
            f"a prompt has {places} placeholders, but its media have {len(features_KC)} features; expected a prompt "
            "that was rendered with this model's processor."
        )


def encoder_bytes(model: PreTrainedModel) -> int:
    """The most that a vision or audio encoder needs on a GPU besides its weights: the states of the media in one call,
    and the copies of `eye.py`. 0 for a text model."""
    parts = [getattr(model.config, name, None) for name in ("vision_config", "audio_config")]
    config = next((part for part in parts if part is not None), None)
    if config is None:
        return 0
    first = lambda *names: next(int(v) for n in names if (v := getattr(config, n, None)))  # noqa: E731
    width = first("embed_dim", "d_model", "hidden_size")
    ratio = getattr(config, "mlp_ratio", None)
    inner = first("intermediate_size", "encoder_ffn_dim") if ratio is None else int(ratio * width)
    if hasattr(config, "num_mel_bins"):
        numbers = 2 * int(config.num_mel_bins)  # of the input, for each position
    else:
        numbers = 3 * int(config.patch_size) ** 2 * int(getattr(config, "temporal_patch_size", 1))
    size = model.dtype.itemsize
    # Beside the residual stream in fp32: queries, keys and values, the rotated ones and the result; or the feed-forward
    # layer's input, gate, up and their product.
    each = 4 * width + size * max(6 * width, width + 3 * inner)
    return TOGETHER // numbers * each + eye.copied_bytes(model)


def of(model: PreTrainedModel) -> Senses | None:
    """The senses of a loaded model; None for a text model."""
    found: Senses | None = getattr(model, "_interplay_senses", None)
    return found


def attach(model: PreTrainedModel, senses: Senses) -> None:
    object.__setattr__(model, "_interplay_senses", senses)


def thaw(model: PreTrainedModel) -> None:
    """Make all weights of a model trainable. The weights of its eye become trainable only if the eye is to learn."""
    model.requires_grad_(True)
    senses = of(model)
    if senses is not None and not senses.learns:
        senses.freeze()
