"""The audit of judges inside a run: every few steps, measure what influences a judge besides the quality of a reply.

Replies of the run are changed in ways that cannot make them better, and the judge compares both versions. These
verdicts give no reward. The judge's calls are kept with the episodes as turns of the role `judge`, so that their tokens
are counted.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from interplay.config import JudgeSection
from interplay.errors import InterplayError
from interplay.rewards.audit import AuditFinding, Fixed, asked, finding, halves
from interplay.rewards.preference import ABSTAINED, Pair, Verdict, both_orders
from interplay.rollout.arbiters import JudgeQuestion
from interplay.rollout.judging import Judging, answers_of
from interplay.rollout.subjects import Subject, pairs_of, subjects
from interplay.types import Episode

log = logging.getLogger("interplay")
_SURE = 1e-6  # a verifier's probability stays at least this far from 0 and 1


class _Comparing(NamedTuple):
    """A judge that is audited: its name and settings, the subjects whose episodes keep its answers, and the number of
    its next question."""

    name: str
    section: JudgeSection
    about: Sequence[Subject]
    start: int


class Auditing:
    """`fixed` has the pairs for drift, by the names of the judges."""

    def __init__(self, judging: Judging, fixed: Mapping[str, Fixed]) -> None:
        self.judging, self.fixed = judging, fixed

    async def after(self, step: int, episodes: Sequence[Episode]) -> dict[str, float]:
        """Run the checks that are due after a step. Return a metric for each, and warn of each fault."""
        metrics: dict[str, float] = {}
        for name, section in self.judging.sections.items():
            audit = section.audit
            if audit is None or not audit.checks or step % audit.checks_every:
                continue
            every = [s for e in episodes for s in subjects(e, section, self.judging.roles(section))]
            pairs = self._pairs(name, section, sorted(every, key=lambda s: s.name))
            if len(pairs) < 2:
                continue
            found = await self._checks(name, section, every, pairs)
            for episode in episodes:
                episode.judged.sort(key=lambda t: t.id)
            for one in found:
                metrics[f"judge/{name}/audit/{one.check}"] = one.value
            faults = [one for one in found if one.fault and (one.check != "drift" or section.train is None)]
            measured = any(not math.isnan(one.value) for one in found)  # not so if the judge answered nothing
            metrics[f"judge/{name}/audit/faults"] = float(len(faults)) if measured else math.nan
            for one in faults:
                log.warning(
                    "judges.%s %s (step %d, 95%% interval from %.2f to %.2f): do not trust its reward.",
                    name, one.words, step, one.low, one.high,
                )  # fmt: skip
        return {k: v for k, v in metrics.items() if not math.isnan(v)}

    def _pairs(self, name: str, section: JudgeSection, every: Sequence[Subject]) -> list[Pair]:
        assert section.audit is not None
        return [
            Pair(f"{a.name} {b.name}", a.question, a.reply, b.reply, group=a.episode.task.id)
            for a, b in pairs_of(every, "audit", name)[: section.audit.pairs]
        ]

    async def _checks(
        self, name: str, section: JudgeSection, every: Sequence[Subject], pairs: Sequence[Pair]
    ) -> list[AuditFinding]:
        assert section.audit is not None
        out = []
        for number, check in enumerate(section.audit.checks):
            judge = _Comparing(name, section, every, 2 * number * section.audit.pairs)
            if check != "drift":
                out.append(finding(check, await self._verdicts(judge, asked(check, pairs))))
                continue
            kept = self.fixed[name]
            first, kept.pairs = not kept.pairs, kept.pairs or list(pairs)
            there, back = halves(await self._verdicts(judge, asked(check, kept.pairs)))
            now = [both_orders(a, b) for a, b in zip(there, back, strict=True)]
            if not first:
                out.append(finding(check, [*there, *back], kept.verdicts))
            kept.verdicts = now
        return out

    async def _verdicts(self, judge: _Comparing, pairs: Sequence[Pair]) -> list[Verdict]:
        """The verdicts on pairs whose second half is the first half swapped. Only a pairwise judge sees an order, so
        the other judges are asked only about the first half. A missing answer counts as an abstention here, because no
        reward depends on it."""
        if judge.section.kind == "pairwise":
            return await self._compared(judge, pairs)
        shown = pairs[: len(pairs) // 2]
        if judge.name in self.judging.scorers:
            there = await self._scored(judge, shown)
        else:
            there = await self._marked(judge, shown)
        return [*there, *(v.swapped() for v in there)]

    async def _scored(self, judge: _Comparing, pairs: Sequence[Pair]) -> list[Verdict]:
        scorer = self.judging.scorers[judge.name]
        try:
            found = await scorer.scores([(p.question, reply) for p in pairs for reply in (p.first, p.second)])
        except InterplayError as error:
            log.warning("judges.%s could not be audited: %s", judge.name, error)
            return [ABSTAINED] * len(pairs)
        if judge.section.kind == "verifier":
            found = [_log_odds(p) for p in found]
        return [Verdict(_sigmoid(a - b)) for a, b in zip(found[::2], found[1::2], strict=True)]

    async def _compared(self, judge: _Comparing, pairs: Sequence[Pair]) -> list[Verdict]:
        arbiter = self.judging.arbiter(f"{judge.name}/audit", judge.section)
        jobs = [
            arbiter.compare(*_sides(judge.about[i % len(judge.about)], p), JudgeQuestion(judge.start + i))
            for i, p in enumerate(pairs)
        ]
        found = await answers_of(jobs)
        return [x if isinstance(x, Verdict) else ABSTAINED for x in found]

    async def _marked(self, judge: _Comparing, pairs: Sequence[Pair]) -> list[Verdict]:
        arbiter = self.judging.arbiter(f"{judge.name}/audit", judge.section)
        sides = [s for i, p in enumerate(pairs) for s in _sides(judge.about[i % len(judge.about)], p)]
        jobs = [arbiter.score(s, JudgeQuestion(judge.start + i)) for i, s in enumerate(sides)]
        marks = [None if isinstance(x, InterplayError) else x[0] for x in await answers_of(jobs)]
        return [_higher(a, b) for a, b in zip(marks[::2], marks[1::2], strict=True)]


def _sides(about: Subject, pair: Pair) -> tuple[Subject, Subject]:
    """Both replies of a pair as subjects. Their episode keeps what the judge says."""
    one, other = (
        Subject(about.episode, about.role, about.turn, pair.question, reply, about.decision)
        for reply in (pair.first, pair.second)
    )
    return one, other


def _higher(one: float | None, other: float | None) -> Verdict:
    if one is None or other is None:
        return ABSTAINED
    return Verdict(0.5 if one == other else float(one > other))


def _log_odds(p: float) -> float:
    p = min(max(p, _SURE), 1 - _SURE)
    return math.log(p / (1 - p))


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))
