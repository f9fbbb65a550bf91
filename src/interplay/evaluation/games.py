"""Small games with known solutions, to test an algorithm before it trains a language model.

Matrix games are payoffs for `envs/games/matrix.py`. The other games are tiny environments that are defined here because
they are of no use elsewhere.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from interplay.envs import Env
from interplay.types import Episode, Message, Observation, Rewards, Role, Task


class AskedGame(Env):
    """An environment in which roles answer questions with one of the listed words. Any other answer ends the episode
    with a reward of 0 for the team."""

    words: ClassVar[tuple[str, ...]]
    reward_names = ("solved", "illegal")

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.said: list[dict[Role, str]] = []
        self.over = False

    def ask(self, text: str) -> Observation:
        return Observation((Message("user", text),), legal=self.words)

    def step(self, actions: dict[Role, str]) -> Rewards:
        bad = [role for role, text in actions.items() if text not in self.words]
        self.said.append(dict(actions))
        self.over = self.over or bool(bad)
        return Rewards.process("illegal", dict.fromkeys(bad, -1.0)) if bad else Rewards()

    def outcome(self) -> Rewards:
        return Rewards.team("solved", self.worth() if not self.over else 0.0)

    @abstractmethod
    def worth(self) -> float:
        """The team's reward for what was said."""

    def state(self) -> str:
        return repr(self.said)


class RelayGame(AskedGame):
    """First p0 acts, then p1, who does not learn what p0 said. Each right word adds 1 to the team's reward at the end,
    which also contains a noise of ±1."""

    roles = ("p0", "p1")
    words = ("left", "right", "wait")

    def observe(self) -> dict[Role, Observation]:
        if self.over or len(self.said) == 2:
            return {}
        return {f"p{len(self.said)}": self.ask("left, right or wait?")}

    def step(self, actions: dict[Role, str]) -> Rewards:
        self.noise = self.rng.choice((-1.0, 1.0))
        return super().step(actions)

    def worth(self) -> float:
        said = [text for step in self.said for text in step.values()]
        return self.noise + sum(a == b for a, b in zip(said, ("right", "left"), strict=True))


class TwoStep(AskedGame):
    """QMIX's game (1803.11485, sec. 6.1): p0 picks a table, then p0 picks a row and p1 a column of it."""

    roles = ("p0", "p1")
    words = ("a", "b")
    tables: ClassVar[dict[str, list[list[float]]]] = {"a": [[7, 7], [7, 7]], "b": [[0, 1], [1, 8]]}

    def observe(self) -> dict[Role, Observation]:
        if self.over or len(self.said) == 2:
            return {}
        if not self.said:
            return {"p0": self.ask("Which table?")}
        return {r: self.ask(f"Table {self.said[0]['p0']}; your move?") for r in self.roles}

    def worth(self) -> float:
        i, j = (self.words.index(self.said[1][r]) for r in self.roles)
        return self.tables[self.said[0]["p0"]][i][j]


