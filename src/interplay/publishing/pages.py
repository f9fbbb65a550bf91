"""The report about studies, and the parts that the shorter pages share. Every statement about results is made from the
results themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

from interplay.publishing.document import Bullets, Figure, Heading, PageBlock, Paragraph, TableBlock
from interplay.publishing.facts import Facts
from interplay.publishing.overview import Overview
from interplay.publishing.plots import Plots
from interplay.publishing.repeat import commands
from interplay.publishing.results import SEATED, Contrast, Results, holm, in_words
from interplay.publishing.tables import StudyTables

REPORT = "Single-agent and multi-agent RLHF with learned judges"
ARMS = {
    "single": "the learner alone in a fixed situation",
    "single-replayed": "with recorded turns of the same partners, which do not react to the learner",
    "multi-fixed": "with one partner that reacts to the learner",
    "multi-shifting": "with partners that change by a schedule",
    "context-learns": "with a partner that learns too",
    "judge-learns": "with a judge that goes on learning",
    "oracle": "with gold itself as the reward; this is a reference and not a method",
}
TESTS = {
    "alone": "the learner plays alone",
    "seen": "at least one arm was trained with them",
    "unseen": "line-ups that no arm was trained with",
}
CONTRASTS_SHOW = (
    "The contrasts: each mark is a mean difference over paired seeds, with its 95% interval. A mark is filled if the "
    "difference is significant after correction."
)
TESTS_SHOW = "A point is one seed, a diamond is a mean, and a line is a 95% interval."
CURVES_SHOW = "A line is the mean over seeds, and its band reaches from the lowest to the highest seed."
_EVEN = 1.1  # budgets count as equal if the largest is at most so many times the smallest
_ASKED = {
    ("multi-fixed", "single"): "does a partner help",
    ("multi-fixed", "single-replayed"): "does it matter that the partner reacts",
    ("multi-shifting", "multi-fixed"): "does it matter that partners change",
    ("context-learns", "multi-fixed"): "does it matter that the partner learns",
    ("judge-learns", "multi-fixed"): "does it matter that the judge goes on learning",
}


@dataclass
class Pages:
    studies: Sequence[Results]
    facts: Facts
    folder: Path

    def __post_init__(self) -> None:
        self.plots = Plots(self.folder)
        self.contrasts = holm([c for s in self.studies for c in s.contrasts()])
        self.tables, self.overview = StudyTables(self.facts), Overview(self.studies, self.facts)
        self.facts.constant("95%", "the level of every interval (evaluation/intervals.py)")
        self.facts.constant("0.001", "smaller p-values are not printed (publishing/pages.py)")
        self.facts.constant("0.05", "the level at which a corrected p-value counts (publishing/results.py)")

    # -- parts ----------------------------------------------------------------------------------------------------

    def tests(self, s: Results) -> TableBlock:
        rows = []
        for arm in s.arms:
            sources = [r.path for r in s.runs if r.arm == arm]
            cells = [self.facts.interval(s.estimate(arm, test), ".3f", *sources) for test in s.about["tests"]]
            rows.append((arm, *cells))
        return TableBlock(("arm", *(SEATED.get(test, test) for test in s.about["tests"])), tuple(rows))

    def spread(self, s: Results) -> list[PageBlock]:
        """The spread over seeds and the number of alarms of the audit, with the words that explain them."""
        rows = []
        for arm in s.arms:
            runs = [r for r in s.runs if r.arm == arm]
            paths = [r.path for r in runs]
            last = list(s.values(arm, list(s.about["tests"])[-1], s.about["gold"]).values())
            say = self.facts.say
            spread = say(stdev(last), ".3f", *paths) if len(last) > 1 else "n/a"
            rows.append((arm, spread, self.overview.warned(s, arm)))
        last_test = list(s.about["tests"])[-1]
        told = (
            f"Each seed of an arm has a gold score {in_words(last_test)}. The spread is the standard deviation of "
            "these scores. The audit warns in a run when gold falls below its best value while the judge's reward "
            "rises."
        )
        return [Paragraph(told), TableBlock(("arm", "spread over seeds", "runs with a warning"), tuple(rows))]

    def cost(self, s: Results) -> list[PageBlock]:
        """What the training of each arm cost, with the words that explain it."""
        rows, say = [], self.facts.say
        for arm in s.arms:
            runs = [r for r in s.runs if r.arm == arm]
            paths = [r.path for r in runs]
            logs = [path.parent / "metrics.jsonl" for path in paths]
            judged = fmean(sum(row.get("judge_tokens", 0.0) for row in r.metrics()) for r in runs)
            learner, everybody, steps, labels = (
                say(round(fmean(r.data["counts"][key] for r in runs)), ",", *paths)
                for key in ("learner_tokens", "all_tokens", "steps", "labels")
            )
            rows.append((arm, learner, everybody, say(round(judged), ",", *logs), steps, labels))
        told = (
            "This table shows what training cost (means over seeds). Tokens are sampled tokens; a judge that is a "
            "reward model samples none. A step trains the learner on one batch of episodes, with one or more updates "
            "of its weights. Labels are the comparisons that the judge learned from."
        )
        header = ("arm", "learner's tokens", "tokens of all policies", "tokens of judges", "steps", "labels")
        return [Paragraph(told), TableBlock(header, tuple(rows))]

    def contrast_rows(self) -> list[PageBlock]:
        """What was asked before the runs, and the answers."""
        rows, say = [], self.facts.say
        for c in self.contrasts:
            at = next(s.folder for s in self.studies if s.name == c.study)
            p = "under 0.001" if c.corrected < 0.001 else say(c.corrected, ".3f", at)
            difference = self.facts.interval(c.difference, "+.3f", at)
            rows.append((c.study, f"{c.first} minus {c.second}", c.where, difference, say(c.seeds, "d", at), p))
        used = dict.fromkeys((c.first, c.second) for c in self.contrasts)
        asked = "; ".join(f"{_ASKED[pair]} ({pair[0]} minus {pair[1]})" for pair in used if pair in _ASKED)
        table = TableBlock(("study", "contrast", "measure", "difference", "seeds", "p after Holm"), tuple(rows))
        return [Paragraph(f"The contrasts ask these questions: {asked}."), table] if asked else [table]

    def sentences(self) -> list[str]:
        return [f"In {c.study}, {c.sentence}." for c in self.contrasts if c.corrected < 0.05]

    def answer(self) -> str:
        """Return one sentence about all contrasts."""
        sure: list[Contrast] = [c for c in self.contrasts if c.corrected < 0.05]
        if not self.contrasts or max(c.seeds for c in self.contrasts) < 2:
            return "Each arm has one run so far, so nothing can be said about differences between arms."
        total = self.facts.say(len(self.contrasts), "d", "the contrasts of the studies")
        several = len(self.contrasts) > 1
        planned = "differences between two arms (contrasts) were" if several else "difference between two arms was"
        planned = f"Before the runs, {total} {planned} written down."
        if not sure:
            none = "None of them is" if several else "It is not"
            return f"{planned} {none} significant after correction."
        count = self.facts.say(len(sure), "d", "the contrasts of the studies")
        by_study: dict[str, list[str]] = {}
        for c in sure:
            by_study.setdefault(c.study, []).append(f"{c.first} {c.verdict} {c.second}")
        listed = "; ".join(f"in {study}, {', '.join(found)}" for study, found in by_study.items())
        found = f"{count} of them {'are' if len(sure) > 1 else 'is'}" if several else "it is"
        return f"{planned} After Holm's correction, {found} significant: {listed}."

    def budget(self) -> str:
        """How long the runs were. A run ends at its budget of tokens, or at its last step if that comes first."""
        uneven = []
        for s in self.studies:
            spent = [run.data["counts"]["learner_tokens"] for run in s.runs]
            if max(spent) > _EVEN * min(spent):
                low, high = (self.facts.say(n, ",", *(r.path for r in s.runs)) for n in (min(spent), max(spent)))
                uneven.append(f"{low} to {high} in {s.name}")
        if not uneven:
            return "All arms of a study have the same budget: the number of tokens that the learner samples."
        return f"The learners of a study did not all sample the same number of tokens: {', '.join(uneven)}."

    def arms(self) -> Bullets:
        seen = dict.fromkeys(arm for s in self.studies for arm in s.arms)
        return Bullets(tuple(f"{arm}: {ARMS.get(arm, 'see the study file')}" for arm in seen))

    def tested(self) -> str:
        """The names of all tests, with what they are."""
        names = dict.fromkeys(test for s in self.studies for test in s.about["tests"])
        return "; ".join(f"{SEATED[name]} ({TESTS[name]})" if name in TESTS else name for name in names)

    def method(self, s: Results) -> Paragraph:
        """What is special about one study."""
        count = len({r.seed for r in s.runs})
        seeds = f"the same {self.facts.say(count, 'd', s.folder / 'study.json')} seeds" if count > 1 else "one seed"
        games = self.facts.say(s.about["games"], "d", s.folder / "study.json")
        best, bound = s.about["best"], ""
        if best == "task":
            bound = " The highest possible score is computed for each task, and regret is the distance to it."
        elif best is not None:
            most = self.facts.say(best, ".1f", s.folder / "study.json")
            bound = f" The highest possible score is {most}, and regret is the distance to it."
        return Paragraph(
            f"In study `{s.name}`, every arm was trained with {seeds}. Every arm is tested on {games} "
            "tasks of the test split with each line-up of partners. The score is the gold score of the environment."
            f"{bound}"
        )

    def judge_and_gold(self, s: Results) -> Figure:
        return Figure(
            self.plots.proxies(s),
            f"{s.name}: gold and the judge's reward in training, each on its own scale (means over seeds).",
        )

    # -- pages ----------------------------------------------------------------------------------------------------

    def question(self) -> list[PageBlock]:
        return [
            Heading("Question"),
            Paragraph(
                "A language model can be trained on preferences alone or together with other agents. Does it learn "
                "better with other agents, and is training harder if these agents change? In every episode, the other "
                "agents (context agents) create a situation, the learner answers, and a judge says which answer it "
                "prefers. The judge itself was trained on noisy comparisons."
            ),
            Paragraph(self.answer()),
        ]

    def setup(self) -> list[PageBlock]:
        """The method, for all studies."""
        out: list[PageBlock] = [
            Heading("Method"),
            Paragraph(
                f"In every arm{self.except_oracle}, the reward comes from a preference model. It was trained with a "
                "Bradley-Terry loss on a limited number of comparisons. A simulated rater makes the comparisons: it "
                "prefers the reply with the higher gold score, and sometimes errs at random. The learner's reward "
                f"never contains gold itself{self.except_oracle_arm}. In training, gold is only recorded beside the "
                "judge's reward. In the tests, gold is the score, and every run is tested once. "
                f"{self.budget()} The contrasts were written down before the runs. They compare two arms seed by "
                "seed, and Holm's method corrects them for the number of contrasts in all studies. A contrast is "
                "significant if its corrected p-value is under 0.05. Intervals are 95% intervals over seeds, by "
                "Student's distribution. With few seeds they are wide, and can reach beyond the possible values of a "
                "measure."
            ),
        ]
        out.append(Paragraph(f"The tests are: {self.tested()}."))
        settings = self.overview.settings()
        return [*out, settings] if settings.rows else out

    @property
    def except_oracle(self) -> str:
        """The words that exclude the arm with gold as its reward, if there is one."""
        return " except the oracle" if self.overview.has_oracle else ""

    @property
    def except_oracle_arm(self) -> str:
        return " (except in the oracle arm)" if self.overview.has_oracle else ""

    def report(self) -> list[PageBlock]:
        """All blocks of the report."""
        out = [*self.question(), *self.setup(), self.arms(), *map(self.method, self.studies)]
        out += [Heading("Results"), *self.overview.gold()]
        if self.contrasts:
            out += [Figure(self.plots.contrasts(self.contrasts), CONTRASTS_SHOW)]
        out += self.contrast_rows()
        if found := self.sentences():
            out.append(Bullets(tuple(found)))
        out += [*self.overview.labels(), *self.overview.exploratory()]
        for s in self.studies:
            out += [
                Heading(f"Study {s.name}", 3),
                self.tests(s),
                Figure(self.plots.tests(s), f"{s.name}: gold of every arm in every test. {TESTS_SHOW}"),
                Figure(self.plots.curves(s), f"{s.name}: gold in training. {CURVES_SHOW}"),
                Figure(
                    self.plots.curves(s, "all"),
                    f"{s.name}: gold in training again, against the tokens of all policies and judges.",
                ),
                self.judge_and_gold(s),
                *self.spread(s),
                *self.cost(s),
                *self.tables.report(s),
            ]
        return [*out, *self.limits()]

    def _models(self) -> str:
        """The beginning of a sentence about the learners' models. Their names are in the recipes of the runs."""
        runs = [run for s in self.studies for run in s.runs]
        bases = {str(p["base"]): run.path for run in runs for p in run.about()["recipe"]["policies"].values()}
        if all(base.startswith("tiny") for base in bases):
            return "Learners and judges are tiny models with random weights at the start,"
        names = [self.facts.constant(base, str(path)) for base, path in sorted(bases.items())]
        return f"Learners and judges begin with the weights of {' and '.join(names)},"

    def limits(self) -> list[PageBlock]:
        return [
            Heading("Limits"),
            Paragraph(
                f"{self._models()} and the settings are so small that gold is exact. The results show how the method "
                "behaves, and not how large models behave. Budgets are small, so an arm that learns slowly can look "
                "like one that does not learn. A contrast that is not significant does not show that two arms are "
                "equal: its interval shows which differences remain possible."
            ),
            Heading("How to repeat it"),
            Bullets(tuple(commands(self.studies))),
        ]
