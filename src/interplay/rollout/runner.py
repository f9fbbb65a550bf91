"""Play many episodes at once on one event loop. A failed episode is recorded and does not end the run.

An episode asks its environment who must act, lets those roles act at the same time, and passes the joint action to the
environment. The sampling plan says how a decision is made: one sample per role, or a tree of candidates (`tree.py`).
"""

from __future__ import annotations

import asyncio
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from interplay import envs
from interplay.agents.joined import look, with_vectors
from interplay.agents.player import Player, Stamp, forkable, turn_of
from interplay.agents.relay import Relay
from interplay.algorithms import SamplingPlan, Tree
from interplay.config import RewardSection, RolloutSection
from interplay.engines.census import census
from interplay.engines.pause import Pause
from interplay.errors import ConfigError, EnvError, InterplayError
from interplay.rollout.decision import Decision
from interplay.rollout.garbage import rare_collections
from interplay.rollout.line import Foresight, Ledger, StateValues, outcome, sample_each, seen_in, step
from interplay.rollout.tree import decide
from interplay.types import Cut, Episode, Observation, Occupant, Reward, Rewards, Role, Sample, Status, Task, Turn


@dataclass(frozen=True)
class Seated:
    """The occupant of each role in an episode, and the players that act for them."""

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
        self.pause: Pause | None = None  # of the stream that plays the episodes

    async def run(
        self, tasks: Sequence[Task], seating: Seating, done: Callable[[Episode], None] | None = None
    ) -> list[Episode]:
        """Play `plan.replicas` episodes of each task, and return them in the order of (task, replica)."""
        with rare_collections:
            return await self._run(tasks, seating, done)

    async def _run(
        self, tasks: Sequence[Task], seating: Seating, done: Callable[[Episode], None] | None
    ) -> list[Episode]:
        wanted = [(task, replica) for task in tasks for replica in range(self.plan.replicas)]
        out: dict[int, Episode] = {}
        left = deque(enumerate(wanted))

        async def play_some() -> None:
            """Play episodes one after another. `rollout.concurrency` of these run at once."""
            while left:
                index, (task, replica) = left.popleft()
                try:
                    episode = out[index] = await self.episode(task, replica, seating(task))
                except BaseException:  # the others stop after their current episodes
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
        """Play one episode. Errors are stored in the episode: Interplay's own by name, any other as an EnvError."""
        episode = Episode(f"{task.id}#{replica}", task, replica, seated.seats)
        began = time.monotonic()
        try:
            limit = asyncio.timeout if self.pause is None else self.pause.limit
            async with limit(self.limits.max_episode_seconds + 1):
                await self._play(episode, seated.players)
        except ConfigError:  # a configuration error affects every episode, so stop the run
            raise
        except InterplayError as error:
            episode.error = f"{type(error).__name__}: {error}"
        except TimeoutError:
            episode.error = (
                f"LimitError: no answer within rollout.max_episode_seconds ({self.limits.max_episode_seconds:g}); "
                "raise it if episodes need more time."
            )
        except Exception as error:  # a bug in a third-party environment or bot must not end the run
            episode.error = f"EnvError: {type(error).__name__} in {task.env}: {error}{_place(error, task.env)}"
        episode.seconds = time.monotonic() - began
        return episode

    async def _play(self, episode: Episode, agents: Mapping[Role, Player]) -> None:
        ledger = Ledger(self.limits, self.pause)
        try:
            await self._line(episode, agents, ledger)
            for playouts in ledger.behind:
                episode.turns += await census().join(playouts)
        finally:
            await ledger.drop()
            episode.used = dict(ledger.used)
            episode.turns = [t for t in episode.turns if t.kept or t.outlook is not None]
            _share_refusals(episode.turns)
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
            views = look(agents, seen)
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


def _place(error: Exception, env: str) -> str:
    """The line in the environment's own file that an error came through, else the line that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    file = getattr(sys.modules.get(envs.lookup(env).__module__), "__file__", None)
    own = [frame for frame in frames if frame.filename == file]
    found = (own or list(frames))[-1]
    return f" ({found.filename}:{found.lineno})"


def _due(agents: Mapping[Role, Player], seen: Mapping[Role, Observation], stamp: Stamp) -> tuple[Turn, ...]:
    """The turns that models would take now: their prompts, without replies."""
    out = []
    for role, observation in seen.items():
        agent = agents[role]
        speaker = agent.now if isinstance(agent, Relay) else agent
        view = speaker.look(with_vectors(agents, role, observation))
        if view.prompt is not None:
            asked = Sample(stamp.turn_id(role), view.prompt.ids, (), (), (), "", media=view.prompt.media)
            out.append(turn_of(stamp, role, speaker, view.observation, (asked,), view.prompt.digest))
    return tuple(out)


def attribute(rewards: Rewards, latest: Mapping[Role, Turn], turns: Sequence[Turn]) -> None:
    """Add rewards to turns. A reward goes to its role's latest turn, even if another role moved; a team reward goes to
    the latest turn of every role. A reward that names a decision goes to the role's turn at that decision; for a team
    reward, to each role's latest turn up to it."""
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
                f"the reward '{reward.name}' is for {reward.role}'s turn at decision {reward.turn}, but {reward.role} "
                "did not act there; expected a decision at which it acted, or no turn."
            )
    if found is not None:
        found.rewards += Rewards((reward,))
        _refuse(found)


def _share_refusals(turns: Sequence[Turn]) -> None:
    """Mark the candidates whose replies were refused. Candidates with the same words are scored once. If all candidates
    of a decision have the same words, none is scored, and the kept one shows whether the reply was refused."""
    refused = {(t.decision, t.role, t.words) for t in turns if t.playout is None and t.illegal}
    for turn in turns if refused else ():
        if turn.outlook is not None and turn.playout is None and (turn.decision, turn.role, turn.words) in refused:
            turn.outlook = replace(turn.outlook, refused=True)
            _refuse(turn)


def _refuse(turn: Turn) -> None:
    if turn.illegal and turn.status is Status.OK:
        turn.status = Status.ILLEGAL
