"""`interplay prepare`: lists the data sets that it can prepare, and shows what was prepared."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from interplay.envs.tasks.data import formats
from interplay.envs.tasks.prepare import Preparation


def format_table() -> Table:
    table = Table(
        title="data sets that can be prepared", title_justify="left", box=None, padding=(0, 2, 0, 0), pad_edge=False
    )
    for column in ("name", "kind", "what", "licence"):
        table.add_column(column)
    for name, cls in formats().items():
        table.add_row(name, cls.kind, (cls.__doc__ or "").strip().split("\n")[0], cls.licence)
    table.caption = 'interplay prepare NAME [--from PATH]; a recipe then says \\[env] data = "data/NAME"'
    table.caption_justify = "left"
    return table


def show_preparation(console: Console, report: Preparation) -> None:
    counts = ", ".join(f"{rows} {split}" for split, rows in report.counts.items())
    console.print(f"{report.folder}: {counts} rows", highlight=False)
    if report.held_out:
        console.print(f"validation is {report.held_out} of the training rows", highlight=False)
    if report.unchecked:
        console.print(f"{report.unchecked} gold answers could not be checked, or were not to be", highlight=False)
    for what, count in sorted(report.dropped.items()):
        if count:
            console.print(f"left out: {count} {what.replace('_', ' ')}", highlight=False)
