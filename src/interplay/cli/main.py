"""`interplay`: the command line. Heavy imports happen inside the commands.

An error that Interplay raises on purpose is printed as one sentence on standard error. The exit code is 2 for a wrong
recipe or argument, and 1 for other errors. A bug keeps its traceback. A training run or an experiment that a signal
stopped early, after it saved checkpoints, has exit code 75.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.logging import RichHandler
from rich.table import Table

from interplay import __version__
from interplay.cli import judge, lists, studies
from interplay.cli.completion import mend_zsh
from interplay.cli.effect import refuse_unused
from interplay.cli.exit_codes import STOPPED
from interplay.cli.keyed import KeyedCommand
from interplay.cli.new import new
from interplay.cli.prepare import prepare
from interplay.cli.view import view
from interplay.errors import ConfigError, InterplayError

app = typer.Typer(
    name="interplay",
    help="Train teams of language models with reinforcement learning.\n\n"
    "Start with: interplay demo, and look at it: interplay view\n\n"
    "Another one: interplay train recipes/tictactoe/at_grpo.toml (interplay recipes lists them)",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
_TRAIN, _USE, _OWN = lists.TRAIN, "Use what was trained", "Make your own"  # the groups of commands in the help
console = Console()
problems = Console(stderr=True)

RecipeArgument = Annotated[str, typer.Argument(help="A recipe (TOML), or a run folder.", metavar="RECIPE")]
GameArgument = Annotated[
    str, typer.Argument(help="A recipe (TOML), a run folder, or an environment's name.", metavar="RECIPE")
]
OverridesArgument = Annotated[
    list[str] | None,
    typer.Argument(help="Changes to the recipe, such as train.steps=10 env.size=4.", metavar="[a.b=c]..."),
]


def _version(value: bool) -> None:
    if value:
        console.print(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command(cls=KeyedCommand, rich_help_panel=_TRAIN)
def train(
    context: typer.Context,
    recipe: RecipeArgument,
    overrides: OverridesArgument = None,
    run: Annotated[Path | None, typer.Option(help="The run folder; default runs/NAME-DATE.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the newest checkpoint in --run (or in RECIPE, a run folder).")
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Check the recipe, print it resolved as JSON, and say what is missing."),
    ] = False,
    memory: Annotated[
        bool, typer.Option("--memory", help="With --dry-run: find the models, and print the memory that it needs.")
    ] = False,
    time: Annotated[
        bool, typer.Option("--time", help="With --dry-run: train a few steps, and print how long all would take.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="With --dry-run: print all of it as one JSON object.")
    ] = False,
) -> None:
    """Train the policies of a RECIPE, measure them before and after, and keep everything in a run folder.

    Ctrl-C, SIGTERM and SIGUSR1 end the run with a checkpoint and exit code 75. Go on with:

    interplay train runs/NAME --resume

    With --resume, a run folder that has no checkpoint yet starts from the beginning.
    """
    from interplay.cli.progress import LastingConsole
    from interplay.cli.train import refuse_used, source_of, train_recipe

    if dry_run:
        from interplay.cli.dry_run import show

        if run is not None:
            refuse_used(run, resume)
        show(str(source_of(recipe, run, resume)), overrides or [], memory, time, as_json)
        return
    refuse_unused(context, "memory time as_json", "without --dry-run", "add --dry-run")
    if not train_recipe(LastingConsole(), recipe, overrides or [], run, resume):
        raise typer.Exit(STOPPED)


@app.command(cls=KeyedCommand, rich_help_panel=_TRAIN)
def demo(
    overrides: OverridesArgument = None,
    run: Annotated[Path | None, typer.Option(help="The run folder; default runs/NAME-DATE.")] = None,
) -> None:
    """Train a tiny model to play both sides of tic-tac-toe, on a CPU in minutes: recipes/tictactoe/demo.toml.

    Every recipe of the package can be named like this, from any folder.
    """
    from interplay.cli.progress import LastingConsole
    from interplay.cli.train import train_recipe

    if not train_recipe(LastingConsole(), "recipes/tictactoe/demo.toml", overrides or [], run, False):
        raise typer.Exit(STOPPED)


@app.command(name="eval", cls=KeyedCommand, rich_help_panel=_TRAIN)
def evaluate(
    recipe: RecipeArgument,
    overrides: OverridesArgument = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="A checkpoint folder; default the newest of the run folder.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The folder to write; default RUN/eval, or runs/NAME-eval of a recipe.")
    ] = None,
) -> None:
    """Measure the policies of a run (or of a RECIPE, untrained) on held-out tasks, each in the roles it is seated in.

    interplay eval runs/demo eval.games=1000 'eval.opponents=["bot:minimax"]'

    Writes eval.html, eval.md and eval.json. If it was killed, the same command continues where it stopped. For pass@k
    set eval.samples, for more seeds eval.seeds=[0,1,2]. eval.ablations=["budget","without","swap","mute"] also measures
    one agent at the team's budget, each agent replaced in turn, policies in each other's roles, and each channel muted
    in turn.
    """
    from interplay.cli.evaluate import evaluate_run

    evaluate_run(console, recipe, overrides or [], checkpoint, out)


@app.command(cls=KeyedCommand, rich_help_panel=_TRAIN)
def play(
    recipe: GameArgument,
    overrides: OverridesArgument = None,
    seat: Annotated[str | None, typer.Option(help="The role you play; default the first.")] = None,
    against: Annotated[
        str | None, typer.Option(help="Who sits in the other seats: a policy or bot:NAME; default as in the recipe.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Which task to play.")] = 0,
) -> None:
    """Play a seat yourself, in the terminal, against the trained policies of a run or against bots.

    interplay play runs/demo --seat O

    An environment's name can replace the recipe: interplay play hanabi env.players=3
    """
    from interplay.cli.play import play_game

    play_game(console, recipe, overrides or [], seat, against, seed)


app.command(rich_help_panel=_TRAIN)(view)


@app.command(rich_help_panel=_TRAIN)
def arena(
    recipe: GameArgument,
    players: Annotated[
        list[str],
        typer.Argument(
            help="Two or more: bot:NAME, a policy, a run, a checkpoint, a model, openai:MODEL@URL; NAME=… names one. "
            "Also changes to the recipe, a.b=c."
        ),
    ],
    games: Annotated[int, typer.Option(help="Tasks per pair and seating.", min=1)] = 100,
    together: Annotated[
        bool | None,
        typer.Option("--together/--against", help="Play with each other, or against; default by who is rewarded."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The folder to write; default runs/NAME-arena.")] = None,
) -> None:
    """Let players meet, every pair in both seats on the same tasks, and rate them; in team games, cross-play.

    interplay arena recipes/tictactoe/demo.toml bot:random bot:minimax new=runs/demo --games 200

    An environment's name can replace the recipe: interplay arena connect_four bot:greedy bot:alpha_beta:4

    Writes arena.html, arena.md and arena.json. If it was killed, the same command continues where it stopped. Adding a
    player only runs that player's games. A server's key is read from OPENAI_API_KEY.
    """
    from interplay.cli.arena import run_arena

    run_arena(console, recipe, players, games, together, out)


@app.command(rich_help_panel=_USE)
def serve(
    run: RecipeArgument,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port; 0 takes any free one.", min=0, max=65535)] = 8000,
    checkpoint: Annotated[Path | None, typer.Option(help="A checkpoint folder; default the newest of the run.")] = None,
) -> None:
    """Serve a trained team with an OpenAI-compatible API, through the same server that its program was trained with.

    interplay serve runs/planner-solver --port 8000

    The model's name is the role. The API key is that of INTERPLAY_SERVE_KEY, or a new one that is printed. /health and
    /metrics need no key.
    """
    from interplay.cli.serve import serve_run

    serve_run(console, run, host, port, checkpoint)


@app.command(rich_help_panel=_USE)
def export(
    context: typer.Context,
    run: Annotated[str, typer.Argument(help="A run folder.")],
    to: Annotated[Path | None, typer.Option(help="The folder to write; new or empty.")] = None,
    policy: Annotated[str | None, typer.Option(help="Which policy; default the only one.")] = None,
    checkpoint: Annotated[Path | None, typer.Option(help="A checkpoint folder; default the newest of the run.")] = None,
    merged: Annotated[bool, typer.Option(help="Add an adapter to its base and write the whole model.")] = False,
    push: Annotated[
        str | None, typer.Option(help="A repository of the Hugging Face hub, OWNER/NAME; it is made if it is new.")
    ] = None,
    public: Annotated[bool, typer.Option("--public", help="With --push: a new repository is public.")] = False,
) -> None:
    """Write a trained policy as a plain Hugging Face folder, or as a PEFT adapter, with a model card made from the run.

    interplay export runs/demo --to my-model

    interplay export runs/demo --push me/my-model

    Pushing needs a token: hf auth login, or HF_TOKEN.
    """
    from interplay.cli.export import ExportRequest, export_run

    if push is None:
        refuse_unused(context, "public", "without --push", "add --push OWNER/NAME")
    export_run(console, run, ExportRequest(to, policy, checkpoint, merged, push, public))


@app.command(rich_help_panel=_OWN)
def check(
    env: Annotated[str, typer.Argument(help="An environment's name, or package.module:Class.")],
    options: Annotated[
        list[str] | None, typer.Argument(help="Its options, such as size=4.", metavar="[option=value]...")
    ] = None,
    episodes: Annotated[int, typer.Option(help="Episodes per rule.", min=1)] = 20,
    seed: Annotated[int, typer.Option(help="Seed of the tasks and of the random play.")] = 0,
) -> None:
    """Run the conformance suite on an environment: determinism, forks, endings, hidden information, rewards.

    For an outside program (or a recipe with one), it runs a few tasks twice with the same replies. It prints the first
    difference, and how much of its history a model would recognise.
    """
    from interplay.config import parse_options
    from interplay.envs.check import check as run_check

    if env == "program" or Path(env).is_file():
        from interplay.cli.twice import check_program

        raise typer.Exit(check_program(console, env, options or [], episodes, seed))
    findings = run_check(env, parse_options(options or []), episodes, seed)
    table = Table("rule", "", "detail", title=f"interplay check {env}", title_justify="left")
    for finding in findings:
        table.add_row(finding.rule, "[green]pass[/]" if finding.passed else "[red]FAIL[/]", finding.detail)
    console.print(table)
    failed = sum(not f.passed for f in findings)
    console.print(f"{len(findings) - failed} passed, {failed} failed")
    raise typer.Exit(1 if failed else 0)


@app.command(cls=KeyedCommand, rich_help_panel=_OWN)
def draw(recipe: RecipeArgument, overrides: OverridesArgument = None) -> None:
    """Print the workflow of a RECIPE, or of a run (the best so far, if it evolves), as a Mermaid diagram."""
    from interplay.cli.evaluate import with_evolved
    from interplay.config import load
    from interplay.envs.workflows.graph import mermaid
    from interplay.envs.workflows.machine import workflow_of
    from interplay.rollout.resolve import resolve

    found = workflow_of(with_evolved(recipe, resolve(load(recipe, overrides or []), training=False), None).options)
    if found is None:
        raise ConfigError(f"'{recipe}' has no [workflow]; expected a recipe whose env.name is workflow:NAME.")
    typer.echo(mermaid(found))


app.command(rich_help_panel=_OWN)(prepare)
app.command(rich_help_panel=_OWN)(new)


cluster = typer.Typer(help="Runs over several processes and machines.", no_args_is_help=True)


@cluster.command("plan")
def cluster_plan(recipe: RecipeArgument, overrides: OverridesArgument = None) -> None:
    """Print the processes that a recipe would start, and what each needs, without starting any."""
    from interplay.cli.layout import show_layout

    show_layout(console, recipe, overrides or [])


app.add_typer(lists.app)
app.add_typer(studies.app)
app.add_typer(judge.app, name="judge", rich_help_panel=_OWN)
app.add_typer(cluster, name="cluster", rich_help_panel=studies.PANEL)


def warnings_to(output: Console) -> logging.Handler:
    """Return the handler that prints warnings. In a file or a pipe, each warning is one line, however long it is."""
    if output.is_terminal:
        shown: logging.Handler = RichHandler(console=output, show_path=False)
        shown.setFormatter(logging.Formatter("%(message)s"))
        return shown
    lines = logging.StreamHandler(output.file)
    lines.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%d %H:%M:%S"))
    return lines


def main() -> None:
    """The entry point. Turns errors that Interplay raises on purpose into one sentence and an exit code."""
    logging.basicConfig(level=logging.WARNING, handlers=[warnings_to(problems)])
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    sys.path.append(os.getcwd())  # so that a recipe can name a module:Class in the current folder
    try:
        app()
    except ConfigError as error:
        _fail(str(error), 2)
    except InterplayError as error:
        _fail(str(error), 1)
    except OSError as error:
        sentence = _of_the_disk(error)
        if sentence is None:
            raise
        _fail(sentence, 1)
    except KeyboardInterrupt:
        _fail(_INTERRUPTED, 130)
    except SystemExit as done:  # typer turns Ctrl-C into exit code 130 and prints nothing
        if done.code != 130:
            raise
        _fail(_INTERRUPTED, 130)
    finally:
        if "--install-completion" in sys.argv:
            mend_zsh(Path.home())


_INTERRUPTED = "interrupted; finished work is kept, and the same command continues from there (train: with --resume)."


def _of_the_disk(error: OSError) -> str | None:
    """A sentence about what the user can do, if the disk is full or a path cannot be written; None for other errors."""
    many = error.args[0] if isinstance(error, shutil.Error) else []
    if error.errno in (errno.ENOSPC, errno.EDQUOT) or any(f"[Errno {errno.ENOSPC}]" in str(why) for _, _, why in many):
        return "the disk is full; free some space, then call again (train: with --resume; the checkpoint is complete)."
    if error.filename and error.errno == errno.EISDIR:
        return f"'{error.filename}' is a folder; expected the name of a file."
    if error.filename and error.errno in (errno.EROFS, errno.EACCES, errno.EPERM, errno.EEXIST, errno.ENOTDIR):
        return (
            f"'{error.filename}' cannot be used ({error.strerror}); expected a folder that can be written. Name "
            "another one with --out, --run or --to."
        )
    return None


def _fail(sentence: str, code: int) -> None:
    problems.print("error: " + sentence, highlight=False, soft_wrap=True, markup=False)
    sys.exit(code)


if __name__ == "__main__":
    main()
