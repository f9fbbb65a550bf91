"""A learner whose model is sharded over processes of its own (`rank_group.py`). This is the driver's side of it.

The driver has another copy of the weights, for the local engine. It is replaced after every training step, under the
lock that keeps the engine from reading it. So the engine of a sharded policy never uses the learner's own tensors, and
versions are published like those of an adapter: once for each training step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from interplay.config import TrainSection
from interplay.errors import ConfigError
from interplay.models.adapter import Adapter
from interplay.models.device import device_of
from interplay.models.latch import latch_of
from interplay.rollout.team import Team
from interplay.seats import RunPlan
from interplay.training.critic import Critic
from interplay.training.learner import Learner, Objective, critic_of
from interplay.training.rank_group import RankGroup, StartRanks
from interplay.training.rank_process import RankSetup, ShardedPolicy
from interplay.training.transfer import read_weights, write_weights
from interplay.training.tries import Example


class ShardedLearner:
    """`model` and `adapter` are the driver's copies."""

    apart = True

    def __init__(
        self, name: str, group: RankGroup, model: PreTrainedModel, config: TrainSection, lr: float,
        adapter: Adapter | None = None,
    ) -> None:  # fmt: skip
        self.name, self.group, self.model, self.config, self.lr, self.adapter = name, group, model, config, lr, adapter
        self.steps = 0
        self.critic: Critic | None = None
        self.written: Callable[[], None] | None = None

    @property
    def shares(self) -> object:
        return self.group

    @property
    def rounded(self) -> bool:
        return self.model.dtype is not torch.float32

    @property
    def size(self) -> int:
        return sum(t.numel() for t in self.weights().values())

    def weights(self) -> Mapping[str, Tensor]:
        if self.adapter is None:
            return dict(self.model.named_parameters())
        pairs = self.adapter.weights.items()
        return {f"{n}.{side}": t for n, pair in pairs for side, t in zip(("lora_A", "lora_B"), pair, strict=True)}

    # -- training -------------------------------------------------------------------------------------------------

    def logprobs(self, examples: Sequence[Example]) -> list[list[float]]:
        return self.logprobs_together([self], examples)

    def logprobs_together(self, learners: Sequence[ShardedLearner], examples: Sequence[Example]) -> list[list[float]]:
        return self.group.ask("logprobs", [x.name for x in learners], examples) if examples else []

    def values(self, examples: Sequence[Example], tokens: bool) -> list[tuple[float, ...]]:
        return critic_of(self).values(examples, tokens)

    def fit(self, examples: Sequence[Example], tokens: bool) -> dict[str, float]:
        return critic_of(self).step(examples, tokens)

    def step(self, examples: Sequence[Example], objective: Objective) -> dict[str, float]:
        return self.step_together([self], {self.name: examples}, objective)[self.name]

    def step_together(
        self, learners: Sequence[ShardedLearner], examples: Mapping[str, Sequence[Example]], objective: Objective
    ) -> dict[str, dict[str, float]]:
        unwatched = replace(objective, watch=None)  # the ranks cannot write into the credit of this process
        done = self.group.ask("step", {x.name: examples[x.name] for x in learners}, unwatched)
        for learner in learners:
            learner.steps += 1
            for _ in range(done.written.get(learner.name, 0)):
                if learner.written is not None:
                    learner.written()
        return done.metrics

    def imitate(self, examples: Sequence[Example], lr: float | None = None) -> float:
        return self.group.ask("imitate", self.name, examples, lr)

    def reset_optimizer(self, lr: float) -> None:
        self.lr = lr
        self.group.ask("reset_optimizer", self.name, lr)

    # -- weights and state ----------------------------------------------------------------------------------------

    @contextmanager
    def delivered(self) -> Iterator[None]:
        """Replace the driver's copy of the weights by the trained ones. While this context is open, nobody reads it."""
        if self.adapter is not None:
            found: Adapter = self.group.ask("adapter", self.name)
            self.adapter.overwrite(found)
            yield
            return
        folder = self.group.scratch / "weights"
        self.group.ask("write_weights", folder)
        with latch_of(self.model).writing():
            read_weights(self.model, folder)
            yield

    def begin_again(self) -> None:
        """Make the ranks continue from the driver's copy of the weights, with a new optimiser."""
        source: Path | Adapter
        if self.adapter is None:
            source = self.group.scratch / "replaced"
            write_weights(self.model, source)
        else:
            source = self.adapter.detached()
        self.group.ask("begin_again", self.name, source)

    def close(self) -> None:
        self.group.close()

    def state_dict(self) -> dict[str, Any]:
        file = self.group.scratch / f"{self.name}.pt"
        self.group.ask("save_state", self.name, file)
        return torch.load(file, map_location="cpu", weights_only=True)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        file = self.group.scratch / f"{self.name}.pt"
        torch.save(dict(state), file)
        self.group.ask("load_state", self.name, file)
        self.steps = state["steps"]


def sharded_learners(plan: RunPlan, team: Team, start: StartRanks | None = None) -> dict[str, Learner]:
    """A learner for each trained policy. Policies that are adapters on one base share its processes. `start` starts
    them; without it, they are children of this process."""
    recipe = plan.recipe
    device = device_of(recipe)
    if start is None and device == "cuda" and recipe.cluster.learners > torch.cuda.device_count():
        raise ConfigError(
            f"cluster.learners is {recipe.cluster.learners}, but this machine has {torch.cuda.device_count()} GPUs; "
            "expected at most one process for each GPU."
        )
    by_model: dict[int, list[str]] = defaultdict(list)
    for name in plan.trainable:
        by_model[id(team.members[name].loaded)].append(name)
    setups: list[RankSetup] = []
    for names in by_model.values():
        model = team.members[names[0]].loaded.model
        settings = {name: plan.settings(name) for name in names}
        adapters = {name: team.members[name].adapter for name in names}
        policies = {n: ShardedPolicy(settings[n], settings[n].lr, _on_host(adapters[n])) for n in names}
        setup = RankSetup(
            rank=0,
            size=recipe.cluster.learners,
            meeting="",
            source=model.config.name_or_path,
            device=device,
            dtype=str(model.dtype).removeprefix("torch."),
            seed=recipe.seed,
            timeout=recipe.cluster.learner_timeout,
            keep=recipe.keeps_gathered,
            policies=policies,
        )
        setups.append(setup)
    out: dict[str, Learner] = {}
    for names, group in zip(by_model.values(), _started(setups, start), strict=True):
        for name in names:
            member, settled = team.members[name], plan.settings(name)
            out[name] = ShardedLearner(name, group, member.loaded.model, settled, settled.lr, member.adapter)
    return {name: out[name] for name in plan.trainable}


def _started(setups: Sequence[RankSetup], start: StartRanks | None) -> list[RankGroup]:
    """Start all groups, then wait for each: they import libraries and load their models at the same time. If one does
    not start, all are ended."""
    out: list[RankGroup] = []
    try:
        for setup in setups:
            out.append(RankGroup(setup, start))
        for group in out:
            group.begin()
        for group in out:
            group.wait()
    except BaseException:
        for group in out:
            group.close()
        raise
    return out


def _on_host(adapter: Adapter | None) -> Adapter | None:
    return None if adapter is None else adapter.detached()
