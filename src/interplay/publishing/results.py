"""What a study came to: every arm's tests over seeds, and its contrasts, paired by seed and corrected by Holm."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import scipy

from interplay.errors import DataError
from interplay.evaluation.intervals import Estimate, mean
from interplay.publishing.experiment import TESTED


@dataclass(frozen=True)
class Tested:
    """One run's test: where it is written, and its numbers."""

    arm: str
    seed: int
    path: Path
    data: Mapping[str, Any]

    def value(self, test: str, measure: str) -> float:
        try:
            return float(self.data["tests"][test]["mean"][measure])
        except KeyError:
            raise DataError(f"'{self.path}' has no {measure} in test {test}.") from None


@dataclass(frozen=True)
class Contrast:
    """`difference` is first less second over paired seeds; `p` is of the paired t-test, and `corrected` after Holm."""

    study: str
    first: str
    second: str
    test: str
    measure: str
    seeds: int
    difference: Estimate
    p: float
    corrected: float

    @property
    def sentence(self) -> str:
        sure = "is better than" if self.difference.value > 0 else "is worse than"
        if not self.corrected < 0.05:
            sure = "cannot be told from"
        return f"{self.first} {sure} {self.second} in {self.test}"


@dataclass
class Results:
    """All runs of one study that are tested."""

    folder: Path
    about: Mapping[str, Any]
    runs: list[Tested]

    @staticmethod
    def read(folder: Path) -> Results:
        noted = folder / "study.json"
        if not noted.is_file():
            raise DataError(f"'{folder}' holds no study; expected a folder that interplay experiment has written.")
        about = json.loads(noted.read_text())
        runs = []
        for arm in about["arms"]:
            for path in sorted((folder / arm).glob(f"seed-*/{TESTED}"), key=lambda p: int(p.parent.name[5:])):
                data = json.loads(path.read_text())
                runs.append(Tested(arm, data["seed"], path, data))
        if not runs:
            raise DataError(f"no run in '{folder}' is tested yet; expected interplay experiment to have finished one.")
        return Results(folder, about, runs)

    @property
    def name(self) -> str:
        return str(self.about["name"])

    @property
    def arms(self) -> list[str]:
        return [arm for arm in self.about["arms"] if any(r.arm == arm for r in self.runs)]

    def values(self, arm: str, test: str, measure: str) -> dict[int, float]:
        """By seed."""
        return {r.seed: r.value(test, measure) for r in self.runs if r.arm == arm}

    def estimate(self, arm: str, test: str, measure: str | None = None) -> Estimate:
        return mean(list(self.values(arm, test, measure or self.about["gold"]).values()))

    def contrasts(self) -> list[Contrast]:
        """Those that were written down, uncorrected; of one seed nothing can be said."""
        out = []
        for c in self.about["contrasts"]:
            one, other = (self.values(c[which], c["test"], c["measure"]) for which in ("first", "second"))
            seeds = sorted(set(one) & set(other))
            if not seeds:
                continue
            gaps = [one[s] - other[s] for s in seeds]
            p = _paired(gaps)
            names = (c["first"], c["second"], c["test"], c["measure"])
            out.append(Contrast(self.name, *names, len(seeds), mean(gaps), p, p))
        return out

    def curve(self, arm: str, key: str) -> dict[int, list[tuple[float, float]]]:
        """By seed: a metric of training against the learner's sampled tokens."""
        out = {}
        for run in (r for r in self.runs if r.arm == arm):
            rows = [json.loads(line) for line in (run.path.parent / "metrics.jsonl").read_text().splitlines()]
            tokens = f"{self.about['learner']}/tokens"
            out[run.seed] = [(row[tokens], row[key]) for row in rows if key in row and tokens in row]
        return out


def _paired(gaps: Sequence[float]) -> float:
    """Of the paired t-test, two-sided."""
    if len(gaps) < 2:
        return math.nan
    if max(gaps) == min(gaps):
        return 1.0 if gaps[0] == 0 else 0.0
    return float(scipy.stats.ttest_1samp(gaps, 0.0).pvalue)


def holm(contrasts: Sequence[Contrast]) -> list[Contrast]:
    """Holm's correction (1979) over all contrasts that are given; those without a p-value stay out of it."""
    order = sorted((i for i, c in enumerate(contrasts) if not math.isnan(c.p)), key=lambda i: contrasts[i].p)
    found: dict[int, float] = {}
    highest = 0.0
    for rank, i in enumerate(order):
        highest = max(highest, min(1.0, contrasts[i].p * (len(order) - rank)))
        found[i] = highest
    return [Contrast(**{**vars(c), "corrected": found.get(i, math.nan)}) for i, c in enumerate(contrasts)]
