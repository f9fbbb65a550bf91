"""Estimate the memory that a run needs before it starts.

The sizes of models are computed without their weights (`model_shape.py`). On a GPU the engine makes its key-value cache
as large as the run can use, and takes at most a quarter of the free memory (`engines/local/room.py`); on a CPU, memory
is taken only as it is used. So the cache is reported, but a run is never refused because of it. The same holds for the
features of pictures and sounds, which a model that sees or hears keeps up to a limit.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
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
from interplay.training.model_shape import ModelShape, shape_of

GiB = 1 << 30
_FP32 = 4
_SMALL = 4096  # an 8-bit optimiser keeps fp32 moments for tensors smaller than this
_BLOCK = 256  # numbers per scale in an 8-bit optimiser
_LOGITS_CPU = 5  # fp32 copies of a piece: logits, scaled, log-probs, probabilities, their product
_LEAST = 256  # tokens in the smallest micro-batch that is worth suggesting


@dataclass(frozen=True)
class MemoryEstimate:
    """The needed bytes by purpose, and the memory of the device that the run may take. `features` is the most for kept
    pictures and sounds, and on a GPU for their encoder. `why` says why the cache has its size. `available` is None if
    this machine has no such device; the cache, which takes a share of it, is then 0."""

    parts: dict[str, int]
    cache: int
    device: str
    available: int | None
    features: int = 0
    why: str = ""

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
        listed = ", ".join(f"{name} {size_text(n)}" for name, n in parts.items() if n)
        if self.available is None:
            return f"needs about {size_text(self.total)} of a GPU's memory, and more for its key-value cache ({listed})"
        needs = f"needs about {size_text(self.total)} of {size_text(self.available)} of {_place(self.device)}"
        return f"{needs} ({listed})" + (f"; the cache is {self.why}" if self.why else "")

    def refuse(self, plan: RunPlan) -> None:
        """Raise if the run cannot fit into memory. The error names values that would fit."""
        if self.available is None:
            device_of(plan.recipe)  # raises, and says which device is missing
        elif self.needed > self.available:
            listed = ", ".join(f"{name} {size_text(n)}" for name, n in self.parts.items() if n)
            raise ConfigError(
                f"the run needs about {size_text(self.needed)} without a key-value cache ({listed}), and "
                f"{_place(self.device)} has {size_text(self.available)}; {_advice(plan)}."
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
    _add_critics(plan, shapes, parts, gradients)
    _add_judges(recipe, shapes, dtype, parts, gradients)
    parts["gradients"] = max(gradients.values(), default=0)  # only one model has gradients at a time
    if recipe.warmstart is not None and recipe.warmstart.base:
        parts["imitation of the base"] = _imitation(plan, shapes, dtype, parts)
    parts["activations"] = train.micro_batch_tokens * max(_kept(s, recipe) for s in shapes.values())
    vocabulary = max(s.vocabulary for s in shapes.values())
    logits = train.micro_batch_tokens * vocabulary
    at_once = min(logits, max(CPU_LOGITS, vocabulary))
    parts["logits"] = _LOGITS_CPU * _FP32 * at_once if device == "cpu" else (_FP32 + width) * min(logits, GPU_LOGITS)
    if train.shard == "fsdp":
        _add_shards(plan, shapes, dtype, parts)
    whole = _available(device)
    available = None if whole is None else int(recipe.memory.share * whole)
    free, reserve = (available or 0) - parts["weights"], sum(parts.values()) - parts["weights"]
    cache, why = _cache(recipe, [shapes[base] for base in engines], device, free, reserve)
    seeing = [shapes[base].encoder for base in engines if shapes[base].encoder]
    features = KEPT_BYTES * len(seeing) + (sum(seeing) if device == "cuda" else 0)
    return MemoryEstimate(parts, cache, device, available, features, why)


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
    for change in (
        {}, {"recompute": True}, {"optimizer": "adamw_8bit"}, {"recompute": True, "optimizer": "adamw_8bit"}
    ):  # fmt: skip
        tokens = plan.recipe.train.micro_batch_tokens
        while tokens >= _LEAST:
            found = estimate(_changed(plan, {**change, "micro_batch_tokens": tokens}))
            if found.available is not None and found.needed <= found.available:
                keys = {**change, "micro_batch_tokens": tokens}
                words = " ".join(f"train.{k}={str(v).lower()}" for k, v in keys.items())
                return f"it would fit with {words} ({size_text(found.needed)})"
            tokens //= 2
    return (
        f"no train.micro_batch_tokens from {_LEAST} up makes it fit, not even with train.recompute=true and "
        "train.optimizer=adamw_8bit; train adapters (policies.NAME.adapter) instead of all weights, or a smaller base"
    )


def _changed(plan: RunPlan, change: Mapping[str, Any]) -> RunPlan:
    train = plan.recipe.train.model_copy(update=dict(change))
    return replace(plan, recipe=plan.recipe.model_copy(update={"train": train}))


def _add_shards(plan: RunPlan, shapes: dict[str, ModelShape], dtype: torch.dtype, parts: dict[str, int]) -> None:
    """Sharded learners have weights of their own. On GPUs, each has its part of everything that is trained. On a CPU,
    the memory of all of them counts."""
    learners, gpu = plan.recipe.cluster.learners, wanted_device(plan.recipe) == "cuda"
    devices = learners if gpu else 1
    for part in ("masters", "optimiser", "gradients"):
        parts[part] = -(-parts[part] // devices)
    trained = [plan.recipe.policies[name] for name in plan.trainable]
    moving = sum(dtype.itemsize * shapes[p.base].count for p in trained if p.adapter is None)
    frozen = sum(dtype.itemsize * shapes[base].count for base in {p.base for p in trained if p.adapter is not None})
    if plan.recipe.keeps_gathered:  # then a frozen base is not sharded
        parts["shards"] = -(-moving // devices)
        parts["gathered weights"] = (moving + frozen) * (1 if gpu else learners)
    else:
        parts["shards"] = -(-(moving + frozen) // devices)


def _add_policies(
    plan: RunPlan, shapes: dict[str, ModelShape], dtype: torch.dtype, parts: dict[str, int], gradients: dict[str, int]
) -> list[str]:
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
    for name in _frozen_copies(plan, shapes):
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


def _frozen_copies(plan: RunPlan, shapes: dict[str, ModelShape]) -> list[str]:
    """The policies of all snapshots in memory at once: references, seated starts, and opponents from a league."""
    recipe, league = plan.recipe, plan.recipe.league

    def size(name: str) -> tuple[bool, int]:
        return recipe.policies[name].adapter is None, shapes[recipe.policies[name].base].count

    if league is None:
        return [who.policy for who in plan.snapshots]
    starts = {who.policy for who in plan.starts}
    starts |= {who.policy for who in plan.panel if isinstance(who, Snapshot)}
    out = sorted(starts | set(plan.trainable if plan.algorithm.reference else ()))
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


def peak_bytes() -> int:
    """The most memory that was used at once so far: of the GPU if there is one, else of this process. 0 if the system
    does not report it."""
    if torch.cuda.is_available():
        return int(torch.cuda.max_memory_allocated())
    try:
        import resource
    except ImportError:  # Windows has none
        return 0
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used if sys.platform == "darwin" else used * 1024


def _available(device: str) -> int | None:
    if device == "cuda":
        return int(torch.cuda.mem_get_info()[1]) if torch.cuda.is_available() else None
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = Path("/sys/fs/cgroup/memory.max")  # the limit of a container
    if limit.is_file() and (text := limit.read_text().strip()).isdecimal():
        total = min(total, int(text))
    return total


def size_text(count: int) -> str:
    """A number of bytes for people."""
    if count >= GiB:
        return f"{count / GiB:.0f} GiB" if count >= 10 * GiB else f"{count / GiB:.1f} GiB"
    return f"{count / (1 << 20):.0f} MiB" if count >= 1 << 20 else f"{count / (1 << 10):.0f} KiB"


def _place(device: str) -> str:
    return "this machine's memory" if device == "cpu" else "the GPU's memory"
