"""Retrieval: finders report passages of a small knowledge base, and a learner answers with citations that are checked.

Rules         People live in towns, and towns lie in lands. This knowledge base is drawn for each task. The question is
              in which land a person lives; two passages are needed to answer it. Each finder reports two passages,
              true or false: a finder may be unreliable, and the learner is not told which one. The learner answers,
              and cites two of the reported passages.
Roles         finder1, finder2, then learner; `team = "single"`: the learner alone, with true passages reported.
Observation   finders: the question and the whole knowledge base. Learner: the question and what each finder reported.
Actions       finders: a passage, such as A4 (A lives in 4) or 4R (4 lies in R), true or false; all are listed. Learner:
              a land and the numbers of two reported passages, such as R12; all are listed.
Rewards       `gold` (agent, learner): 0.5 for the right land; 0.25 for each cited passage that is true and needed, and
              −0.25 for each that is not. `gold` of a finder: 0.25 for a passage that is true and needed, −0.25 for a
              false one. `correct` (team): 1 for the right land with both passages. A reply that is not listed costs
              `illegal` −0.1 (process), and then the finder has reported nothing or the learner has not answered. Both
              earn as much as with false passages only, so that saying nothing never pays.
Options       `team`.
Version       1
"""

from __future__ import annotations

import itertools
from functools import cache
from typing import Literal

from pydantic import Field

from interplay.config import Section
from interplay.envs.env import PENALTY, Env, register
from interplay.types import Message, Observation, Rewards, Role, Task

PEOPLE, TOWNS, LANDS = "ABC", "456", "RST"
REPORTS = 2  # passages that each finder reports
RIGHT, CITED = 0.5, 0.25


class Options(Section):
    team: Literal["pair", "single"] = Field("pair", description="two finders and the learner, or the learner alone")


@cache
def passages() -> tuple[str, ...]:
    """Return every possible passage, true or false."""
    return tuple(a + b for a, b in (*itertools.product(PEOPLE, TOWNS), *itertools.product(TOWNS, LANDS)))


@register("retrieval")
class Retrieval(Env):
    Options = Options
    reward_names = ("gold", "correct", "illegal")

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.roles = ("learner",) if task.data["team"] == "single" else ("finder1", "finder2", "learner")
        self.lives = {p: self.rng.choice(TOWNS) for p in PEOPLE}
        self.lies = {t: self.rng.choice(LANDS) for t in TOWNS}
        self.asked = self.rng.choice(PEOPLE)
        self.reported: tuple[str, ...] = ()  # in turn, by finder1 and finder2; "" if nothing was reported
        if task.data["team"] == "single":
            idle = sorted(self.true - self.needed)
            self.reported = tuple(self.rng.sample([*sorted(self.needed), *self.rng.sample(idle, REPORTS)], 2 * REPORTS))
        self.answer: str | None = None

    @property
    def true(self) -> frozenset[str]:
        return frozenset(p + t for p, t in self.lives.items()) | frozenset(t + x for t, x in self.lies.items())

    @property
    def needed(self) -> frozenset[str]:
        town = self.lives[self.asked]
        return frozenset({self.asked + town, town + self.lies[town]})

    @property
    def acting(self) -> Role:
        done = len(self.reported)
        return "learner" if done >= 2 * REPORTS else self.roles[done % 2]

    def observe(self) -> dict[Role, Observation]:
        if self.answer is not None:
            return {}
        role = self.acting
        if role == "learner":
            text = f"{self.asked}? " + " ".join(f"{n} {p or '-'}" for n, p in enumerate(self.reported, 1))
            return {role: Observation((Message("user", text),), fresh=True, legal=answers(), phase="answer")}
        mine = [p for i, p in enumerate(self.reported) if self.roles[i % 2] == role]
        text = f"{self.asked}? {' '.join(sorted(self.true))} said {' '.join(mine) or '-'}"
        return {role: Observation((Message("user", text),), fresh=True, legal=passages(), phase="find")}

    def step(self, actions: dict[Role, str]) -> Rewards:
        ((role, reply),) = actions.items()
        said = reply.strip()
        bad = said not in (answers() if role == "learner" else passages())
        out = Rewards.process("illegal", {role: PENALTY}) if bad else Rewards()
        if role == "learner":
            self.answer = "" if bad else said
            return out
        fresh = said not in self.reported
        self.reported += ("" if bad else said,)
        worth = -CITED if bad or said not in self.true else CITED * (said in self.needed and fresh)
        return out + Rewards.agent("gold", {role: worth})

    def outcome(self) -> Rewards:
        land = self.lies[self.lives[self.asked]]
        if not self.answer:
            return Rewards.agent("gold", {"learner": -CITED * REPORTS}) + Rewards.team("correct", 0.0)
        cited = {self.reported[int(n) - 1] for n in self.answer[1:]}
        good = len(cited & self.needed)
        gold = RIGHT * (self.answer[0] == land) + CITED * good - CITED * (REPORTS - good)
        right = self.answer[0] == land and cited == self.needed
        return Rewards.agent("gold", {"learner": gold}) + Rewards.team("correct", float(right))

    def taken(self, role: Role) -> int:
        """Return how many turns a role has had."""
        if role == "learner":
            return int(self.answer is not None)
        return (len(self.reported) + 1 - self.roles.index(role)) // 2

    def state(self) -> str:
        return f"{self.asked}? true: {' '.join(sorted(self.true))}; reported: {' '.join(self.reported)}; {self.answer}"

    def fork(self, seed: int | None = None) -> Retrieval:
        return self.twin()


@cache
def answers() -> tuple[str, ...]:
    """Return every answer: a land and the numbers of two different passages."""
    pairs = itertools.combinations(range(1, 2 * REPORTS + 1), 2)
    return tuple(f"{land}{a}{b}" for (a, b), land in itertools.product(pairs, LANDS))
