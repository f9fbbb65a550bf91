"""Checks that the players of a recipe can take the pictures and sounds that its environment shows.

What can be told from a recipe is checked before anything is loaded. A model that must be downloaded first is checked
when it is loaded, with the same sentences.
"""

from __future__ import annotations

import struct
from collections.abc import Set

from interplay import envs
from interplay.config import PolicySection, Recipe
from interplay.decode import PNG
from interplay.errors import ConfigError
from interplay.models.families import PATCH, seeing_shape, taken_by
from interplay.seats import Policy, RunPlan, everyone
from interplay.types import Media, Remote, Snapshot

_WORDS = {"image": "pictures", "audio": "sounds"}


def check_senses(plan: RunPlan, sample: envs.Env, training: bool) -> None:
    """Check every policy that has a seat, and the settings of its eye or ear."""
    recipe = plan.recipe
    players = [one for who in plan.seats.values() for one in everyone(who)]
    players += [one for matchup in plan.matchups for one in matchup.named]
    seated = {name for one in players if (name := _policy(one)) is not None}
    for name, policy in recipe.policies.items():
        takes = _taken(policy)
        if takes is None:
            continue
        if name in seated:
            refuse_blind(recipe, name, takes)
        if takes and not policy.is_remote:
            refuse_engine(name, recipe.engine.kind)
            if recipe.train.shard == "fsdp":
                raise ConfigError(
                    f"train.shard is 'fsdp', but the model of policies.{name} sees or hears, and only models that read "
                    "text alone are sharded; expected train.shard = 'none'."
                )
        if name in seated:
            _refuse_large_board(name, policy, sample)
        if training:
            _refuse_idle_eye(name, policy, recipe.warmstart is not None and recipe.warmstart.base)


def refuse_blind(recipe: Recipe, who: str, takes: Set[str]) -> None:
    """Refuse a player who cannot read pictures or sounds that the environment cannot do without."""
    env = recipe.env
    cls = envs.lookup(env.name)
    missing = cls.needs(env.options) - takes
    if not missing:
        return
    what = " and ".join(_WORDS[kind] for kind in sorted(missing, reverse=True))
    remedy = f"such as {'tiny-av' if 'audio' in missing else 'tiny-vl'}"
    if "view" in cls.Options.model_fields:
        remedy += ", or env.view = 'text'"
    elif env.options.get("data"):
        remedy += f", or rows without {what} in env.data"
    raise ConfigError(
        f"{env.name} shows {what} that its players need, but '{who}' cannot read {what}; expected a model that can, "
        f"{remedy}."
    )


def refuse_engine(name: str, kind: str) -> None:
    """Refuse an engine that carries no pictures and sounds for a model that takes them."""
    if kind != "local":
        raise ConfigError(
            f"engine.kind is '{kind}', which reads text alone here, but the model of policies.{name} sees or hears; "
            "expected engine.kind = 'local'."
        )


def _policy(who: object) -> str | None:
    if isinstance(who, Snapshot):
        return who.policy
    return who.name if isinstance(who, Policy | Remote) else None


def _taken(policy: PolicySection) -> Set[str] | None:
    if policy.is_remote:
        return frozenset({"image"} if policy.remote is not None and policy.remote.images else ())
    return taken_by(policy.base)


def _refuse_large_board(name: str, policy: PolicySection, sample: envs.Env) -> None:
    """Refuse a board with more cells than a tiny model's eye has squares: its cells would be blurred together."""
    options = sample.task.data
    if not policy.base.startswith(("tiny-vl", "tiny-av")) or "cell" not in options:
        return
    hidden, layers, side = seeing_shape(policy.base)
    for shown in (m for seen in envs.seen_now(sample).values() for message in seen.messages for m in message.media):
        width, height = _size(shown)
        if max(width, height) <= side:
            continue
        wanted = -(-max(width, height) // PATCH) * PATCH
        fits = f"policies.{name}.base = '{policy.base[:7]}-{hidden}x{layers}x{wanted}'"
        if (cell := options["cell"]) > PATCH and -(-max(width, height) // cell) * PATCH <= side:
            fits += f", or env.cell = {PATCH}"
        elif "size" in options and _valid(sample, side // cell):
            fits += f", or env.size of at most {side // cell}"
        raise ConfigError(
            f"{sample.task.env} draws pictures of {width} × {height} pixels, but '{policy.base}' sees {side} × {side}, "
            f"so that cells would be blurred together; expected {fits}."
        )


def _valid(sample: envs.Env, size: int) -> bool:
    """Whether the environment can have this size."""
    try:
        envs.sample_task(sample.task.env, {**sample.task.data, "size": size})
    except ConfigError:
        return False
    return True


def _size(media: Media) -> tuple[int, int]:
    """Width and height of a PNG picture; (0, 0) for a sound."""
    if not media.data.startswith(PNG):
        return 0, 0
    width, height = struct.unpack(">II", media.data[16:24])
    return width, height


def _refuse_idle_eye(name: str, policy: PolicySection, base: bool) -> None:
    """Refuse an eye that is to be trained where nothing would train it. An adapter is trained and saved without the eye
    of its base."""
    if policy.senses is not None and policy.senses.train and policy.adapter is not None and not base:
        raise ConfigError(
            f"policies.{name}.senses.train is true, but policies.{name} has an adapter, and with an adapter only "
            "imitation with warmstart.base = true trains the eye or ear of the base; expected that, no adapter, or "
            "senses.train = false."
        )
