"""Which levels to train on: in stages, self-paced, or with prioritised replay. Does not import torch.

A curriculum chooses the tasks of a step and learns from their episodes. Difficulty is a set of the environment's
options: `staged` goes through a list of them, `self_paced` and `replay` interpolate between `easy` and `hard`. The
choice is a function of (seed, step, state), and only `learn` changes the state. So an interrupted step changes nothing,
and a resumed run chooses the same tasks as an uninterrupted one. The tasks of several steps may be played at the same
time; `as_of` chooses those of a step again from the state that they were chosen from.
"""

from __future__ import annotations

import copy
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol, TypeVar

from interplay.config import CurriculumSection
from interplay.errors import CheckpointError
from interplay.types import Credit, Episode, Task, seed_of
from interplay.types.occupant import learns

Make = Callable[[int, Mapping[str, Any]], Task]  # task number, options that override the recipe's
DECAY = 0.7  # weight of a level's earlier results at each new visit
_STEPS = 64  # steps whose choices are remembered: as many as can be played at once


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one task: share of successes, number of episodes, mean positive value loss."""

    success: float
    episodes: int
    regret: float = 0.0


class Curriculum(ABC):
    def __init__(self, section: CurriculumSection, seed: int) -> None:
        self.section, self.seed = section, seed

    @abstractmethod
    def choose(self, step: int, count: int, make: Make) -> list[Task]:
        """The tasks of a step, all different."""

    @abstractmethod
    def learn(self, step: int, results: Mapping[str, Result]) -> dict[str, float]:
        """Learn from the results of `step`, by task id; return metrics."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]: ...

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...

    def record(
        self, step: int, episodes: Sequence[Episode], learners: Container[str], credit: Credit
    ) -> dict[str, float]:
        """Compute the results of episodes and `learn` from them; return metrics."""
        results = results_of(episodes, self.section.success, learners, credit)
        return {f"curriculum/{name}": value for name, value in self.learn(step, results).items()}

    def _rng(self, step: int) -> random.Random:
        return random.Random(seed_of("curriculum", self.seed, step))


def results_of(episodes: Sequence[Episode], name: str, learners: Container[str], credit: Credit) -> dict[str, Result]:
    """The results by task. A play is a success for a learner's role if its rewards called `name` sum to more than 0.
    Lines of play that a tree selected by their return do not count.

    The positive value loss is that of prioritised level replay: the mean over turns of max(0, advantage), where the
    advantage is the critic's target minus its value, before whitening.
    """
    by_task: dict[str, list[Episode]] = {}
    for episode in episodes:
        by_task.setdefault(episode.task.id, []).append(episode)
    found = {}
    for task, group in by_task.items():
        wins, losses = [], []
        for episode in group:
            for role in (r for r, who in episode.seats.items() if learns(who, learners)):
                earned = [sum(r.value or 0.0 for r in play.of(role) if r.name == name) for play in episode.own]
                if earned:
                    wins.append(sum(value > 0 for value in earned) / len(earned))
            for turn in episode.line():
                target, value = credit.target(turn), credit.value(turn)
                if target is not None and value is not None:
                    losses.append(max(0.0, target - value))
        if wins:
            regret = sum(losses) / len(losses) if losses else 0.0
            found[task] = Result(sum(wins) / len(wins), len(group), regret)
    return found


