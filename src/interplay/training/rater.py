"""Train reward models before a run, from a file of comparisons or of labelled answers, and test them on held-out rows.
Also: let a reward model, or a language model, judge pairs."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from interplay.agents.render import Renderer
from interplay.engines.engine import Engine
from interplay.errors import DataError
from interplay.rewards import judge
from interplay.rewards.agreement import Agreement, agreement, auc, expected_error, temperature, wilson
from interplay.rewards.comparisons import LabelledAnswer, read_answers, read_comparisons
from interplay.rewards.preference import (
    Balance,
    Pair,
    Verdict,
    balanced,
    even_lengths,
    held_out,
    in_random_order,
)
from interplay.training.preference import Better, Fitting, RewardModel


@dataclass(frozen=True)
class Split:
    """The rows for training and for testing. All rows of a question are on the same side. `same` comparisons of two
    equal replies are in neither, because they say nothing about a judge."""

    train: list[Any]
    test: list[Any]
    same: int = 0


def split(path: Path, kind: str, holdout: float, seed: int) -> Split:
    rows: Sequence[Any]
    same = 0
    if kind == "verifier":
        rows = read_answers(path)
    else:
        pairs = read_comparisons(path)
        different = [p for p in pairs if p.first != p.second]
        same = len(pairs) - len(different)
        rows = in_random_order([p for p in different if p.label != 0.5], seed)
    out = Split([], [], same)
    for row in rows:
        (out.test if held_out(row.group, holdout, seed) else out.train).append(row)
    if not out.train or not out.test:
        raise DataError(
            f"'{path}' leaves {len(out.train)} rows to train on and {len(out.test)} to test on; expected some of both. "
            "Give more rows, or another --holdout."
        )
    return out


def evened(pairs: Sequence[Pair], seed: int) -> list[Pair]:
    """The pairs without those by which a judge would learn to prefer the longer reply (or the shorter one)."""
    kept = even_lengths(pairs, lambda p: (p.first, p.second, 0.5 if p.label is None else p.label), seed)
    if len(pairs) and not kept:
        raise DataError(
            "all comparisons are won by the longer reply, or all by the shorter one, so balance 'length' leaves none; "
            "expected some of both, or --balance none."
        )
    return kept


def fit_pairs(model: RewardModel, pairs: Sequence[Pair], how: Fitting) -> float:
    rows = []
    for p in pairs:
        one, other = (p.question, p.first), (p.question, p.second)
        rows.append(Better(one, other) if (p.label or 0.0) > 0.5 else Better(other, one))
    return model.fit(rows, how)


def fit_answers(model: RewardModel, answers: Sequence[LabelledAnswer], how: Fitting, balance: Balance) -> float:
    kept = balanced(answers, lambda a: a.right, lambda a: a.group, balance, how.seed)
    if not kept:
        raise DataError(
            f"no question has both right and wrong answers, so balance '{balance}' leaves no rows; expected several "
            "answers to each question, or --balance class."
        )
    return model.fit([Better((a.question, a.text), None, float(a.right)) for a in kept], how)


def model_verdicts(model: RewardModel, pairs: Sequence[Pair]) -> list[Verdict]:
    """A reward model as a judge of pairs: σ of the difference of its scores. The order of a pair does not matter."""
    both = [Better((p.question, p.first), (p.question, p.second)) for p in pairs]
    if model.kind != "verifier":
        return [Verdict(x) for x in model.probabilities(both)]
    raw = model.raw([c for b in both for c in (b.better, b.worse) if c is not None])
    return _by_scores(raw)


def scored_verdicts(scorer: judge.Scoring, pairs: Sequence[Pair]) -> list[Verdict]:
    """A function that scores replies as a judge of pairs: σ of the difference of its scores."""
    return _by_scores(asyncio.run(scorer.scores([(p.question, said) for p in pairs for said in (p.first, p.second)])))


def _by_scores(scores: Sequence[float]) -> list[Verdict]:
    """The verdicts by the scores of both replies of each pair, one after the other."""
    gaps = [a - b for a, b in zip(scores[::2], scores[1::2], strict=True)]
    return [Verdict(float(torch.sigmoid(torch.tensor(gap)))) for gap in gaps]


def spoken_verdicts(engine: Engine, renderer: Renderer, pairs: Sequence[Pair], instructions: str = "") -> list[Verdict]:
    """A language model as a judge of pairs: the probability that it says A rather than B."""
    replies = renderer.replies(judge.PAIRWISE)

    async def one(pair: Pair) -> Verdict:
        prompt = renderer.prompt(judge.compare(pair.question, pair.first, pair.second, instructions))
        a, b = (math.fsum(found) for found in await engine.score(prompt.ids, replies))
        return Verdict(1 / (1 + math.exp(b - a)))

    async def all_of_them() -> list[Verdict]:
        return list(await asyncio.gather(*(one(pair) for pair in pairs)))

    return asyncio.run(all_of_them())


@dataclass(frozen=True)
class Calibrated:
    """A temperature that was fitted on half of the held-out questions, and the calibration error before and after it on
    the other half."""

    temperature: float
    before: float
    after: float


def calibrate(model: RewardModel, rows: Sequence[Any], seed: int) -> Calibrated | None:
    """Fit the temperature of a model's probabilities and set it. `rows` are pairs, or a verifier's answers, that the
    model was not trained on. Returns None if one half has no rows."""
    halves: tuple[list[Any], list[Any]] = ([], [])
    for row in rows:
        halves[held_out(row.group, 0.5, seed + 1)].append(row)
    if not halves[0] or not halves[1]:
        return None
    fitted, checked = ([_labelled(row) for row in half] for half in halves)
    model.temperature = 1.0
    before = expected_error(model.probabilities([r for r, _ in checked]), [y for _, y in checked])
    model.temperature = temperature(model.probabilities([r for r, _ in fitted]), [y for _, y in fitted])
    after = expected_error(model.probabilities([r for r, _ in checked]), [y for _, y in checked])
    return Calibrated(model.temperature, before, after)


def _labelled(row: Pair | LabelledAnswer) -> tuple[Better, float]:
    if isinstance(row, LabelledAnswer):
        return Better((row.question, row.text), None, float(row.right)), float(row.right)
    return Better((row.question, row.first), (row.question, row.second)), float(row.label or 0.0)


def tested(model: RewardModel, pairs: Sequence[Pair]) -> Agreement:
    return agreement(pairs, model_verdicts(model, pairs))


@dataclass(frozen=True)
class Verified:
    """A verifier on held-out questions. `within` is the mean over questions of the probability that a right answer
    scores above a wrong answer to the same question. `chosen` is how often the answer with the best score is right;
    beside it are the results of a random choice, the majority's choice, the longest answer and the best possible
    choice."""

    accuracy: float
    low: float
    high: float
    auc: float
    within: float
    chosen: float
    random: float
    majority: float
    longest: float
    oracle: float
    answers: int
    questions: int


def verified(model: RewardModel, answers: Sequence[LabelledAnswer], final: Any = None) -> Verified:
    """`final` extracts the final answer of a solution, for the majority's choice. Without it, the whole text counts."""
    scores = model.scores([(a.question, a.text) for a in answers])
    hits = sum((s > 0.5) == a.right for s, a in zip(scores, answers, strict=True))
    groups: dict[str, list[tuple[float, LabelledAnswer]]] = {}
    for s, a in zip(scores, answers, strict=True):
        groups.setdefault(a.group, []).append((s, a))
    within = [auc([s for s, _ in g], [a.right for _, a in g]) for g in groups.values()]
    mixed = [w for w in within if not math.isnan(w)]
    read = final or (lambda text: text)
    return Verified(
        hits / len(answers),
        *wilson(hits, len(answers)),
        auc(scores, [a.right for a in answers]),
        fmean(mixed) if mixed else math.nan,
        fmean(max(g, key=lambda x: x[0])[1].right for g in groups.values()),
        fmean(fmean(a.right for _, a in g) for g in groups.values()),
        fmean(_majority([a for _, a in g], read) for g in groups.values()),
        fmean(max((a for _, a in g), key=lambda a: len(a.text)).right for g in groups.values()),
        fmean(any(a.right for _, a in g) for g in groups.values()),
        len(answers),
        len(groups),
    )


def _majority(answers: Sequence[LabelledAnswer], read: Any) -> bool:
    finals = [read(a.text) for a in answers]
    most = max(finals, key=finals.count)  # of equally frequent answers, the first one
    return answers[finals.index(most)].right
