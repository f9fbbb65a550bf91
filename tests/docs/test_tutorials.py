"""Every command of the tutorials, and every `bash` block of the other pages, runs as written: `make test-docs`.

A page is followed from top to bottom in an empty folder that has the repository's recipes and examples. A code
block with `title="FILE"` is written to that file. A `bash` block is run, and must end with exit code 0. A block with
`title="needs …"` is only read by people: it needs a GPU, a network or another machine. One that begins with `pip
install` is run too in an environment that was made for this test (see `reader`).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]*)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
ANY = re.compile(r"^```(\w*)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = [p for p in sorted((ROOT / "docs").rglob("*.md")) if "```bash\n" in p.read_text(encoding="utf-8")]
SECONDS = 300  # for one block


def blocks(page: Path, install: bool = False) -> list[tuple[str, str, str]]:
    """Language, title and text of the code blocks that a reader would use; with `install` also those that install."""
    found = []
    for language, title, text in BLOCK.findall(page.read_text(encoding="utf-8")):
        if install and text.startswith("pip install "):
            found.append((language, "", text))
        elif not title.startswith("needs ") and (title or language == "bash"):
            found.append((language, title, text))
    return found


def reader(folder: Path) -> dict[str, str]:
    """The environment of somebody who has installed Interplay, with one thread. INTERPLAY_TEST_DOCS may name a virtual
    environment in which the wheel is installed: then nothing of the repository is used."""
    given = Path(os.environ["INTERPLAY_TEST_DOCS"])
    binaries = given / "bin" if given.is_dir() else Path(sys.executable).parent
    path = os.pathsep.join([str(binaries), os.environ["PATH"]])
    plain = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    own = {} if given.is_dir() else {"PYTHONPATH": str(ROOT / "src")}
    return {**plain, **own, "PATH": path, "OMP_NUM_THREADS": "1", "HOME": str(folder)}


@pytest.mark.skipif("INTERPLAY_TEST_DOCS" not in os.environ, reason="trains for minutes: make test-docs")
@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_a_tutorial_can_be_followed(page: Path, tmp_path: Path) -> None:
    own = Path(os.environ["INTERPLAY_TEST_DOCS"]).is_dir()
    for name in () if own else ("recipes", "examples"):
        (tmp_path / name).symlink_to(ROOT / name)
    for language, title, text in blocks(page, install=own):
        if title:
            (tmp_path / title).write_text(text, encoding="utf-8")
        elif language == "bash":
            ran = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", text], cwd=tmp_path, env=reader(tmp_path), text=True,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, timeout=SECONDS,
            )  # fmt: skip
            assert ran.returncode == 0, f"{page.name}: exit code {ran.returncode} of\n{text}\n{ran.stdout[-3000:]}"


COMMAND = re.compile(r"^(?:\$ )?(?:\w+=\S+ )*(?:interplay|python|pip|make|ray|sbatch|kubectl) ", re.MULTILINE)


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda p: p.stem)
def test_every_command_is_run_or_says_what_it_needs(page: Path) -> None:
    """A block of commands without a language would be neither."""
    silent = [text for language, _, text in ANY.findall(page.read_text(encoding="utf-8")) if not language]
    assert [text for text in silent if COMMAND.search(text)] == []


def test_the_blocks_of_a_page_are_told_apart(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        '```bash\nls\n```\n```bash title="needs a GPU"\nrm\n```\n```toml title="a.toml"\nb = 1\n```\n```\nseen\n```\n'
        '```bash title="needs a network"\npip install c\n```\n',
        encoding="utf-8",
    )
    run = [("bash", "", "ls\n"), ("toml", "a.toml", "b = 1\n")]
    assert blocks(page) == run and blocks(page, install=True) == [*run, ("bash", "", "pip install c\n")]


MARKED = re.compile(r'^```bash title="needs [^"]*"\n(.*?)^```$(.*?)(?=^#|^```bash|\Z)', re.MULTILINE | re.DOTALL)
TOLD = re.compile(r"\bnot run\b|\bnever been used\b|\bshows what\b|^\||\*\*[\d.]+ \(", re.MULTILINE)


def silent(text: str) -> list[str]:
    """The commands of a page that no test runs and that lack an explanation after them. An explanation is what was seen
    (an output, a table, a result, a link to one), or a sentence that says that they were not run. Commands that install
    are left out, because `make test-wheel` runs them."""
    return [
        commands
        for commands, after in MARKED.findall(text)
        if not commands.startswith("pip install ")
        and not TOLD.search(after)
        and all(language for language, _, _ in ANY.findall(after))
    ]


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda p: p.stem)
def test_a_command_that_no_test_runs_has_what_was_seen_or_was_not_run(page: Path) -> None:
    assert silent(page.read_text(encoding="utf-8")) == []


def test_a_command_without_an_output_is_found() -> None:
    marked = '```bash title="needs a GPU"\nls\n```\n'
    assert silent(marked + "Words.\n```toml\na = 1\n```\n## Next\n```\nseen\n```\n") == ["ls\n"]
    assert silent(marked + "It printed:\n```\nseen\n```\n") == []
    assert silent(marked + "This was not run, because there was none.\n") == []