class Staged(Curriculum):
    """Stages one after another. The next begins when the success in the last `window` episodes reaches `threshold`."""

    def __init__(self, section: CurriculumSection, seed: int) -> None:
        super().__init__(section, seed)
        self.stage = 0
        self.recent: list[float] = []
        self.chosen: dict[str, int] = {}  # stage of each task that is being played; not part of the state

    def choose(self, step: int, count: int, make: Make) -> list[Task]:
        rng, tasks = self._rng(step), []
        for i in range(count):  # the current stage, or with probability `review` an earlier one
            back = rng.random() < self.section.review and self.stage > 0
            stage = rng.randrange(self.stage) if back else self.stage
            tasks.append(make(step * count + i, self.section.stages[stage]))
            self.chosen[tasks[-1].id] = stage
        _forget(self.chosen, _STEPS * count)
        return tasks

    def learn(self, step: int, results: Mapping[str, Result]) -> dict[str, float]:
        for task, result in results.items():
            if self.chosen.pop(task, self.stage) == self.stage:
                self.recent += [result.success] * result.episodes
        self.recent = self.recent[-self.section.window :]
        share = sum(self.recent) / max(1, len(self.recent))
        played = self.stage
        full = len(self.recent) == self.section.window
        if full and share >= self.section.threshold and self.stage + 1 < len(self.section.stages):
            self.stage, self.recent = self.stage + 1, []
        return {"stage": float(played), "success": share}

    def state_dict(self) -> dict[str, Any]:
        return {"kind": "staged", "stage": self.stage, "recent": self.recent}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        _same_kind(state, "staged")
        self.stage, self.recent = state["stage"], list(state["recent"])


class SelfPaced(Curriculum):
    """Difficulty from 0 (`easy`) to 1 (`hard`). Each step moves it by `rate` × (success − `target`)."""

    SPREAD = 0.1  # difficulties of tasks vary by at most this much

    def __init__(self, section: CurriculumSection, seed: int) -> None:
        super().__init__(section, seed)
        self.difficulty = section.start

    def choose(self, step: int, count: int, make: Make) -> list[Task]:
        rng = self._rng(step)
        around = [self.difficulty + rng.uniform(-self.SPREAD, self.SPREAD) for _ in range(count)]
        return [make(step * count + i, between(self.section, d)) for i, d in enumerate(around)]

    def learn(self, step: int, results: Mapping[str, Result]) -> dict[str, float]:
        played = self.difficulty
        if not results:
            return {"difficulty": played}
        share = sum(r.success for r in results.values()) / len(results)
        moved = self.difficulty + self.section.rate * (share - self.section.target)
        self.difficulty = min(1.0, max(0.0, moved))
        return {"difficulty": played, "success": share}

    def state_dict(self) -> dict[str, Any]:
        return {"kind": "self_paced", "difficulty": self.difficulty}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        _same_kind(state, "self_paced")
        self.difficulty = state["difficulty"]


@dataclass(frozen=True, slots=True)
class Known:
    """A level that was played. Its number and difficulty are enough to make it again."""

    index: int
    difficulty: float
    step: int  # when it was last played
    won: float = 0.0  # decayed counts
    played: float = 0.0
    regret: float = 0.0

    def score(self, by: str) -> float:
        if by == "regret":
            return self.regret
        share = (self.won + 0.5) / (self.played + 1.0)
        return share * (1.0 - share)


