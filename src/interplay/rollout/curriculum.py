"""Which levels to train on: in stages, at one's own pace, or replayed by what they teach. No torch.

A curriculum chooses the tasks of a step and learns from their episodes. Its difficulty vector is a set of the
environment's options: `staged` walks a list of them, `self_paced` and `replay` move on the line from `easy` to `hard`.
The choice is a function of (seed, step, state) and changes nothing, and only `learn` changes the state: a step that was
cut off leaves no trace, and a resumed run chooses as the one that was never stopped.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from interplay.config import CurriculumSection
from interplay.errors import CheckpointError
from interplay.types import Credit, Episode, Task, seed_of
from interplay.types.occupant import learns

Make = Callable[[int, Mapping[str, Any]], Task]  # task number, options over the recipe's
DECAY = 0.7  # of what a level's earlier visits count


@dataclass(frozen=True, slots=True)
class Result:
    """What the episodes of one task came to: share of success, how many there were, mean positive value loss."""

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
        """Take note of how the tasks of `step` went, by task id; what there is to log."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]: ...

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...

    def record(
        self, step: int, episodes: Sequence[Episode], learners: Container[str], credit: Credit
    ) -> dict[str, float]:
        """`learn` from the episodes themselves."""
        results = results_of(episodes, self.section.success, learners, credit)
        return {f"curriculum/{name}": value for name, value in self.learn(step, results).items()}

    def _rng(self, step: int) -> random.Random:
        return random.Random(seed_of("curriculum", self.seed, step))


def results_of(episodes: Sequence[Episode], name: str, learners: Container[str], credit: Credit) -> dict[str, Result]:
    """By task: a play succeeds, in a learner's seat, if the reward `name` that reaches it adds up to more than 0. What
    counts are plays by the policies' own choices, not a line that a tree chose for its worth.

    The positive value loss is that of prioritised level replay: the mean over turns of max(0, advantage), the
    advantage being a critic's, target less value, before it is whitened.
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
    """One stage after the other; the next begins when the last `window` episodes of this one reach the threshold."""

    def __init__(self, section: CurriculumSection, seed: int) -> None:
        super().__init__(section, seed)
        self.stage = 0
        self.recent: list[float] = []
        self.chosen: dict[str, int] = {}  # tasks that are played now; not part of the state

    def choose(self, step: int, count: int, make: Make) -> list[Task]:
        rng, tasks = self._rng(step), []
        for i in range(count):  # the present stage, but for a share of review
            back = rng.random() < self.section.review and self.stage > 0
            stage = rng.randrange(self.stage) if back else self.stage
            tasks.append(make(step * count + i, self.section.stages[stage]))
            self.chosen[tasks[-1].id] = stage
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
    """Difficulty 0 (`easy`) to 1 (`hard`), moved each step by `rate` times how far success is from its target."""

    SPREAD = 0.1  # tasks lie this much around the difficulty

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
    """A level that was played: its number and difficulty make it again."""

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
    """Prioritised level replay (Jiang et al. 2021): with probability `replay` a known level, else a new one.

    A known level is drawn with P = (1 − ρ) P_score + ρ P_stale: P_score goes with (1 / rank)^(1 / β), by
    rank in regret (positive value loss) or learnability p(1 − p), P_stale with the steps since it was last played. ρ is
    `staleness` and β `temperature`. Beyond `capacity` the lowest score goes.
    """

    def __init__(self, section: CurriculumSection, seed: int) -> None:
        super().__init__(section, seed)
        self.known: dict[int, Known] = {}
        self.chosen: dict[str, Known] = {}  # of this step; not part of the state

    def choose(self, step: int, count: int, make: Make) -> list[Task]:
        rng, weights = self._rng(step), self.weights(step)
        tasks = []
        self.chosen = {}
        for i in range(count):
            new = rng.random() >= self.section.replay or not weights
            level = Known(step * count + i, rng.random(), step)
            if not new:  # without putting back: the tasks of a step are all different
                index = rng.choices(list(weights), list(weights.values()))[0]
                del weights[index]
                level = self.known[index]
            task = make(level.index, between(self.section, level.difficulty) if self.section.easy else {})
            if not new:  # or its replies would be drawn with the random numbers of the first time
                task = replace(task, id=f"{task.id}@{step}")
            tasks.append(task)
            self.chosen[task.id] = level
        return tasks

    def weights(self, step: int) -> dict[int, float]:
        """The probability of each known level to be the next that is replayed."""
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
            level = self.chosen[task]
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


def between(section: CurriculumSection, difficulty: float) -> dict[str, int | float]:
    """The options at a difficulty: on the line from `easy` to `hard`, whole numbers where both ends are."""
    at = min(1.0, max(0.0, difficulty))
    found: dict[str, int | float] = {}
    for name, low in section.easy.items():
        high = section.hard[name]
        value = low + at * (high - low)
        found[name] = round(value) if isinstance(low, int) and isinstance(high, int) else float(value)
    return found


def _same_kind(state: Mapping[str, Any], kind: str) -> None:
    if state.get("kind") != kind:
        raise CheckpointError(f"the checkpoint's curriculum is '{state.get('kind')}', this recipe's is '{kind}'.")


_KINDS: dict[str, type[Curriculum]] = {"staged": Staged, "self_paced": SelfPaced, "replay": LevelReplay}


def make_curriculum(section: CurriculumSection, seed: int) -> Curriculum:
    return _KINDS[section.kind](section, seed)
