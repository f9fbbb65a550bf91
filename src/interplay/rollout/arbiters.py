"""Who answers a judge's questions: a policy that is asked in words, a gold program, or a model that gives scores.

The calls of a policy are turns of the role `judge` and are kept with the episode that they are about. When it compares,
a local policy can only say A or B, and its verdict is the probability of A. With `marks = "expected"` it can only say a
mark of the scale, and its verdict is the mean over all marks, weighted by their probabilities. A remote policy can say
anything, and its answer is parsed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import fmean

from interplay.agents.calls import answered
from interplay.agents.model import ModelAgent
from interplay.agents.player import Stamp
from interplay.agents.remote import RemoteAgent
from interplay.config import JudgeSection
from interplay.engines.pause import pausable
from interplay.errors import JudgeError
from interplay.rewards import judge
from interplay.rewards.gold import Rater, Scored
from interplay.rewards.preference import Verdict
from interplay.rollout.subjects import Subject
from interplay.types import Message, Observation, Turn

ROLE = "judge"


@dataclass(frozen=True)
class JudgeQuestion:
    """Identifies one question of a judge. All random numbers for the question derive from it."""

    number: int
    vote: int = 0
    swapped: bool = False


class PolicyArbiter:
    """`agent` makes a player of the role `judge` without memory."""

    def __init__(
        self, name: str, section: JudgeSection, seed: int, agent: Callable[[bool], ModelAgent | RemoteAgent]
    ) -> None:
        self.name, self.section, self.seed, self.agent = name, section, seed, agent

    async def compare(self, one: Subject, other: Subject, question: JudgeQuestion) -> Verdict:
        """Return the probability that the subject shown first is better. The call is kept with the episode of `one`,
        whichever is shown first."""
        first, second = (other, one) if question.swapped else (one, other)
        messages = judge.compare(one.question, first.reply, second.reply, self.section.instructions)
        turn = await self._ask(one, messages, question, judge.PAIRWISE)
        sample = turn.last
        if sample.mask:
            p = math.exp(math.fsum(sample.logprobs))
            return Verdict(p if turn.text == judge.PAIRWISE[0] else 1 - p)
        return judge.read_choice(turn.text)

    async def score(self, subject: Subject, question: JudgeQuestion) -> tuple[float | None, dict[str, float]]:
        s = self.section
        if s.marks == "expected":
            if s.kind == "pointwise":
                return await self._expected(subject, question), {}
            marks = {c: await self._expected(subject, question, i, c) for i, c in enumerate(s.rubric)}
            return fmean(marks.values()), marks
        if s.kind == "rubric":
            messages = judge.by_rubric(subject.question, subject.reply, s.instructions, s.scale, s.rubric)
            found = judge.read_rubric((await self._ask(subject, messages, question)).text, s.scale, s.rubric)
            return (None, {}) if found is None else (sum(found.values()) / len(found), found)
        messages = judge.mark(subject.question, subject.reply, s.instructions, s.scale)
        return judge.read_mark((await self._ask(subject, messages, question)).text, s.scale), {}

    async def _expected(self, subject: Subject, question: JudgeQuestion, part: int = 0, criterion: str = "") -> float:
        """The mean mark. The judge also says one mark, so that its question is in the records."""
        s = self.section
        messages = judge.mark(subject.question, subject.reply, s.instructions, s.scale, criterion)
        options = tuple(str(n) for n in range(s.scale[0], s.scale[1] + 1))
        question = replace(question, vote=question.vote + part * s.votes)
        asked = (await self._ask(subject, messages, question, options)).last  # its mask has all marks, in their order
        agent = self.agent(True)
        assert isinstance(agent, ModelAgent)
        found = await pausable(lambda: agent.engine.score(asked.prompt, asked.mask, agent.adapter, asked.media))
        return judge.expected_mark([math.fsum(one) for one in found], s.scale)

    async def _ask(
        self, about: Subject, messages: tuple[Message, ...], question: JudgeQuestion, legal: tuple[str, ...] = ()
    ) -> Turn:
        agent, episode = self.agent(bool(legal)), about.episode
        view = agent.look(Observation(messages, fresh=True, legal=legal, phase=self.name))
        stamp = Stamp(
            self.seed,
            replace(episode.task, id=f"{episode.task.id}/{self.name}"),
            episode.replica,
            f"{episode.id}/{self.name}",
            question.number,
            candidate=2 * question.vote + question.swapped,
        )
        turn = await answered(agent, view, stamp)
        episode.judged.append(turn)
        return turn


class GoldArbiter:
    """Compares a component of the environment's own reward: the larger value wins."""

    def __init__(self, component: str) -> None:
        self.component = component

    async def compare(self, one: Subject, other: Subject, question: JudgeQuestion) -> Verdict:
        first, second = (other, one) if question.swapped else (one, other)
        return Rater().verdict(self._scored(first), self._scored(second))

    async def score(self, subject: Subject, question: JudgeQuestion) -> tuple[float | None, dict[str, float]]:
        return self._scored(subject).score, {}

    def _scored(self, subject: Subject) -> Scored:
        value = subject.gold(self.component)
        if value is None:
            raise JudgeError(
                f"'{subject.name}' has no reward '{self.component}' for the gold judge to read; with scope 'reply', "
                "the environment must give this reward to each turn."
            )
        return Scored(subject.reply, value)


Arbiter = PolicyArbiter | GoldArbiter
