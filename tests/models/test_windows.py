"""The windows of Qwen's eye are computed together, and give what transformers gives."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from transformers import Qwen2_5_VLConfig, Qwen2VLConfig
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VisionTransformerPretrainedModel
from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VisionTransformerPretrainedModel

from interplay.models.windows import together

CASES: list[tuple[type, Any]] = [
    (
        Qwen2_5_VisionTransformerPretrainedModel,
        Qwen2_5_VLConfig(
            vision_config={
                "depth": 3, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2, "out_hidden_size": 32,
                "patch_size": 14, "window_size": 56, "fullatt_block_indexes": [1],
            }
        ).vision_config,
    ),
    (
        Qwen2VisionTransformerPretrainedModel,
        Qwen2VLConfig(vision_config={"depth": 2, "embed_dim": 32, "num_heads": 2, "hidden_size": 32}).vision_config,
    ),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "config"), CASES, ids=["qwen2.5", "qwen2"])
@pytest.mark.parametrize("grids", [[(8, 8), (8, 8)], [(6, 10), (4, 4), (8, 6)]], ids=["equal", "mixed"])
def test_windows_computed_together_are_those_of_transformers(kind: type, config: Any, grids: list[Any]) -> None:
    torch.manual_seed(0)
    plain = kind._from_config(config, attn_implementation="sdpa", dtype=torch.float32).eval()
    ours = copy.deepcopy(plain)
    together(ours)
    grid = torch.tensor([(1, h, w) for h, w in grids])
    pixels = torch.randn(sum(h * w for h, w in grids), 3 * 2 * 14 * 14)
    found = [model(pixels, grid_thw=grid).last_hidden_state for model in (plain, ours)]
    assert torch.allclose(*found, atol=1e-5)
    for model, out in zip((plain, ours), found, strict=True):
        out.square().sum().backward()
        assert model.patch_embed.proj.weight.grad.abs().sum() > 0
    a, b = (m.patch_embed.proj.weight.grad for m in (plain, ours))
    assert torch.allclose(a, b, rtol=1e-4, atol=1e-5 * float(a.abs().max()))


def test_the_class_is_what_changes_so_that_weights_and_copies_stay_the_same() -> None:
    kind, config = CASES[0]
    model = kind._from_config(config, attn_implementation="sdpa")
    names = list(model.state_dict())
    together(model)
    assert list(model.state_dict()) == names
    assert type(copy.deepcopy(model).blocks[0].attn) is type(model.blocks[0].attn)
    assert "Windows" in type(model.blocks[0].attn).__name__
