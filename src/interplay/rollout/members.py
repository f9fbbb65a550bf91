"""Policies with weights in this process: load, copy, replace and save them.

Members that are adapters of one base share its model and engine. When a snapshot with a full model is no longer seated,
its model stays in memory for the next snapshot of the same shape.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from interplay.agents.render import Renderer
from interplay.agents.soft import ChannelLink
from interplay.config import AdapterSection, PolicySection, Recipe
from interplay.engines.engine import Engine
from interplay.engines.local import LocalEngine
from interplay.engines.local.speculation import Speculation
from interplay.errors import ConfigError
from interplay.models import channels
from interplay.models.adapter import Adapter
from interplay.models.channel import Channel
from interplay.models.device import device_of, dtype_of, limit_memory
from interplay.models.latch import latch_of
from interplay.models.load import Loaded, load
from interplay.models.locate import locate
from interplay.models.lora import CONFIG as PEFT_CONFIG
from interplay.models.lora import base_of, load_adapter, new_adapter, on_device, save_adapter
from interplay.models.save import save as save_model
from interplay.models.senses import thaw
from interplay.rollout.in_flight import cache_room
from interplay.rollout.sight import refuse_engine
from interplay.rollout.wiring import make_channel, seat_of
from interplay.types import Role, Snapshot, seed_of


@dataclass
class Member:
    """One policy in memory. The engine samples from `loaded.model` itself, with `adapter` if there is one."""

    name: str
    loaded: Loaded
    engine: Engine
    renderer: Renderer
    trainable: bool
    adapter: Adapter | None = None
    version: int = 0

    def publish(self, version: int) -> None:
        """Tell the engine that the weights changed; it samples from the new ones from now on. An engine with weights of
        its own gets them from the model."""
        self.version = version
        if self.adapter is not None:
            self.engine.load(self.name, self.adapter, version)
        elif self.engine.capabilities.shared:
            self.engine.update(version)
        else:
            self.engine.update(version, self.loaded)

    def save(self, folder: Path) -> None:
        """Write a plain Hugging Face folder, or a PEFT folder for an adapter."""
        if self.adapter is None:
            with latch_of(self.loaded.model).writing():  # the engine must not compute while a model is saved
                save_model(self.loaded, folder)
        else:
            save_adapter(self.adapter, folder, self.loaded.model.config.name_or_path)


class Playable(NamedTuple):
    """A model with its engine and renderer."""

    loaded: Loaded
    engine: Engine
    renderer: Renderer


# Makes the engine of a member, by its name, in other processes. The model has no weights (device meta).
EngineElsewhere = Callable[[str, Loaded], Engine]


class Members:
    """All members by name: the recipe's policies, snapshots of them, and models that were added."""

    def __init__(
        self,
        recipe: Recipe,
        sources: Mapping[str, str] | None = None,
        elsewhere: EngineElsewhere | None = None,
        reserve: int = 0,
    ) -> None:
        """Load every policy that is not remote. `sources` gives other weights for some (a checkpoint's folder). With
        `elsewhere`, the engines of policies and snapshots are in other processes, and this one loads no weights.
        `reserve` bytes of a GPU are left for learners."""
        self.recipe, self._elsewhere, self._reserve = recipe, elsewhere, reserve
        if elsewhere is None:
            limit_memory(recipe, device_of(recipe))
        self.by_name: dict[str, Member] = {}
        self._idle: dict[str, Member] = {}  # full models of snapshots that are not seated now
        # What the engines of the recipe's policies use for speculative sampling, by the first policy of each engine. A
        # checkpoint keeps its state. Frozen models with an engine of their own do not use it: nothing would restore it.
        self.speculations: dict[str, Speculation] = {}
        self.channels: dict[str, Channel] = {}
        opened: list[Engine] = []
        try:
            self._open(sources or {}, opened)
        except BaseException:  # some engines may have servers, which must end
            for engine in opened:
                engine.close()
            raise

    def _open(self, sources: Mapping[str, str], opened: list[Engine]) -> None:
        """Make the members and channels. Every new engine is added to `opened`."""
        recipe = self.recipe
        shared: dict[str, Playable] = {}
        ours = {name: policy for name, policy in recipe.policies.items() if not policy.is_remote}
        bases = {p.base for p in ours.values() if p.adapter is not None}
        _refuse_two_eyes(ours)
        for name, policy in ours.items():
            source = sources.get(name)
            if _shares(policy, bases):
                if policy.base not in shared:
                    on_it = [p.adapter for p in ours.values() if p.base == policy.base and p.adapter is not None]
                    shared[policy.base] = self._seated(name, policy.base, [section.rank for section in on_it])
                    opened.append(shared[policy.base].engine)
                seated = shared[policy.base]
            else:
                seated = self._seated(name, source or policy.base)
                opened.append(seated.engine)
            _sense(name, policy, seated.loaded)
            able = seated.engine.capabilities
            if policy.trainable and not (able.token_ids and able.logprobs):
                raise ConfigError(
                    f"policies.{name} is trainable, but its engine does not return token ids and log-probs; set "
                    f"another engine.kind, or policies.{name}.trainable = false."
                )
            member = self.by_name[name] = Member(name, *seated, policy.trainable)
            if policy.adapter is not None:
                seed = seed_of("adapter", recipe.seed, name)
                member.adapter = _adapter(seated.loaded, policy.adapter, source, seed)
                member.publish(0)
        for name, channel in recipe.channels.items():
            ends = self._sits(channel.sender).loaded.model, self._sits(channel.receiver).loaded.model
            self.channels[name] = make_channel(name, channel, ends, sources.get(name), recipe.seed)

    def _sits(self, role: Role) -> Member:
        """The policy in the seat of a role."""
        return self.by_name[seat_of(self.recipe, role)]

    def links(self, role: Role, member: Member) -> tuple[ChannelLink, ...]:
        """The channels to a member that plays `role`. Gated ones come last, as in its prompts."""
        if not self.recipe.channels:
            return ()
        wires = channels.of(member.loaded.model)
        known = {} if wires is None else wires.by_name
        found = [(self.recipe.channels[name], channel) for name, channel in known.items()]
        ours = [ChannelLink(c, s.sender, self._sits(s.sender).engine) for s, c in found if s.receiver == role]
        return tuple(sorted(ours, key=lambda link: not link.channel.shape.tokens))

    def _seated(self, name: str, source: str, ranks: Sequence[int] = ()) -> Playable:
        """Load the model of a policy, with its engine. `ranks` are those of the adapters on it."""
        recipe, device = self.recipe, "meta" if self._elsewhere is not None else device_of(self.recipe)
        # If neither learner nor engine use the copy in this process, it needs no GPU memory.
        place = "cpu" if device == "cuda" and recipe.engine.kind != "local" and recipe.train.shard == "fsdp" else device
        loaded = load(source, place, dtype_of(recipe, device), recipe.seed)
        if loaded.senses is not None:
            refuse_engine(name, recipe.engine.kind)
        renderer = Renderer(loaded.tokenizer, loaded.stop_ids, loaded.senses)
        if recipe.engine.kind == "local" or self._elsewhere is not None:
            if recipe.engine.speculate != "off" and self._elsewhere is None:
                self.speculations[name] = Speculation(recipe.engine.speculate, recipe.engine.speculate_tokens)
            return Playable(loaded, self._engine(name, loaded), renderer)
        if recipe.engine.kind == "sglang":
            from interplay.engines.sglang import connect

            return Playable(loaded, connect(loaded.model, recipe.engine), renderer)
        from interplay.engines.vllm import open_engine

        return Playable(loaded, open_engine(loaded.model, recipe.engine, ranks, device == "cpu"), renderer)

    def _engine(self, name: str, loaded: Loaded) -> Engine:
        if self._elsewhere is not None:
            return self._elsewhere(name, loaded)
        return _engine(loaded, self.recipe, self._reserve, self.speculations.get(name))

    def freeze(self, who: Snapshot, source: Path) -> None:
        """Load a frozen copy of a policy from `source`."""
        name, origin = str(who), self.by_name[who.policy]
        model = origin.loaded.model
        if origin.adapter is not None:
            member = Member(name, origin.loaded, origin.engine, origin.renderer, trainable=False)
            member.adapter = on_device(load_adapter(source), model.device)
        elif name in self._idle:
            member = self._idle.pop(name)
        else:
            loaded = load(str(source), str(model.device), model.dtype, 0)
            if loaded.senses is not None and origin.loaded.senses is not None:
                loaded.senses.see_like(origin.loaded.senses)
            idle = next((n for n, m in self._idle.items() if _alike(m.loaded, loaded)), None)
            if idle is None:
                engine = self._engine(name, loaded)
                member = Member(name, loaded, engine, origin.renderer, trainable=False)
            else:
                member = replace(self._idle.pop(idle), name=name, renderer=origin.renderer)
                _replace_weights(member.loaded, loaded)
        member.publish(0)
        self.by_name[name] = member

    def release(self, who: Snapshot) -> None:
        """Remove a snapshot. The memory of a full model is kept for the next snapshot of the same shape. An engine in
        other processes is asked for its snapshot by name, and the model has no weights here, so nothing is kept."""
        name = str(who)
        member = self.by_name.pop(name)
        if member.adapter is not None:
            member.engine.unload(name)
        elif self._elsewhere is None:
            self._idle[name] = member

    def outdate(self, who: Snapshot) -> None:
        """Note that a snapshot was saved again. If it was released, its old weights are not used any more, and its
        memory may be used for another one."""
        member = self._idle.pop(str(who), None)
        if member is not None:
            self._idle[f"{who}, outdated"] = member

    def restore(self, name: str, source: Path) -> None:
        """Overwrite a policy's weights with those in `source`."""
        member = self.by_name[name]
        model = member.loaded.model
        if member.adapter is not None:
            found = load_adapter(source).weights
            for layer, pair in member.adapter.weights.items():
                _overwrite(dict(enumerate(pair)), dict(enumerate(found[layer])))
        else:
            loaded = load(str(source), str(model.device), model.dtype, 0)
            _replace_weights(member.loaded, loaded)

    def add(self, name: str, source: str, recipe: Recipe, policy: PolicySection | None = None) -> str:
        """Add another frozen model: anything that can be the base of a policy, or a PEFT folder. `policy` says how it
        was trained: which base its adapter has (else the one that the folder names), and what it may see. If another
        adapter here has that base, it is shared. Returns the base."""
        base, sight = (None, None) if policy is None else (policy.base, policy.senses)
        peft = Path(source) if (Path(source) / PEFT_CONFIG).is_file() else None
        whole = locate((base or base_of(peft)) if peft else source, recipe.seed)
        adapters = [m for m in self.by_name.values() if m.adapter is not None]  # their bases are never trained
        like = next((m for m in adapters if m.loaded.model.config.name_or_path == whole), None)
        if like is not None and peft is not None:
            member = Member(name, like.loaded, like.engine, like.renderer, trainable=False)
        else:
            device = device_of(recipe)
            loaded = load(whole, device, dtype_of(recipe, device), recipe.seed)
            if loaded.senses is not None and sight is not None:
                loaded.senses.see_like(sight)
            renderer = Renderer(loaded.tokenizer, loaded.stop_ids, loaded.senses)
            member = Member(name, loaded, _engine(loaded, recipe, self._reserve), renderer, trainable=False)
        self.by_name[name] = member
        if peft is not None:
            member.adapter = on_device(load_adapter(peft), member.loaded.model.device)
            member.publish(0)
        return whole

    @property
    def engines(self) -> list[Engine]:
        """All engines; one that several members share is listed once."""
        return list({id(m.engine): m.engine for m in (*self.by_name.values(), *self._idle.values())}.values())