class Debate(AskedGame):
    """p0 knows the answer, p1 does not. Both answer, then p1 answers again, having heard p0. Only p1's last answer is
    rewarded, and both roles get the reward, so p0 can only earn something by helping p1."""

    roles = ("p0", "p1")
    words = ("yes", "no")

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.truth = self.words[task.seed // 4 % 2]

    def observe(self) -> dict[Role, Observation]:
        if self.over or len(self.said) == 2:
            return {}
        if not self.said:
            return {"p0": self.ask(f"The answer is {self.truth}. Say something."), "p1": self.ask("Guess.")}
        return {"p1": self.ask(f"p0 said {self.said[0]['p0']}. Your answer?")}

    def worth(self) -> float:
        return float(self.said[1]["p1"] == self.truth)

    def state(self) -> str:
        return f"{self.truth} {self.said!r}"


class TwoKeys(AskedGame):
    """Two locks and one door: each role sees a number and must say the word that belongs to it. The team is rewarded
    only if both words are right."""

    roles = ("p0", "p1")
    words = ("red", "green", "blue")

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.numbers = {"p0": task.seed // 4 % 3, "p1": task.seed // 12 % 3}

    def observe(self) -> dict[Role, Observation]:
        if self.over or self.said:
            return {}
        return {r: self.ask(f"Your number is {self.numbers[r]}.") for r in self.roles}

    def worth(self) -> float:
        shift = {"p0": 1, "p1": 2}
        return float(all(self.words[(self.numbers[r] + shift[r]) % 3] == self.said[0][r] for r in self.roles))

    def state(self) -> str:
        return f"{self.numbers} {self.said!r}"


@dataclass(frozen=True)
class Game:
    """`measure` is averaged over episodes played after training; the game is solved if the mean is at least `goal`."""

    name: str
    answer: str
    env: str
    measure: Callable[[Episode], float]
    goal: float
    options: Mapping[str, Any] = field(default_factory=dict)
    default: str = ""
    zero_sum: bool = False  # if so, the average strategy is measured, and `goal` is minus its exploitability
    steps: int = 100


def moves(episode: Episode) -> list[str]:
    return [t.text for t in episode.line()]


def paid(episode: Episode) -> float:
    """What the first role earned."""
    role = next(iter(episode.seats))
    return sum(r.value or 0.0 for r in episode.rewards.of(role))


def played(*wanted: list[str]) -> Callable[[Episode], float]:
    return lambda episode: float(moves(episode) in wanted)


def relayed(episode: Episode) -> float:
    return sum(a == b for a, b in zip(moves(episode), ("right", "left"), strict=False))


def team(table: list[list[float]]) -> dict[str, Any]:
    words = ["a", "b", "c"][: len(table)]
    return {"actions": [words, words], "payoff": [[[v, v] for v in row] for row in table]}


_HERE = "interplay.evaluation.games"
GAMES = [
    Game("bandit", "the third arm", "matrix", played(["c"]), 0.9,
         {"actions": [["a", "b", "c"]], "payoff": [[0.2], [0.5], [1.0]]}, "a"),
    Game("prisoners_dilemma", "both defect (the only equilibrium)", "matrix", played(["defect", "defect"]), 0.9,
         {"game": "prisoners_dilemma"}, "cooperate"),
    Game("stag_hunt", "one of the two pure equilibria", "matrix", played(["stag", "stag"], ["hare", "hare"]), 0.9,
         {"game": "stag_hunt"}, "hare"),
    Game("matching_pennies", "each side even, on average", "matrix", paid, -0.2, {"game": "matching_pennies"}, "heads",
         zero_sum=True, steps=400),
    Game("rock_paper_scissors", "each a third, on average", "matrix", paid, -0.2, {"game": "rock_paper_scissors"},
         "rock", zero_sum=True, steps=400),
    Game("climbing", "11 of 11", "matrix", paid, 10.5, team([[11, -30, 0], [-30, 7, 6], [0, 0, 5]]), "c"),
    Game("credit", "2 of 2 words right, under noise", f"{_HERE}:RelayGame", relayed, 1.8, default="wait"),
    Game("two_step", "8 of 8 (7 is safe)", f"{_HERE}:TwoStep", paid, 7.6, default="a"),
    Game("monotonic", "8 of 8", "matrix", paid, 7.6, team([[0, 1, 2], [1, 3, 5], [2, 5, 8]]), "a"),
    Game("non_monotonic", "8 of 8 (0 is safe)", "matrix", paid, 7.6,
         team([[8, -12, -12], [-12, 0, 0], [-12, 0, 0]]), "c"),
    Game("debate", "p1 ends right", f"{_HERE}:Debate", paid, 0.9, default="yes"),
    Game("two_keys", "both doors opened", f"{_HERE}:TwoKeys", paid, 0.9, default="red", steps=150),
]  # fmt: skip
