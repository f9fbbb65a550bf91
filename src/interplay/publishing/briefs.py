"""The short pages: a workshop paper, a post and slides, made of the parts of the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from interplay.publishing.document import Bullets, Figure, Heading, PageBlock, Paragraph
from interplay.publishing.pages import Pages

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
        return [Figure(name, "Differences of gold with new partners: means and intervals over paired seeds.")]

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
            Heading("Non-stationarity"),
            *pages.overview.steadiness(),
            Heading("Judge and gold"),
            *pages.overview.audits(),
            Figure(pages.plots.proxies(first), f"{first.name}: gold and the judge's reward, each on its own scale."),
            *pages.limits(),
        ]  # fmt: skip

    def post(self) -> list[PageBlock]:
        pages = self.pages
        first = pages.studies[0]
        return [
            Paragraph(
                "A model that learns from preferences usually learns alone: a prompt, an answer, a judgement. People "
                "rarely work like that. We let a learner work with partners who react, change and learn. A judge that "
                "was itself learned from noisy opinions rewarded it. Then we looked at what the learner could do with "
                "partners it had never met."
            ),
            Heading("How we set it up"),
            Paragraph(
                "There are small worlds in which a program knows the right score, which we call gold. The learner "
                "never sees gold in its reward (except in one arm, for reference). Each arm is a way to train:"
            ),
            pages.arms(),
            Heading("What came out"),
            Paragraph(pages.answer()),
            *pages.overview.gold(),
            *self._contrasts(),
            *pages.overview.labels(),
            *pages.overview.exploratory(),
            *(Figure(pages.plots.tests(s), f"{s.name}: every arm in every test; points are seeds.")
              for s in pages.studies),
            *pages.overview.measures(),
            Heading("When partners change"),
            *pages.overview.steadiness(),
            Heading("When the judge is pleased and the work is not"),
            Paragraph(
                "A learned judge is a stand-in. If a policy is optimised against it for long, its reward can go on "
                "rising while the real score falls. The audit that runs beside training warns when that happens."
            ),
            Figure(pages.plots.proxies(first), f"{first.name}: the real score and the judge's reward."),
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
        return [
            [Heading(f"Every test: {s.name}"), Figure(plots.tests(s), "Points are seeds.")] for s in self.pages.studies
        ]

    def slides(self) -> list[list[PageBlock]]:
        pages = self.pages
        first = pages.studies[0]
        return [
            [Heading(POST, 1), Paragraph("The research question, the method, the results, and what they mean.")],
            [
                Heading("Research question"),
                Paragraph("Does RLHF gain from other agents that take part, and what does it cost when they change?"),
                pages.arms(),
            ],
            [Heading("Settings"), pages.overview.settings()],
            [Heading("Method"), Bullets((
                "The reward is a preference model, learned from noisy comparisons; gold only tests.",
                "All arms of a study have the same budget of tokens sampled by the learner.",
                "Every arm is tested alone, with partners it has met, and with new ones.",
                "Paired seeds; contrasts fixed before the runs; Holm's correction over all studies.",
            )), pages.method(first)],
            *_told("Results: gold with new partners", pages.overview.gold()),
            [Heading("Results: contrasts"), *self._contrasts()],
            [Heading("What remains after correction"), Paragraph(pages.answer()), *pages.overview.labels()],
            *_told("Training, and what a learned judge costs", pages.overview.exploratory()),
            *self._every_test(),
            *_told("Wins, preferences and task success", pages.overview.measures()),
            *_told("Non-stationarity", pages.overview.steadiness()),
            [Heading("Judge and gold"), Figure(pages.plots.proxies(first), f"{first.name}: gold and the judge's.")],
            *_told("Judge and gold: how often the audit warned", pages.overview.audits()),
            [
                Heading("What it means for post-training and multi-agent systems in a company such as IBM"),
                Bullets((
                    "Post-training: audit learned judges against a gold score while training, and stop when they part.",
                    "Multi-agent systems: before deploying, test with partners that were never trained with.",
                    "Both: budgets, contrasts and tests are part of the experiment's file, not of its report.",
                )),
            ],
        ]  # fmt: skip


def _told(title: str, blocks: Sequence[PageBlock]) -> list[list[PageBlock]]:
    """A slide for each table, with the words that explain it below."""
    return [[Heading(title), table, blocks[0]] for table in blocks[1:]]
