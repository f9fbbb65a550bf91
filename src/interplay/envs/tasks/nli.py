"""Language inference: does a premise entail a hypothesis, contradict it, or neither? One agent, or a debate (MAPoRL).

Roles         judge. With `agents` of two or more: agent1, agent2, …, who answer at once over `rounds`, each seeing the
              others' last replies; a majority vote decides.
Observation   premise and hypothesis, and from the second round on what was said. The whole prompt each time.
Actions       free text that ends with "Answer: " and entailment, neutral or contradiction. Without this ending, the
              reply must name exactly one label (FEVER's words supports, not enough info and refutes count too). A
              reply that names several labels is not an answer. With `brief` the reply is only the label, which is
              listed as a legal action; nothing else is accepted.
Rewards       `format` (process, each reply): 0.2 for one label. `match` (agent, each reply): 0.8 for the right one.
              `correct` (team, at the end): 1 if the vote is right. `illegal` (process, with `brief`): 0 marks a reply
              that is not listed.
Data          prepared rows of kind inference (anli, snli, fever), or generated statements about who has what.
Checker       rewards/label.py.
Version       1
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from interplay.envs.env import register
from interplay.envs.splits import TRIES, split_of
from interplay.envs.tasks.data import DataOptions, DataRow
from interplay.envs.tasks.debate import DebateEnv
from interplay.errors import ConfigError
from interplay.rewards.label import LABELS
from interplay.rewards.label import label as label_of
from interplay.types import Role

_RULE = (
    "Read the premise and the hypothesis. If the premise makes the hypothesis certain, it is entailment; if it makes "
    "it impossible, contradiction; else neutral."
)
_FORM = " Think in a few sentences, then end with a line: Answer: and the one label."
_BRIEF = " Reply with the one word alone."
_PEOPLE = ("Ana", "Ben", "Carla", "Dan", "Eva", "Finn", "Gina", "Hugo", "Ida", "Jack", "Kim", "Leo")
_THINGS = ("apples", "books", "cards", "coins", "eggs", "keys", "maps", "pens")
_PLACES = ("Athens", "Bern", "Cairo", "Dublin", "Lima", "Oslo", "Quito", "Rome")


class Options(DataOptions):
    agents: int = Field(1, ge=1, le=16, description="number of agents; with 1 there is no debate")
    rounds: int = Field(2, ge=1, le=10, description="number of rounds of a debate")
    brief: bool = Field(False, description="the reply is only the label, for models that are trained from scratch")


@register("nli")
class NLI(DebateEnv):
    Options = Options
    kind: ClassVar[str] = "inference"
    success: ClassVar[str] = "correct"
    alone: ClassVar[Role] = "judge"
    reward_names: ClassVar[tuple[str, ...]] = ("format", "match", "correct", "illegal")

    @classmethod
    def generate(cls, rng: random.Random, split: str, options: Mapping[str, Any]) -> DataRow:
        for _ in range(TRIES):
            row = _drawn(rng)
            if split_of(f"{row['premise']} {row['hypothesis']}") == split:
                return row
        raise ConfigError("no statement was found for this split; expected another seed.")

    @property
    def agents(self) -> int:
        return int(self.task.data["agents"])

    @property
    def rounds(self) -> int:
        return int(self.task.data["rounds"]) if self.agents > 1 else 1

    @property
    def rule(self) -> str:
        return _RULE + (_BRIEF if self.task.data["brief"] else _FORM)

    @property
    def listed(self) -> tuple[str, ...]:
        return LABELS if self.task.data["brief"] else ()

    def ask(self) -> str:
        return f"Premise: {self.row['premise']}\nHypothesis: {self.row['hypothesis']}"

    def read(self, reply: str) -> str | None:
        if self.task.data["brief"]:
            return reply if reply in LABELS else None
        return label_of(reply)

    def right(self, answer: str) -> bool:
        return bool(answer == self.row["label"])

    def alike(self, answer: str, other: str) -> bool:
        return answer == other

    def gold(self) -> str:
        return str(self.row["label"]) if self.task.data["brief"] else f"Answer: {self.row['label']}"


def _drawn(rng: random.Random) -> DataRow:
    """A statement about two people, and another one that follows from it, contradicts it, or may be true."""
    (one, two), (thing, other) = rng.sample(_PEOPLE, 2), rng.sample(_THINGS, 2)
    here, there = rng.sample(_PLACES, 2)
    more, less = sorted(rng.sample(range(2, 60), 2), reverse=True)
    premise, told = rng.choice(
        [
            (
                f"{one} has {more} {thing} and {two} has {less} {thing}.",
                {
                    "entailment": (f"{one} has more {thing} than {two}.", f"{two} has fewer {thing} than {one}."),
                    "contradiction": (f"{two} has more {thing} than {one}.", f"{one} has no {thing}."),
                    "neutral": (f"{one} has more {other} than {two}.", f"{two} lives in {here}."),
                },
            ),
            (
                f"{one}, who lives in {here}, bought {more} {thing} and gave {less} of them to {two}.",
                {
                    "entailment": (f"{two} got {less} {thing} from {one}.", f"{one} lives in {here}."),
                    "contradiction": (f"{one} kept all the {thing}.", f"{one} gave {two} nothing."),
                    "neutral": (f"{two} lives in {there}.", f"{one} also bought {other}."),
                },
            ),
        ]
    )
    label = rng.choice(LABELS)
    return {"premise": premise, "hypothesis": rng.choice(told[label]), "label": label}
