"""All players that can sit in a seat of a run, and the agents made from them for an episode.

Members have their weights in this process (`members.py`). Remotes are models behind a server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from interplay.agents.best_of import BestOf, Choosing
from interplay.agents.bots import make_bot
from interplay.agents.model import ModelAgent
from interplay.agents.player import Agent
from interplay.agents.relay import Relay
from interplay.agents.remote import RemoteAgent
from interplay.agents.scripted import BotAgent
from interplay.config import REMOTE, PolicySection, Recipe, RemoteSection
from interplay.engines.engine import Engine, Sampling
from interplay.engines.openai import RemoteEngine
from interplay.errors import ConfigError, did_you_mean
from interplay.rollout.members import EngineElsewhere, Member, Members
from interplay.rollout.runner import Seated, Seating
from interplay.rollout.sight import refuse_blind
from interplay.types import ByTurn, Occupant, Remote, Role, Scripted, Snapshot, Task


@dataclass(frozen=True)
class Speech:
    """Sampling settings of models in a game. With `legal`, only the listed legal replies can be sampled."""

    temperature: float
    max_tokens: int
    legal: bool = False


def speech_of(recipe: Recipe) -> Speech:
    """The sampling settings of a recipe for training."""
    sampling = recipe.sampling
    return Speech(sampling.temperature, sampling.max_tokens, sampling.legal)


class Team:
    """`sources` says what the weights of each player were made from, or where its server is."""

    def __init__(
        self,
        recipe: Recipe,
        sources: Mapping[str, str] | None = None,
        elsewhere: EngineElsewhere | None = None,
        reserve: int = 0,
    ) -> None:
        """Load every policy. `sources` gives other weights for some (a checkpoint's folder). With `elsewhere`, other
        processes sample, and this one loads no weights. `reserve` bytes of a GPU are left for learners."""
        self.recipe = recipe
        self.pool = Members(recipe, sources, elsewhere, reserve)
        self.remotes = {
            name: RemoteEngine(policy.base.removeprefix(REMOTE), policy.remote or RemoteSection())
            for name, policy in recipe.policies.items()
            if policy.is_remote
        }
        self.choosing: Choosing | None = None  # set if policies use the best of several replies
        self.sources: dict[str, tuple[str, ...]] = {}
        for name, policy in recipe.policies.items():
            read = (sources or {}).get(name, f"seed {recipe.seed}")
            self.sources[name] = (read, policy.base, f"{policy.adapter} {policy.remote}")
        for name, channel in recipe.channels.items():
            self.sources[name] = ((sources or {}).get(name, f"seed {recipe.seed}"), str(channel))

    @property
    def members(self) -> dict[str, Member]:
        return self.pool.by_name

    @property
    def env_name(self) -> str:
        return self.recipe.env.name

    @property
    def deterministic(self) -> bool:
        """Whether batches must not depend on timing (`stream.deterministic`)."""
        stream = self.recipe.stream
        if stream.deterministic is not None:
            return stream.deterministic
        return self.on_cpu and stream.max_staleness == 0

    @property
    def on_cpu(self) -> bool:
        return all(m.loaded.model.device.type in ("cpu", "meta") for m in self.members.values())

    # -- who acts -------------------------------------------------------------------------------------------------

    def agent(self, role: Role, who: Occupant, how: Speech) -> Agent:
        """Make an agent that plays `role` as this occupant for one game."""
        made, choosing = self.plain(role, who, how), self.choosing
        if choosing is None or not isinstance(made, ModelAgent | RemoteAgent):
            return made
        return made if made.trainable and not choosing.everybody else BestOf(made, choosing)

    def plain(self, role: Role, who: Occupant, how: Speech) -> Agent:
        """Make the agent without best-of-n: it uses the first reply that it draws."""
        tools = self.recipe.tools
        if isinstance(who, ByTurn):
            made = {one: self.agent(role, one, how) for one in who.takers}
            return Relay(role, str(who), tuple(made[one] for one in who.takers), who.always)
        if isinstance(who, Scripted):
            return BotAgent(role, str(who), make_bot(who.bot, self.env_name))
        name, now = (who.policy, True) if isinstance(who, Snapshot) and who.is_now else (str(who), False)
        if isinstance(who, Remote) and name in self.remotes:
            refuse_blind(self.recipe, name, self.remotes[name].capabilities.media)
            sampling = Sampling(how.temperature, how.max_tokens)
            return RemoteAgent(role, name, self.remotes[name], sampling, tools=tools)
        member = self.members.get(name)
        if member is not None:
            refuse_blind(self.recipe, str(who), member.engine.capabilities.media)
        elif name in self.remotes:
            raise ConfigError(
                f"'{who}' runs on a remote server, and it was seated as a policy of this process; expected "
                f"Remote('{who}') in this seat."
            )
        else:
            known = {**self.members, **self.remotes}
            raise ConfigError(f"'{who}' is not a policy of this run; {did_you_mean(str(who), known)}")
        stops = tuple(self.recipe.sampling.stop)
        sampling = Sampling(how.temperature, how.max_tokens, member.loaded.stop_ids, stop_strings=stops)
        adapter = None if member.adapter is None else member.name
        return ModelAgent(
            role, str(who), member.trainable and not now, member.engine, member.renderer, sampling, adapter, how.legal,
            tools, links=self.pool.links(role, member),
        )  # fmt: skip

    def seating(self, seats: Callable[[Task], Mapping[Role, Occupant]], how: Speech) -> Seating:
        """Make new agents for each episode, with the seats that `seats` returns for its task."""

        def seated(task: Task) -> Seated:
            chosen = seats(task)
            return Seated(chosen, {role: self.agent(role, who, how) for role, who in chosen.items()})

        return seated

    # -- who can be seated ----------------------------------------------------------------------------------------

    def snapshot(self, who: Snapshot, source: Path) -> None:
        """Add a frozen copy of a policy, read from `source`."""
        self.pool.freeze(who, source)
        self.sources[str(who)] = (str(source),)

    def add(self, name: str, source: str, recipe: Recipe, policy: PolicySection | None = None) -> None:
        """Add another frozen model as `name` (see `Members.add`)."""
        self.sources[name] = (source, self.pool.add(name, source, recipe, policy))

    def add_remote(self, name: str, model: str, section: RemoteSection) -> None:
        """Add a model behind a server as `name`."""
        self.remotes[name] = RemoteEngine(model, section)
        self.sources[name] = (model, str(section))

    def bare(self, name: str, recipe: Recipe) -> Snapshot:
        """Add what policy `name` was made from: its base without the adapter, or the original weights of its base."""
        who = Snapshot(name, "base")
        seated, origin = str(who), self.members[name]
        if seated in self.members:
            return who
        if origin.adapter is not None:
            self.sources[seated] = (recipe.policies[name].base, f"seed {recipe.seed}")
            self.members[seated] = Member(seated, origin.loaded, origin.engine, origin.renderer, trainable=False)
        else:
            self.add(seated, recipe.policies[name].base, recipe, recipe.policies[name])
        return who

    @property
    def engines(self) -> list[Engine]:
        return [*self.pool.engines, *self.remotes.values()]

    def close(self) -> None:
        for engine in self.engines:
            engine.close()
