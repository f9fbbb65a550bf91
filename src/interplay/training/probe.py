"""After every update, each engine scores some recent tokens and must agree with the learner (promise 11).

A weight update that does not reach the engine looks just like slow learning. Examples are an output layer with old
weights, an adapter that was not sent, or a scale that is applied twice. If the difference exceeds the limits of promise
2, the run stops before anything is sampled from such an engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from interplay.engines.census import census
from interplay.errors import GuardError
from interplay.rollout.members import Member
from interplay.training.learner import Learner
from interplay.training.thread import LearnerThread
from interplay.training.tries import Example
from interplay.types import Sample

# Each reply is a request of its own, which costs time however short it is. So few replies are scored, with many tokens.
_EACH = 64  # tokens of one reply
_REPLIES = 16
_PROMPTS = 4096  # tokens of all prompts together


class OtherEngines(Protocol):
    """Engines in other processes."""

    async def score(self, policy: str, samples: Sequence[Sample]) -> dict[str, list[tuple[float, ...]]]:
        """The log-probs of the replies of these samples, by the name of the engine."""
        ...


class Probe:
    """Scores the first tokens of a few replies."""

    def __init__(self, tokens: int, thread: LearnerThread) -> None:
        self.tokens, self.thread = tokens, thread
        self._recent: dict[str, list[Sample]] = {}
        self._compared: dict[str, int] = {}  # the version of each policy at the last comparison
        # By policy: the version and the samples for which the learner's log-probs were computed last, and these.
        self._known: dict[str, tuple[int, Sequence[Sample], list[list[float]]]] = {}

    def begin(self, members: Iterable[Member]) -> None:
        """The weights with which a run begins, or goes on, were not changed by an update, so they are not compared."""
        self._compared = {member.name: member.version for member in members}

    def remember(self, policy: str, examples: Sequence[Example]) -> None:
        """Keep a few of a policy's newest samples, to score them after updates."""
        chosen: list[Sample] = []
        known: set[tuple[tuple[int, ...], tuple[int, ...]]] = set()
        left, prompts, last = self.tokens, 0, None
        for example in reversed(examples):
            sample = example.sample
            if sample.prompt != last:  # the engine computes equal prompts once
                prompts, last = prompts + len(sample.prompt), sample.prompt
            if left <= 0 or len(chosen) == _REPLIES or (chosen and prompts > _PROMPTS):
                break
            action = sample.action[: min(left, _EACH)]
            left -= len(action)
            if (sample.identity, action) in known:  # an equal reply to an equal prompt says nothing new
                continue
            known.add((sample.identity, action))
            chosen.append(
                replace(sample, action=action, logprobs=(), versions=(), mask=(), temperature=1.0, extends=None)
            )
        if chosen:
            self._recent[policy] = chosen

    async def compare(self, member: Member, learner: Learner) -> dict[str, float]:
        """Score the remembered samples in the engine and in the learner; raise if they disagree. Nothing is scored if
        the weights are those of the last comparison."""
        samples = self._recent.get(member.name, [])
        if not samples or self._compared.get(member.name) == member.version:
            return {}
        self._compared[member.name] = member.version
        ours, theirs = await asyncio.gather(self._learned(member, learner, samples), scores(member, samples))
        gap = _checked(f"policy '{member.name}': after the update the engine's", learner, ours, theirs)
        return {f"{member.name}/probe": gap}

    async def compare_others(self, member: Member, learner: Learner, fleet: OtherEngines) -> dict[str, float]:
        """The same for every engine in other processes, also if the weights are those of the last comparison. The
        metric is the largest difference."""
        samples = self._recent.get(member.name, [])
        if not samples:
            return {}
        ours, others = await asyncio.gather(self._learned(member, learner, samples), fleet.score(member.name, samples))
        gaps = [
            _checked(f"policy '{member.name}': after the update {who}'s", learner, ours, theirs)
            for who, theirs in others.items()
        ]
        return {f"cluster/probe/{member.name}": max(gaps)}

    async def _learned(self, member: Member, learner: Learner, samples: Sequence[Sample]) -> list[list[float]]:
        """The learner's log-probs, computed once for each version."""
        version, known, found = self._known.get(member.name, (None, None, []))
        if version != member.version or known is not samples:
            examples = [Example(member.name, sample) for sample in samples]
            found = await self.thread.do(lambda: learner.logprobs(examples))
            self._known[member.name] = (member.version, samples, found)
        return found


async def scores(member: Member, samples: Sequence[Sample]) -> list[tuple[float, ...]]:
    """The log-probs of these replies in the engine of a policy."""
    adapter = None if member.adapter is None else member.name
    questions = [member.engine.score(s.prompt, [s.action], adapter, s.media) for s in samples]
    out: list[tuple[float, ...]] = []
    for found in await census().gather(questions):
        if isinstance(found, BaseException):
            raise found
        out.append(found[0])
    return out


def _checked(what: str, learner: Learner, ours: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]]) -> float:
    """Return the difference that promise 2 limits; raise if it is too large. `what` begins the sentence of the error,
    before the word log-probs."""
    config = learner.config
    gaps = [
        abs(a - b) for reply, expected in zip(theirs, ours, strict=True) for a, b in zip(reply, expected, strict=True)
    ]
    gap, key, limit = (max(gaps), "gap_stop", config.gap_stop)
    if learner.rounded:
        gap, key, limit = (sum(gaps) / len(gaps), "gap_mean_stop", config.gap_mean_stop)
    if not gap <= limit:  # also true for NaN
        raise GuardError(
            f"{what} log-probs differ from the learner's by {gap:.2e} over {len(gaps)} recent tokens, more than "
            f"train.{key} ({limit:g}). The engine does not use the weights that were trained, so the run stops."
        )
    return gap
