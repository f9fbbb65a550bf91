"""Many episodes at once on one event loop; a failed one is data, not a crash.

An episode asks its environment who must act, lets those roles act at once, and hands the joint action back. How a
decision is made, one sample per role or a tree of candidates, is the plan's (`tree.py`).
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from interplay import envs
from interplay.agents.player import Player, Stamp, forkable, turn_of
from interplay.agents.relay import Relay
from interplay.algorithms import SamplingPlan, Tree
from interplay.config import RewardSection, RolloutSection
from interplay.engines.census import census
from interplay.errors import ConfigError, EnvError, InterplayError
from interplay.rollout.decision import Decision
from interplay.rollout.garbage import rare_collections
from interplay.rollout.line import Foresight, Ledger, StateValues, outcome, sample_each, seen_in, step
from interplay.rollout.tree import decide
from interplay.types import Cut, Episode, Observation, Occupant, Reward, Rewards, Role, Sample, Status, Task, Turn


@dataclass(frozen=True)
class Seated:
    """Who sits in each role of an episode, and the players that act for them."""

    seats: Mapping[Role, Occupant]
    players: Mapping[Role, Player]


Seating = Callable[[Task], Seated]  # fresh players for each episode


class Runner:
    def __init__(
        self,
        seed: int,
        limits: RolloutSection,
        plan: SamplingPlan,
        reward: RewardSection,
        record_playouts: bool = False,
        critic: StateValues | None = None,
    ) -> None:
        self.seed, self.limits, self.plan, self.reward = seed, limits, plan, reward
        self.foresight = Foresight(reward, record_playouts, critic)
        self.gate: asyncio.Event | None = None  # of a stream that can be paused

    async def run(
        self, tasks: Sequence[Task], seating: Seating, done: Callable[[Episode], None] | None = None
    ) -> list[Episode]:
        """`plan.replicas` episodes of each task, in the order of (task, replica)."""
        with rare_collections:
            return await self._run(tasks, seating, done)

    async def _run(
        self, tasks: Sequence[Task], seating: Seating, done: Callable[[Episode], None] | None
    ) -> list[Episode]:
        wanted = [(task, replica) for task in tasks for replica in range(self.plan.replicas)]
        out: dict[int, Episode] = {}
        left = deque(enumerate(wanted))

        async def play_some() -> None:
            """Episode after episode; as many of these run at once as the recipe allows."""
            while left:
                index, (task, replica) = left.popleft()
                try:
                    episode = out[index] = await self.episode(task, replica, seating(task))
                except BaseException:  # the others end with the episodes that they are at
                    left.clear()
                    raise
                if done is not None:
                    done(episode)

        count = min(self.limits.concurrency, len(wanted))
        for result in await census().gather(play_some() for _ in range(count)):
            if isinstance(result, BaseException):
                raise result
        return [out[index] for index in range(len(wanted))]

    async def episode(self, task: Task, replica: int, seated: Seated) -> Episode:
        """The place where a failed episode becomes data: typed errors by name, anything else as a bug report."""
        episode = Episode(f"{task.id}#{replica}", task, replica, seated.seats)
        began = time.monotonic()
        try:
            await asyncio.wait_for(self._play(episode, seated.players), self.limits.max_episode_seconds + 1)
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
        ledger = Ledger(self.limits, self.gate)
        try:
            await self._line(episode, agents, ledger)
            for playouts in ledger.behind:
                episode.turns += await census().join(playouts)
        finally:
            await ledger.drop()
            episode.turns = [t for t in episode.turns if t.kept or t.outlook is not None]
        episode.truncated = episode.truncated or ledger.cut
        episode.plays = ledger.own_plays(self.plan)

    async def _line(self, episode: Episode, agents: Mapping[Role, Player], ledger: Ledger) -> None:
        env = envs.make(episode.task)
        copied = forkable(agents) if isinstance(self.plan, Tree) else {}
        latest: dict[Role, Turn] = {}
        decision, due = 0, None
        while seen := await seen_in(env):
            await ledger.may_go_on()
            stamp = Stamp(self.seed, episode.task, episode.replica, episode.id, decision, state=env.state())
            if ledger.spent:
                episode.truncated, due = True, _due(agents, seen, stamp)
                break
            ledger.check_time()
            views = {role: agents[role].look(o) for role, o in seen.items()}
            if isinstance(self.plan, Tree):
                found = Decision(env, copied, views, stamp, self.plan, ledger, self.foresight, episode.rewards)
                choice = await decide(found)
                env, kept, turns, rewards = choice.env, choice.kept, choice.drawn, choice.rewards
            else:
                kept = await sample_each(env, agents, views, stamp)
                turns, rewards = list(kept.values()), await step(env, kept)
                ledger.spend(turns)
            for role, turn in kept.items():
                agents[role].commit(views[role], turn)
            episode.turns += turns
            latest |= kept
            episode.rewards += rewards
            attribute(rewards, latest, episode.turns)
            decision += 1
        final = await outcome(env)
        episode.cut = None if due is None else Cut(due, final)
        episode.rewards += final
        attribute(final, latest, episode.turns)
        episode.final_state, episode.answered = env.state(), env.answered


def _due(agents: Mapping[Role, Player], seen: Mapping[Role, Observation], stamp: Stamp) -> tuple[Turn, ...]:
    """The turns that the models would take now, without what they would say."""
    out = []
    for role, observation in seen.items():
        agent = agents[role]
        speaker = agent.now if isinstance(agent, Relay) else agent
        view = speaker.look(observation)
        if view.prompt is not None:
            asked = Sample(stamp.turn_id(role), view.prompt.ids, (), (), (), "", media=view.prompt.media)
            out.append(turn_of(stamp, role, speaker, view.observation, (asked,), view.prompt.digest))
    return tuple(out)


def attribute(rewards: Rewards, latest: Mapping[Role, Turn], turns: Sequence[Turn]) -> None:
    """Rewards go to each role's latest turn, also when they arrive on another's move; the team's go to all. One that
    names a decision goes to the role's turn at that decision or, of the team's, to its latest one up to then."""
    for role, turn in latest.items():
        mine = rewards.of(role)
        if mine and all(r.turn is None for r in mine):
            turn.rewards += mine
            _refuse(turn)
        else:
            for r in mine:
                _attribute_one(r, turn, [t for t in turns if t.role == role and t.kept and t.playout is None])


def _attribute_one(reward: Reward, latest: Turn, mine: Sequence[Turn]) -> None:
    found: Turn | None = latest
    if reward.turn is not None:
        found = next((t for t in reversed(mine) if t.decision <= reward.turn), None)
        if found is not None and reward.role is not None and found.decision != reward.turn:
            raise EnvError(
                f"the reward '{reward.name}' is for {reward.role}'s turn at decision {reward.turn}, where it did not "
                "act; expected the number of a decision in which it did, or no turn."
            )
    if found is not None:
        found.rewards += Rewards((reward,))
        _refuse(found)


def _refuse(turn: Turn) -> None:
    if turn.illegal and turn.status is Status.OK:
        turn.status = Status.ILLEGAL
