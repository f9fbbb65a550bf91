"""The proving ground: trains any algorithm in seconds, with tables instead of language models.

A policy is a softmax table with one row per information set and one column per legal action. Everything else is the
code of a real run: the environments, the runner and its trees, the algorithm's own `credit`, `update` and `loss`. The
log-probs are exact. If an algorithm fails here, the cause is the algorithm and not a model, an engine or a tokenizer.
This module is in the package and not in the tests because the benchmark, the tests and authors of algorithms all run
it.
"""

from __future__ import annotations

import asyncio
import copy
import hashlib
import itertools
import math
import random
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from interplay import algorithms, envs
from interplay.agents.player import Stamp, View, turn_of
from interplay.algorithms import Algorithm, Independent, credit
from interplay.algorithms.algorithm import Weighed
from interplay.algorithms.losses import Outputs, Targets
from interplay.algorithms.maddpg import MADDPG
from interplay.algorithms.replay import Step, move_of
from interplay.algorithms.vdn import VDN
from interplay.config import Open, RewardSection, RolloutSection
from interplay.envs import Env
from interplay.evaluation.games import Game
from interplay.rollout.runner import Runner, Seated
from interplay.types import (
    Credit,
    Episode,
    Message,
    Observation,
    Policy,
    Rewards,
    Role,
    Sample,
    Task,
    Turn,
    seed_of,
)

ROWS, COLUMNS = 64, 4


class Table:
    """One policy: logits [rows, columns], with one row per information set of its role."""

    def __init__(self, zero_sum: bool) -> None:
        start = (1.0,) if zero_sum else ()  # training must not start at the equilibrium
        self.logits = torch.zeros(ROWS, COLUMNS)
        self.logits[:, : len(start)] = torch.tensor(list(start))
        self.logits.requires_grad_()
        # Adam learns payoffs of 1 and of 30 equally well. In zero-sum games its steps of equal size make the policies
        # spiral away from the equilibrium; with plain gradient steps the average strategies converge.
        self.optimizer = torch.optim.SGD([self.logits], 0.3) if zero_sum else torch.optim.Adam([self.logits], 0.1)
        self.rows: dict[str, int] = {}
        self.legal: list[tuple[str, ...]] = []
        self.closed = torch.zeros(ROWS, COLUMNS, dtype=torch.bool)  # columns past the legal actions
        self.counted = torch.zeros(ROWS, COLUMNS)  # probabilities summed over training, for the average strategy
        self.refresh()

    def row(self, known: str, legal: tuple[str, ...]) -> int:
        if known not in self.rows:
            self.closed[len(self.legal), len(legal) :] = True
            self.rows[known] = len(self.legal)
            self.legal.append(legal)
            self.refresh()
        return self.rows[known]

    def logprobs(self) -> Tensor:
        """Log-probs of every row; columns past the legal actions have probability 0."""
        return torch.log_softmax(self.logits.masked_fill(self.closed, -1e9), dim=1)

    def refresh(self) -> None:
        with torch.no_grad():
            self.current: list[list[float]] = self.logprobs().tolist()

    def step(self, loss: Tensor) -> None:
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.refresh()
        self.counted += torch.tensor(self.current).exp()


@dataclass
class TableAgent:
    """The player of one role. It knows everything that it was told and that it said in this episode."""

    role: Role
    table: Table
    policy: str
    trainable: bool
    known: tuple[Message, ...] = ()
    parent: str | None = None

    def look(self, observation: Observation) -> View:
        return View(observation, None, self.known + observation.messages)

    async def sample(self, env: Env, view: View, stamp: Stamp) -> Turn:
        known = "\n".join(f"{m.role}: {m.content}" for m in view.messages)
        row = self.table.row(known, view.observation.legal)
        chances = [math.exp(p) for p in self.table.current[row][: len(view.observation.legal)]]
        index = random.Random(seed_of(*stamp.key(self.role))).choices(range(len(chances)), chances)[0]
        digest = hashlib.blake2b(known.encode(), digest_size=8).hexdigest()
        text = view.observation.legal[index]
        mask = tuple((k,) for k in range(len(chances)))
        logprob = self.table.current[row][index]
        sample = Sample(stamp.turn_id(self.role), (row,), (index,), (logprob,), (0,), text, mask=mask)
        return turn_of(stamp, self.role, self, view.observation, (sample,), digest)

    def commit(self, view: View, turn: Turn) -> None:
        self.known = (*view.messages, Message("assistant", turn.text))
        self.parent = turn.id

    def fork(self) -> TableAgent:
        return copy.copy(self)


