"""Many episodes at once on one event loop; a failed one is data, not a crash.

An episode asks its environment who must act, lets those roles act at once, and hands the joint action back. How a
decision is made, one sample per role or a tree of candidates, is the plan's (`tree.py`).
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from interplay import envs
from interplay.agents.agent import Agent, Player, Stamp, View, forkable
from interplay.algorithms import Plan, Tree
from interplay.algorithms.credit import mix
from interplay.config import RewardSection, RolloutSection
from interplay.envs import Env
from interplay.errors import ConfigError, InterplayError, LimitError
from interplay.rollout.joint import Critic, all_of, step
from interplay.rollout.tree import decide
from interplay.types import Episode, Rewards, Role, Status, Task, Turn

Seating = Callable[[Task], Mapping[Role, Player]]


@dataclass
class Ledger:
    """What an episode has used and earned so far: shared by the line of play and its playouts."""

    limits: RolloutSection
    began: float = field(default_factory=time.monotonic)
    tokens: int = 0
    foreseen: dict[int, list[Mapping[Role, Rewards]]] = field(default_factory=lambda: defaultdict(list))

    def spend(self, turns: Sequence[Turn]) -> None:
        self.tokens += sum(t.sampled for t in turns)

    def foresee(self, decision: int, found: Mapping[Role, Rewards], plan: Tree, times: int = 1) -> None:
        """What a joint action of the policies' own drawing was worth, before one of them is chosen.

        Where rewards end with the step every decision counts; otherwise the first holds all that follows. A critic
        only believes, and where choosing is not by worth the line that is played says the same.
        """
        counts = decision == 0 if plan.continuation == "playout" else plan.continuation == "none"
        if found and counts and plan.keep in ("greedy", "softmax"):
            self.foreseen[decision] += [found] * times

    def sampled(self, weights: RewardSection) -> dict[Role, float]:
        """What each role earns by its own policy, where the line that was kept is better than that."""
        out: dict[Role, float] = {}
        for drawn in self.foreseen.values():
            for role in drawn[0]:
                out[role] = out.get(role, 0.0) + sum(mix(found[role], role, weights) for found in drawn) / len(drawn)
        return out

    @property
    def spent(self) -> bool:
        return self.tokens >= self.limits.max_episode_tokens

    def check_time(self) -> None:
        if time.monotonic() - self.began > self.limits.max_episode_seconds:
            raise LimitError(
                f"the episode ran longer than rollout.max_episode_seconds ({self.limits.max_episode_seconds:g})."
            )


class Runner:
    def __init__(
        self,
        seed: int,
        limits: RolloutSection,
        plan: Plan,
        reward: RewardSection,
        record_playouts: bool = False,
        critic: Critic | None = None,
    ) -> None:
        self.seed, self.limits, self.plan, self.reward = seed, limits, plan, reward
        self.record_playouts, self.critic = record_playouts, critic

    async def run(
        self, tasks: Sequence[Task], seating: Seating, done: Callable[[Episode], None] | None = None
    ) -> list[Episode]:
        """`plan.replicas` episodes of each task, in the order of (task, replica)."""
        gate = asyncio.Semaphore(self.limits.concurrency)

        async def one(task: Task, replica: int) -> Episode:
            async with gate:
                episode = await self._guarded(task, replica, seating(task))
            if done is not None:
                done(episode)
            return episode

        return list(await asyncio.gather(*(one(t, r) for t in tasks for r in range(self.plan.replicas))))

    async def _guarded(self, task: Task, replica: int, agents: Mapping[Role, Player]) -> Episode:
        """The place where a failed episode becomes data: typed errors by name, anything else as a bug report."""
        episode = Episode(f"{task.id}#{replica}", task, replica, {r: a.policy for r, a in agents.items()})
        began = time.monotonic()
        try:
            await asyncio.wait_for(self._play(episode, agents), self.limits.max_episode_seconds + 1)
        except ConfigError:  # no episode's fault, and every other one's too
            raise
        except InterplayError as error:
            episode.error = f"{type(error).__name__}: {error}"
        except TimeoutError:
            episode.error = (
                f"LimitError: no answer within rollout.max_episode_seconds ({self.limits.max_episode_seconds:g})."
            )
        except Exception as error:  # an environment or bot by somebody else: its bug must not end the run
            episode.error = f"EnvError: {type(error).__name__} in {task.env}: {error}"
        episode.seconds = time.monotonic() - began
        return episode

    async def _play(self, episode: Episode, agents: Mapping[Role, Player]) -> None:
        env = envs.make(episode.task)
        copied = forkable(agents) if isinstance(self.plan, Tree) else {}
        latest: dict[Role, Turn] = {}
        ledger = Ledger(self.limits)
        decision = 0
        while seen := env.observe():
            if ledger.spent:
                episode.truncated = True
                break
            ledger.check_time()
            stamp = Stamp(self.seed, episode.task, episode.replica, episode.id, decision, state=env.state())
            views = {role: agents[role].look(o) for role, o in seen.items()}
            if isinstance(self.plan, Tree):
                choice = await decide(self, env, copied, views, stamp, self.plan, ledger)
                env, kept, turns, rewards = choice.env, choice.kept, choice.turns, choice.rewards
            else:
                kept = await sample_each(env, agents, views, stamp)
                turns, rewards = list(kept.values()), await step(env, {r: t.text for r, t in kept.items()})
                ledger.spend(turns)
            for role, turn in kept.items():
                agents[role].commit(views[role], turn)
            episode.turns += turns
            latest |= kept
            episode.rewards += rewards
            attribute(rewards, latest)
            decision += 1
        final = env.outcome()
        episode.rewards += final
        attribute(final, latest)
        episode.final_state, episode.answered = env.state(), env.answered
        episode.sampled = ledger.sampled(self.reward)

    async def play_out(
        self, env: Env, agents: Mapping[Role, Agent], stamp: Stamp, ledger: Ledger
    ) -> tuple[dict[Role, Rewards], list[Turn]]:
        """The same seats play `env` to its end; what follows for each role, discounted to now.

        A reward belongs to the role's latest turn; with d of its turns taken since now, it counts γ^d.
        """
        agents = {role: agent.fork() for role, agent in agents.items()}
        taken = dict.fromkeys(agents, 0)
        ahead = {role: Rewards() for role in agents}
        turns: list[Turn] = []
        gamma = self.reward.gamma

        def book(rewards: Rewards) -> None:
            for role in agents:
                ahead[role] += rewards.of(role).scaled(gamma ** taken[role])

        while (seen := env.observe()) and not ledger.spent:
            ledger.check_time()
            views = {role: agents[role].look(o) for role, o in seen.items()}
            kept = await sample_each(env, agents, views, stamp)
            ledger.spend(list(kept.values()))
            for role, turn in kept.items():
                agents[role].commit(views[role], turn)
                taken[role] += 1
            if self.record_playouts:
                turns += kept.values()
            book(await step(env, {r: t.text for r, t in kept.items()}))
            stamp = replace(stamp, decision=stamp.decision + 1)
        book(env.outcome())
        return ahead, turns


async def sample_each(
    env: Env, agents: Mapping[Role, Player], views: Mapping[Role, View], stamp: Stamp
) -> dict[Role, Turn]:
    """One reply for every role that must act, drawn at the same time."""
    if len(views) == 1:  # turn-taking: no tasks to schedule
        ((role, view),) = views.items()
        return {role: await agents[role].sample(env, view, stamp)}
    drawn = await all_of(agents[r].sample(env, v, stamp) for r, v in views.items())
    return dict(zip(views, drawn, strict=True))


def attribute(rewards: Rewards, latest: Mapping[Role, Turn]) -> None:
    """Rewards go to each role's latest turn, also when they arrive on another's move; the team's go to all."""
    for role, turn in latest.items():
        mine = rewards.of(role)
        if mine:
            turn.rewards += mine
            if any(r.name == "illegal" for r in mine):
                turn.status = Status.ILLEGAL
