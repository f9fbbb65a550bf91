"""`interplay prepare`: makes a folder of checked rows from a data set, or lists the data sets that it knows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer
from rich.console import Console
from rich.table import Table

from interplay.cli.effect import refuse_unused
from interplay.errors import ConfigError

if TYPE_CHECKING:
    from interplay.envs.tasks.columns import Columns
    from interplay.envs.tasks.prepare import Preparation

console = Console()
SHOWN = 5  # the number of broken pictures and sounds that are named


def prepare(
    context: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(
            help="A public data set, package.module:Format, a file of your own rows, or hub:OWNER/NAME; without it "
            "the public ones are listed."
        ),
    ] = None,
    source: Annotated[
        Path | None, typer.Option("--from", help="Its file or folder, in the public format; default the hub.")
    ] = None,
    to: Annotated[Path | None, typer.Option(help="The folder to write; default data/NAME.")] = None,
    against: Annotated[
        list[Path] | None, typer.Option(help="A prepared folder whose held-out rows must not be trained on either.")
    ] = None,
    drop_overlap: Annotated[
        bool, typer.Option("--drop-overlap", help="Leave out training rows that overlap with held-out rows.")
    ] = False,
    holdout: Annotated[
        float, typer.Option(help="Share of train that becomes validation if the data has none.", min=0, max=0.5)
    ] = 0.05,
    check: Annotated[
        bool, typer.Option("--check/--no-check", help="Leave out rows whose gold answer fails its own checker.")
    ] = True,
    question: Annotated[
        str | None, typer.Option(help="Your own rows: the column of the question, such as a.b.0.")
    ] = None,
    answer: Annotated[str | None, typer.Option(help="Your own rows: the column of the right answer.")] = None,
    media: Annotated[
        list[str] | None, typer.Option(help="Your own rows: a column of pictures or sounds that go with the question.")
    ] = None,
    compare: Annotated[
        str, typer.Option(help="Your own rows: math (by meaning), text (same words) or package.module:function.")
    ] = "math",
) -> None:
    """Turn a data set into a folder for env.data: checked, without duplicates or overlap, with checksums.

    interplay prepare gsm8k --from downloads/gsm8k --drop-overlap

    interplay prepare my.jsonl --question prompt --answer solution

    The folder of your own rows is read by env.name = "math", with any of its teams.
    """
    from interplay.envs.tasks.prepare import prepare as prepare_data

    if name is None:
        unused = "source to against drop_overlap holdout check question answer media compare"
        refuse_unused(context, unused, "without a data set", "name one")
        console.print(_format_table())
        return
    own = own_rows(name, source, question, answer, compare, tuple(media or ()))
    if own.columns is None:
        refuse_unused(context, "compare", f"on '{name}', a format with a checker of its own")
    folder = to or Path("data") / own.folder
    made = prepare_data(name, own.source, folder, against or [], drop_overlap, holdout, check, own.columns)
    _show(made)


class OwnRows(NamedTuple):
    """What the command line says about somebody's own rows. `columns` is None for a format that knows its columns."""

    source: Path | None
    folder: str
    columns: Columns | None


def own_rows(
    name: str, source: Path | None, question: str | None, answer: str | None, compare: str, media: tuple[str, ...] = ()
) -> OwnRows:
    """Find out whether `name` is a file of rows, a data set of the hub, or a format."""
    from interplay.envs.tasks.columns import HUB, Columns

    file = Path(name)
    is_file = file.exists() or file.suffix in (".jsonl", ".json", ".csv", ".parquet", ".gz")
    if not is_file and not name.startswith(HUB):
        if question or answer or media:
            raise ConfigError(
                f"--question, --answer and --media are for your own rows, but '{name}' is a format with known columns; "
                "leave them out."
            )
        return OwnRows(source, name.rpartition(":")[2], None)
    if is_file and not file.exists():
        raise ConfigError(f"there is no file '{name}'; expected a file of your own rows, or the name of a data set.")
    if question is None or answer is None:
        raise ConfigError(
            f"'{name}' holds your own rows; expected --question COLUMN and --answer COLUMN to name its columns."
        )
    columns = Columns(question, answer, compare, media)
    if source is not None:
        where = "a file" if is_file else "a data set of the hub"
        raise ConfigError(f"--from is '{source}', but '{name}' already names {where}; expected only one of them.")
    folder = name.removeprefix(HUB).replace("/", "-").replace(":", "-") if not is_file else file.name.split(".")[0]
    return OwnRows(file if is_file else None, folder, columns)


def _format_table() -> Table:
    from interplay.envs.tasks.data import formats

    table = Table(
        title="data sets that can be prepared", title_justify="left", box=None, padding=(0, 2, 0, 0), pad_edge=False
    )
    for column in ("name", "kind", "what", "licence"):
        table.add_column(column)
    for name, cls in formats().items():
        table.add_row(name, cls.kind, (cls.__doc__ or "").strip().split("\n")[0], cls.licence)
    table.caption = (
        "interplay prepare NAME \\[--from PATH], or your own rows: interplay prepare FILE --question COLUMN --answer "
        'COLUMN; a recipe then says \\[env] data = "data/NAME"'
    )
    table.caption_justify = "left"
    return table


def _show(report: Preparation) -> None:
    counts = ", ".join(f"{rows} {split}" for split, rows in report.counts.items())
    console.print(f"{report.folder}: {counts} rows", highlight=False, soft_wrap=True)
    if report.held_out:
        console.print(f"held out of the training rows: {report.held_out}", highlight=False)
    if report.unchecked:
        console.print(f"{report.unchecked} gold answers were not or could not be checked", highlight=False)
    for what, count in sorted(report.dropped.items()):
        if count:
            console.print(f"left out: {count} {what.replace('_', ' ')}", highlight=False)
    for sentence in report.unreadable[:SHOWN]:
        console.print(sentence, highlight=False, soft_wrap=True, markup=False)
