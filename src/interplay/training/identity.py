"""What a run is made of and cannot change on the way: a recipe that says otherwise is refused before anything is read.

Steps, rates, rewards, sampling, opponents may change when a run is resumed; the weights, what is added to them, their
optimiser's moments and the algorithm's own state are those of the checkpoint, and a recipe that names others would be
heard in silence, or break. Recipes say it in their own keys, so that the sentence can.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from interplay.errors import CheckpointError
from interplay.models.device import device_of, dtype_of
from interplay.seats import RunPlan
from interplay.training.checkpoint import Checkpoint


def made_of(plan: RunPlan, bases: Mapping[str, str]) -> dict[str, Any]:
    """By key of the recipe; `bases` are the policies whose base the run itself made."""
    recipe, critic = plan.recipe, plan.algorithm.critic
    out: dict[str, Any] = {
        "seed": recipe.seed,
        "dtype": str(dtype_of(recipe, device_of(recipe))).removeprefix("torch."),
        "algorithm.name": recipe.algorithm.name,
    }
    for name in plan.trainable:
        policy = recipe.policies[name]
        if name not in bases:
            out[f"policies.{name}.base"] = policy.base
        out[f"policies.{name}.adapter"] = None if policy.adapter is None else policy.adapter.model_dump()
        out[f"policies.{name}.optimizer"] = plan.settings(name).optimizer
    if critic is not None:
        out["algorithm.critic.base"] = critic.base
        out["algorithm.critic.adapter"] = None if critic.adapter is None else critic.adapter.model_dump()
        out["train.optimizer"] = recipe.train.optimizer
    return out


def refuse_another(plan: RunPlan, found: Checkpoint) -> None:
    """Where the recipe is not of the run that wrote this checkpoint."""
    if set(found.trainer["versions"]) != set(plan.trainable):
        raise CheckpointError(
            f"checkpoint '{found.folder}' trains {sorted(found.trainer['versions'])}, "
            f"this recipe {sorted(plan.trainable)}."
        )
    before: Mapping[str, Any] = found.trainer.get("made_of", {})
    for key, now in made_of(plan, found.trainer["bases"]).items():
        if key in before and before[key] != now:
            raise CheckpointError(
                f"{key} is {now!r}, but '{found.folder}' was trained with {before[key]!r}, which cannot change within "
                "a run; leave it as it was, or begin a new run (interplay export writes these weights for it)."
            )
