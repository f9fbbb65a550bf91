"""After every update, the engine scores some recent tokens and must agree with the learner (promise 11).

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

    async def compare(self, updated: Sequence[tuple[Member, Learner]]) -> dict[str, float]:
        """Score the remembered samples of these policies in their engines and learners; raise if they disagree. A
        policy is left out if its weights are those of the last comparison. All requests are sent together, so that an
        engine with several of the policies scores them in one batch."""
        due = [(m, x) for m, x in updated if m.name in self._recent and self._compared.get(m.name) != m.version]
        if not due:
            return {}
        self._compared |= {member.name: member.version for member, _ in due}
        samples = [(member, sample) for member, _ in due for sample in self._recent[member.name]]
        questions = [
            member.engine.score(s.prompt, [s.action], None if member.adapter is None else member.name, s.media)
            for member, s in samples
        ]
        learners = [learner for _, learner in due]
        ours, theirs = await asyncio.gather(self.thread.do(lambda: self._learned(learners)), census().gather(questions))
        gaps: dict[str, list[float]] = {member.name: [] for member, _ in due}
        for (member, _), expected, found in zip(samples, ours, theirs, strict=True):
            if isinstance(found, BaseException):
                raise found
            gaps[member.name] += [abs(a - b) for a, b in zip(found[0], expected, strict=True)]
        return {f"{learner.name}/probe": _refuse_gap(learner, gaps[learner.name]) for learner in learners}

    def _learned(self, learners: Sequence[Learner]) -> list[list[float]]:
        """The learners' log-probs of the remembered samples of all of them. Those with one model need one pass."""
        groups: dict[int, list[Learner]] = defaultdict(list)
        for learner in learners:
            groups[id(learner.shares)].append(learner)
        found: dict[str, list[list[float]]] = defaultdict(list)
        for group in groups.values():
            examples = [Example(x.name, sample) for x in group for sample in self._recent[x.name]]
            for example, logprobs in zip(examples, group[0].logprobs_together(group, examples), strict=True):
                found[example.policy].append(logprobs)
        return [logprobs for learner in learners for logprobs in found[learner.name]]


def _refuse_gap(learner: Learner, gaps: Sequence[float]) -> float:
    """The gap of a policy: the mean over the tokens if its model is rounded, otherwise the largest. Raise if it exceeds
    the limit."""
    config = learner.config
    gap, key, limit = (
        (sum(gaps) / len(gaps), "gap_mean_stop", config.gap_mean_stop)
        if learner.rounded
        else (max(gaps), "gap_stop", config.gap_stop)
    )
    if not gap <= limit:  # also true for NaN
        raise GuardError(
            f"policy '{learner.name}': after the update the engine's log-probs differ from the learner's by "
            f"{gap:.2e} over {len(gaps)} recent tokens, more than train.{key} ({limit:g}). The engine does not use "
            "the weights that were trained, so the run stops."
        )
    return gap
