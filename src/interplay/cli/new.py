"""`interplay new`: writes the files of a working environment, algorithm or recipe, which the user then changes."""

from __future__ import annotations

import keyword
import re
import shlex
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from interplay.errors import ConfigError

console = Console()
TEMPLATES = Path(__file__).parent / "templates"
_NAME = re.compile(r"[a-z][a-z0-9_]*")


class Start(StrEnum):
    """What `interplay new` can write."""

    ENV = "env"
    ALGORITHM = "algorithm"
    RECIPE = "recipe"


# For each file: its template and its name.
_FILES: dict[Start, dict[str, str]] = {
    Start.ENV: {"env.py": "{name}.py", "test_env.py": "test_{name}.py", "env.toml": "{name}.toml"},
    Start.ALGORITHM: {
        "algorithm.py": "{name}.py",
        "test_algorithm.py": "test_{name}.py",
        "algorithm.toml": "{name}.toml",
    },
    Start.RECIPE: {"recipe.toml": "{name}.toml"},
}


def new(
    what: Annotated[Start, typer.Argument(help="env, algorithm or recipe.")],
    name: Annotated[str, typer.Argument(help="Its name: small letters, digits and _.")],
    to: Annotated[Path, typer.Option(help="The folder to write to.")] = Path(),
) -> None:
    """Write a working environment or algorithm, with a test and a recipe, or only a recipe, for you to change.

    interplay new env my_game
    """
    for path in write(what, name, to):
        console.print(path, highlight=False, soft_wrap=True)
    cls = class_name(name)
    inside = "" if to == Path() else f"cd {shlex.quote(str(to))} && "
    lines = [f"{inside}interplay train {name}.toml"]
    if what is not Start.RECIPE:
        missing = "" if find_spec("pytest") is not None else "pip install pytest && "
        lines.insert(0, f"{inside}{missing}python -m pytest test_{name}.py")
    if what is Start.ENV:
        lines.insert(0, f"{inside}interplay check {name}:{cls}")
    console.print("next:  " + "\n       ".join(lines), highlight=False, soft_wrap=True)


def class_name(name: str) -> str:
    """Return the class name for a name: my_game → MyGame."""
    return "".join(part.capitalize() for part in name.split("_"))


def write(what: Start, name: str, folder: Path) -> list[Path]:
    """Write the files and return their paths. Existing files are not overwritten."""
    from jinja2 import Environment, StrictUndefined

    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        raise ConfigError(f"the name is '{name}'; expected small letters, digits and _, such as my_game.")
    files = {template: folder / file.format(name=name) for template, file in _FILES[what].items()}
    for path in files.values():
        if path.exists():
            raise ConfigError(f"'{path}' already exists; choose another name, or another folder with --to.")
    folder.mkdir(parents=True, exist_ok=True)
    pages = Environment(undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False)
    for template, path in files.items():
        text = (TEMPLATES / f"{template}.txt").read_text(encoding="utf-8")
        path.write_text(pages.from_string(text).render(name=name, cls=class_name(name)), encoding="utf-8")
    return list(files.values())
