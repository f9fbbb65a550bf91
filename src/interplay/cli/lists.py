"""The commands that list what there is: recipes, runs, envs, bots, algorithms, keys and models."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from interplay.cli.effect import refuse_unused

app = typer.Typer()
console = Console()
TRAIN, PANEL = "Train and look", "What there is"  # groups of commands in the help


@app.command(rich_help_panel=PANEL)
def recipes(
    name: Annotated[str | None, typer.Argument(help="Print one recipe, such as tictactoe/demo.")] = None,
) -> None:
    """List the recipes that come with the package, or print one of them.

    interplay recipes tictactoe/demo > my.toml

    interplay train my.toml
    """
    from interplay.cli.catalogue import recipe_table, recipe_text

    if name:
        typer.echo(recipe_text(name), nl=False)
    else:
        console.print(recipe_table())


@app.command(rich_help_panel=TRAIN)
def runs(
    folders: Annotated[
        list[Path] | None, typer.Argument(help="Run folders, or folders that hold them; default runs.")
    ] = None,
) -> None:
    """List runs in the terminal, the newest first: how far each is, whether it is training or was stopped, its reward
    and its wins."""
    from interplay.cli.catalogue import run_table

    console.print(run_table(folders or [Path("runs")]))


@app.command(rich_help_panel=PANEL)
def envs(
    context: typer.Context,
    name: Annotated[
        str | None, typer.Argument(help="Show one environment's page, or an adapter's and its games.")
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="All pages, as docs/environments.md has them.")] = False,
) -> None:
    """List the environments, or show one's rules, actions, rewards and options."""
    from interplay.cli.listing import env_markdown, env_page, env_table

    if markdown:
        refuse_unused(context, "name", "with --markdown, which prints all pages")
        typer.echo(env_markdown(), nl=False)
    else:
        console.print(env_page(name) if name else env_table())


@app.command(rich_help_panel=PANEL)
def bots() -> None:
    """List the scripted players."""
    from interplay.cli.listing import bot_table

    console.print(bot_table())


@app.command(rich_help_panel=PANEL)
def algorithms(name: Annotated[str | None, typer.Argument(help="Show one algorithm's page.")] = None) -> None:
    """List the algorithms with what each needs and a recipe that runs, or show one's page and settings."""
    from interplay.cli.listing import algorithm_page, algorithm_table

    console.print(algorithm_page(name) if name else algorithm_table())


@app.command(rich_help_panel=PANEL)
def keys(
    context: typer.Context,
    section: Annotated[str | None, typer.Argument(help="Show only this section, such as train.")] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="All of them, as docs/recipe.md has them.")] = False,
) -> None:
    """List every key of a recipe, with its default and what it does."""
    from interplay.cli.listing import keys_markdown, keys_page

    if markdown:
        refuse_unused(context, "section", "with --markdown, which prints all keys")
        typer.echo(keys_markdown(), nl=False)
    else:
        console.print(keys_page(section), highlight=False, soft_wrap=True)


@app.command(rich_help_panel=PANEL)
def models(
    context: typer.Context,
    save: Annotated[str | None, typer.Option(help="Save this model as a Hugging Face folder (with --to).")] = None,
    to: Annotated[Path | None, typer.Option(help="Where --save writes.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of tiny's random weights.")] = 0,
) -> None:
    """List what a policy's base can be, or save one as an ordinary Hugging Face folder."""
    from interplay.cli.listing import model_table, save_model

    if save:
        if not save.startswith("tiny"):
            refuse_unused(context, "seed", f"on '{save}', whose weights are not random")
        save_model(console, save, to, seed)
    else:
        refuse_unused(context, "to seed", "without --save", "add --save MODEL")
        console.print(model_table())
