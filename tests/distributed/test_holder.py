"""A process with copies of the policies takes new weights."""

from __future__ import annotations

import asyncio

import pytest
import torch
from sighted import picture

from interplay.config import parse
from interplay.distributed.holder import NewWeights, PolicyHolder
from interplay.rollout.team import Team
from interplay.types import Message


def test_after_new_weights_pictures_are_seen_with_the_new_eye(private_cache: None) -> None:
    pytest.importorskip("PIL")
    recipe = parse(
        {
            "name": "test",
            "device": "cpu",
            "env": {"name": "plan_path", "view": "image", "size": 3, "team": "single"},
            "policies": {"player": {"base": "tiny-vl-16x1x24", "senses": {"train": True}}},
            "seats": {"actor": "player"},
            "algorithm": {"name": "grpo"},
        }
    )
    holder = PolicyHolder(Team(recipe))
    member = holder.team.members["player"]
    senses = member.loaded.senses
    assert senses is not None
    media = member.renderer.prompt((Message("user", "look", media=(picture(1, 24, 24),)),)).media
    with torch.no_grad():  # as in an engine
        (before,) = senses.features(media).values()
    new = {name: 1.5 * p.detach() for name, p in member.loaded.model.named_parameters()}
    asyncio.run(holder.update({"player": NewWeights(1, None, new)}))
    with torch.no_grad():
        (after,) = senses.features(media).values()
    assert not torch.allclose(before, after, atol=1e-3), "the features of the old eye are not used again"
    holder.team.close()