class LevelReplay(Curriculum):
    """Prioritised level replay (Jiang et al. 2021): with probability `replay`, play a known level, else a new one.

    A known level is drawn with P = (1 − ρ) P_score + ρ P_stale. P_score is proportional to (1 / rank)^(1 / β), where
    levels are ranked by regret (positive value loss) or learnability p(1 − p). P_stale is proportional to the steps
    since the level was last played. ρ is `staleness` and β is `temperature`. If there are more than `capacity` levels,
    those with the lowest scores are dropped.
    """

    def __init__(self, section: CurriculumSection, seed: int) -> None:
        super().__init__(section, seed)
        self.known: dict[int, Known] = {}
        self.chosen: dict[str, Known] = {}  # level of each task that is being played; not part of the state

    def choose(self, step: int, count: int, make: Make) -> list[Task]:
        rng, weights = self._rng(step), self.weights(step)
        tasks = []
        for i in range(count):
            new = rng.random() >= self.section.replay or not weights
            level = Known(step * count + i, rng.random(), step)
            if not new:  # draw without replacement: all tasks of a step are different
                index = rng.choices(list(weights), list(weights.values()))[0]
                del weights[index]
                level = self.known[index]
            task = make(level.index, between(self.section, level.difficulty) if self.section.easy else {})
            if not new:  # a new id, so that replies use other random numbers than before
                task = replace(task, id=f"{task.id}@{step}")
            tasks.append(task)
            self.chosen[task.id] = level
        _forget(self.chosen, _STEPS * count)
        return tasks

    def weights(self, step: int) -> dict[int, float]:
        """The probability of each known level to be replayed next."""
        if not self.known:
            return {}
        section = self.section
        ranked = sorted(self.known.values(), key=lambda k: (-k.score(section.score), k.step, k.index))
        # The floor keeps a low temperature from making every weight but the first exactly 0.
        score = {k.index: max(1e-200, (1.0 / rank) ** (1.0 / section.temperature)) for rank, k in enumerate(ranked, 1)}
        stale = {k.index: float(step - k.step) for k in ranked}
        by_score, by_age = sum(score.values()), sum(stale.values())
        share = section.staleness if by_age > 0 else 0.0
        return {i: (1 - share) * score[i] / by_score + (share * stale[i] / by_age if share else 0.0) for i in score}

    def learn(self, step: int, results: Mapping[str, Result]) -> dict[str, float]:
        replayed = sum(self.chosen[task].index in self.known for task in results)
        for task, result in results.items():
            level = self.chosen.pop(task)
            level = self.known.get(level.index, level)  # another step may have updated it meanwhile
            won, played = result.success * result.episodes, float(result.episodes)
            self.known[level.index] = replace(
                level,
                step=step,
                won=DECAY * level.won + won,
                played=DECAY * level.played + played,
                regret=result.regret,
            )
        if len(self.known) > self.section.capacity:
            ranked = sorted(self.known.values(), key=lambda k: (-k.score(self.section.score), -k.step, k.index))
            self.known = {k.index: k for k in ranked[: self.section.capacity]}
        scores = [k.score(self.section.score) for k in self.known.values()]
        share = sum(r.success for r in results.values()) / max(1, len(results))
        return {
            "replayed": replayed / max(1, len(results)),
            "known": float(len(self.known)),
            "score": sum(scores) / max(1, len(scores)),
            "success": share,
        }

    def state_dict(self) -> dict[str, Any]:
        return {"kind": "replay", "known": [asdict(k) for k in self.known.values()]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        _same_kind(state, "replay")
        self.known = {k["index"]: Known(**k) for k in state["known"]}


class Chooser(Protocol):
    """What chooses the tasks of a step: a curriculum, or workflows that evolve."""

    def choose(self, step: int, count: int, make: Make) -> list[Task]: ...
    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


C = TypeVar("C", bound=Chooser)


def as_of(chooser: C, state: Mapping[str, Any]) -> C:
    """A copy of the chooser with an earlier state. Both share the memory of what was chosen, because `chooser` learns
    from the results."""
    earlier = copy.copy(chooser)
    earlier.load_state_dict(state)
    return earlier


def _forget(chosen: dict[str, Any], most: int) -> None:
    """Forget the oldest choices: their episodes failed or were dropped."""
    while len(chosen) > most:
        del chosen[next(iter(chosen))]


def between(section: CurriculumSection, difficulty: float) -> dict[str, int | float]:
    """The options at a difficulty, interpolated from `easy` to `hard`; rounded if both ends are integers."""
    at = min(1.0, max(0.0, difficulty))
    found: dict[str, int | float] = {}
    for name, low in section.easy.items():
        high = section.hard[name]
        value = low + at * (high - low)
        found[name] = round(value) if isinstance(low, int) and isinstance(high, int) else float(value)
    return found


def _same_kind(state: Mapping[str, Any], kind: str) -> None:
    if state.get("kind") != kind:
        raise CheckpointError(
            f"the checkpoint has the curriculum '{state.get('kind')}', but this recipe has '{kind}'; set it back, or "
            "start a new run."
        )


_KINDS: dict[str, type[Curriculum]] = {"staged": Staged, "self_paced": SelfPaced, "replay": LevelReplay}


def make_curriculum(section: CurriculumSection, seed: int) -> Curriculum:
    return _KINDS[section.kind](section, seed)