@dataclass
class TableCritic:
    """A table of values: each key has a running mean of its targets, in which recent targets count most."""

    reward: RewardSection
    values: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    where: dict[str, tuple[str, float]] = field(default_factory=dict)  # turn id -> key of the state it led to, reward

    async def value(self, role: Role, env: Env, turn: Turn) -> float:
        """The value of the state that a candidate turn led to. Trees ask for it."""
        return self.values.get(f"{role} after {env.state()}", 0.0)

    def arrived(self, role: Role, env: Env, turn: Turn, rewards: Rewards) -> None:
        self.where[turn.id] = f"{role} after {env.state()}", credit.mix(rewards, role, self.reward)

    def learn(self, key: str, target: float) -> None:
        self.counts[key] += 1
        rate = max(0.1, 1 / self.counts[key])
        self.values[key] = self.values.get(key, 0.0) + rate * (target - self.values.get(key, 0.0))

    def learn_states(self, episodes: Sequence[Episode]) -> None:
        """Learns state values from the played lines: the target is the reward earned after the state that a turn led
        to."""
        paid = {turn: earned for turn, (_, earned) in self.where.items()}
        for line in credit.lines(episodes):
            for turn, ahead in credit.beyond(line, paid, self.reward):
                self.learn(self.where[turn.id][0], ahead)
        self.where.clear()


@dataclass
class Ground:
    """One game, one algorithm, one seed. `frozen` roles play but do not learn."""

    game: Game
    algorithm: Algorithm
    seed: int = 0
    tasks: int = 4
    frozen: Collection[Role] = ()

    def __post_init__(self) -> None:
        self.reward = self.algorithm.reward
        self.roles = envs.make(self._task(0)).roles
        self.tables = {role: Table(self.game.zero_sum) for role in self.roles}
        self.first = {role: table.current for role, table in self.tables.items()}
        self.critic = TableCritic(self.reward)
        self.runner = Runner(self.seed, RolloutSection(), self.algorithm.plan, self.reward, critic=self.critic)

    def _task(self, index: int) -> Task:
        return envs.sample_task(self.game.env, self.game.options, "train", index, self.seed)

    def _seats(self, task: Task) -> Seated:
        players = {role: TableAgent(role, table, role, role not in self.frozen) for role, table in self.tables.items()}
        return Seated({role: Policy(role) for role in players}, players)

    def train(self, steps: int | None = None) -> None:
        with asyncio.Runner() as loop:
            for step in range(self.game.steps if steps is None else steps):
                tasks = [self._task(step * self.tasks + i) for i in range(self.tasks)]
                episodes = loop.run(self.runner.run(tasks, self._seats))
                failed = [e.error for e in episodes if e.error]
                if failed:
                    raise RuntimeError(failed[0])
                self._learn(episodes)

    def _learn(self, episodes: list[Episode]) -> None:
        turns = [t for e in episodes for t in e.turns if t.playout is None]
        given = self._score(turns)
        self.algorithm.shape(episodes, given)
        self.algorithm.credit(episodes, given)
        self.algorithm.update(episodes)
        for role in self.roles:
            mine = [t.last for t in turns if t.role == role and given.advantage(t) is not None]
            if mine and role not in self.frozen:
                weighed = [x for sample in mine for x in self.algorithm.weighed(sample, given)]
                self.tables[role].step(self._loss(role, weighed, given))
        for turn in turns:
            if (target := given.target(turn)) is not None:
                self.critic.learn(self._seen(turn), target)
        self.critic.learn_states(episodes)

    def _score(self, turns: Sequence[Turn]) -> Credit:
        given = Credit()
        for turn in turns:
            sample = turn.last
            row, column = sample.prompt[0], sample.action[0]
            given.reference[sample.id] = (self.first[turn.role][row][column],)
            if "legal" in self.algorithm.needs:
                now = self.tables[turn.role].current[row]
                given.legal[sample.id] = tuple((now[k],) for (k,) in sample.mask)
            if "values" in self.algorithm.needs:
                given.values[sample.id] = (self.critic.values.get(self._seen(turn), 0.0),)
        return given

    def _seen(self, turn: Turn) -> str:
        return f"{turn.role} {turn.state if 'central' in self.algorithm.needs else turn.keys.prompt}"

    def _loss(self, role: Role, weighed: Sequence[Weighed], given: Credit) -> Tensor:
        samples = [w.sample for w in weighed]
        found = [w.advantage for w in weighed]
        advantages = [max(a, key=abs) if isinstance(a, tuple) else a for a in found]  # a reply is one token
        count = sum(w.share for w in weighed)
        table = self.tables[role].logprobs()
        logprobs = table[torch.tensor([s.prompt[0] for s in samples])]
        mine = logprobs.gather(1, torch.tensor([[s.action[0]] for s in samples])).squeeze(1)
        targets = Targets(
            torch.tensor(advantages, dtype=torch.float32),
            mine.detach(),
            torch.tensor([w.share / count for w in weighed]),
            torch.tensor([given.reference.get(s.id, (0.0,))[0] for s in samples]),
            torch.tensor([s.logprobs[0] for s in samples]),
            torch.arange(len(samples)),
        )
        return self.algorithm.loss(targets, Outputs(mine, -(logprobs.exp() * logprobs).sum(1)))[0]

    # -- results --------------------------------------------------------------------------------------------------

    def play(self, episodes: int = 300) -> list[Episode]:
        """Plays episodes of held-out tasks with the current policies."""
        runner = Runner(self.seed + 1, RolloutSection(), Independent(), self.reward)
        tasks = [envs.sample_task(self.game.env, self.game.options, "test", i, self.seed) for i in range(episodes)]
        return asyncio.run(runner.run(tasks, self._seats))

    def result(self, episodes: int = 300) -> float:
        """The game's measure: in a zero-sum game minus the exploitability of the average strategies, else the mean over
        new episodes."""
        if self.game.zero_sum:
            return -self.exploitability()
        found = [self.game.measure(e) for e in self.play(episodes)]
        return sum(found) / len(found)

    def exploitability(self) -> float:
        """The sum of what best responses of both roles earn against the average strategies; 0 only at an
        equilibrium."""
        one, other = (self._average(role) for role in self.roles)
        env: Any = envs.make(self._task(0))
        payoff = torch.tensor(env.payoff, dtype=torch.float32)
        first = torch.einsum("ij,j->i", payoff[..., 0], other).max()
        second = torch.einsum("ij,i->j", payoff[..., 1], one).max()
        return float(first + second)

    def _average(self, role: Role) -> Tensor:
        table = self.tables[role]
        row = table.counted[0, : len(table.legal[0])]
        return row / row.sum()

    def believed(self) -> tuple[str, ...]:
        """The joint action to which the algorithm's own networks give the highest value. The game must have exactly one
        joint decision."""
        (episode,) = self.play(1)
        return believed(self.algorithm, episode)


