"""The short pages: a workshop paper, a post and slides, made of the parts of the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from interplay.publishing.document import Bullets, Figure, Heading, PageBlock, Paragraph
from interplay.publishing.pages import CONTRASTS_SHOW, TESTS_SHOW, Pages

POST = "Teaching AI Agents to Work Together (and Compete) via RLHF"


@dataclass
class Briefs:
    """`stories` are the blocks about stories in free text, if there are any."""

    pages: Pages
    stories: Sequence[PageBlock] = ()

    def _contrasts(self) -> list[PageBlock]:
        if not self.pages.contrasts:
            return []
        name = self.pages.plots.contrasts(self.pages.contrasts)
        return [Figure(name, CONTRASTS_SHOW)]

    def paper(self) -> list[PageBlock]:
        """The blocks of the paper, about four pages."""
        pages = self.pages
        first = pages.studies[0]
        return [
            *pages.question(),
            *pages.setup(),
            pages.arms(),
            Heading("Results"),
            *pages.overview.gold(),
            *self._contrasts(),
            *pages.contrast_rows(),
            *pages.overview.labels(),
            *pages.overview.exploratory(),
            *pages.overview.measures(),
            *_under("Non-stationarity", pages.overview.steadiness()),
            Heading("Judge and gold"),
            *pages.overview.audits(),
            pages.judge_and_gold(first),
            *pages.limits(),
        ]  # fmt: skip

    def post(self) -> list[PageBlock]:
        pages = self.pages
        return [
            Paragraph(
                "A model that learns from preferences usually learns alone: it gets a prompt, it answers, and its "
                "answer is judged. People rarely work like that. We compared a learner that is trained alone with "
                "learners that are trained with other agents. A judge rewarded them, which itself was trained on noisy "
                "comparisons. Then we tested the learners with partners that they had never met."
            ),
            Heading("How we set it up"),
            Paragraph(
                "In each of our small worlds a program knows the right score, which we call gold. The reward of every "
                f"arm{pages.except_oracle} comes from the learned judge and never from gold itself. An arm is a way to "
                "train:"
            ),
            pages.arms(),
            Heading("What came out"),
            Paragraph(pages.answer()),
            *pages.overview.gold(),
            *self._contrasts(),
            *pages.overview.labels(),
            *pages.overview.exploratory(),
            *(Figure(pages.plots.tests(s), f"{s.name}: gold of every arm in every test. {TESTS_SHOW}")
              for s in pages.studies),
            *pages.overview.measures(),
            *_under("When partners change", pages.overview.steadiness()),
            Heading("When the judge's reward rises and gold falls"),
            Paragraph(
                "A learned judge only approximates gold. If a policy is optimised against it for long, the judge's "
                "reward can go on rising while gold falls. The audit that runs beside training warns when that happens."
            ),
            *map(pages.judge_and_gold, pages.studies),
            *pages.overview.audits(),
            *self.stories,
            Heading("What to take from it"),
            Bullets((
                "Watch gold beside the judge, on tasks that nobody trains on.",
                "Test with partners that were not there in training.",
                "Write the question down before the runs, and pair the seeds.",
            )),
        ]  # fmt: skip

    def _every_test(self) -> list[list[PageBlock]]:
        plots = self.pages.plots
        return [[Heading(f"Every test: {s.name}"), Figure(plots.tests(s), TESTS_SHOW)] for s in self.pages.studies]

    def _judges(self) -> list[list[PageBlock]]:
        pages = self.pages
        return [[Heading(f"Judge and gold: {s.name}"), pages.judge_and_gold(s)] for s in pages.studies]

    def slides(self) -> list[list[PageBlock]]:
        pages = self.pages
        first, settings = pages.studies[0], pages.overview.settings()
        about: list[list[PageBlock]] = [[Heading("Settings"), settings]] if settings.rows else []
        gains = "What training gains" + (", and what a learned judge costs" if pages.overview.has_oracle else "")
        learned = tuple(sentence for sentence in (pages.answer(), pages.overview.warnings()) if sentence)
        return [
            [Heading(POST, 1), Paragraph("The research question, the method, the results, and what they mean.")],
            [
                Heading("Research question"),
                Paragraph(
                    "Does a learner become better if other agents take part in RLHF, and is training harder if these "
                    "agents change?"
                ),
                pages.arms(),
            ],
            *about,
            [Heading("Method"), Bullets((
                f"The reward of every arm{pages.except_oracle} comes from a preference model that was trained on noisy "
                "comparisons.",
                "Gold is the exact score of the setting. It is recorded in training and used in the tests.",
                pages.budget(),
                f"Tests: {pages.tested()}.",
                "The contrasts were fixed before the runs. They compare two arms seed by seed, with Holm's correction "
                "over all studies.",
            )), pages.method(first)],
            *_told("Results: gold with new partners", pages.overview.gold()),
            [Heading("Results: contrasts"), *self._contrasts()],
            [Heading("What remains after correction"), Paragraph(pages.answer()), *pages.overview.labels()],
            *_told(gains, pages.overview.exploratory()),
            *self._every_test(),
            *_told("Wins, preferences and task success", pages.overview.measures()),
            *_told("Non-stationarity", pages.overview.steadiness()),
            *self._judges(),
            *_told("Judge and gold: how often the audit warned", pages.overview.audits()),
            [
                Heading("What it means for post-training and multi-agent systems in a company such as IBM"),
                Bullets((
                    *learned,
                    "Post-training: compare learned judges with a gold score during training, and stop when gold falls "
                    "while the judge's reward rises.",
                    "Multi-agent systems: before an agent is deployed, test it with partners that it has never met.",
                    "Both: write budgets, contrasts and tests into the experiment's file before the runs.",
                )),
            ],
        ]  # fmt: skip


def _under(title: str, blocks: Sequence[PageBlock]) -> list[PageBlock]:
    """The blocks under a heading; nothing if there are none."""
    return [Heading(title), *blocks] if blocks else []


def _told(title: str, blocks: Sequence[PageBlock]) -> list[list[PageBlock]]:
    """A slide for each table, with the words that explain it below."""
    return [[Heading(title), table, blocks[0]] for table in blocks[1:]]
