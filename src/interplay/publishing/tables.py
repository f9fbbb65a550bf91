"""Tables of a study besides gold: wins, preferences, success and regret; how steady training was; and the arena.

If a study has not measured the numbers of a table, the table is left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from interplay.evaluation.intervals import mean
from interplay.publishing.document import PageBlock, Paragraph, TableBlock
from interplay.publishing.facts import Facts
from interplay.publishing.results import SEATED, Results, in_words

MEASURES = {"win": "win rate", "preference": "preference", "success": "task success", "regret": "regret"}


@dataclass
class StudyTables:
    facts: Facts

    def report(self, s: Results) -> list[PageBlock]:
        return [*self.line_ups(s), *self.measures(s), *self.unsteady(s), *self.arena(s), *self.cross(s)]

    def line_ups(self, s: Results) -> list[PageBlock]:
        """Gold with every line-up of partners, for tests that have several: a mean may hide that the learner plays well
        with one partner and badly with another."""
        tests = {name: one.get("seats", []) for name, one in s.about["tests"].items()}
        columns = [(t, i) for t, seats in tests.items() if len(seats) > 1 for i in range(len(seats))]
        if not columns:
            return []
        rows = []
        for arm in s.arms:
            runs = [r for r in s.runs if r.arm == arm]
            sources = [r.path for r in runs]
            found = [[r.data["tests"][t]["lineups"][i][s.about["gold"]] for r in runs] for t, i in columns]
            rows.append((arm, *(self.facts.say(fmean(values), ".3f", *sources) for values in found)))
        if all("start" in r.data["tests"][t]["lineups"][i] for r in s.runs for t, i in columns):
            before = [fmean(r.data["tests"][t]["lineups"][i]["start"] for r in s.runs) for t, i in columns]
            rows.insert(0, ("untrained", *(self.facts.say(value, ".3f", s.folder) for value in before)))
        header = ("arm", *(f"{SEATED.get(t, t)}: {_named(tests[t][i])}" for t, i in columns))
        told = "This table shows gold with each line-up of partners (means over seeds)."
        return [Paragraph(told), TableBlock(header, tuple(rows))]

    def _over_seeds(self, values: Sequence[float], sources: Sequence[Path]) -> str:
        known = [v for v in values if not math.isnan(v)]
        return self.facts.interval(mean(known), ".3f", *sources) if known else "n/a"

    def measures(self, s: Results) -> list[PageBlock]:
        """Return the measures in the last test, whose partners did not take part in training."""
        test = list(s.about["tests"])[-1]
        known = [m for m in MEASURES if all(m in r.data["tests"][test]["mean"] for r in s.runs)]
        if not known:
            return []
        rows = []
        for arm in s.arms:
            sources = [r.path for r in s.runs if r.arm == arm]
            cells = [self._over_seeds(list(s.values(arm, test, m).values()), sources) for m in known]
            rows.append((arm, *cells))
        told = (
            f"The trained learner is compared with the untrained one {in_words(test)}, on the same tasks with the same "
            "line-ups. The win rate is how often its gold is higher (ties count half). The preference is how likely a "
            "rater prefers it."
        )
        if "success" in known:
            told += " Task success is how often the task was done."
        if "regret" in known:
            told += " Regret is the distance of gold to the highest possible score."
        return [Paragraph(told), TableBlock(("arm", *(MEASURES[m] for m in known)), tuple(rows))]

    def unsteady(self, s: Results) -> list[PageBlock]:
        """Return the effects of non-stationarity."""
        rows = []
        for arm in s.arms:
            sources = [r.path.parent / "metrics.jsonl" for r in s.runs if r.arm == arm]
            steps = s.recoveries(arm)
            back = [n for n in steps if n is not None]
            say = self.facts.say
            rows.append((
                arm,
                self._over_seeds(list(s.partners_drift(arm).values()), sources),
                f"{say(len(back), 'd', *sources)} of {say(len(steps), 'd', *sources)}" if steps else "no switch",
                say(median(back), ".1f", *sources) if back else "n/a",
            ))  # fmt: skip
        if all(row[1:3] == ("n/a", "no switch") for row in rows):
            return []
        told = (
            "This table shows how steady training was. Drift is how far the level of the context agents' payoffs moved "
            "during training, beyond its noise; it also moves when the learner changes how it plays. The next column "
            "says after how many switches of partners the learner's gold came back to its level before the switch. "
            "The last one is the median number of steps that this took. Switches after which gold did not come back do "
            "not count in it."
        )
        header = ("arm", "drift of partners' payoffs", "switches recovered from", "steps to recover")
        return [Paragraph(told), TableBlock(header, tuple(rows))]

    def arena(self, s: Results) -> list[PageBlock]:
        sources, found = s.arena_files("seed-*.json"), s.arena()
        if not found:
            return []
        rows = tuple(
            (arm, self._over_seeds(mine, sources), self._over_seeds(theirs, sources))
            for arm, (mine, theirs) in found.items()
        )
        told = (
            "In the arena, the learners of all arms play with each other: each plays once as the learner and once as "
            "the partner."
        )
        return [Paragraph(told), TableBlock(("arm", "gold with the others", "gold of the others with it"), rows)]

    def cross(self, s: Results) -> list[PageBlock]:
        sources, found = s.arena_files("cross-*.json"), s.cross()
        if not found:
            return []
        rows = tuple(
            (
                arm,
                self._over_seeds(own, sources),
                self._over_seeds(strange, sources),
                self._over_seeds([a - b for a, b in zip(own, strange, strict=True)], sources),
            )
            for arm, (own, strange) in found.items()
        )
        told = (
            "In cross-play, a learner plays with the context agent that was trained together with it (its own), and "
            "with the context agents of other seeds (others)."
        )
        return [Paragraph(told), TableBlock(("arm", "with its own", "with others", "difference"), rows)]


def _named(seats: Sequence[str]) -> str:
    """A line-up by the styles of its players.

    >>> _named(["finder1=bot:finder:helpful", "finder2=bot:finder:liar"])
    'helpful, liar'
    """
    return ", ".join(seat.rpartition(":")[2] for seat in seats)
