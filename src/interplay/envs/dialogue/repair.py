"""Repair: a breaker plants a bug in a tiny program, and a learner fixes it from one example of the right behaviour.

Rules         A program has three operations on a number, modulo 10: +1, +2, +3, -1 or *2. In each round the breaker
              changes one operation of the right program. Then the learner, who never sees the right program, names a
              place and the operation that should be there. Hidden tests run the fixed program on all ten inputs and
              check the number after each operation. The example is chosen so that it determines every operation.
Roles         breaker and learner; `team = "single"`: the learner alone, with random bugs.
Observation   breaker: the right program, and whether its earlier bugs were fixed. Learner: an input with the right
              number after each operation, and the broken program. Every observation is a complete prompt.
Actions       a place and an operation, such as 2*2; all actions are listed as legal.
Rewards       `gold` (agent, each round). Learner: 1 if all hidden tests pass, 0.25 for the right place with another
              wrong operation, else −0.25. Breaker: 0.5 for a bug, and 0.5 more if the learner does not fix it; −0.25
              for a change that changes nothing. `solved` (team, at the end): the share of rounds in which the bug was
              fixed. A reply that is not listed costs `illegal` −0.1 (process) and earns −0.25. If the breaker plants
              no bug, a random bug is planted.
Options       `team`, `rounds`.
Version       1
"""

from __future__ import annotations

import itertools
import random
from functools import cache
from typing import Literal

from pydantic import Field

from interplay.config import Section
from interplay.envs.env import PENALTY, Env, register
from interplay.types import Message, Observation, Rewards, Role, Task, seed_of

LENGTH, BASE = 3, 10  # operations of a program; numbers are below BASE
OPERATIONS = ("+1", "+2", "+3", "-1", "*2")
MENDED, NEAR, WRONG, PLANTED = 1.0, 0.25, -0.25, 0.5
Tiny = tuple[str, ...]  # a program


class Options(Section):
    team: Literal["pair", "single"] = Field("pair", description="breaker and learner, or the learner alone")
    rounds: int = Field(2, ge=1, le=8, description="rounds of an episode; each has one bug")


def ran(program: Tiny, start: int) -> tuple[int, ...]:
    """Return the number after each operation.

    >>> ran(("+1", "*2", "-1"), 3)
    (4, 8, 7)
    """
    out = []
    for operation in program:
        by = int(operation[1:])
        start = (start * by if operation[0] == "*" else start - by if operation[0] == "-" else start + by) % BASE
        out.append(start)
    return tuple(out)


def passes(program: Tiny, right: Tiny) -> bool:
    """Return whether a program gives the same numbers as the right program, on every input after each operation."""
    return all(ran(program, x) == ran(right, x) for x in range(BASE))


def changed(program: Tiny, reply: str) -> Tiny:
    """Return the program after the change that a reply names."""
    place = int(reply[0]) - 1
    return (*program[:place], reply[1:], *program[place + 1 :])


@cache
def changes() -> tuple[str, ...]:
    """Return every legal reply."""
    return tuple(f"{place + 1}{operation}" for place, operation in itertools.product(range(LENGTH), OPERATIONS))


def plain(program: Tiny, start: int) -> bool:
    """Return whether the numbers for this input determine every operation of the program."""
    before = (start, *ran(program, start)[:-1])
    return all(
        sum(ran((other,), x) == ran((operation,), x) for other in OPERATIONS) == 1
        for operation, x in zip(program, before, strict=True)
    )


@register("repair")
class Repair(Env):
    Options = Options
    reward_names = ("gold", "solved", "illegal")

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.roles = ("learner",) if task.data["team"] == "single" else ("breaker", "learner")
        self.bug_seed = task.seed  # for bugs that the breaker does not plant
        self.right, self.start = self._drawn()
        self.broken: Tiny | None = None  # the broken program of this round
        self.bugs: tuple[str, ...] = ()  # in the rounds so far
        self.mended: tuple[bool, ...] = ()
        if task.data["team"] == "single":
            self._plant()

    def _drawn(self) -> tuple[Tiny, int]:
        while True:
            right = tuple(self.rng.choice(OPERATIONS) for _ in range(LENGTH))
            starts = [x for x in range(BASE) if plain(right, x)]
            if starts:
                return right, self.rng.choice(starts)

    def _plant(self, bug: str | None = None) -> None:
        if bug is None:
            rng = random.Random(seed_of("bug", self.bug_seed, len(self.bugs)))
            bug = rng.choice([c for c in changes() if changed(self.right, c) != self.right])
        self.bugs += (bug,)
        self.broken = changed(self.right, bug)

    @property
    def acting(self) -> Role:
        return "breaker" if self.broken is None else "learner"

    def observe(self) -> dict[Role, Observation]:
        if len(self.mended) >= self.task.data["rounds"]:
            return {}
        if self.broken is None:
            past = " ".join(f"{b}{'y' if ok else 'n'}" for b, ok in zip(self.bugs, self.mended, strict=True))
            text = f"{' '.join(self.right)} so far {past or '-'}"
        else:
            text = f"{self.start} {' '.join(map(str, ran(self.right, self.start)))} {' '.join(self.broken)}"
        return {self.acting: Observation((Message("user", text),), fresh=True, legal=changes())}

    def step(self, actions: dict[Role, str]) -> Rewards:
        ((role, reply),) = actions.items()
        said = reply.strip()
        out = Rewards() if said in changes() else Rewards.process("illegal", {role: PENALTY})
        if role == "breaker":
            bug = said if said in changes() and changed(self.right, said) != self.right else None
            self._plant(bug)
            return out + Rewards.agent("gold", {role: WRONG if bug is None else PLANTED})
        return out + self._mend(said if said in changes() else None)

    def _mend(self, reply: str | None) -> Rewards:
        assert self.broken is not None
        ok = reply is not None and passes(changed(self.broken, reply), self.right)
        near = reply is not None and reply[0] == self.bugs[-1][0] and changed(self.broken, reply) != self.broken
        self.mended += (ok,)
        self.broken = None
        paid = {"learner": MENDED if ok else NEAR if near else WRONG}
        if "breaker" in self.roles:
            return Rewards.agent("gold", {**paid, "breaker": 0.0 if ok else PLANTED})
        if len(self.mended) < self.task.data["rounds"]:
            self._plant()
        return Rewards.agent("gold", paid)

    def outcome(self) -> Rewards:
        return Rewards.team("solved", sum(self.mended) / self.task.data["rounds"])

    def best(self) -> float:
        """Return the highest gold that the learner can earn, with any breaker."""
        return MENDED * float(self.task.data["rounds"])

    def taken(self, role: Role) -> int:
        """Return how many turns a role has had."""
        return len(self.bugs) if role == "breaker" else len(self.mended)

    def state(self) -> str:
        return f"{' '.join(self.right)} from {self.start}; bugs: {' '.join(self.bugs)}; mended: {self.mended}"

    def fork(self, seed: int | None = None) -> Repair:
        twin = self.twin()  # a shallow copy is enough: values are replaced, never mutated
        twin.bug_seed = self.bug_seed if seed is None else seed
        return twin