def _engine(loaded: Loaded, recipe: Recipe, reserve: int, speculation: Speculation | None = None) -> Engine:
    stream = recipe.stream
    return LocalEngine(
        loaded.model,
        tokenizer=loaded.tokenizer,
        keep_cache=stream.cache == "keep",
        beside=stream.max_staleness > 0,
        speculation=speculation,
        room=cache_room(recipe, reserve) if loaded.model.device.type == "cuda" else None,
    )


def _refuse_two_eyes(policies: Mapping[str, PolicySection]) -> None:
    """Refuse policies that share a base, and thereby its eye or ear, but have different settings for it."""
    first: dict[str, str] = {}
    bases = {p.base for p in policies.values() if p.adapter is not None}
    for name, policy in policies.items():
        if not _shares(policy, bases):
            continue
        other = first.setdefault(policy.base, name)
        if policies[other].senses != policy.senses:
            raise ConfigError(
                f"policies.{other} and policies.{name} share the base '{policy.base}' but have different senses; "
                "expected the same senses, because they share one eye or ear."
            )


def _shares(policy: PolicySection, bases: Container[str]) -> bool:
    """All adapters of one base share it, and so do frozen policies that play the base itself. `bases` are those that
    have adapters."""
    return policy.adapter is not None or (policy.base in bases and not policy.trainable)


