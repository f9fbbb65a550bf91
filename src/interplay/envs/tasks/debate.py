"""N agents answer the same question over T rounds, each seeing the others' last replies; a vote decides (MAPoRL).

All answer at once. From the second round on, an agent sees its own last reply and those of its peers. Each reply earns
its agent `format` (process, 0.2: it has one answer in the asked form) and `match` (agent, 0.8: that answer is right).
At the end the team earns `correct`: 1 if the answer that most agents gave is right. In a tie the answer of the earliest
agent counts. An agent without an answer has no vote. With one agent and one round there is no debate.

A subclass defines the question, how an answer is parsed and when it is right. Peers are quoted without the marks of an
answer, so that repeating the prompt gives no answer.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import lru_cache
from typing import ClassVar

from interplay.envs.speech import heard
from interplay.envs.tasks.data import DataEnv
from interplay.rewards.verify import unmarked
from interplay.types import Message, Observation, Rewards, Role, Task

FORMAT, MATCH = 0.2, 0.8  # as published for the reasoner: for the form, and for a right answer
QUOTED = 1_000  # characters of a reply that others see


class DebateEnv(DataEnv):
    reward_names: ClassVar[tuple[str, ...]] = ("format", "match", "correct")
    alone: ClassVar[Role] = "solver"  # the name of a single agent

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        count = self.agents
        self.roles = (self.alone,) if count == 1 else tuple(f"agent{n + 1}" for n in range(count))
        self.replies: tuple[dict[Role, str], ...] = ()  # by round
        self.answers: tuple[dict[Role, str | None], ...] = ()

    # -- defined by a subclass ------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def agents(self) -> int: ...

    @property
    @abstractmethod
    def rounds(self) -> int: ...

    @property
    @abstractmethod
    def rule(self) -> str:
        """The system message: what to do, and how to give an answer."""

    @abstractmethod
    def ask(self) -> str:
        """The question."""

    @abstractmethod
    def read(self, reply: str) -> str | None:
        """The answer in a reply; None if there is none."""

    @abstractmethod
    def right(self, answer: str) -> bool: ...

    @abstractmethod
    def alike(self, answer: str, other: str) -> bool:
        """Whether two agents gave the same answer."""

    @abstractmethod
    def gold(self) -> str:
        """A reply that is right."""

    @property
    def listed(self) -> tuple[str, ...]:
        """The replies that an agent may give, if they can be listed."""
        return ()

    # -- the contract ---------------------------------------------------------------------------------------------

    def observe(self) -> dict[Role, Observation]:
        if len(self.replies) >= self.rounds:
            return {}
        phase = f"round {len(self.replies) + 1}"
        return {role: Observation(self._messages(role), True, self.listed, phase) for role in self.roles}

    def _messages(self, role: Role) -> tuple[Message, ...]:
        lines = [self.ask()]
        if self.replies:
            last = self.replies[-1]
            for peer in sorted(self.roles, key=lambda r: r != role):
                who, answer = "You" if peer == role else peer, self.answers[-1][peer]
                told, said = unmarked(answer or "nothing"), quoted(last[peer])
                bare = said.removeprefix("Answer").strip() == told
                lines.append(f"{who} answered {told}." if bare else f"{who} answered {told}, and said: {said}")
            lines.append("Weigh what was said, then answer again.")
        return Message("system", self.rule), Message("user", "\n".join(lines))

    def step(self, actions: dict[Role, str]) -> Rewards:
        answers = {role: self.read(text) for role, text in actions.items()}
        self.replies += (dict(actions),)
        self.answers += (answers,)
        rewards = Rewards.process("format", {r: FORMAT * (a is not None) for r, a in answers.items()})
        if bad := {r: 0.0 for r, text in actions.items() if self.listed and text not in self.listed}:
            rewards += Rewards.process("illegal", bad)
        return rewards + Rewards.agent("match", {r: MATCH * self._right(a) for r, a in answers.items()})

    def outcome(self) -> Rewards:
        return Rewards.team("correct", float(self._right(self.vote())))

    @property
    def answered(self) -> bool:
        return self.vote() is not None

    def vote(self) -> str | None:
        """The answer that most agents gave in the last round."""
        given = [a for a in (self.answers[-1] if self.answers else {}).values() if a is not None]
        if not given:
            return None
        counts = [sum(self.alike(answer, other) for other in given) for answer in given]
        return given[counts.index(max(counts))]

    def _right(self, answer: str | None) -> bool:
        return answer is not None and self.right(answer)

    def state(self) -> str:
        lines = [self.ask()]
        for n, answers in enumerate(self.answers, 1):
            lines.append(f"round {n}: " + ", ".join(f"{role} {answer}" for role, answer in answers.items()))
        return "\n".join([*lines, f"right: {self.gold()}"] if not self.observe() else lines)

    def script(self, role: Role) -> str:
        return self.gold()


@lru_cache(maxsize=4096)
def quoted(reply: str) -> str:
    """A reply as others see it. Of a long reply, only the end is shown."""
    return heard(unmarked(reply)[-QUOTED:], QUOTED) or "nothing"
