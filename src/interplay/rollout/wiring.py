"""The soft channels of a recipe: check that they can work, make them, and attach them to their base models."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from interplay.config import ChannelSection, Recipe
from interplay.errors import ConfigError, did_you_mean
from interplay.seats import Policy, RunPlan
from interplay.types import Role, Snapshot, seed_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from interplay.models.channel import Channel


def check_channels(plan: RunPlan, training: bool) -> None:
    """Check that every channel joins two agents that can be joined."""
    recipe = plan.recipe
    for name, channel in recipe.channels.items():
        if name in recipe.policies:
            raise ConfigError(f"channels.{name} has the name of a policy; expected a name of its own.")
        for key, role in (("sender", channel.sender), ("receiver", channel.receiver)):
            if role not in plan.roles:
                raise ConfigError(f"channels.{name}.{key} is '{role}'; {did_you_mean(role, plan.roles)}")
        for role in (channel.sender, channel.receiver):
            _check_base(plan, name, role)
        who = plan.seats[channel.receiver]
        if training and channel.trainable and str(who) not in plan.trainable:
            raise ConfigError(
                f"channels.{name} learns from the loss of its receiver, but policies.{who} is not trained; set "
                f"channels.{name}.trainable = false, or train the policy."
            )
    gated = [c.receiver for c in recipe.channels.values() if c.fuse == "gated"]
    if len(gated) > len(set(gated)):
        raise ConfigError("two gated channels go to one role; expected one, or fuse = 'tokens' for the others.")
    if recipe.channels:
        _refuse_combinations(plan, next(iter(recipe.channels)))


def _check_base(plan: RunPlan, name: str, role: Role) -> None:
    """Check that the policy in a role's seat has its weights here, on a base that stays as it is."""
    who = plan.seats[role]
    if not isinstance(who, Policy):
        raise ConfigError(
            f"channels.{name} joins {role}, but seats.{role} is '{who}'; expected a policy with its weights here, "
            "since only such a policy's tokens can be read."
        )
    policy = plan.recipe.policies[who.name]
    receives = role == plan.recipe.channels[name].receiver
    if policy.adapter is None and (policy.trainable or receives):
        raise ConfigError(
            f"channels.{name} joins {role}, whose policy '{who}' has no adapter, but a channel needs a base that stays "
            f"as it is; set policies.{who}.adapter."
        )


def _refuse_combinations(plan: RunPlan, name: str) -> None:
    """Refuse what channels cannot be combined with, in one sentence each."""
    recipe = plan.recipe
    snapshots = any(isinstance(who, Snapshot) and not who.is_now for m in plan.matchups for who in m.named)
    taken = {
        f"engine.kind is '{recipe.engine.kind}', which takes no vectors: set 'local'": recipe.engine.kind != "local",
        "train.shard is 'fsdp', whose processes have no channels: set 'none'": recipe.train.shard != "none",
        "cluster.rollout_workers have engines of their own: set 0": recipe.cluster.rollout_workers > 0,
        "stream.max_staleness lets a channel change while its prompt is used: set 0": recipe.stream.max_staleness > 0,
        "a critic does not read vectors: take an algorithm without one, such as grpo": plan.algorithm.critic
        is not None,
        "warmstart.base changes the base that it reads with: set false": recipe.warmstart is not None
        and recipe.warmstart.base,
        "[league] seats older copies of a policy, made for older vectors: remove it": recipe.league is not None,
        "[[matchups]] seats older copies of a policy, made for older vectors: remove them": snapshots,
        "best_of draws replies outside of the line of play: set 1": max(recipe.sampling.best_of, recipe.eval.best_of)
        > 1,
    }
    for why, here in taken.items():
        if here:
            raise ConfigError(f"channels.{name} cannot be used here: {why}.")


def make_channel(
    name: str, section: ChannelSection, ends: tuple[PreTrainedModel, PreTrainedModel], source: str | None, seed: int
) -> Channel:
    """A new channel from the base `ends[0]` to `ends[1]`, or the one that a checkpoint has in folder `source`."""
    from interplay.models import senses
    from interplay.models.channel import Channel, load_channel
    from interplay.models.channels import attached

    reader, wires = attached(ends[0]), attached(ends[1])
    if section.sender == section.receiver and senses.of(ends[1]) is None:
        raise ConfigError(
            f"channels.{name} fuses what {section.receiver} sees and hears into its words, but its base reads text "
            "alone; expected a base that sees or hears, such as tiny-vl."
        )
    tokens = section.tokens if section.fuse == "tokens" else 0
    if source is not None:
        channel = load_channel(Path(source))
    else:
        shape = wires.shape(tokens, section.size, section.heads, reader)
        channel = Channel(name, shape, seed_of("channel", seed, name))
    channel.mute = section.mute
    channel.requires_grad_(section.trainable)
    wires.add(channel, reader)
    return channel


def seat_of(recipe: Recipe, role: Role) -> str:
    """Who sits in the seat of a role."""
    seats: str | Mapping[str, str] = recipe.seats
    return seats if isinstance(seats, str) else seats[role]
