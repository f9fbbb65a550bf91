"""Writes the results of studies: a report (Markdown and HTML in full, a PDF of about four pages), a post (HTML) and
slides (HTML, PDF)."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

from interplay.errors import DataError
from interplay.publishing.briefs import POST, Briefs
from interplay.publishing.document import Figure, Heading, to_html, to_markdown, to_slides, to_text, write_pdf
from interplay.publishing.facts import Facts
from interplay.publishing.pages import REPORT, Pages
from interplay.publishing.results import Results
from interplay.publishing.stories import stories


def studies_in(runs: Path) -> list[Results]:
    """Return the studies in a folder that `interplay experiment` has written. The folder may also be a single study."""
    if (runs / "study.json").is_file():
        return [Results.read(runs)]
    found = sorted(path.parent for path in runs.glob("*/study.json"))
    if not found:
        raise DataError(f"'{runs}' holds no studies; expected the --out folder of interplay experiment.")
    return [Results.read(folder) for folder in found]


def publish(runs: Path, to: Path) -> list[Path]:
    """Write every page, and numbers.json with the source of each number."""
    found = studies_in(runs)
    to.mkdir(parents=True, exist_ok=True)  # only now: a wrong RUNS must not leave a folder of its name
    facts = Facts()
    pages = Pages(found, facts, to)
    told = stories(runs, facts)
    briefs = Briefs(pages, told)
    report, paper, post, slides = [*pages.report(), *told], briefs.paper(), briefs.post(), briefs.slides()
    written = {"the report": report, "the paper": paper, "the post": post, "the slides": list(chain(*slides))}
    for name, blocks in written.items():
        facts.check(to_text(blocks), name)
    (to / "report.md").write_text(to_markdown(REPORT, report), encoding="utf-8")
    (to / "report.html").write_text(to_html(REPORT, report, to), encoding="utf-8")
    (to / "post.html").write_text(to_html(POST, post, to), encoding="utf-8")
    (to / "slides.html").write_text(to_slides(POST, slides, to), encoding="utf-8")
    write_pdf(to / "report.pdf", REPORT, [[Heading(REPORT, 1), *paper]], to)
    write_pdf(to / "slides.pdf", POST, slides, to, slides=True)
    for figure in {b.name for blocks in written.values() for b in blocks if isinstance(b, Figure)}:
        (to / f"{figure}.png").unlink()  # only the PDFs need it
    facts.write(to / "numbers.json", runs)
    names = ("report.md", "report.html", "report.pdf", "post.html", "slides.html", "slides.pdf", "numbers.json")
    return [to / name for name in names]
