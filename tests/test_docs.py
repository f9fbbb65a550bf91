"""The documentation is complete: links lead somewhere, pages are in the navigation, means are over all seeds."""

from __future__ import annotations

import re
import runpy
import unicodedata
from functools import cache
from pathlib import Path

import pytest
import yaml

from interplay.evaluation.intervals import mean

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
FENCE = re.compile(r"^(`{3,}|~{3,}).*?^\1\s*$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[[^\]]*\]\(\s*<?([^)\s>]+)>?[^)]*\)")
HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*\s*$", re.MULTILINE)


def prose(page: Path) -> str:
    """The page without its code blocks."""
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def site_anchor(heading: str) -> str:
    """The anchor as Python-Markdown, which builds the site, names it."""
    ascii_only = unicodedata.normalize("NFKD", heading).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", ascii_only).strip().lower())


def hub_anchor(heading: str) -> str:
    """The anchor as GitHub names it, where the same files are read."""
    return re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower())


@cache
def anchors(page: Path) -> frozenset[str]:
    """The anchors that lead to the same heading on the site and on GitHub."""
    headings = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", h).replace("`", "") for h in HEADING.findall(prose(page))]
    return frozenset(site_anchor(h) for h in headings) & frozenset(hub_anchor(h) for h in headings)


def broken(page: Path, link: str) -> str | None:
    """Why a link of a page leads nowhere; None if it is correct."""
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    if not target.exists():
        return f"{link}: there is no such file"
    if anchor and target.suffix == ".md" and anchor not in anchors(target):
        return f"{link}: {target.name} has no heading with this anchor"
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_every_relative_link_and_anchor_exists(page: Path) -> None:
    links = [link for link in LINK.findall(prose(page)) if not re.match(r"[a-z][a-z+.-]*:", link)]
    links = [link for link in links if not link.startswith("live/")]  # made by `make docs`
    assert [why for why in (broken(page, link) for link in links) if why] == []


def test_no_page_loads_anything_from_another_host() -> None:
    """A Mermaid block would: the site's theme fetches its script. Drawings are stored as SVG."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert "```mermaid" not in text and not re.search(r'<(script|img|iframe)[^>]*src="https?:', text), page
        assert not re.search(r"!\[[^\]]*\]\(https?:", text), page
    for drawing in DOCS.rglob("*.svg"):
        published = (drawing.parent / "numbers.json").is_file()  # a plot that interplay publish has drawn
        assert published or drawing.with_suffix(".mmd").is_file(), drawing
        assert "<script" not in drawing.read_text(encoding="utf-8")


def test_a_link_that_leads_nowhere_is_found() -> None:
    assert broken(DOCS / "index.md", "nothing.md") and broken(DOCS / "index.md", "recipe.md#nothing")
    assert broken(DOCS / "index.md", "recipe.md#train") is None


class Plain(yaml.SafeLoader):
    """Reads mkdocs.yml without its Python objects."""


Plain.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: suffix)


def leaves(tree: object) -> list[str]:
    if isinstance(tree, str):
        return [tree]
    parts = tree.values() if isinstance(tree, dict) else tree
    return [leaf for part in parts for leaf in leaves(part)]  # type: ignore[union-attr]


def test_every_page_is_in_the_navigation_once() -> None:
    """The navigation is the part `nav` of mkdocs.yml: a new page needs a line there."""
    listed = leaves(yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Plain)["nav"])
    assert sorted(listed) == sorted(p.relative_to(DOCS).as_posix() for p in DOCS.rglob("*.md"))


def test_the_pages_of_commands_and_algorithms_are_current() -> None:
    """`python docs/reference.py` generates them."""
    reference = runpy.run_path(str(DOCS / "reference.py"))
    for name, make in reference["PAGES"].items():
        assert make() == (DOCS / name).read_text(encoding="utf-8"), f"docs/{name} is old: python docs/reference.py"


# -- figures of several seeds -----------------------------------------------------------------------------------------

LEARNING = (DOCS / "learning.md").read_text(encoding="utf-8")
SUMMARY = re.findall(r"^\| `([\w/]+)`[^|]*\| (\d[^|]*?) \| (\d[^|]*?) \|$", LEARNING, re.MULTILINE)


def of_seeds(recipe: str, stage: str) -> list[float]:
    """What a recipe reached in each seed: the share of wins, or of draws against the perfect player, in percent."""
    name = recipe.replace("/", "-")
    runs = re.split(r"^(?=\S+, seed \d)|^```$", LEARNING, flags=re.MULTILINE)
    row = re.compile(rf"^(?:team +team|bot:minimax +all) +{stage} +([\d.]+) \(\S+\) +([\d.]+)", re.MULTILINE)
    return [float(row.findall(run)[0]["minimax" in recipe]) for run in runs if run.startswith(f"{name}, seed")]


@pytest.mark.parametrize(("recipe", "before", "after"), SUMMARY)
def test_a_learning_result_is_the_mean_over_all_seeds_and_the_readme_says_the_same(
    recipe: str, before: str, after: str
) -> None:
    """Not the best seed, and not the first one. The scores of Hanabi are in sentences, so only README is compared."""
    if "hanabi" not in recipe:
        for stage, shown in (("before", before), ("after", after)):
            numbers = of_seeds(recipe, stage)
            found = mean(numbers)
            assert len(numbers) == 3 and shown == f"{found.value:.1f} ± {found.high - found.value:.1f}%"
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"{before.rstrip('%')} → {after}" in readme


def test_every_learning_result_of_the_readme_names_its_seeds() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    table = readme.partition("## What it learns")[2].partition("\n## ")[0]
    rows = [row.strip("|").split("|") for row in table.splitlines() if row.startswith("| `")]
    assert len(rows) >= 7 and len(SUMMARY) == 6
    for *_, result, seeds in rows:
        assert re.fullmatch(r" [2-9]( each)? " if "±" in result else r" one run ", seeds)
