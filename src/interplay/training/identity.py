"""The settings that cannot change within a run. A resumed run with other values is refused before weights are read.

Steps, learning rates, rewards, sampling and opponents may change when a run is resumed. The weights, the adapters, the
moments of the optimiser and the state of the algorithm come from the checkpoint: a recipe that names others would be
ignored silently, or fail. Settings are stored under the keys of the recipe, so that the error can name the key.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from interplay.errors import CheckpointError
from interplay.models.device import device_of, dtype_of
from interplay.seats import RunPlan
from interplay.training.checkpoint import Checkpoint


def made_of(plan: RunPlan, bases: Mapping[str, str]) -> dict[str, Any]:
    """The fixed settings, by key of the recipe. `bases` has the policies whose base the run itself made."""
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
    for name, channel in recipe.channels.items():
        for key in ("sender", "receiver", "fuse", "size", "heads", *(("tokens",) if channel.fuse == "tokens" else ())):
            out[f"channels.{name}.{key}"] = getattr(channel, key)
    if critic is not None:
        out["algorithm.critic.base"] = critic.base
        out["algorithm.critic.adapter"] = None if critic.adapter is None else critic.adapter.model_dump()
        out["train.optimizer"] = recipe.train.optimizer
    return out


def refuse_another(plan: RunPlan, found: Checkpoint) -> None:
    """Raise if the recipe does not fit the run that wrote this checkpoint."""
    if set(found.trainer["versions"]) != set(plan.trainable):
        raise CheckpointError(
            f"checkpoint '{found.folder}' trains the policies {sorted(found.trainer['versions'])}, but this recipe "
            f"trains {sorted(plan.trainable)}; expected the same policies, or a new run folder."
        )
    before: Mapping[str, Any] = found.trainer.get("made_of", {})
    for key, now in made_of(plan, found.trainer["bases"]).items():
        if key in before and before[key] != now:
            raise CheckpointError(
                f"{key} is {now!r}, but '{found.folder}' was trained with {before[key]!r}, and this setting cannot "
                "change within a run; set it back, or start a new run (interplay export writes these weights for it)."
            )
