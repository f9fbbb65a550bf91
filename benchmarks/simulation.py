"""Simulates a run on a cluster, event by event: who plays, who waits, how old episodes are when they are trained on.

It follows the rules of `rollout/stream.py` and `distributed/cluster.py`. An engine with b running replies needs
`step + b · each` seconds for one token of each of them. A tool occupies one of its worker's slots. The trainer takes
`batch` groups, learns, and sends the weights. `cluster.py` feeds it with measured times and compares it with real runs.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from random import Random
from statistics import fmean
from typing import Any

Turns = tuple[tuple[int, float], ...]  # of an episode: sampled tokens, and seconds of the tool after them


@dataclass(frozen=True)
class Shape:
    """A cluster and a recipe. Times are in seconds; `mtbf` is the mean time between two failures of one GPU."""

    workers: int  # each with an engine and tools
    slots: int  # tools that may run at once on a worker
    step: float  # an engine step
    each: float  # more for each running reply
    batch: int  # groups of a training step
    replicas: int  # episodes of a group
    staleness: int
    learn: Callable[[int], float]  # by the number of sampled tokens: the learner's time for a step
    update: float  # until all workers have new weights
    learners: int = 1
    mtbf: float = math.inf
    restart: float = 60.0  # until a lost worker, or a lost group of learners, is back
    checkpoint: int = 10  # training steps between two checkpoints


@dataclass(frozen=True)
class Measured:
    """What a real run measured. `episodes` are the turns by group and replica; times are in seconds."""

    episodes: dict[tuple[int, int], Turns]
    step: float
    each: float
    learn: float
    update: float

    def draw(self, number: int, replica: int) -> Turns:
        """The recorded episode of this group, or any recorded episode if this group was not recorded."""
        if (number, replica) in self.episodes:
            return self.episodes[number, replica]
        return Random(f"{number} {replica}").choice(list(self.episodes.values()))

    def written(self) -> dict[str, Any]:
        """As JSON, for `read`."""
        return {**asdict(self), "episodes": [[*key, turns] for key, turns in self.episodes.items()]}

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Measured:
        found = {(number, replica): tuple((n, s) for n, s in turns) for number, replica, turns in data["episodes"]}
        return cls(**{**data, "episodes": found})


@dataclass
class _Game:
    turns: Turns
    group: _Group
    at: int = 0


@dataclass
class _Group:
    number: int
    version: int  # training steps that had been taken when it began
    left: int
    tokens: int = 0


@dataclass
class _Worker:
    """`progress` counts the tokens that a reply running all the time would have got; a reply of n tokens that began at
    progress p ends at p + n."""

    progress: float = 0.0
    since: float = 0.0
    busy: float = 0.0
    replies: list[tuple[float, int, _Game]] = field(default_factory=list)  # heap: progress at which it ends
    tools: dict[int, _Game] = field(default_factory=dict)
    waiting: deque[_Game] = field(default_factory=deque)
    plans: int = 0  # of the next end of a reply: only the latest counts
    life: int = 0  # how often it was lost
    down: bool = False

    def games(self) -> list[_Game]:
        return [*(g for *_, g in self.replies), *self.tools.values(), *self.waiting]


@dataclass(frozen=True)
class Outcome:
    """Means over the counted training steps: seconds of a step, shares of idle time, age of groups in steps."""

    seconds: float
    tokens_per_second: float
    learner_idle: float
    engine_idle: float
    age: float
    lost_workers: int
    lost_learners: int


class Simulation:
    """`draw(number, replica)` gives the turns of an episode."""

    def __init__(self, shape: Shape, draw: Callable[[int, int], Turns], seed: int = 0) -> None:
        self.shape, self.draw, self.random = shape, draw, Random(seed)
        self.now = 0.0
        self.version = self.accepted = self.issued = self.events = self.sent = 0
        self.running = 0
        self.ready: list[_Group] = []
        self.queue: list[tuple[float, int, Callable[[], None]]] = []
        self.workers = [_Worker() for _ in range(shape.workers)]
        self.steps: list[tuple[float, float, int]] = []  # of each training step: when it ended, idle time, tokens
        self.ages: list[int] = []
        self.learning = False
        self.idle_since = self.saved_at = 0.0
        self.lost_workers = self.lost_learners = 0

    def run(self, steps: int, skip: int = 1) -> Outcome:
        """Simulate `steps` training steps; the first `skip` of them are not counted."""
        if self.shape.mtbf < math.inf:
            for worker in self.workers:
                self._fate(worker)
        self._fill()
        busy, began = 0.0, 0.0
        while len(self.steps) < steps:
            if len(self.steps) == skip and not began:
                began, busy = self.now, self._busy()
            self.now, _, act = heapq.heappop(self.queue)
            act()
        counted, whole = self.steps[skip:], max(self.now - began, 1e-12)
        return Outcome(
            whole / len(counted),
            sum(tokens for *_, tokens in counted) / whole,
            sum(idle for _, idle, _ in counted) / whole,
            1.0 - (self._busy() - busy) / (whole * len(self.workers)),
            fmean(self.ages[skip * self.shape.batch :]),
            self.lost_workers,
            self.lost_learners,
        )

    def _later(self, seconds: float, act: Callable[[], None]) -> None:
        self.events += 1
        heapq.heappush(self.queue, (self.now + seconds, self.events, act))

    # -- the stream -----------------------------------------------------------------------------------------------

    def _fill(self) -> None:
        shape = self.shape
        begun: list[_Group] = []
        while (shape.staleness + self.version + 1) * shape.batch > self.accepted + self.running:
            begun.append(_Group(self.issued, self.version, shape.replicas))
            self.issued += 1
            self.running += 1
        for place, group in enumerate(begun):
            worker = self.workers[((self.sent if shape.staleness else 0) + place) % shape.workers]
            for replica in range(shape.replicas):
                self._reply(worker, _Game(self.draw(group.number, replica), group))
        self.sent += len(begun)

    def _ended(self, game: _Game) -> None:
        group = game.group
        group.tokens += sum(tokens for tokens, _ in game.turns)
        group.left -= 1
        if not group.left:
            self.running -= 1
            self.accepted += 1
            self.ready.append(group)
            self._train()

    # -- the learner ----------------------------------------------------------------------------------------------

    def _train(self) -> None:
        shape = self.shape
        if self.learning or len(self.ready) < shape.batch:
            return
        self.ready.sort(key=lambda g: g.number)
        taken, self.ready = self.ready[: shape.batch], self.ready[shape.batch :]
        self.ages += [self.version - g.version for g in taken]
        tokens, idle = sum(g.tokens for g in taken), self.now - self.idle_since
        self.learning = True
        seconds = shape.learn(tokens)
        self._later(seconds + self._repeated(seconds) + shape.update, lambda: self._learned(idle, tokens))

    def _repeated(self, seconds: float) -> float:
        """If a learner is lost during this step: the restart, and the time that was spent since the last checkpoint."""
        shape, out = self.shape, 0.0
        rate = shape.learners / shape.mtbf
        if rate and self.random.random() < -math.expm1(-rate * (self.now + seconds - self._last_step())):
            self.lost_learners += 1
            out = shape.restart + self.now - self.saved_at
        return out

    def _last_step(self) -> float:
        return self.steps[-1][0] if self.steps else 0.0

    def _learned(self, idle: float, tokens: int) -> None:
        self.learning, self.idle_since = False, self.now
        self.version += 1
        self.steps.append((self.now, idle, tokens))
        if self.version % self.shape.checkpoint == 0:
            self.saved_at = self.now
        self._fill()
        self._train()

    # -- a worker -------------------------------------------------------------------------------------------------

    def _busy(self) -> float:
        for worker in self.workers:
            self._advance(worker)
        return sum(w.busy for w in self.workers)

    def _advance(self, worker: _Worker) -> None:
        """Bring the progress of a worker's engine up to now."""
        if worker.replies:
            passed = self.now - worker.since
            worker.progress += passed / (self.shape.step + self.shape.each * len(worker.replies))
            worker.busy += passed
        worker.since = self.now

    def _reply(self, worker: _Worker, game: _Game) -> None:
        """The engine begins to sample a reply."""
        if worker.down:
            worker.waiting.append(game)  # it begins when the worker is back
            return
        self._advance(worker)
        self.events += 1
        heapq.heappush(worker.replies, (worker.progress + game.turns[game.at][0], self.events, game))
        self._plan(worker)

    def _plan(self, worker: _Worker) -> None:
        worker.plans += 1
        if not worker.replies:
            return
        plan = worker.plans
        left = (worker.replies[0][0] - worker.progress) * (self.shape.step + self.shape.each * len(worker.replies))
        self._later(max(0.0, left), lambda: self._replied(worker, plan))

    def _replied(self, worker: _Worker, plan: int) -> None:
        if plan != worker.plans:
            return
        self._advance(worker)
        while worker.replies and worker.replies[0][0] <= worker.progress + 1e-6:
            worker.waiting.append(heapq.heappop(worker.replies)[2])
        self._plan(worker)
        self._use_tools(worker)

    def _use_tools(self, worker: _Worker) -> None:
        while worker.waiting and len(worker.tools) < self.shape.slots:
            game = worker.waiting.popleft()
            worker.tools[id(game)] = game
            self._later(game.turns[game.at][1], partial(self._worked, worker, game, worker.life))

    def _worked(self, worker: _Worker, game: _Game, life: int) -> None:
        if life != worker.life:
            return
        del worker.tools[id(game)]
        game.at += 1
        if game.at < len(game.turns):
            self._reply(worker, game)
        else:
            self._ended(game)
        self._use_tools(worker)

    # -- failures -------------------------------------------------------------------------------------------------

    def _fate(self, worker: _Worker) -> None:
        self._later(self.random.expovariate(1.0 / self.shape.mtbf), lambda: self._lose(worker))

    def _lose(self, worker: _Worker) -> None:
        """A worker is lost. Its episodes are played again, from their beginning, when it is back."""
        self._advance(worker)
        lost = worker.games()
        worker.replies, worker.tools = [], {}
        worker.waiting = deque(lost)
        worker.life += 1
        worker.plans += 1
        worker.down = True
        for game in lost:
            game.at = 0
        self.lost_workers += 1
        self._later(self.shape.restart, lambda: self._back(worker))

    def _back(self, worker: _Worker) -> None:
        worker.down = False
        games, worker.waiting = list(worker.waiting), deque()
        for game in games:
            self._reply(worker, game)
        self._fate(worker)
