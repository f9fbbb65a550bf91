"""Runs the eye or ear of a model: turns a processor's inputs into features, with the code of transformers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.masking_utils import create_bidirectional_mask


def encode(model: PreTrainedModel, media: Sequence[dict[str, Tensor]]) -> list[Tensor]:
    """The features [n, C] of each medium. Their inputs have the same shapes, except for the first dimension."""
    core: Any = model.base_model
    kind = model.config.model_type
    given = {name: [m[name].to(model.device) for m in media] for name in media[0]}
    if kind == "qwen2_audio":
        return _heard(core, torch.cat(given["input_features"]), torch.cat(given["feature_attention_mask"]))
    if kind in ("idefics3", "smolvlm"):  # [1, parts of the picture, channels, height, width]
        joined = {name: torch.cat(tensors, 1) for name, tensors in given.items()}
        found = core.get_image_features(**joined, return_dict=True).pooler_output
        return [f.flatten(0, 1) for f in found.split([p.shape[1] for p in given["pixel_values"]])]
    joined = {name: torch.cat(tensors) for name, tensors in given.items()}
    joined["pixel_values"] = joined["pixel_values"].to(model.dtype)
    return list(core.get_image_features(**joined, return_dict=True).pooler_output)


def _heard(core: Any, sound_NMT: Tensor, mask_NT: Tensor) -> list[Tensor]:
    """The same computation as in Qwen2AudioModel.forward, which does not offer it as a function."""
    tower = core.audio_tower
    inner, outer = tower._get_feat_extract_output_lengths(mask_NT.sum(-1))
    width = (sound_NMT.shape[2] - 2) // 2 + 1
    seen = (torch.arange(width, device=inner.device) < inner.unsqueeze(1)).long()
    blank = torch.zeros((len(seen), width, 1), dtype=core.dtype, device=seen.device)
    mask = create_bidirectional_mask(config=tower.config, inputs_embeds=blank, attention_mask=seen)
    found = core.multi_modal_projector(tower(sound_NMT, attention_mask=mask).last_hidden_state)
    return [f[:length] for f, length in zip(found, outer.tolist(), strict=True)]
