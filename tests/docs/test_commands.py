"""Every `interplay` command in the documentation is one that the command line accepts, with a recipe that resolves.

Nothing is trained here; the commands of the tutorials are really run by test_tutorials.py.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from interplay.cli.main import app
from interplay.config import load
from interplay.rollout.resolve import resolve

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
PLACEHOLDER = re.compile(r"\b(RECIPE|RUN|NAME|FOLDER|FILE|OWNER|HOST|MODEL|JUDGE|COLUMN)\b|…|\[|\||\$")


def commands(page: Path) -> list[list[str]]:
    """The arguments of every command in the code blocks of a page. A line that ends with a backslash goes on."""
    found = []
    for block in BLOCK.findall(page.read_text(encoding="utf-8")):
        for line in block.replace("\\\n", " ").splitlines():
            for part in re.split(r"\s&&\s|\s\|\s|;\s|\s>\s", line.strip().removeprefix("$ ")):
                if re.match(r"(\w+=\S+ )*interplay \w", part):
                    words = shlex.split(part, comments=True)
                    found.append(words[words.index("interplay") + 1 :])
    return found


def parsed(words: list[str]) -> Any:
    """The context of the innermost command, which refuses words that it does not accept."""
    command: Any = typer.main.get_command(app)
    name, rest = "interplay", list(words)
    while hasattr(command, "commands"):
        name, *rest = rest
        assert name in command.commands, f"there is no command '{name}'"
        command = command.commands[name]
    return command.make_context(name, rest)


EVERY = [(page.relative_to(ROOT).as_posix(), words) for page in PAGES for words in commands(page)]


@pytest.mark.parametrize(("page", "words"), EVERY, ids=lambda v: v if isinstance(v, str) else " ".join(v)[:80])
def test_a_documented_command_is_accepted(page: str, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    if not any(PLACEHOLDER.search(word) for word in words if "=" not in word):
        context = parsed([word for word in words if word != "--help"])
        recipe = context.params.get("recipe")
        local = any(
            change.startswith(("env.data=", "judges=", "env.name=my", "policies.agent.base=./")) for change in words
        )
        if context.command.name in ("train", "eval") and str(recipe).startswith("recipes/") and not local:
            resolve(load(recipe, context.params["overrides"] or []), training=context.command.name == "train")


OVERLAPPING = re.compile(r"interplay prepare (?:anli|gsm8k|mbpp)\b[^\n&]*")  # published with rows in two splits


def test_a_documented_data_set_that_overlaps_is_prepared_without_those_rows() -> None:
    """Audit D5: `interplay prepare gsm8k` is refused without --drop-overlap, and so are mbpp and anli."""
    texts = [page.read_text(encoding="utf-8") for page in (*PAGES, *sorted((ROOT / "recipes").rglob("*.toml")))]
    found = [command for text in texts for command in OVERLAPPING.findall(text)]
    assert len(found) > 5 and [command for command in found if "--drop-overlap" not in command] == []


def test_commands_are_found_and_wrong_ones_are_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    text = "```bash\nA=1 interplay train R.toml \\\n    train.steps=1 && interplay view\n# interplay no\n```\n"
    page.write_text(text + "interplay no\n")
    assert commands(page) == [["train", "R.toml", "train.steps=1"], ["view"]]
    assert len(EVERY) > 60
    with pytest.raises(Exception, match="No such option"):
        parsed(["train", "R.toml", "--no-such-option"])
    with pytest.raises(AssertionError, match="no command 'trian'"):
        parsed(["trian", "R.toml"])
