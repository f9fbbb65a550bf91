"""The text of a study's report, post and slides. Every statement about results is made from the results themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

from interplay.publishing import plots
from interplay.publishing.document import Bullets, Figure, Heading, PageBlock, Paragraph, TableBlock
from interplay.publishing.facts import Facts
from interplay.publishing.results import Contrast, Results, holm
from interplay.publishing.tables import StudyTables

POST = "Teaching AI Agents to Work Together (and Compete) via RLHF"
REPORT = "Single-agent and multi-agent RLHF with learned judges"
_ARMS = {
    "single": "the learner alone in a fixed situation",
    "single-replayed": "with logged turns of the same partners, which do not react",
    "multi-fixed": "with one partner that reacts",
    "multi-shifting": "with partners that change by a schedule",
    "context-learns": "with a partner that learns too",
    "judge-learns": "with a judge that goes on learning",
    "oracle": "rewarded by gold itself; an upper bound, not a method",
}


@dataclass
class Pages:
    studies: Sequence[Results]
    facts: Facts
    folder: Path

    def __post_init__(self) -> None:
        self.contrasts = holm([c for s in self.studies for c in s.contrasts()])
        self.tables = StudyTables(self.facts)
        self.facts.constant("95%", "the level of every interval (evaluation/intervals.py)")
        self.facts.constant("0.05", "the level at which a corrected p-value counts (publishing/results.py)")

    # -- parts ----------------------------------------------------------------------------------------------------

    def _tests(self, s: Results) -> TableBlock:
        rows = []
        for arm in s.arms:
            sources = [r.path for r in s.runs if r.arm == arm]
            cells = [self.facts.interval(s.estimate(arm, test), ".3f", *sources) for test in s.about["tests"]]
            rows.append((arm, *cells))
        return TableBlock(("arm", *s.about["tests"]), tuple(rows))

    def _spread(self, s: Results) -> TableBlock:
        """Return a table with the spread over seeds, the number of alarms of the audit, and the cost."""
        rows = []
        for arm in s.arms:
            runs = [r for r in s.runs if r.arm == arm]
            paths = [r.path for r in runs]
            last = list(s.values(arm, list(s.about["tests"])[-1], s.about["gold"]).values())
            rang = [max((v for _, v in run), default=0.0) for run in s.curve(arm, "judge/taste/rang").values()]
            say = self.facts.say
            counts = [fmean(r.data["counts"][k] for r in runs) for k in ("learner_tokens", "all_tokens", "labels")]
            rows.append((
                arm,
                say(stdev(last), ".3f", *paths) if len(last) > 1 else "n/a",
                f"{say(sum(rang), '.0f', *paths)} of {say(len(rang), 'd', *paths)}" if rang else "no learned judge",
                *(say(round(c), ",", *paths) for c in counts),
            ))  # fmt: skip
        last_test = list(s.about["tests"])[-1]
        header = ("arm", f"spread over seeds ({last_test})", "audit rang", "learner's tokens", "all tokens", "labels")
        return TableBlock(header, tuple(rows))

    def _contrast_rows(self) -> TableBlock:
        rows = []
        for c in self.contrasts:
            at = next(s.folder for s in self.studies if s.name == c.study)
            say = self.facts.say
            rows.append((
                c.study, f"{c.first} less {c.second}, {c.test}", self.facts.interval(c.difference, "+.3f", at),
                say(c.seeds, "d", at), say(c.corrected, ".3f", at),
            ))  # fmt: skip
        return TableBlock(("study", "contrast", "difference", "seeds", "p after Holm"), tuple(rows))

    def _sentences(self) -> list[str]:
        return [f"In {c.study}, {c.sentence}." for c in self.contrasts]

    def _answer(self) -> str:
        """Return one sentence about all contrasts."""
        sure: list[Contrast] = [c for c in self.contrasts if c.corrected < 0.05]
        if not self.contrasts or max(c.seeds for c in self.contrasts) < 2:
            return "Each arm has one run so far, so nothing can be said about differences between arms."
        if not sure:
            return "None of the contrasts that were written down before the runs is significant after correction."
        return "After Holm's correction these differences remain: " + "; ".join(c.sentence for c in sure) + "."

    def _method(self, s: Results) -> list[PageBlock]:
        seeds = self.facts.say(len({r.seed for r in s.runs}), "d", s.folder / "study.json")
        games = self.facts.say(s.about["games"], "d", s.folder / "study.json")
        arms = tuple(f"{arm}: {_ARMS.get(arm, 'see the study file')}" for arm in s.arms)
        best = s.about["best"]
        bound = "" if best is None else (
            f" The most that can be had is {self.facts.say(best, '.1f', s.folder / 'study.json')}, so regret is that "
            "less what a table says."
        )  # fmt: skip
        return [
            Paragraph(
                f"Study `{s.name}`: {seeds} paired seeds; every arm is tested on {games} tasks of the test split for "
                f"each line-up of partners, by the gold score of the environment.{bound}"
            ),
            Bullets(arms),
        ]

    # -- pages ----------------------------------------------------------------------------------------------------

    def report(self) -> list[PageBlock]:
        out: list[PageBlock] = [
            Heading("Question"),
            Paragraph(
                "Does a language model that is trained by preferences learn something better when other agents take "
                "part in its situations, and what does their changing cost? A learner answers, a judge that was itself "
                "learned from noisy comparisons says what it prefers, and context agents make the situation."
            ),
            Paragraph(self._answer()),
            Heading("Method"),
            Paragraph(
                "In every arm but the oracle the reward is a preference model, trained by a Bradley-Terry loss on a "
                "limited number of comparisons by a rater with noise. Gold is never trained on: it is watched beside "
                "the judge, and counts in the tests, which are opened once. Arms have the same budget of tokens "
                "sampled by the learner. Contrasts were written down before the runs, are paired by seed, and are "
                "corrected by Holm's method; the seed is the unit. Intervals are 95% by Student's distribution."
            ),
        ]
        for s in self.studies:
            out += self._method(s)
        out.append(Heading("Results"))
        for s in self.studies:
            out += [
                Heading(s.name, 3),
                self._tests(s),
                Figure(plots.tests(s, self.folder), f"{s.name}: gold of every arm in every test; points are seeds."),
                Figure(plots.curves(s, self.folder), f"{s.name}: gold while training, mean over seeds."),
                Figure(plots.curves(s, self.folder, "all"), f"{s.name}: the same against the tokens of everybody."),
                Figure(
                    plots.proxies(s, self.folder),
                    f"{s.name}: gold and the judge's reward.",
                ),
                self._spread(s),
                *self.tables.report(s),
            ]
        out += [Heading("Contrasts"), self._contrast_rows(), Bullets(tuple(self._sentences()) or ("none",))]
        out += [
            Heading("Limits"),
            Paragraph(
                "The learner and the judges are tiny models with random weights at the start, in settings small enough "
                "that gold is exact. What is shown here is how the method behaves, not how large models do."
            ),
            Heading("How to repeat it"),
            Paragraph("`interplay experiment recipes/rlhf/experiment/*.toml --jobs 16`, then `interplay publish`."),
        ]
        return out

    def post(self) -> list[PageBlock]:
        s = self.studies[0]
        return [
            Paragraph(
                "A model that learns from preferences usually learns alone: a prompt, an answer, a judgement. People "
                "rarely work like that. We let a learner write with partners who react, change and learn, had a "
                "judge that was itself learned from noisy opinions reward it, and looked at what it could do with "
                "partners it had never met."
            ),
            Heading("What came out"),
            Paragraph(self._answer()),
            self._tests(s),
            Figure(plots.tests(s, self.folder), f"{s.name}: every arm in every test; points are seeds."),
            Heading("When the judge is pleased and the work is not"),
            Paragraph(
                "A learned judge is a stand-in. Optimise against it long enough and its reward goes on rising while "
                "the real score turns back. The audit that runs beside training rings when that happens."
            ),
            Figure(plots.proxies(s, self.folder), f"{s.name}: the real score and the judge's."),
            self._spread(s),
            *self.tables.measures(s),
            Heading("What to take from it"),
            Bullets((
                "Watch gold beside the judge, on tasks that nobody trains on.",
                "Test with partners that were not there in training.",
                "Write the question down before the runs, and pair the seeds.",
            )),
        ]  # fmt: skip

    def slides(self) -> list[list[PageBlock]]:
        s = self.studies[0]
        return [
            [Heading(POST, 1), Paragraph("Research question, method, results, and what they mean.")],
            [
                Heading("Question"),
                Paragraph("Does RLHF gain from agents that take part, and what does non-stationarity cost?"),
                Bullets(tuple(f"{arm}: {_ARMS.get(arm, '')}" for arm in s.arms)),
            ],
            [Heading("Method"), *self._method(s)[:1], Paragraph(
                "A preference model learned from noisy comparisons is the reward; gold only tests. Same token budget, "
                "paired seeds, contrasts fixed before the runs, Holm's correction."
            )],
            [Heading("Results"), Figure(plots.tests(s, self.folder), f"{s.name}: gold in every test.")],
            [Heading("Contrasts"), self._contrast_rows(), Paragraph(self._answer())],
            *([[Heading("Wins, preferences and success"), *measured]] if (measured := self.tables.measures(s)) else []),
            [Heading("Judge and gold"), Figure(plots.proxies(s, self.folder), f"{s.name}: gold and the judge's.")],
            [
                Heading("What it means for post-training and multi-agent systems in a company such as IBM"),
                Bullets((
                    "Post-training: audit learned judges against a gold score while training, and stop when they part.",
                    "Multi-agent systems: test with partners that were never trained with, before deploying.",
                    "Both: budgets, contrasts and tests are part of the experiment's file, not of its report.",
                )),
            ],
        ]  # fmt: skip
