"""The results of a study: tests of every arm over seeds, and contrasts, paired by seed and corrected by Holm."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

import scipy

from interplay.errors import DataError
from interplay.evaluation.intervals import Estimate, mean
from interplay.publishing import measures
from interplay.publishing.experiment import OPTIMA, TESTED
from interplay.publishing.files import object_in, rows_of

Budget = Literal["learner", "all"]
SEATED = {"alone": "without partners", "seen": "with seen partners", "unseen": "with new partners"}  # the usual tests


def in_words(test: str) -> str:
    """The test as a part of a sentence: `with new partners`, or `in test late` for a test with a name of its own."""
    return SEATED.get(test, f"in test {test}")


@dataclass(frozen=True)
class Tested:
    """The test of one run: its file and its numbers."""

    arm: str
    seed: int
    path: Path
    data: Mapping[str, Any]

    def metrics(self) -> list[dict[str, float]]:
        """The metrics of every training step."""
        return rows_of(self.path.parent / "metrics.jsonl")

    def about(self) -> dict[str, Any]:
        """The recipe, the seed, the versions and the sessions of the run."""
        return object_in(self.path.parent / "run.json")

    def value(self, test: str, measure: str) -> float:
        try:
            return float(self.data["tests"][test]["mean"][measure])
        except KeyError:
            raise DataError(
                f"'{self.path}' has no {measure} in test {test}; expected a measure that the test of the run has "
                "written there."
            ) from None


@dataclass(frozen=True)
class Contrast:
    """`difference` is first minus second over paired seeds. `p` is the p-value of the paired t-test, and `corrected` is
    the same after Holm's correction."""

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
    def verdict(self) -> str:
        if not self.corrected < 0.05:
            return "cannot be told from"
        better = self.difference.value < 0 if self.measure == "regret" else self.difference.value > 0
        return "is better than" if better else "is worse than"

    @property
    def where(self) -> str:
        """What was measured in which test, such as `gold with new partners`."""
        return f"{self.measure} {in_words(self.test)}"

    @property
    def sentence(self) -> str:
        return f"{self.first} {self.verdict} {self.second} ({self.where})"


