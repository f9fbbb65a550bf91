"""Any task of reasoning-gym, one question for one player: `reasoning_gym:sudoku`, `reasoning_gym:chain_sum`.

Roles         solver.
Observation   the question, and that the answer goes between <answer> and </answer>.
Actions       any text. The answer is the text between the last pair of marks, or the whole reply if it has no marks.
Rewards       `solved` (agent, at the end): 1 for an answer that gets full marks from the task's own scorer, else 0.
              With `partial = true` also `score` (agent): the scorer's own number, from 0 to 1. Many scorers give marks
              for any reply that contains the answer, so a long list of guesses would also get them.
Options       `arguments` are the fields of the task's configuration. `level` sets all difficulties of the task's own
              curriculum at once; 0 is the easiest. A [curriculum] of a recipe can raise it.
Levels        drawn from the task's seed. Splits have disjoint seeds, but a task with few different questions can ask
              the same one in two splits.
Version       1 (tested with reasoning-gym 0.1.25)
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any

from pydantic import Field

from interplay.envs.adapters.adapter import AdaptedEnv, AdapterOptions
from interplay.envs.env import register
from interplay.errors import ConfigError
from interplay.types import Message, Observation, Rewards, Role, Task

FULL = 1.0 - 1e-9
NONSENSE = "☃"
_HOW = Message("system", "Answer the question. Write your final answer between <answer> and </answer>.")
_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)


class Options(AdapterOptions):
    level: int | None = Field(
        None, ge=0, description="level of the task's own curriculum; a level beyond its end means the last one"
    )
    partial: bool = Field(False, description="also give the task's own marks, as the reward `score`")


@register("reasoning_gym:")
class ReasoningGym(AdaptedEnv):
    Options = Options
    reward_names = ("solved", "score")
    package = "reasoning_gym"
    roles = ("solver",)

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        names = self.games()
        if self.game not in names:
            raise self.unknown(names)
        self.dataset = _dataset(self.game, task.data["level"], json.dumps(task.data["arguments"]), task.seed % 2**32)
        self.item = self.dataset[0]
        self.answer: str | None = None

    @classmethod
    def games(cls) -> list[str]:
        cls.library()
        return sorted(cls.library("reasoning_gym.factory").DATASETS)

    def look(self) -> dict[Role, Observation]:
        question = Message("user", self.item["question"])
        return {"solver": Observation((question,) if self.task.data["brief"] else (_HOW, question), fresh=True)}

    def play(self, actions: dict[Role, str]) -> Rewards:
        marked = _ANSWER.findall(actions["solver"])
        self.answer, self.over = (marked[-1] if marked else actions["solver"]).strip(), True
        return Rewards()

    def outcome(self) -> Rewards:
        marks = self._marks()
        solved = Rewards.agent("solved", {"solver": float(marks >= FULL)})
        return solved + Rewards.agent("score", {"solver": marks}) if self.task.data["partial"] else solved

    def _marks(self) -> float:
        if not self.answer:
            return 0.0
        marks = self._scored(self.answer)
        if marks >= FULL and self._scored(NONSENSE) >= FULL:  # the scorer of game_of_life_halting accepts any text
            return float(self.answer == self.item["answer"])
        return marks

    def _scored(self, answer: str) -> float:
        try:
            return float(self.dataset.score_answer(answer=answer, entry=self.item))
        except Exception:  # a scorer that parses the answer may raise anything for nonsense: the answer is then wrong
            return 0.0

    def state(self) -> str:
        said = "" if self.answer is None else f"\nsaid: {self.answer}"
        return f"{self.item['question']}\nanswer: {self.item['answer']}{said}"

    def fork(self, seed: int | None = None) -> ReasoningGym:
        twin = self.twin()  # the question never changes, and there is no randomness after it
        twin.history = self.history.copy()
        return twin

    def redeal(self, role: Role, rng: Any) -> ReasoningGym:
        return self.fork()


@lru_cache(maxsize=256)
def _dataset(name: str, level: int | None, arguments: str, seed: int) -> Any:
    """A data set of one question. The replicas of a task share it."""
    gym = ReasoningGym.library("reasoning_gym.factory")
    given = {**json.loads(arguments), "seed": seed, "size": 1}
    try:
        if level is None:
            return gym.create_dataset(name, **given)
        if not gym.has_curriculum(name):
            raise ConfigError(
                f"env.level is {level}, but 'reasoning_gym:{name}' has no curriculum; set env.arguments instead."
            )
        curriculum = gym.create_curriculum(name)
        curriculum.set_global_level(level)
        return gym.DATASETS[name][0](config=curriculum.generate_configuration(given))
    except (TypeError, AssertionError, ValueError) as error:
        raise ConfigError(f"the task 'reasoning_gym:{name}' does not accept env.arguments: {error}.") from None
