"""After every update, each engine scores some recent tokens and must agree with the learner (promise 11).

A weight update that does not reach the engine looks just like slow learning. Examples are an output layer with old
weights, an adapter that was not sent, or a scale that is applied twice. If the difference exceeds the limits of promise
2, the run stops before anything is sampled from such an engine.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from interplay.engines.census import census
from interplay.errors import GuardError
from interplay.rollout.members import Member
from interplay.training.fleet import Fleet
from interplay.training.learner import Learner
from interplay.training.thread import LearnerThread
from interplay.training.tries import Example
from interplay.types import Sample

# Each reply is a request of its own, which costs time however short it is. So few replies are scored, with many tokens.
_EACH = 64  # tokens of one reply
_REPLIES = 16
_PROMPTS = 4096  # tokens of all prompts together


class Probe:
    """Scores the first tokens of a few replies."""

    def __init__(self, tokens: int, thread: LearnerThread) -> None:
        self.tokens, self.thread = tokens, thread
        self._recent: dict[str, list[Sample]] = {}
        self._compared: dict[str, int] = {}  # the version of each policy at the last comparison
        # By policy: the last version and samples for which the learner's log-probs were computed, and these log-probs.
        self._known: dict[str, tuple[int, Sequence[Sample], list[list[float]]]] = {}

    def begin(self, members: Iterable[Member]) -> None:
        """Note the versions with which a run begins or goes on. No update has sent them, so they are not compared."""
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

    async def compare(self, updated: Sequence[tuple[Member, Learner]]) -> dict[str, float]:
        """Score the remembered samples of these policies in their engines and learners; raise if they disagree. A
        policy is left out if its weights are those of the last comparison. All requests are sent together, so that an
        engine with several of the policies scores them in one batch."""
        due = [(m, x) for m, x in updated if m.name in self._recent and self._compared.get(m.name) != m.version]
        if not due:
            return {}
        self._compared |= {member.name: member.version for member, _ in due}
        asked = [(member, self._recent[member.name]) for member, _ in due]
        # One after the other: threads of one process that launch kernels at the same time hold each other up.
        ours = await self._learned(due)
        theirs = await scores(asked)
        return {
            f"{member.name}/probe": _checked(f"policy '{member.name}': after the update the engine's", learner, a, b)
            for (member, learner), a, b in zip(due, ours, theirs, strict=True)
        }

    async def compare_others(self, member: Member, learner: Learner, fleet: Fleet) -> dict[str, float]:
        """The same for every engine in other processes, also if the weights are those of the last comparison. The
        metric is the largest difference."""
        samples = self._recent.get(member.name, [])
        if not samples:
            return {}
        (ours,), others = await asyncio.gather(self._learned([(member, learner)]), fleet.score(member.name, samples))
        gaps = [
            _checked(f"policy '{member.name}': after the update {who}'s", learner, ours, theirs)
            for who, theirs in others.items()
        ]
        return {f"cluster/probe/{member.name}": max(gaps)}

    async def _learned(self, asked: Sequence[tuple[Member, Learner]]) -> list[list[list[float]]]:
        """The learners' log-probs of the remembered samples, for each policy. They are computed once for each version
        of the weights."""
        new = []
        for member, learner in asked:
            version, samples, _ = self._known.get(member.name, (None, None, None))
            if version != member.version or samples is not self._recent[member.name]:
                new.append((member, learner))
        if new:
            found = await self.thread.do(lambda: self._computed([learner for _, learner in new]))
            for member, _ in new:
                self._known[member.name] = member.version, self._recent[member.name], found[member.name]
        return [self._known[member.name][2] for member, _ in asked]

    def _computed(self, learners: Sequence[Learner]) -> dict[str, list[list[float]]]:
        """The log-probs by policy. Learners that share a model need one pass."""
        groups: dict[int, list[Learner]] = defaultdict(list)
        for learner in learners:
            groups[id(learner.shares)].append(learner)
        found: dict[str, list[list[float]]] = defaultdict(list)
        for group in groups.values():
            examples = [Example(x.name, sample) for x in group for sample in self._recent[x.name]]
            for example, logprobs in zip(examples, group[0].logprobs_together(group, examples), strict=True):
                found[example.policy].append(logprobs)
        return found


async def scores(asked: Sequence[tuple[Member, Sequence[Sample]]]) -> list[list[tuple[float, ...]]]:
    """The log-probs of the replies of each policy in its engine. All requests are sent together."""
    questions = [
        member.engine.score(s.prompt, [s.action], None if member.adapter is None else member.name, s.media)
        for member, samples in asked
        for s in samples
    ]
    answers = []
    for found in await census().gather(questions):
        if isinstance(found, BaseException):
            raise found
        answers.append(found[0])
    rest = iter(answers)
    return [[next(rest) for _ in samples] for _, samples in asked]


def _checked(what: str, learner: Learner, ours: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]]) -> float:
    """Return the difference that promise 2 limits: the largest or, if the model is rounded, the mean over the tokens.
    Raise if it is too large. `what` begins the sentence of the error, before the word log-probs."""
    config = learner.config
    pairs = [(a, b) for reply, expected in zip(theirs, ours, strict=True) for a, b in zip(reply, expected, strict=True)]
    gap, key, limit = max(abs(a - b) for a, b in pairs), "gap_stop", config.gap_stop
    if learner.rounded:
        gap, key, limit = _relative(pairs), "gap_mean_stop", config.gap_mean_stop
    if not gap <= limit:  # also true for NaN
        raise GuardError(
            f"{what} log-probs differ from the learner's by {gap:.2e} over {len(pairs)} recent tokens, more than "
            f"train.{key} ({limit:g}). The engine does not use the weights that were trained, so the run stops. Resume "
            "it from its newest checkpoint; if this happens again, use another engine.kind."
        )
    return gap


def _relative(pairs: Sequence[tuple[float, float]]) -> float:
    """The mean difference, where that of a log-prob below -1 is divided by its size. The error of rounding grows with
    the distance of a token's logit from the largest one. The tokens that are scored here may be very unlikely: legal
    replies were sampled under a mask, and they are scored without it."""
    return sum(abs(a - b) / max(1.0, abs(b)) for a, b in pairs) / len(pairs)
