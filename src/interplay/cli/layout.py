"""`interplay cluster plan`: a table of the processes that a recipe would start."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from interplay.config import load
from interplay.rollout.resolve import resolve


def show_layout(console: Console, path: str, overrides: Sequence[str]) -> None:
    """Check a recipe and print the processes that it would start. No model is loaded."""
    plan = resolve(load(path, overrides))
    from interplay.cli.quiet import quiet_libraries

    quiet_libraries()
    from interplay.distributed.layout import layout
    from interplay.training.memory import size_text

    table = Table("process", "number", "CPUs each", "GPUs each", "memory each, about")
    rows = layout(plan)
    for row in rows:
        memory = f"{size_text(row.memory)} of {'a GPU' if row.gpus else 'the host'}" if row.memory else "no model"
        table.add_row(row.what, str(row.count), f"{row.cpus:g}", f"{row.gpus:g}", memory)
    console.print(table)
    cpus, gpus = sum(row.count * row.cpus for row in rows), sum(row.count * row.gpus for row in rows)
    console.print(f"In all: {cpus:g} CPUs and {gpus:g} GPUs.", highlight=False)
    where = plan.recipe.cluster.address
    if plan.recipe.cluster.uses_ray:
        whose = "a cluster that the run starts on this machine" if where == "local" else f"the cluster at {where}"
        console.print(f"Ray places them in {whose}; the process of the run itself is on this machine.", highlight=False)