def _sense(name: str, policy: PolicySection, loaded: Loaded) -> None:
    """Apply a policy's settings of its eye or ear."""
    if policy.senses is None:
        return
    if loaded.senses is None:
        raise ConfigError(
            f"policies.{name}.senses is set, but '{policy.base}' reads only text; expected a base that reads pictures "
            "or sounds, such as tiny-vl."
        )
    loaded.senses.learns = policy.senses.train
    loaded.senses.see_like(policy.senses)
    if policy.adapter is None and policy.trainable:
        thaw(loaded.model)


def _adapter(loaded: Loaded, section: AdapterSection, source: str | None, seed: int) -> Adapter:
    if source is not None:
        return on_device(load_adapter(Path(source)), loaded.model.device)
    return fresh_adapter(loaded, section, seed)


def fresh_adapter(loaded: Loaded, section: AdapterSection, seed: int) -> Adapter:
    """A new adapter as the recipe describes it, which does not change the model's output yet."""
    alpha = 2.0 * section.rank if section.alpha is None else section.alpha
    return new_adapter(loaded.model, section.rank, alpha, section.targets, seed)


def _alike(one: Loaded, other: Loaded) -> bool:
    """Whether two models differ in their weights alone: they have the same shape and see pictures in the same size."""
    return _shape(one) == _shape(other) and _sight(one) == _sight(other)


def _shape(loaded: Loaded) -> list[tuple[str, torch.Size]]:
    return [(name, tensor.shape) for name, tensor in loaded.model.state_dict().items()]


def _sight(loaded: Loaded) -> tuple[int, int] | None:
    return None if loaded.senses is None else (loaded.senses.max_pixels, loaded.senses.limit)


def _replace_weights(mine: Loaded, theirs: Loaded) -> None:
    with latch_of(mine.model).writing():
        _overwrite(mine.model.state_dict(), theirs.model.state_dict())
        if mine.senses is not None:
            mine.senses.moved()


@torch.no_grad()
def _overwrite(mine: Mapping[Any, torch.Tensor], theirs: Mapping[Any, torch.Tensor]) -> None:
    for key, tensor in mine.items():
        tensor.copy_(theirs[key])
