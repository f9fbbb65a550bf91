"""The recipe's policies, loaded: model, engine and renderer of each, and agents made from them for an episode."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from interplay.agents.bots import make_bot
from interplay.agents.model import ModelAgent
from interplay.agents.player import Agent
from interplay.agents.relay import Relay
from interplay.agents.remote import RemoteAgent
from interplay.agents.render import Renderer
from interplay.agents.scripted import BotAgent
from interplay.config import REMOTE, AdapterSection, Recipe, RemoteSection, ToolSection
from interplay.engines.engine import Engine, Sampling
from interplay.engines.local import LocalEngine
from interplay.engines.openai import RemoteEngine
from interplay.errors import ConfigError, did_you_mean
from interplay.models.adapter import Adapter
from interplay.models.load import Loaded, load
from interplay.models.locate import locate
from interplay.models.lora import CONFIG as PEFT_CONFIG
from interplay.models.lora import base_of, load_adapter, new_adapter, on_device, save_adapter
from interplay.models.save import save as save_model
from interplay.rollout.runner import Seated, Seating
from interplay.types import ByTurn, Occupant, Remote, Role, Scripted, Snapshot, Task, seed_of


def device_of(recipe: Recipe) -> str:
    device = recipe.device if recipe.device != "auto" else ("cuda" if torch.cuda.is_available() else "cpu")
    if device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device is 'cuda', but this machine has no CUDA device; expected 'cpu' or 'auto'.")
    return device


def dtype_of(recipe: Recipe, device: str) -> torch.dtype:
    if recipe.dtype == "auto":
        return torch.bfloat16 if device == "cuda" else torch.float32
    return torch.bfloat16 if recipe.dtype == "bfloat16" else torch.float32


@dataclass
class Member:
    """One policy in memory. The engine samples from `loaded.model` itself, with `adapter` where there is one; members
    that are adapters of one base share model and engine."""

    name: str
    loaded: Loaded
    engine: Engine
    renderer: Renderer
    trainable: bool
    adapter: Adapter | None = None
    version: int = 0

    def publish(self, version: int) -> None:
        """The weights changed: the engine samples from them from now on."""
        self.version = version
        if self.adapter is None:
            self.engine.update(version)
        else:
            self.engine.load(self.name, self.adapter, version)

    def save(self, folder: Path) -> None:
        """A plain Hugging Face folder, or PEFT's."""
        if self.adapter is None:
            save_model(self.loaded, folder)
        else:
            save_adapter(self.adapter, folder, self.loaded.model.config.name_or_path)


@dataclass(frozen=True)
class Speech:
    """How models speak in a game: with `legal`, only replies that are listed as legal can be given."""

    temperature: float
    max_tokens: int
    legal: bool = False


def speech_of(recipe: Recipe) -> Speech:
    """How models speak while a recipe trains."""
    sampling = recipe.sampling
    return Speech(sampling.temperature, sampling.max_tokens, sampling.legal)


