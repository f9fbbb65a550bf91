"""The recipe's policies, loaded: model, engine and renderer of each, and agents made from them for an episode."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from interplay.agents.agent import Agent, BotAgent, ModelAgent
from interplay.agents.bots import make_bot
from interplay.agents.render import Renderer
from interplay.config import START, Recipe
from interplay.engines.engine import Engine, Sampling
from interplay.engines.local import LocalEngine
from interplay.errors import ConfigError, did_you_mean
from interplay.policies.model import Loaded, load
from interplay.policies.policy import BOT
from interplay.rollout.runner import Seating
from interplay.types import Role, Task


def dtype_of(recipe: Recipe, device: str) -> torch.dtype:
    if recipe.dtype == "auto":
        return torch.bfloat16 if device == "cuda" else torch.float32
    return torch.bfloat16 if recipe.dtype == "bfloat16" else torch.float32


@dataclass
class Member:
    """One policy in memory. The engine samples from `loaded.model` itself."""

    name: str
    loaded: Loaded
    engine: Engine
    renderer: Renderer
    trainable: bool


class Team:
    def __init__(self, members: Mapping[str, Member], env_name: str) -> None:
        self.members = dict(members)
        self.env_name = env_name

    @staticmethod
    def load(recipe: Recipe, sources: Mapping[str, str] | None = None) -> Team:
        """Load every policy; `sources` replaces the base of some (a checkpoint's folder)."""
        device = recipe.device if recipe.device != "auto" else ("cuda" if torch.cuda.is_available() else "cpu")
        if device == "cuda" and not torch.cuda.is_available():
            raise ConfigError("device is 'cuda', but this machine has no CUDA device; expected 'cpu' or 'auto'.")
        members = {}
        for name, policy in recipe.policies.items():
            loaded = load((sources or {}).get(name, policy.base), device, dtype_of(recipe, device), recipe.seed)
            engine = LocalEngine(loaded.model)
            if policy.trainable and not (engine.capabilities.token_ids and engine.capabilities.logprobs):
                raise ConfigError(f"policies.{name} is trainable, but its engine gives no token ids and log-probs.")
            renderer = Renderer(loaded.tokenizer, loaded.stop_ids)
            members[name] = Member(name, loaded, engine, renderer, policy.trainable)
        return Team(members, recipe.env.name)

    def agent(self, role: Role, occupant: str, temperature: float, max_tokens: int) -> Agent:
        """Whoever `occupant` names (a policy or `bot:name`), ready to sit in `role` for one episode."""
        if occupant.startswith(BOT):
            return BotAgent(role, occupant, make_bot(occupant.removeprefix(BOT), self.env_name))
        member = self.members.get(occupant)
        if member is None:
            raise ConfigError(f"'{occupant}' is no policy of this run; {did_you_mean(occupant, self.members)}")
        sampling = Sampling(temperature, max_tokens, member.loaded.stop_ids)
        return ModelAgent(role, occupant, member.trainable, member.engine, member.renderer, sampling)

    def seating(self, seats: Callable[[Task], Mapping[Role, str]], temperature: float, max_tokens: int) -> Seating:
        """Fresh agents for each episode, in the seats that `seats` gives its task."""
        return lambda task: {r: self.agent(r, who, temperature, max_tokens) for r, who in seats(task).items()}

    def snapshot(self, name: str, source: Path) -> None:
        """Seat a frozen copy of a policy, read from `source`, under the name `name`."""
        origin = self.members[name.removesuffix(START)]
        model = origin.loaded.model
        loaded = load(str(source), str(model.device), model.dtype, 0)
        self.members[name] = Member(name, loaded, LocalEngine(loaded.model), origin.renderer, trainable=False)

    def close(self) -> None:
        for member in self.members.values():
            member.engine.close()
