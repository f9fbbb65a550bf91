"""Tables over several studies: a row for each arm and a column for each study with these arms."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from interplay.evaluation.intervals import mean
from interplay.publishing.document import PageBlock, Paragraph, TableBlock
from interplay.publishing.facts import Facts
from interplay.publishing.results import Results

UNTRAINED = "untrained"
MEASURES = ("win", "preference", "success", "regret")
SETTINGS = {
    "story": ("two writers add sentences in turn", "writers of several styles", "consistent and new sentences"),
    "negotiation": ("two players split items", "hagglers", "own share, minus inequality and retreats"),
    "debugging": ("mend a broken program", "breakers that plant the bug", "hidden tests"),
    "retrieval": ("answer from passages", "finders, one of them unreliable", "the answer and its citation"),
}


def _one_test(s: Results) -> str:
    """The last test of a study, which is with partners that were not there in training."""
    return list(s.about["tests"])[-1]


@dataclass
class Overview:
    studies: Sequence[Results]
    facts: Facts

    def alike(self) -> list[list[Results]]:
        """The studies, those with the same arms together."""
        groups: dict[tuple[str, ...], list[Results]] = {}
        for s in self.studies:
            groups.setdefault(tuple(s.arms), []).append(s)
        return list(groups.values())

    def _table(self, group: Sequence[Results], cell: Callable[[Results, str], str], arms: Sequence[str]) -> TableBlock:
        rows = tuple((arm, *(cell(s, arm) for s in group)) for arm in arms)
        return TableBlock(("arm", *(s.name for s in group)), rows)

    @property
    def has_oracle(self) -> bool:
        """Whether a study has an arm with gold as its reward."""
        return any("oracle" in s.arms for s in self.studies)

    def settings(self) -> TableBlock:
        """What the settings are about."""
        known = []
        for s in self.studies:
            setting = s.name.rpartition("-")[2]  # smollm2-story is the story setting
            if setting in SETTINGS:
                known.append((s.name, *SETTINGS[setting]))
        return TableBlock(("setting", "task", "context agents", "gold"), tuple(known))

    def gold(self) -> list[PageBlock]:
        """Gold with new partners, and that of the learner before training."""

        def cell(s: Results, arm: str) -> str:
            if arm != UNTRAINED:
                sources = [r.path for r in s.runs if r.arm == arm]
                return self.facts.interval(s.estimate(arm, _one_test(s)), ".3f", *sources)
            by_seed: dict[int, list[float]] = {}
            for run in s.runs:
                by_seed.setdefault(run.seed, []).append(run.value(_one_test(s), "start"))
            return self.facts.interval(mean([fmean(v) for v in by_seed.values()]), ".3f", s.folder)

        out: list[PageBlock] = [
            Paragraph(
                "This table shows gold in the last test of each study, which has new partners: the mean over seeds, "
                f"and its interval. The row {UNTRAINED} is the learner before training."
            )
        ]
        for group in self.alike():
            known = all("start" in r.data["tests"][_one_test(s)]["mean"] for s in group for r in s.runs)
            out.append(self._table(group, cell, [*([UNTRAINED] if known else []), *group[0].arms]))
        return out

    def measures(self) -> list[PageBlock]:
        """Wins, preferences, success and regret with new partners; empty if a study has not measured them."""

        def cell(s: Results, arm: str) -> str:
            sources = [r.path for r in s.runs if r.arm == arm]
            parts = []
            for measure in MEASURES:
                known = all(measure in r.data["tests"][_one_test(s)]["mean"] for r in s.runs)
                values = list(s.values(arm, _one_test(s), measure).values()) if known else [math.nan]
                parts.append(self.facts.say(fmean(values), ".2f", *sources))
            return " / ".join("-" if part == "n/a" else part for part in parts)

        if not all("win" in r.data["tests"][_one_test(s)]["mean"] for s in self.studies for r in s.runs):
            return []
        told = (
            "Each cell has four means over seeds, from the test with new partners: win / preference / success / "
            "regret. Win is how often the trained learner has more gold than the untrained one on the same task (ties "
            "count half). Preference is how likely a rater prefers the trained one. Success is how often the task is "
            "done. Regret is the distance to the highest possible score, where that is known."
        )
        return [Paragraph(told), *(self._table(group, cell, group[0].arms) for group in self.alike())]

    def steadiness(self) -> list[PageBlock]:
        """What changing partners did: drift of their payoffs, the spread over seeds, and recovery after switches. Empty
        if the runs are too few and too short to measure any of it."""

        def cell(s: Results, arm: str) -> str:
            sources = [r.path for r in s.runs if r.arm == arm]
            moved = [v for v in s.partners_drift(arm).values() if not math.isnan(v)]
            last = list(s.values(arm, _one_test(s), s.about["gold"]).values())
            drift = self.facts.say(fmean(moved), ".3f", *sources) if moved else "-"
            return f"{drift} / {self.facts.say(stdev(last), '.3f', *sources) if len(last) > 1 else '-'}"

        told = (
            "Each cell has two numbers: drift / spread. Drift is how far the level of the partners' payoffs moved "
            "during training, beyond its noise. Each seed has a gold score with new partners; spread is the standard "
            "deviation of these scores."
        )
        tables = [self._table(group, cell, group[0].arms) for group in self.alike()]
        if {text for table in tables for row in table.rows for text in row[1:]} == {"- / -"}:
            return []
        return [Paragraph(" ".join(filter(None, (told, self._switches())))), *tables]

    def _switches(self) -> str:
        """A sentence that says after how many switches of partners the learner's gold came back to its level."""
        found = []
        for s in self.studies:
            for arm in s.arms:
                if steps := s.recoveries(arm):
                    sources = [r.path.parent / "metrics.jsonl" for r in s.runs if r.arm == arm]
                    back = self.facts.say(sum(n is not None for n in steps), "d", *sources)
                    every = self.facts.say(len(steps), "d", *sources)
                    found.append(f"{back} of {every} switches in {s.name} ({arm})")
        if not found:
            return ""
        return (
            "When partners were switched, the learner's gold came back to its level before the switch after "
            f"{', '.join(found)}."
        )

    def exploratory(self) -> list[PageBlock]:
        """Differences that were not fixed before the runs: what training brings, and what a learned judge costs."""
        rows = []
        for s in self.studies:
            test, gold = _one_test(s), s.about["gold"]
            if "start" not in s.runs[0].data["tests"][test]["mean"]:
                continue
            trained = {arm: s.values(arm, test, gold) for arm in ("single", "multi-fixed", "oracle") if arm in s.arms}
            pairs = [
                (f"{arm} minus {UNTRAINED}", found, s.values(arm, test, "start"))
                for arm, found in trained.items()
                if arm != "oracle"
            ]
            if {"oracle", "multi-fixed"} <= trained.keys():
                pairs.append(("oracle minus multi-fixed", trained["oracle"], trained["multi-fixed"]))
            sources = [r.path for r in s.runs if r.arm in trained]
            for name, first, second in pairs:
                gaps = [first[seed] - second[seed] for seed in sorted(first.keys() & second.keys())]
                rows.append((s.name, name, self.facts.interval(mean(gaps), "+.3f", *sources)))
        if not rows:
            return []
        told = (
            "These differences were not among the contrasts, and their intervals are not corrected. They show how much "
            "better a learner is after training with a learned judge than before training"
        )
        told += ", and how much better it is with gold as its reward than with that judge." if self.has_oracle else "."
        return [
            Paragraph(told),
            TableBlock(("study", "difference of gold with new partners", "mean and interval"), tuple(rows)),
        ]

    def labels(self) -> list[PageBlock]:
        """A warning if the judges of a study's arms learned from very different numbers of comparisons."""
        out: list[PageBlock] = []
        for s in self.studies:
            counts = {
                arm: fmean(r.data["counts"]["labels"] for r in s.runs if r.arm == arm)
                for arm in s.arms
                if arm != "judge-learns"  # this arm studies the effect of more comparisons
            }
            known = {arm: n for arm, n in counts.items() if n > 0}  # an arm with gold as its reward needs no labels
            if not known or max(known.values()) < 2 * min(known.values()):
                continue
            listed = ", ".join(f"{a} {self.facts.say(round(n), ',', s.folder)}" for a, n in known.items())
            out.append(
                Paragraph(
                    f"In {s.name}, the judges of the arms learned from different numbers of comparisons (means over "
                    f"seeds: {listed}). The reason is that a rater compares only replies to the same prompt, and with "
                    "partners that choose their moves at random, fewer prompts are the same. A contrast between these "
                    "arms also measures the effect of the number of comparisons."
                )
            )
        return out

    def audits(self) -> list[PageBlock]:
        """In how many runs of every arm the audit saw gold fall while the judge's reward rose."""
        told = (
            "This table shows in how many runs the audit warned: gold fell below its best value while the judge's "
            "reward rose."
        )
        return [Paragraph(told), *(self._table(group, self.warned, group[0].arms) for group in self.alike())]

    def warned(self, s: Results, arm: str) -> str:
        """In how many runs of an arm the audit warned, as `2 of 3`."""
        known = _alarms(s, arm)
        if not known:
            return "no learned judge"
        sources = [r.path.parent / "metrics.jsonl" for r in s.runs if r.arm == arm]
        return f"{self.facts.say(sum(known), 'd', *sources)} of {self.facts.say(len(known), 'd', *sources)}"

    def warnings(self) -> str:
        """One sentence about the audit in the runs of all studies; empty if no run has a learned judge."""
        known = [rang for s in self.studies for arm in s.arms for rang in _alarms(s, arm)]
        if not known:
            return ""
        count = self.facts.say(sum(known), "d", "the metrics of all runs")
        total = self.facts.say(len(known), "d", "the metrics of all runs")
        return f"The audit warned in {count} of {total} runs with a learned judge."


def _alarms(s: Results, arm: str) -> list[bool]:
    """For each run of an arm with a learned judge, whether the audit warned."""
    return [any(v for _, v in run) for run in s.curve(arm, "judge/taste/rang").values() if run]
