"""Critics: they estimate the return from here on.

`Critic` has a value head that starts at zero. Below it is a full model of its own, or an adapter of its own on a shared
base. Either way, policy and critic share no trained parameters.

`StateCritic` is for trees that value candidates instead of playing them out. It reads the role and `Env.state()` after
the candidate's step. It learns from the kept lines: the input is the state after the kept joint action (if several
roles act at once, a candidate may have been scored in another state), the target is what was earned after it
(`credit.beyond`). Requests from many episodes are answered in one forward pass.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from interplay.agents.render import Renderer
from interplay.algorithms import credit
from interplay.algorithms.algorithm import CriticSettings
from interplay.algorithms.losses import value_loss
from interplay.config import Recipe, TrainSection
from interplay.engines.desk import Desk
from interplay.envs import Env
from interplay.errors import ConfigError, EngineError
from interplay.models import senses
from interplay.models.adapter import Adapter
from interplay.models.device import device_of
from interplay.models.latch import Latch
from interplay.models.load import Loaded, load
from interplay.models.staging import to_device
from interplay.rollout.members import fresh_adapter
from interplay.rollout.team import Team
from interplay.training.batch import MicroBatch
from interplay.training.forward import AdapterMixer, hidden_states, pieces
from interplay.training.minibatches import minibatches
from interplay.training.optimizers import clipped_step, load_moments, make_optimizer
from interplay.training.tries import Example
from interplay.training.value_scale import ValueScale
from interplay.types import Episode, Message, Rewards, Role, Sample, Turn, seed_of


class Critic:
    """Computes a value for every prompt. With `adapter`, only its tensors and the head are trained."""

    def __init__(
        self,
        name: str,
        model: PreTrainedModel,
        config: TrainSection,
        settings: CriticSettings,
        adapter: Adapter | None = None,
        seed: int = 0,
    ) -> None:
        self.name, self.model, self.config, self.clip, self.seed = name, model, config, settings.clip, seed
        self.lr = settings.lr
        self.device = next(model.parameters()).device
        size = model.config.get_text_config().hidden_size
        self.head = nn.Linear(size, 1).to(self.device)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self.adapters: dict[str, Adapter] = {}
        if adapter is None:
            self.module = nn.ModuleDict({"trunk": model.base_model, "head": self.head})
        else:
            model.requires_grad_(False)
            own = {n: (nn.Parameter(down), nn.Parameter(up)) for n, (down, up) in sorted(adapter.weights.items())}
            self.adapters = {name: replace(adapter, weights=own)}
            tensors = nn.ParameterList([t for pair in own.values() for t in pair])
            self.module = nn.ModuleDict({"adapter": tensors, "head": self.head})
        self.optimizer = make_optimizer(self.module.parameters(), config, settings.lr)
        self.scale = ValueScale() if settings.normalise else None
        self.latch = Latch(self.device.type == "cuda")
        self.steps = 0

    def _pieces(self, examples: Sequence[Example], tokens: bool) -> Iterator[MicroBatch]:
        return pieces(self.model, examples, self.config.micro_batch_tokens, actions=tokens)

    def _predict(self, batch: MicroBatch, mixer: AdapterMixer) -> Tensor:
        hidden = hidden_states(self.model, batch, mixer.mix(batch), self.config.recompute)
        return self.head(hidden.float()).squeeze(-1).index_select(0, batch.prediction_N)

    @torch.no_grad()
    def values(self, examples: Sequence[Example], tokens: bool = False) -> list[tuple[float, ...]]:
        """A value at the end of each prompt or, with `tokens`, before each sampled token."""
        out: list[tuple[float, ...]] = [()] * len(examples)
        mixer = AdapterMixer(self.model, self.adapters)
        read = [(batch.examples, self._predict(batch, mixer)) for batch in self._pieces(examples, tokens)]
        for members, found in read:  # only here the host waits for the device
            flat = iter(self._outer(found.tolist()))
            for i in members:
                out[i] = tuple(itertools.islice(flat, len(examples[i].sample.action) if tokens else 1))
        return out

    def step(self, examples: Sequence[Example], tokens: bool = False) -> dict[str, float]:
        """Fit the examples' targets, in epochs × minibatches optimiser steps like those of the policy."""
        examples = [e for e in examples if e.targets is not None]
        if self.scale is not None:
            with self.latch.writing():
                self.scale.follow([t for e in examples for t in e.targets or ()], self.head)
        parts = minibatches(examples, self.config, seed_of("critic", self.seed, self.name, self.steps))
        total = 0.0
        for part in parts:
            losses: list[Tensor] = []
            count = sum(len(e.sample.action) for e in part) if tokens else len(part)
            mixer = AdapterMixer(self.model, self.adapters)
            for batch in self._pieces(part, tokens):
                members = [part[i] for i in batch.examples]
                wanted = self._column(e.targets or () for e in members)
                old = self._column(e.values or (0.0,) for e in members)
                weights = torch.full_like(wanted, 1.0 / count)
                loss = value_loss(self._predict(batch, mixer), wanted, old, weights, self.clip)
                loss.backward()
                losses.append(loss.detach())
            lost = sum(torch.stack(losses).tolist())
            total += lost / len(parts)
            mixer.collect()
            who, limit = f"the critic of '{self.name}'", self.config.grad_clip
            with self.latch.writing():
                clipped_step(self.optimizer, limit, lost, who, "lower algorithm.critic.lr")
                self._moved()
        self.steps += 1
        return {"value_loss": total}

    def _moved(self) -> None:
        """If the critic's eye learns too, drop its cached features, so that they are computed again."""
        sense = senses.of(self.model)
        if sense is not None and sense.thawed:
            sense.moved()

    def _outer(self, values: list[float]) -> list[float]:
        return values if self.scale is None else [self.scale.outer(v) for v in values]

    def _column(self, parts: Iterable[Sequence[float]]) -> Tensor:
        """The returns of many examples as one tensor, in the head's units."""
        inner = self.scale.inner if self.scale is not None else float
        return to_device(np.array([inner(x) for part in parts for x in part], np.float32), self.device)

    def state_dict(self) -> dict[str, Any]:
        state = {"module": self.module.state_dict(), "optimizer": self.optimizer.state_dict(), "steps": self.steps}
        return state if self.scale is None else {**state, "scale": self.scale.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.module.load_state_dict(state["module"])
        self._moved()
        load_moments(self.optimizer, state["optimizer"])
        for group in self.optimizer.param_groups:
            group["lr"] = self.lr
        if self.scale is not None:
            self.scale.load_state_dict(state["scale"])
        self.steps = state["steps"]


class Question(NamedTuple):
    """The policy whose critic is asked, and the state as tokens of that policy."""

    policy: str
    seen: tuple[int, ...]


def make_critics(team: Team, recipe: Recipe, settings: CriticSettings, names: Sequence[str]) -> dict[str, Critic]:
    """A critic for each policy of `names`. If policies are sharded, critics are not: each has a whole model in this
    process."""
    out: dict[str, Critic] = {}
    device = device_of(recipe)
    # A base is loaded once for all policies and critics with adapters on it, unless it is only kept in host memory.
    shared = {p.base: team.members[n].loaded for n, p in recipe.policies.items() if p.adapter is not None}
    bases = {base: loaded for base, loaded in shared.items() if loaded.model.device.type == device}
    for name in names:
        member, base = team.members[name], settings.base or recipe.policies[name].base
        loaded = bases.get(base) if settings.adapter is not None else None
        if loaded is None:
            loaded = load(base, device, torch.float32, recipe.seed)
            _see_like(loaded, member.loaded, settings.adapter is None)
        if loaded.tokenizer.get_vocab() != member.loaded.tokenizer.get_vocab():
            raise ConfigError(
                f"algorithm.critic.base is '{base}', whose tokenizer differs from that of policies.{name}; expected a "
                "model with the same tokenizer."
            )
        adapter = None
        if settings.adapter is not None:
            bases[base] = loaded
            adapter = fresh_adapter(loaded, settings.adapter, seed_of("critic", recipe.seed, name))
        out[name] = Critic(name, loaded.model, recipe.train, settings, adapter, recipe.seed)
    return out


def _see_like(critic: Loaded, policy: Loaded, whole: bool) -> None:
    """The critic reads the same prompts as the policy, so its pictures must have the same sizes. If the policy's eye
    learns, the eye of a critic whose weights all learn (`whole`) learns too."""
    if critic.senses is not None and policy.senses is not None:
        critic.senses.see_like(policy.senses)
        if whole and policy.senses.learns:
            critic.senses.learns = True
            senses.thaw(critic.model)


class StateCritic(Desk[Question, float]):
    """Answers the questions of trees: the value of the state after a candidate."""

    def __init__(self, critics: Mapping[str, Critic], renderers: Mapping[str, Renderer], recipe: Recipe) -> None:
        super().__init__()
        self.critics, self.renderers = critics, renderers
        self.weights, self.judges = recipe.reward, recipe.judges
        self._arrived: dict[str, tuple[tuple[int, ...], float]] = {}  # turn id -> state as ids, reward of the step

    async def value(self, role: Role, env: Env, turn: Turn) -> float:
        seen = view_of(self.renderers[turn.policy], role, env.state())
        return await self.ask(Question(turn.policy, seen))

    def arrived(self, role: Role, env: Env, turn: Turn, rewards: Rewards) -> None:
        seen = view_of(self.renderers[turn.policy], role, env.state())
        self._arrived[turn.id] = seen, credit.mix(rewards, role, self.weights)

    def forget(self, episodes: Iterable[Episode]) -> None:
        """Drop what arrived in episodes that will not be learned from."""
        for turn in (turn for episode in episodes for turn in episode.turns):
            self._arrived.pop(turn.id, None)

    def rank(self, question: Question) -> int:
        return list(self.critics).index(question.policy)

    def answers(self, questions: Sequence[Question]) -> list[float]:
        values: list[float] = []
        for name, critic in self.critics.items():
            asked = [_read(q.policy, q.seen) for q in questions if q.policy == name]
            with critic.latch.reading():
                values += [value for (value,) in critic.values(asked)]
        return values

    def broken(self, error: Exception) -> EngineError:
        return EngineError(f"the critic failed: {type(error).__name__}: {error}")

    def learn(self, lines: Sequence[Sequence[Turn]]) -> dict[str, float]:
        """Learn from lines: the kept turns of a role, in order."""
        examples: dict[str, list[Example]] = {name: [] for name in self.critics}
        # Episodes that go on meanwhile add to `_arrived` on another thread, so it is not iterated over.
        kept = {turn.id for line in lines for turn in line}
        paid = {turn: self._arrived[turn][1] for turn in kept if turn in self._arrived}
        for line in lines:
            for turn, ahead in credit.beyond(line, paid, self.weights, self.judges):
                seen, _ = self._arrived.pop(turn.id)
                examples[turn.policy].append(replace(_read(turn.policy, seen), targets=(ahead,)))
        return {f"{n}/{k}": v for n, critic in self.critics.items() for k, v in critic.step(examples[n]).items()}


def _read(policy: str, seen: tuple[int, ...]) -> Example:
    """A state as an example for a critic: a prompt without a reply."""
    return Example(policy, Sample("", seen, (), (), (), ""))


def view_of(renderer: Renderer, role: Role, state: str) -> tuple[int, ...]:
    """The prompt of a central critic: the whole state, and the role whose value is asked for."""
    return renderer.prompt((Message("user", f"{state}\nYou are {role}."),)).ids
