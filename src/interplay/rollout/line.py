"""A line of play: sample the roles that must act, step the environment, and count what the episode uses.

`Foresight` estimates what a fork is worth: the same seats play it to the end, or a critic values it.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections import Counter
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from interplay.agents.joined import look
from interplay.agents.player import Agent, Player, Stamp, View
from interplay.algorithms import SamplingPlan, Tree
from interplay.config import RewardSection, RolloutSection
from interplay.engines.census import census
from interplay.engines.pause import Pause
from interplay.envs import Env
from interplay.errors import LimitError
from interplay.types import Observation, Rewards, Role, Turn

T = TypeVar("T")


@dataclass
class Ledger:
    """What an episode has used and earned so far. The line of play and its playouts share it."""

    limits: RolloutSection
    pause: Pause | None = None  # of the stream that plays this episode
    began: float = field(default_factory=lambda: time.monotonic())  # a test may replace this module's clock
    used: Counter[str] = field(default_factory=Counter)  # tokens sampled by each policy
    plays: dict[tuple[int, ...], list[Rewards]] | None = None  # by joint action of the opening decision
    behind: list[asyncio.Task[list[Turn]]] = field(default_factory=list)  # playouts that the line does not wait for
    cut: bool = False  # the token limit ended a playout
    _paused: float = field(init=False)  # the length of all pauses before this episode

    def __post_init__(self) -> None:
        self._paused = 0.0 if self.pause is None else self.pause.seconds

    def spend(self, turns: Sequence[Turn]) -> None:
        for turn in turns:
            self.used[turn.policy] += turn.sampled

    def own_plays(self, plan: SamplingPlan) -> tuple[Rewards, ...] | None:
        """The rewards of complete plays that were not selected by their return; None if the line itself is such a
        play."""
        if not isinstance(plan, Tree) or not plan.by_worth or (plan.shows_own and self.plays is None):
            return None
        return tuple(play for _, plays in sorted((self.plays or {}).items()) for play in plays)

    @property
    def spent(self) -> bool:
        return self.used.total() >= self.limits.max_episode_tokens

    def later(self, playouts: Coroutine[None, None, list[Turn]]) -> asyncio.Task[list[Turn]]:
        self.behind.append(census().begin(playouts))
        return self.behind[-1]

    async def drop(self) -> None:
        """Cancel the remaining playouts, so that none of their requests stay in the engine."""
        if not self.behind:
            return
        for task in self.behind:
            task.cancel()
        await asyncio.gather(*self.behind, return_exceptions=True)

    async def may_go_on(self) -> None:
        """Wait while the run is paused."""
        if self.pause is not None and self.pause.on:
            await self.pause.over()

    def check_tokens(self) -> None:
        """End a playout at the token limit. Its return is unknown, so it is not used."""
        if self.spent:
            self.cut = True
            raise LimitError(
                f"the episode sampled more than rollout.max_episode_tokens ({self.limits.max_episode_tokens:,}); raise "
                "it if episodes need more tokens."
            )

    def check_time(self) -> None:
        paused = 0.0 if self.pause is None else self.pause.seconds - self._paused
        if time.monotonic() - self.began - paused > self.limits.max_episode_seconds:
            raise LimitError(
                f"the episode ran longer than rollout.max_episode_seconds ({self.limits.max_episode_seconds:g}); raise "
                "it if episodes need more time."
            )


async def all_of(jobs: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """The results of all jobs. If one fails, wait for the others before raising, so that none stay in the engine."""
    results = await census().gather(jobs)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [r for r in results if not isinstance(r, BaseException)]


async def step(env: Env, turns: Mapping[Role, Turn]) -> Rewards:
    """Call `env.act`, in a thread if the environment says that it is slow."""
    return await census().outside(asyncio.to_thread(env.act, turns)) if env.slow else env.act(turns)


async def seen_in(env: Env) -> dict[Role, Observation]:
    """Let the environment settle, then return the observations of the roles that must act."""
    if type(env).settle is not Env.settle:
        await census().outside(env.settle())
    return env.observe()


async def outcome(env: Env) -> Rewards:
    """Call `env.outcome`, in a thread if the environment says that it is slow."""
    threaded = env.slow and not inspect.iscoroutinefunction(env.outcome)
    found = await census().outside(asyncio.to_thread(env.outcome)) if threaded else env.outcome()
    return found if isinstance(found, Rewards) else await census().outside(found)


async def sample_each(
    env: Env, agents: Mapping[Role, Player], views: Mapping[Role, View], stamp: Stamp
) -> dict[Role, Turn]:
    """Sample one reply for every role that must act, all at the same time."""
    if len(views) == 1:  # one role acts: there is nothing to schedule
        ((role, view),) = views.items()
        return {role: await agents[role].sample(env, view, stamp)}
    drawn = await all_of(agents[r].sample(env, v, stamp) for r, v in views.items())
    return dict(zip(views, drawn, strict=True))


class StateValues(Protocol):
    """Values the state after a turn for its role, in the units of its weighted reward."""

    async def value(self, role: Role, env: Env, turn: Turn) -> float: ...

    def arrived(self, role: Role, env: Env, turn: Turn, rewards: Rewards) -> None:
        """Note that `turn` was kept: the joint action led to the state of `env`, and that step gave `rewards`."""


@dataclass(frozen=True)
class Playout:
    """The result of a playout: each role's rewards, discounted to its start; all rewards, not discounted; and the
    turns, if they are recorded."""

    ahead: dict[Role, Rewards]
    rewards: Rewards
    turns: list[Turn]


@dataclass(frozen=True)
class Foresight:
    reward: RewardSection
    record: bool = False  # whether to return the turns of playouts
    critic: StateValues | None = None

    async def play_out(
        self, env: Env, agents: Mapping[Role, Agent], stamp: Stamp, ledger: Ledger, until: frozenset[Role] = frozenset()
    ) -> Playout:
        """The same seats play `env` to its end, or until one of the roles in `until` must act.

        A reward belongs to the role's latest turn. If the role has taken d turns since the start, it counts γ^d.
        """
        agents = {role: agent.fork() for role, agent in agents.items()}
        taken = dict.fromkeys(agents, 0)
        ahead = {role: Rewards() for role in agents}
        turns: list[Turn] = []
        earned: list[Rewards] = []
        gamma = self.reward.gamma

        first, since = stamp.decision - 1, [dict(taken)]  # the candidate's decision; turns of each role since then

        def book(rewards: Rewards) -> None:
            earned.append(rewards)
            for role in agents if rewards else ():
                mine = rewards.of(role)
                if all(r.turn is None for r in mine):
                    ahead[role] += mine.scaled(gamma ** taken[role])
                    continue
                for r in mine:  # ignore rewards of turns before the candidate
                    turns_since = taken if r.turn is None else since[r.turn - first] if r.turn >= first else None
                    if turns_since is not None:
                        ahead[role] += Rewards((r,)).scaled(gamma ** turns_since[role])

        while seen := await seen_in(env):
            if until & seen.keys():
                break
            await ledger.may_go_on()
            ledger.check_tokens()
            ledger.check_time()
            views = look(agents, seen)
            kept = await sample_each(env, agents, views, stamp)
            ledger.spend(list(kept.values()))
            for role, turn in kept.items():
                agents[role].commit(views[role], turn)
                taken[role] += 1
            since.append(dict(taken))
            if self.record:
                turns += kept.values()
            book(await step(env, kept))
            stamp = stamp.at(stamp.decision + 1, stamp.candidate)
        else:
            book(await outcome(env))
        return Playout(ahead, sum(earned, Rewards()), turns)
