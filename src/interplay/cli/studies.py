"""The commands of studies: experiment and publish."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

app = typer.Typer()
console = Console()
PANEL = "Studies and clusters"  # the group of these commands in the help


@app.command(rich_help_panel=PANEL)
def experiment(
    studies: Annotated[
        list[str], typer.Argument(help="Files of studies, and changes to the recipe of every arm, a.b=c.")
    ],
    out: Annotated[Path, typer.Option(help="The folder of the runs.")] = Path("runs/experiment"),
    jobs: Annotated[int, typer.Option(help="Runs and arenas side by side, each on one thread.", min=1)] = 1,
    seconds: Annotated[
        float | None, typer.Option(help="Stop after this time, at the next step of each run; call again to go on.")
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="Use only this many of each study's seeds.", min=1)] = None,
) -> None:
    """Train and test every arm and seed of some studies. If it was killed, the same command continues where it stopped.

    Ctrl-C, SIGTERM and SIGUSR1 save checkpoints of the runs in progress and end the command with exit code 75.

    interplay experiment recipes/rlhf/experiment/story.toml --jobs 16
    """
    from interplay.cli.experiment import experiment as run_experiment
    from interplay.cli.progress import LastingConsole
    from interplay.publishing.agenda import ExperimentPace

    run_experiment(LastingConsole(), studies, out, seeds, ExperimentPace(jobs, seconds))


@app.command(rich_help_panel=PANEL)
def publish(
    runs: Annotated[Path, typer.Argument(help="The folder that interplay experiment has written.")],
    to: Annotated[Path | None, typer.Option(help="The folder to write; default RUNS/pages.")] = None,
) -> None:
    """Write a report, a post and slides about some studies; every number in them comes from the run folders.

    interplay publish runs/experiment --to docs/rlhf
    """
    from interplay.publishing.publish import publish as write

    for page in write(runs, to or runs / "pages"):
        console.print(str(page), highlight=False, soft_wrap=True)
