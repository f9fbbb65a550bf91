"""Writes the pages of commands and algorithms from the code: python docs/reference.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer.core
import typer.main

from interplay import algorithms
from interplay.cli.listing import algorithm_page
from interplay.cli.main import app

HERE = Path(__file__).parent
MADE = "Printed by `python docs/reference.py`."


def option(parameter: Any) -> str:
    """A row for an argument or option."""
    named = parameter.param_type_name == "option"
    names = ", ".join(
        f"`{name}`" for name in (parameter.opts if named else [parameter.metavar or parameter.name.upper()])
    )
    text = " ".join((getattr(parameter, "help", None) or "").split())
    return f"| {names} | {text.replace('|', chr(92) + '|')} |"


def command(name: str, given: Any) -> list[str]:
    """The section of a command, or of each command of a group."""
    if hasattr(given, "commands"):
        return [line for part, inner in given.commands.items() for line in command(f"{name} {part}", inner)]
    help_text = "\n".join(line.strip() for line in (given.help or "").replace("\b", "").strip().splitlines())
    rows = [option(p) for p in given.params if p.name not in ("help", "version") and not getattr(p, "hidden", False)]
    table = ["| | |", "|---|---|", *rows, ""] if rows else []
    return [f"## {name}", "", help_text, "", *table]


def commands() -> str:
    """docs/commands.md."""
    top = typer.main.get_command(app)
    assert isinstance(top, typer.core.TyperGroup)
    body = [line for name, given in top.commands.items() for line in command(f"interplay {name}", given)]
    head = ["# Commands", "", f"{MADE} `interplay COMMAND --help` prints the same.", ""]
    return "\n".join([*head, *body]).rstrip() + "\n"


def rules() -> str:
    """docs/algorithm_pages.md."""
    parts = [
        f"## {name}\n\n```\n{algorithm_page(name).replace(chr(92) + '[', '[').strip()}\n```\n"
        for name in algorithms.known()
    ]
    more = "`interplay algorithms NAME` prints one of them. Which one solves what: [algorithms.md](algorithms.md)."
    return f"# Every algorithm\n\n{MADE} {more}\n\n" + "\n".join(parts)


PAGES = {"commands.md": commands, "algorithm_pages.md": rules}

if __name__ == "__main__":
    for page, make in PAGES.items():
        (HERE / page).write_text(make(), encoding="utf-8")