class Team:
    """`members` hold weights here, `remotes` are models behind somebody's server."""

    def __init__(
        self,
        members: Mapping[str, Member],
        env_name: str,
        stop_strings: tuple[str, ...] = (),
        tools: ToolSection | None = None,
        remotes: Mapping[str, RemoteEngine] | None = None,
    ) -> None:
        self.members = dict(members)
        self.env_name, self.stop_strings = env_name, stop_strings
        self.tools = tools or ToolSection()
        self.remotes = dict(remotes or {})
        self.sources: dict[str, tuple[str, ...]] = {}  # what each one's weights were made from, or where it answers
        self._idle: dict[str, Member] = {}  # full models of snapshots that sit nowhere now; their memory is used again

    @staticmethod
    def load(recipe: Recipe, sources: Mapping[str, str] | None = None) -> Team:
        """Load every policy; `sources` replaces the weights of some (a checkpoint's folder)."""
        device = device_of(recipe)
        shared: dict[str, tuple[Loaded, Engine, Renderer]] = {}
        members = {}

        def made(source: str) -> tuple[Loaded, Engine, Renderer]:
            loaded = load(source, device, dtype_of(recipe, device), recipe.seed)
            return loaded, _engine(loaded), Renderer(loaded.tokenizer, loaded.stop_ids)

        remotes = {
            name: RemoteEngine(policy.base.removeprefix(REMOTE), policy.remote or RemoteSection())
            for name, policy in recipe.policies.items()
            if policy.is_remote
        }
        bases = {p.base for p in recipe.policies.values() if p.adapter is not None}
        for name, policy in recipe.policies.items():
            if name in remotes:
                continue
            source = (sources or {}).get(name)
            # An adapter needs its base once, however many there are; so does whoever plays that base as it is.
            if policy.adapter is not None or (policy.base in bases and not policy.trainable):
                if policy.base not in shared:
                    shared[policy.base] = made(policy.base)
                loaded, engine, renderer = shared[policy.base]
            else:
                loaded, engine, renderer = made(source or policy.base)
            able = engine.capabilities
            if policy.trainable and not (able.token_ids and able.logprobs):
                raise ConfigError(f"policies.{name} is trainable, but its engine gives no token ids and log-probs.")
            member = members[name] = Member(name, loaded, engine, renderer, policy.trainable)
            if policy.adapter is not None:
                member.adapter = _adapter(loaded, policy.adapter, source, seed_of("adapter", recipe.seed, name))
                member.publish(0)
        team = Team(members, recipe.env.name, tuple(recipe.sampling.stop), recipe.tools, remotes)
        for name, policy in recipe.policies.items():
            read = (sources or {}).get(name, f"seed {recipe.seed}")
            team.sources[name] = (read, policy.base, f"{policy.adapter} {policy.remote}")
        return team

    def agent(self, role: Role, who: Occupant, how: Speech) -> Agent:
        """An occupant, ready to sit in `role` for one game."""
        if isinstance(who, ByTurn):
            made = {one: self.agent(role, one, how) for one in who.takers}
            return Relay(role, str(who), tuple(made[one] for one in who.takers), who.always)
        if isinstance(who, Scripted):
            return BotAgent(role, str(who), make_bot(who.bot, self.env_name))
        name, now = (who.policy, True) if isinstance(who, Snapshot) and who.is_now else (str(who), False)
        if isinstance(who, Remote) and name in self.remotes:
            sampling = Sampling(how.temperature, how.max_tokens)
            return RemoteAgent(role, name, self.remotes[name], sampling, tools=self.tools)
        member = self.members.get(name)
        if member is None:
            known = {**self.members, **self.remotes}
            raise ConfigError(f"'{who}' is no policy of this run; {did_you_mean(str(who), known)}")
        sampling = Sampling(how.temperature, how.max_tokens, member.loaded.stop_ids, stop_strings=self.stop_strings)
        adapter = None if member.adapter is None else member.name
        return ModelAgent(
            role, str(who), member.trainable and not now, member.engine, member.renderer, sampling, adapter, how.legal,
            self.tools,
        )  # fmt: skip

    def seating(self, seats: Callable[[Task], Mapping[Role, Occupant]], how: Speech) -> Seating:
        """Fresh agents for each episode, in the seats that `seats` gives its task."""

        def seated(task: Task) -> Seated:
            chosen = seats(task)
            return Seated(chosen, {role: self.agent(role, who, how) for role, who in chosen.items()})

        return seated

    def snapshot(self, who: Snapshot, source: Path) -> None:
        """Seat a frozen copy of a policy, read from `source`."""
        name, origin = str(who), self.members[who.policy]
        model = origin.loaded.model
        if origin.adapter is not None:
            member = Member(name, origin.loaded, origin.engine, origin.renderer, trainable=False)
            member.adapter = on_device(load_adapter(source), model.device)
        elif name in self._idle:
            member = self._idle.pop(name)
        else:
            loaded = load(str(source), str(model.device), model.dtype, 0)
            idle = next((n for n, m in self._idle.items() if _shape(m.loaded) == _shape(loaded)), None)
            if idle is None:
                member = Member(name, loaded, _engine(loaded), origin.renderer, trainable=False)
            else:
                member = replace(self._idle.pop(idle), name=name, renderer=origin.renderer)
                _overwrite(member.loaded.model.state_dict(), loaded.model.state_dict())
        member.publish(0)
        self.sources[name] = (str(source),)
        self.members[name] = member

    def release(self, who: Snapshot) -> None:
        """A snapshot leaves its seats. A full model's memory is kept, for the next snapshot of its shape."""
        name = str(who)
        member = self.members.pop(name)
        if member.adapter is not None:
            member.engine.unload(name)
        else:
            self._idle[name] = member

    def restore(self, name: str, source: Path) -> None:
        """Give a policy the weights in `source`, in place."""
        member = self.members[name]
        if member.adapter is not None:
            found = load_adapter(source).weights
            for layer, pair in member.adapter.weights.items():
                _overwrite(dict(enumerate(pair)), dict(enumerate(found[layer])))
        else:
            model = member.loaded.model
            _overwrite(model.state_dict(), load(str(source), str(model.device), model.dtype, 0).model.state_dict())

    def add(self, name: str, source: str, recipe: Recipe, base: str | None = None) -> None:
        """Seat another model, frozen, under `name`: anything a policy's base can be, or PEFT's folder. An adapter's
        base is `base`, or what its folder says; where somebody here plays on that base already, it is shared."""
        peft = Path(source) if (Path(source) / PEFT_CONFIG).is_file() else None
        whole = locate((base or base_of(peft)) if peft else source, recipe.seed)
        adapters = [m for m in self.members.values() if m.adapter is not None]  # their bases are never trained
        like = next((m for m in adapters if m.loaded.model.config.name_or_path == whole), None)
        if like is not None and peft is not None:
            loaded, engine, renderer = like.loaded, like.engine, like.renderer
        else:
            device = device_of(recipe)
            loaded = load(whole, device, dtype_of(recipe, device), recipe.seed)
            engine, renderer = _engine(loaded), Renderer(loaded.tokenizer, loaded.stop_ids)
        self.sources[name] = (source, whole)
        member = self.members[name] = Member(name, loaded, engine, renderer, trainable=False)
        if peft is not None:
            member.adapter = on_device(load_adapter(peft), loaded.model.device)
            member.publish(0)

    def add_remote(self, name: str, model: str, section: RemoteSection) -> None:
        """Seat a model behind somebody's server under `name`."""
        self.remotes[name] = RemoteEngine(model, section)
        self.sources[name] = (model, str(section))

    def bare(self, name: str, recipe: Recipe) -> Snapshot:
        """Seat what policy `name` was made from: its base without the adapter, or the base's own weights again."""
        who = Snapshot(name, "base")
        seated = str(who)
        if seated not in self.members:
            origin = self.members[name]
            if origin.adapter is not None:
                self.sources[seated] = (recipe.policies[name].base, f"seed {recipe.seed}")
                self.members[seated] = Member(seated, origin.loaded, origin.engine, origin.renderer, trainable=False)
            else:
                self.add(seated, recipe.policies[name].base, recipe)
        return who

    @property
    def engines(self) -> list[Engine]:
        """Each once, however many members share it."""
        local = {id(m.engine): m.engine for m in (*self.members.values(), *self._idle.values())}
        return [*local.values(), *self.remotes.values()]

    def close(self) -> None:
        for engine in self.engines:
            engine.close()


def _engine(loaded: Loaded) -> Engine:
    return LocalEngine(loaded.model, tokenizer=loaded.tokenizer)


def _adapter(loaded: Loaded, section: AdapterSection, source: str | None, seed: int) -> Adapter:
    if source is not None:
        return on_device(load_adapter(Path(source)), loaded.model.device)
    return fresh_adapter(loaded, section, seed)


def fresh_adapter(loaded: Loaded, section: AdapterSection, seed: int) -> Adapter:
    """An adapter as a recipe describes it, which changes nothing yet."""
    alpha = 2.0 * section.rank if section.alpha is None else section.alpha
    return new_adapter(loaded.model, section.rank, alpha, section.targets, seed)


def _shape(loaded: Loaded) -> list[tuple[str, torch.Size]]:
    return [(name, tensor.shape) for name, tensor in loaded.model.state_dict().items()]


@torch.no_grad()
def _overwrite(mine: Mapping[Any, torch.Tensor], theirs: Mapping[Any, torch.Tensor]) -> None:
    for key, tensor in mine.items():
        tensor.copy_(theirs[key])
