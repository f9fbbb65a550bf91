"""Preference: a judge is shown two replies to a question and says which one people preferred.

Rules         Each task is a comparison with a known label, in one of its two orders. This environment trains a judge
              that answers in words as a policy: first by imitation of the labels (warmstart with `bot:rater`), then
              with agreement as its reward.
Roles         judge.
Observation   the question and the two replies, in the prompt that judges get in a run; A and B are listed as legal.
Actions       A or B; the last A or B that is a word of its own in the reply counts.
Rewards       `agree` (agent): 1 if the judge chose the reply that people chose, else 0. An answer that cannot be parsed
              earns 0 and costs `illegal` −0.1 (process). So does the answer "tie", which is not legal.
Data          a file of comparisons in the format of `interplay judge train`, split by question: a tenth is for
              validation, a fifth for testing. Without a file, comparisons are generated: each shows two lines of
              signs, and the line with more ones is better. With `balance = "length"`, the longer reply wins as
              often as the shorter one in the training tasks, so that the judge does not learn that longer is better.
Options       `data`, `length`, `balance`.
Version       1
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from pydantic import Field

from interplay.config import Section
from interplay.envs.env import PENALTY, Env, register
from interplay.envs.splits import SPLITS
from interplay.errors import ConfigError
from interplay.rewards import judge
from interplay.rewards.comparisons import read_comparisons
from interplay.rewards.preference import Pair, PairBalance, even_lengths
from interplay.types import Message, Observation, Rewards, Role, Task, seed_of


class Options(Section):
    data: str = Field("", description="a file of comparisons; empty: comparisons are generated")
    length: int = Field(6, ge=2, le=32, description="number of signs in a generated reply")
    balance: PairBalance = Field(
        "none",
        description="length: for training, leave comparisons of the file out until the longer reply wins as often as "
        "the shorter one",
    )


@lru_cache(maxsize=8)
def _rows(path: str, split: str, balance: PairBalance) -> tuple[Pair, ...]:
    """Return the comparisons of a split that are not ties. Each question is in one split only."""
    rows = tuple(p for p in read_comparisons(Path(path).expanduser()) if p.label != 0.5 and _split(p.group) == split)
    if not rows:
        raise ConfigError(f"env.data is '{path}', which has no comparisons for {split}; expected more questions.")
    if balance == "length" and split == "train":
        rows = tuple(even_lengths(rows, lambda p: (p.first, p.second, p.label or 0.0)))
        if not rows:
            raise ConfigError(
                f"env.balance is 'length', but the longer reply wins in all comparisons of '{path}', or in none; "
                "expected some of both, or balance = 'none'."
            )
    return rows


def _split(group: str) -> str:
    draw = seed_of("preference", group) % 10
    return "validation" if draw == 0 else "test" if draw < 3 else "train"


@register("preference")
class Preference(Env):
    Options = Options
    reward_names = ("agree", "illegal")
    roles = ("judge",)

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        pair = self._drawn()
        self.pair = pair.swapped() if self.rng.random() < 0.5 else pair
        self.said: str | None = None

    def _drawn(self) -> Pair:
        data, length = self.task.data["data"], self.task.data["length"]
        if data:
            return self.rng.choice(_rows(data, SPLITS[self.task.seed & 3], self.task.data["balance"]))
        while True:
            first, second = ("".join(self.rng.choices("01", k=length)) for _ in range(2))
            if first.count("1") != second.count("1"):
                label = float(first.count("1") > second.count("1"))
                return Pair(self.task.id, (Message("user", "More ones?"),), first, second, label)

    @property
    def right(self) -> str:
        return judge.PAIRWISE[0 if (self.pair.label or 0.0) > 0.5 else 1]

    def observe(self) -> dict[Role, Observation]:
        if self.said is not None:
            return {}
        asked = judge.compare(self.pair.question, self.pair.first, self.pair.second, "")
        return {"judge": Observation(asked, fresh=True, legal=judge.PAIRWISE)}

    def step(self, actions: dict[Role, str]) -> Rewards:
        self.said = actions["judge"]
        found = judge.read_choice(self.said).p
        return Rewards.process("illegal", {"judge": PENALTY}) if found in (None, 0.5) else Rewards()

    def outcome(self) -> Rewards:
        found = None if self.said is None else judge.read_choice(self.said).p
        return Rewards.agent("agree", {"judge": float(found is not None and found == self.pair.label)})

    def state(self) -> str:
        return f"{self.pair.id}: {self.right} is better; said {self.said}"

    def fork(self, seed: int | None = None) -> Preference:
        return self.twin()
