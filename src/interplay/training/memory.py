"""Estimate the memory that a run needs before it starts.

The sizes of models are computed without their weights (`model_shape.py`). On a GPU the engine makes its key-value cache
as large as the run can use, and takes at most a quarter of the free memory (`engines/local/room.py`); on a CPU, memory
is taken only as it is used. So the cache is reported, but a run is never refused because of it. The same holds for the
features of pictures and sounds, which a model that sees or hears keeps up to a limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from interplay.config import JudgeSection, Optimizer, Recipe
from interplay.config.judges import BASE, HTTP, MODELS
from interplay.engines.engine import CPU_CACHE_TOKENS
from interplay.errors import ConfigError
from interplay.models.device import device_of, dtype_of, wanted_device
from interplay.models.senses import KEPT_BYTES
from interplay.rollout.in_flight import cache_room
from interplay.seats import FromLeague, RunPlan, Snapshot
from interplay.training.logits import CPU_LOGITS, GPU_LOGITS
from interplay.training.machine import GiB, available_bytes, size_text
from interplay.training.model_shape import ModelShape, shape_of

_FP32 = 4
_SMALL = 4096  # an 8-bit optimiser keeps fp32 moments for tensors smaller than this
_BLOCK = 256  # numbers per scale in an 8-bit optimiser
_LOGITS_CPU = 5  # fp32 copies of a piece: logits, scaled, log-probs, probabilities, their product
_LEAST = 256  # tokens in the smallest micro-batch that is worth suggesting


@dataclass(frozen=True)
class MemoryEstimate:
    """The needed bytes by purpose, and the memory of the device that the run may take. `features` is the most for kept
    pictures and sounds, and on a GPU for their encoder. `why` says why the cache has its size. `available` is None if
    this machine has no such device; the cache, which takes a share of it, is then 0. `rank` is what each rank of a
    sharded learner needs, if ranks have GPUs of their own; else it is a part of `parts`."""

    parts: dict[str, int]
    cache: int
    device: str
    available: int | None
    features: int = 0
    why: str = ""
    rank: dict[str, int] = field(default_factory=dict)

    @property
    def needed(self) -> int:
        return sum(self.parts.values())

    @property
    def total(self) -> int:
        """The needed bytes, with the cache and the features."""
        return self.needed + self.cache + self.features

    def __str__(self) -> str:
        parts = {
            **self.parts,
            "key-value cache up to" if self.device == "cpu" else "key-value cache": self.cache,
            "pictures and sounds up to": self.features,
        }
        ranks = f"; each rank of the learner needs {_listed(self.rank)} of a GPU of its own" if self.rank else ""
        if self.available is None:
            needs = f"needs about {size_text(self.total)} of a GPU's memory, and more for its key-value cache"
        else:
            needs = f"needs about {size_text(self.total)} of {size_text(self.available)} of {_place(self.device)}"
        return f"{needs} ({_names(parts)})" + (f"; the cache is {self.why}" if self.why else "") + ranks

    def refuse(self, plan: RunPlan) -> None:
        """Raise if the run cannot fit into memory. The error names values that would fit."""
        if self.available is None:
            device_of(plan.recipe)  # raises, and says which device is missing
        elif self.needed > self.available:
            raise ConfigError(
                f"the run needs about {_listed(self.parts)} without a key-value cache, and {_place(self.device)} has "
                f"{size_text(self.available)}; {_advice(plan)}."
            )
        elif sum(self.rank.values()) > self.available:
            raise ConfigError(
                f"each rank of the learner needs about {_listed(self.rank)}, and {_place(self.device)} has "
                f"{size_text(self.available)}; expected more cluster.learners, train.recompute = true, or a lower "
                f"train.micro_batch_tokens (now {plan.recipe.train.micro_batch_tokens:,})."
            )


def estimate(plan: RunPlan) -> MemoryEstimate:
    """Estimate the memory of a run, part by part."""
    recipe, train = plan.recipe, plan.recipe.train
    device = wanted_device(recipe)
    dtype = dtype_of(recipe, device)
    width = dtype.itemsize
    shapes = {base: shape_of(base, recipe.seed, dtype) for base in _bases(plan)}
    parts = dict.fromkeys(("weights", "masters", "optimiser", "gradients", "activations", "logits"), 0)
    gradients: dict[str, int] = {}
    engines = _add_policies(plan, shapes, dtype, parts, gradients)
    activations = train.micro_batch_tokens * max(_kept(s, recipe) for s in shapes.values())
    vocabulary = max(s.vocabulary for s in shapes.values())
    logits = train.micro_batch_tokens * vocabulary
    at_once = min(logits, max(CPU_LOGITS, vocabulary))
    logits = _LOGITS_CPU * _FP32 * at_once if device == "cpu" else (_FP32 + width) * min(logits, GPU_LOGITS)
    rank: dict[str, int] = {}
    if train.shard == "fsdp":
        rank = {**_shards(plan, shapes, dtype, parts, gradients), "activations": activations, "logits": logits}
        if device == "cuda" and recipe.engine.kind != "local" and not recipe.cluster.engines:
            parts["weights"] = 0  # neither learner nor engine use the copy in this process, so it is in host memory
    _add_critics(plan, shapes, parts, gradients)
    _add_judges(recipe, shapes, dtype, parts, gradients)
    parts["gradients"] = max(gradients.values(), default=0)  # only one model has gradients at a time
    if recipe.warmstart is not None and recipe.warmstart.base:
        parts["imitation of the base"] = _imitation(plan, shapes, dtype, parts)
    if not rank or gradients:  # else this process trains nothing
        parts |= {"activations": activations, "logits": logits}
    if not _ranks_apart(recipe, device):
        parts |= {name: parts.get(name, 0) + n for name, n in rank.items()}
        rank = {}
    whole = available_bytes(device)
    available = None if whole is None else int(recipe.memory.share * whole)
    free, reserve = (available or 0) - parts["weights"], sum(parts.values()) - parts["weights"]
    cache, why = _cache(recipe, [shapes[base] for base in engines], device, free, reserve)
    seeing = [shapes[base].encoder for base in engines if shapes[base].encoder]
    features = KEPT_BYTES * len(seeing) + (sum(seeing) if device == "cuda" else 0)
    return MemoryEstimate(parts, cache, device, available, features, why, rank)


def playing(plan: RunPlan) -> tuple[int, int]:
    """The bytes of the weights and of the key-value caches in another process that samples for the run. References,
    critics and reward models are in the process of the run alone."""
    recipe, device = plan.recipe, wanted_device(plan.recipe)
    dtype = dtype_of(recipe, device)
    shapes = {base: shape_of(base, recipe.seed, dtype) for base in _bases(plan)}
    parts = dict.fromkeys(("weights", "masters", "optimiser"), 0)
    engines = _add_policies(plan, shapes, dtype, parts, {}, references=False)
    free = int(recipe.memory.share * (available_bytes(device) or 0)) - parts["weights"]
    cache, _ = _cache(recipe, [shapes[base] for base in engines], device, max(0, free), 0)
    return parts["weights"], cache


def _ranks_apart(recipe: Recipe, device: str) -> bool:
    """Whether the ranks of sharded learners have GPUs that the process of the run does not use. Ray is not given the
    first GPU (`distributed/connection.py`), if there is another one. Ranks that are child processes use it too."""
    return device == "cuda" and recipe.cluster.uses_ray and torch.cuda.device_count() != 1


def _cache(recipe: Recipe, shapes: list[ModelShape], device: str, free: int, reserve: int) -> tuple[int, str]:
    """The bytes of the caches of engines with these models, and on a GPU the reason for the last one's size. `free` is
    what the weights leave, and `reserve` what the learners need of it."""
    if device == "cpu":
        return sum(CPU_CACHE_TOKENS * shape.cache for shape in shapes), ""
    total, why, room = 0, "", cache_room(recipe, reserve)
    for shape in shapes:
        tokens, why = room.size(free - total, shape.cache, shape.context)
        total += tokens * shape.cache
    return total, why


def _advice(plan: RunPlan) -> str:
    """The changes that would make a run fit, tried from the one that costs the least speed."""
    small = {"optimizer": "adamw_8bit"}
    sharded = plan.recipe.train.shard == "fsdp"
    for change in ({}, {"recompute": True}, *(() if sharded else (small, {"recompute": True, **small}))):
        tokens = plan.recipe.train.micro_batch_tokens
        while tokens >= _LEAST:
            found = estimate(_changed(plan, {**change, "micro_batch_tokens": tokens}))
            if found.available is not None and found.needed <= found.available:
                keys = {**change, "micro_batch_tokens": tokens}
                words = " ".join(f"train.{k}={str(v).lower()}" for k, v in keys.items())
                return f"it would fit with {words} ({size_text(found.needed)})"
            tokens //= 2
    with_these = "train.recompute=true" + ("" if sharded else " and train.optimizer=adamw_8bit")
    return (
        f"no train.micro_batch_tokens from {_LEAST} up makes it fit, not even with {with_these}; "
        f"{'set more cluster.learners, ' if sharded else ''}train adapters (policies.NAME.adapter) instead of all "
        "weights, or a smaller base"
    )


def _changed(plan: RunPlan, change: Mapping[str, Any]) -> RunPlan:
    train = plan.recipe.train.model_copy(update=dict(change))
    return replace(plan, recipe=plan.recipe.model_copy(update={"train": train}))


def _shards(
    plan: RunPlan, shapes: dict[str, ModelShape], dtype: torch.dtype, parts: dict[str, int], gradients: dict[str, int]
) -> dict[str, int]:
    """What sharded learners need, with weights of their own; taken out of `parts` and `gradients`. Models are in parts,
    and every rank has all adapters. On GPUs, this is the memory of one rank: of all models, or of one if each model has
    GPUs of its own. On a CPU, it is that of all ranks."""
    recipe, device = plan.recipe, wanted_device(plan.recipe)
    learners, rounded = recipe.cluster.learners, dtype is not torch.float32
    devices, copies = (learners, 1) if device == "cuda" else (1, learners)
    models = max(1, len(gradients)) if _ranks_apart(recipe, device) else 1
    trained = [recipe.policies[name] for name in plan.trainable]
    full = sum(shapes[p.base].count for p in trained if p.adapter is None)
    frozen = sum(shapes[base].count for base in {p.base for p in trained if p.adapter is not None})
    adapters = copies * sum(sum(shapes[p.base].adapter(p.adapter)) for p in trained if p.adapter is not None)
    largest = max((shapes[p.base].count for p in trained if p.adapter is None), default=0)
    kept = recipe.keeps_gathered  # then a frozen base is not sharded
    out = {
        "masters": -(-_FP32 * full // devices) if rounded else 0,
        "optimiser": 2 * _FP32 * (-(-full // devices) + adapters),
        "shards": -(-dtype.itemsize * (full if kept else full + frozen) // devices),
        "gathered weights": copies * dtype.itemsize * (full + frozen) if kept else 0,
        "adapters": _FP32 * adapters,
    }
    out = {name: -(-n // models) for name, n in out.items()}
    whole = (_FP32 + (dtype.itemsize if rounded else 0)) * largest
    out["gradients"] = max(-(-whole // devices), _FP32 * adapters // models)
    parts |= {"masters": 0, "optimiser": 0}
    gradients.clear()
    return out


def _add_policies(
    plan: RunPlan, shapes: dict[str, ModelShape], dtype: torch.dtype, parts: dict[str, int], gradients: dict[str, int],
    references: bool = True,
) -> list[str]:  # fmt: skip
    """Add the memory of policies and their frozen copies to `parts`; return the base of each of their engines."""
    recipe = plan.recipe
    width, rounded = dtype.itemsize, dtype is not torch.float32
    ours = {name: policy for name, policy in recipe.policies.items() if not policy.is_remote}
    bases = {p.base for p in ours.values() if p.adapter is not None}
    engines: list[str] = []
    for base in bases:
        parts["weights"] += width * shapes[base].count
        engines.append(base)
    for name, policy in ours.items():
        shape = shapes[policy.base]
        if policy.adapter is not None:
            own = shape.adapter(policy.adapter)
            parts["weights"] += (_FP32 + width) * sum(own)  # its own weights, and the engine's copy
            group = policy.base
        elif policy.base in bases and not policy.trainable:
            continue
        else:
            own, group = shape.tensors, name
            parts["weights"] += width * shape.count
            engines.append(policy.base)
        if policy.trainable:
            copies = rounded and policy.adapter is None
            parts["masters"] += _FP32 * sum(own) if copies else 0
            parts["optimiser"] += _moments(own, plan.settings(name).optimizer)
            gradients[group] = gradients.get(group, 0) + (_FP32 + (width if copies else 0)) * sum(own)
    for name in _frozen_copies(plan, shapes, references):
        policy = recipe.policies[name]
        if policy.adapter is None:
            parts["weights"] += width * shapes[policy.base].count
            engines.append(policy.base)
        else:
            parts["weights"] += (_FP32 + width) * sum(shapes[policy.base].adapter(policy.adapter))
    return engines


def _imitation(plan: RunPlan, shapes: dict[str, ModelShape], dtype: torch.dtype, parts: dict[str, int]) -> int:
    """The memory that imitation by all weights of a base needs beyond that of training. The two never run at the same
    time."""
    policies = [p for p in plan.recipe.policies.values() if not p.is_remote]
    moving = [shapes[p.base].tensors for p in policies if p.adapter is not None and p.trainable]
    weight = _FP32 + (0 if dtype is torch.float32 else _FP32 + dtype.itemsize)
    whole = (_moments(t, plan.recipe.train.optimizer) + weight * sum(t) for t in moving)
    later = parts["masters"] + parts["optimiser"] + parts["gradients"]
    return max(0, max(whole, default=0) - later)


def _bases(plan: RunPlan) -> set[str]:
    critic = plan.algorithm.critic
    own = {critic.base} if critic is not None and critic.base is not None else set()
    judged = {base for base, _ in _reward_models(plan.recipe)}
    return {p.base for p in plan.recipe.policies.values() if not p.is_remote} | own | judged


def _frozen_copies(plan: RunPlan, shapes: dict[str, ModelShape], references: bool) -> list[str]:
    """The policies of all snapshots in memory at once: references, seated starts, and opponents from a league."""
    recipe, league = plan.recipe, plan.recipe.league

    def size(name: str) -> tuple[bool, int]:
        return recipe.policies[name].adapter is None, shapes[recipe.policies[name].base].count

    if league is None:
        return [who.policy for who in (plan.snapshots if references else plan.starts)]
    starts = {who.policy for who in plan.starts}
    starts |= {who.policy for who in plan.panel if isinstance(who, Snapshot)}
    out = sorted(starts | set(plan.trainable if plan.algorithm.reference and references else ()))
    for matchup in plan.matchups:
        for who in {n for n in matchup.named if isinstance(n, FromLeague)}:
            pool = [who.policy] if who.policy else plan.trainable
            out += [max(pool, key=size)] * min(league.lineup, league.capacity * len(pool))
    return out


def _add_critics(
    plan: RunPlan, shapes: dict[str, ModelShape], parts: dict[str, int], gradients: dict[str, int]
) -> None:
    critic = plan.algorithm.critic
    if critic is None:
        return
    loaded = {p.base for p in plan.recipe.policies.values() if p.adapter is not None}
    for name in plan.trainable:
        base = critic.base or plan.recipe.policies[name].base
        own = shapes[base].tensors if critic.adapter is None else shapes[base].adapter(critic.adapter)
        parts["weights"] += _FP32 * sum(own)
        if critic.adapter is not None and base not in loaded:
            loaded.add(base)
            parts["weights"] += _FP32 * shapes[base].count
        parts["optimiser"] += _moments(own, plan.recipe.train.optimizer)
        gradients[f"critic of {name}"] = _FP32 * sum(own)


def _reward_models(recipe: Recipe) -> list[tuple[str, JudgeSection]]:
    """The bases or folders of the reward models and verifiers that this process loads."""
    here = (s for s in recipe.judges.values() if s.kind in MODELS and not s.who.startswith(HTTP))
    return [(str(Path(s.who.removeprefix(BASE)).expanduser()), s) for s in here]


def _add_judges(
    recipe: Recipe, shapes: dict[str, ModelShape], dtype: torch.dtype, parts: dict[str, int], gradients: dict[str, int]
) -> None:
    """Every reward model has weights of its own, even if a policy has the same base."""
    for number, (base, section) in enumerate(_reward_models(recipe)):
        shape = shapes[base]
        parts["weights"] += dtype.itemsize * shape.count
        if section.train is None:
            continue
        adapter = section.train.adapter
        own = shape.trunk if adapter is None else shape.adapter(adapter)
        copies = adapter is None and dtype is not torch.float32
        parts["weights"] += _FP32 * sum(own) if adapter is not None else 0
        parts["masters"] += _FP32 * sum(own) if copies else 0
        parts["optimiser"] += _moments(own, recipe.train.optimizer)
        gradients[f"judge {number}"] = (_FP32 + (dtype.itemsize if copies else 0)) * sum(own)


def _moments(tensors: tuple[int, ...], optimizer: Optimizer) -> int:
    """The bytes of an optimiser's state on the device."""
    if optimizer.startswith("paged"):
        return 0  # the driver can move it to the host
    if optimizer == "adamw":
        return 2 * _FP32 * sum(tensors)
    small = sum(n for n in tensors if n < _SMALL)
    large = [n for n in tensors if n >= _SMALL]
    return 2 * (_FP32 * small + sum(large) + sum(_FP32 * -(-n // _BLOCK) for n in large))


def _kept(shape: ModelShape, recipe: Recipe) -> int:
    if not recipe.train.recompute:
        return shape.activations
    return shape.layers * shape.layer_input + shape.activations // shape.layers


def learner_bytes(plan: RunPlan) -> int:
    """On a GPU, what training will need besides the weights, so that the engines' caches leave it free."""
    if wanted_device(plan.recipe) != "cuda":
        return 0
    found = estimate(plan)
    return found.needed - found.parts["weights"]


def estimated_metrics(plan: RunPlan) -> dict[str, float]:
    """On a GPU, the estimate of a run's memory with its cache. It can be compared with the metric `memory_gib`, the
    memory that was used. On a CPU it cannot, because `memory_gib` then also counts Python and its libraries."""
    return {"memory_estimate_gib": estimate(plan).total / GiB} if wanted_device(plan.recipe) == "cuda" else {}


def _names(parts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {size_text(n)}" for name, n in parts.items() if n)


def _listed(parts: Mapping[str, int]) -> str:
    return f"{size_text(sum(parts.values()))} ({_names(parts)})"


def _place(device: str) -> str:
    return "this machine's memory" if device == "cpu" else "the GPU's memory"