@dataclass
class Results:
    """All runs of one study that have been tested."""

    folder: Path
    about: Mapping[str, Any]
    runs: list[Tested]

    @staticmethod
    def read(folder: Path) -> Results:
        noted = folder / "study.json"
        if not noted.is_file():
            raise DataError(f"'{folder}' holds no study; expected a folder that interplay experiment has written.")
        about = object_in(noted, "name", "arms", "best", "gold", "contrasts")
        runs = []
        optima = object_in(folder / OPTIMA) if about["best"] == "task" else {}
        for path in tested_runs(folder):
            data = object_in(path, "arm", "seed", "counts", "tests")
            for test, best in optima.items():
                lineups = data["tests"][test]["lineups"]
                gaps = [best[task] - gold for lineup in lineups for task, gold in lineup["tasks"].items()]
                data["tests"][test]["mean"]["regret"] = fmean(gaps)
            if data["arm"] in about["arms"]:
                runs.append(Tested(data["arm"], data["seed"], path, data))
        runs.sort(key=lambda r: (list(about["arms"]).index(r.arm), r.seed))
        if not runs:
            raise DataError(
                f"no run in '{folder}' has been tested yet; expected at least one finished run of interplay experiment."
            )
        return Results(folder, about, runs)

    @property
    def name(self) -> str:
        return str(self.about["name"])

    @property
    def arms(self) -> list[str]:
        return [arm for arm in self.about["arms"] if any(r.arm == arm for r in self.runs)]

    def values(self, arm: str, test: str, measure: str) -> dict[int, float]:
        """Return a measure of an arm in a test, by seed."""
        return {r.seed: r.value(test, measure) for r in self.runs if r.arm == arm}

    def estimate(self, arm: str, test: str, measure: str | None = None) -> Estimate:
        return mean(list(self.values(arm, test, measure or self.about["gold"]).values()))

    def contrasts(self) -> list[Contrast]:
        """Return the contrasts that the study lists, uncorrected. With only one seed a contrast has no p-value."""
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

    def curve(self, arm: str, key: str, budget: Budget = "learner") -> dict[int, list[tuple[float, float]]]:
        """Return by seed a training metric against the tokens sampled by the learner or by everybody, with judges."""
        out = {}
        for run in (r for r in self.runs if r.arm == arm):
            rows, name = run.metrics(), f"{self.about['learner']}/tokens"
            kinds = ("tokens_sampled", "judge_tokens", "baseline_tokens")
            everybody = accumulate(sum(row.get(kind, 0.0) for kind in kinds) for row in rows)
            spent = list(everybody) if budget == "all" else [row.get(name) for row in rows]
            both = zip(spent, rows, strict=True)
            out[run.seed] = [(x, row[key]) for x, row in both if key in row and x is not None]
        return out

    @cached_property
    def paid(self) -> str:
        """The first part of the names of rewards in the metrics: `reward`, or `reward_kept` if the algorithm tries
        several replies and only the rewards of the replies that it keeps are known."""
        own = f"/{self.about['gold']}/{self.about['role']}"
        keys = {key for run in self.runs for row in run.metrics() for key in row if key.endswith(own)}
        return "reward_kept" if keys == {f"reward_kept{own}"} else "reward"

    # -- non-stationarity -----------------------------------------------------------------------------------------

    def partners_drift(self, arm: str) -> dict[int, float]:
        """Return by seed how far the level of the context agents' payoffs moved during training, as the mean over their
        roles. A seed without such payoffs is left out."""
        start, own = f"{self.paid}/{self.about['gold']}/", self.about["role"]
        out = {}
        for run in (r for r in self.runs if r.arm == arm):
            rows = run.metrics()
            keys = {key for row in rows for key in row if key.startswith(start) and key != start + own}
            found = [
                measures.drift([row[key] for row in rows if key in row]) for key in sorted(keys - {start + "team"})
            ]
            if found and not any(map(math.isnan, found)):
                out[run.seed] = fmean(found)
        return out

    def recoveries(self, arm: str) -> list[int | None]:
        """Return for every switch of partners in every seed how many steps the learner's gold took to recover; None if
        it did not."""
        key = f"{self.paid}/{self.about['gold']}/{self.about['role']}"
        out: list[int | None] = []
        for run in (r for r in self.runs if r.arm == arm):
            values = [row[key] for row in run.metrics() if key in row]
            out += measures.recovery(values, run.data.get("switches", []))
        return out

    # -- the arena ------------------------------------------------------------------------------------------------

    def arena(self) -> dict[str, tuple[list[float], list[float]]]:
        """Return by arm, over seeds, the gold of its learner with learners of other arms, and their gold with it."""
        out: dict[str, tuple[list[float], list[float]]] = {}
        for path in self.arena_files("seed-*.json"):
            gold = object_in(path, "gold")["gold"]
            for arm in gold:
                others = [other for other in gold if other != arm]
                if others:
                    mine, theirs = out.setdefault(arm, ([], []))
                    mine.append(fmean(gold[arm][other] for other in others))
                    theirs.append(fmean(gold[other][arm] for other in others))
        return out

    def cross(self) -> dict[str, tuple[list[float], list[float]]]:
        """Return by arm, over seeds, the gold of its learner with the context agent that it was trained with, and with
        those of other seeds. If an arm has several files, the one with the most seeds is used."""
        found: dict[str, dict[str, dict[str, float]]] = {}
        for path in self.arena_files("cross-*.json"):
            data = object_in(path, "arm", "gold")
            if len(data["gold"]) >= len(found.get(data["arm"], {})):
                found[data["arm"]] = data["gold"]
        return {
            arm: ([rows[i][i] for i in rows], [fmean(v for j, v in rows[i].items() if j != i) for i in rows])
            for arm, rows in found.items()
        }

    def arena_files(self, pattern: str) -> list[Path]:
        return sorted((self.folder / "arena").glob(pattern))


def tested_runs(folder: Path) -> list[Path]:
    """The results of all runs of a study that are done."""
    return sorted(folder.glob(f"*/seed-*/{TESTED}"))


def _paired(gaps: Sequence[float]) -> float:
    """Return the two-sided p-value of the paired t-test."""
    if len(gaps) < 2:
        return math.nan
    if max(gaps) == min(gaps):
        return 1.0 if gaps[0] == 0 else 0.0
    return float(scipy.stats.ttest_1samp(gaps, 0.0).pvalue)


def holm(contrasts: Sequence[Contrast]) -> list[Contrast]:
    """Apply Holm's correction (1979) over all given contrasts. Contrasts without a p-value are not counted."""
    order = sorted((i for i, c in enumerate(contrasts) if not math.isnan(c.p)), key=lambda i: contrasts[i].p)
    found: dict[int, float] = {}
    highest = 0.0
    for rank, i in enumerate(order):
        highest = max(highest, min(1.0, contrasts[i].p * (len(order) - rank)))
        found[i] = highest
    return [Contrast(**{**vars(c), "corrected": found.get(i, math.nan)}) for i, c in enumerate(contrasts)]