def believed(algorithm: Algorithm, episode: Episode) -> tuple[str, ...]:
    line = episode.line()
    joints = list(itertools.product(*(turn.observation.legal for turn in line)))
    if isinstance(algorithm, MADDPG):
        asked = [(line[0], dict(zip([t.role for t in line], joint, strict=True)), [joint[0]]) for joint in joints]
        values = [found[0] for found in algorithm.action_values(line[0].role, asked)]
    else:
        assert isinstance(algorithm, VDN)
        moves = [[replace(move_of(t), action=a) for t, a in zip(line, joint, strict=True)] for joint in joints]
        steps = [Step(0, line[0].state, tuple(joint), (), {}, 0.0, 0.0) for joint in moves]
        values = algorithm.value.total(algorithm.value.table(steps), steps).tolist()
    return joints[max(range(len(joints)), key=values.__getitem__)]


@dataclass(frozen=True)
class Contender:
    """An algorithm as the proving ground runs it: with its default settings, except for those in `settings`."""

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""

    def algorithm(self, game: Game, seed: int = 0) -> Algorithm:
        settings = dict(self.settings)
        if "default" in algorithms.lookup(self.name).Settings.model_fields:
            settings["default"] = game.default
        return algorithms.make(Open(name=self.name, **settings), RewardSection(), seed)


_COMPOSED = {"plan": {"kind": "replay"}, "grouping": ["episode", "decision", "role"], "credit": "scaled"}
CONTENDERS = [
    *(Contender(name, label=name) for name in algorithms.known() if name not in ("custom", "maddpg", "magrpo", "ppo")),
    Contender("ppo", label="ppo (turns)"),
    Contender("ppo", {"level": "token"}, label="ppo (tokens)"),
    Contender("magrpo", label="magrpo (aligned)"),
    Contender("magrpo", {"joint": "crossed"}, label="magrpo (crossed)"),
    Contender("maddpg", label="maddpg (score function)"),
    Contender("maddpg", {"actor": "gumbel"}, label="maddpg (Gumbel)"),
    Contender("custom", _COMPOSED, label="custom (C3's tree, GRPO's rule)"),
]


def prove(contender: Contender, game: Game, seed: int = 0, frozen: Collection[Role] = ()) -> Ground:
    """Trains a contender on a game. Every algorithm gets about 16 replies of each role per step."""
    made = contender.algorithm(game, seed)
    plan = made.plan
    each = plan.replicas * (1 if isinstance(plan, Independent) else plan.candidates)
    ground = Ground(game, made, seed, max(1, 16 // each), frozen)
    ground.train()
    return ground
