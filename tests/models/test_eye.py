"""The vision encoder without its modules gives the features of transformers."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from transformers import Qwen2_5_VLConfig

from interplay.models.eye import Eye, suits
from interplay.models.load import blank

PATCH = 3 * 2 * 8 * 8  # numbers of a patch: colours, frames, height, width


@pytest.fixture(scope="module")
def model() -> Any:
    """A small model whose sizes are no multiples of 8, as in Qwen2.5-VL."""
    eye = {
        "hidden_size": 40, "intermediate_size": 50, "depth": 3, "num_heads": 2, "out_hidden_size": 32, "patch_size": 8,
        "window_size": 32, "fullatt_block_indexes": [1], "spatial_merge_size": 2, "temporal_patch_size": 2,
    }  # fmt: skip
    text = {
        "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2,
        "num_key_value_heads": 1, "vocab_size": 99, "rope_parameters": {
            "rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3]
        },
    }  # fmt: skip
    torch.manual_seed(0)
    return blank("qwen", Qwen2_5_VLConfig(text_config=text, vision_config=eye), torch.float32).eval()


def pictures(*sizes: tuple[int, int]) -> list[dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [
        {
            "pixel_values": torch.randn(h * w, PATCH, generator=generator),
            "image_grid_thw": torch.tensor([[1, h, w]]),
        }
        for h, w in sizes
    ]


@pytest.mark.parametrize(
    "sizes", [((8, 8), (8, 8), (8, 8)), ((4, 6), (12, 10), (16, 16)), ((10, 22),), ((2, 2), (2, 18))]
)
def test_features_are_those_of_transformers(model: Any, sizes: tuple[tuple[int, int], ...]) -> None:
    """With windows of one length, of several lengths, and with pictures that are smaller than a window."""
    shown = pictures(*sizes)
    with torch.no_grad():
        ours = Eye(model).features(shown)
        theirs = model.base_model.get_image_features(
            pixel_values=torch.cat([p["pixel_values"] for p in shown]),
            image_grid_thw=torch.cat([p["image_grid_thw"] for p in shown]),
            return_dict=True,
        ).pooler_output
    assert [len(f) for f in ours] == [h * w // 4 for h, w in sizes]
    for mine, reference in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, reference, atol=1e-6, rtol=1e-5)


def test_only_fp32_is_computed_on_a_cpu(model: Any) -> None:
    assert suits(model)
    assert not suits(copy.deepcopy(model).bfloat16())
