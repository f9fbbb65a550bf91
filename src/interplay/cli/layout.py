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
    from torch.cuda import is_available

    from interplay.distributed.layout import layout
    from interplay.training.machine import size_text

    table = Table("process", "number", "CPUs each", "GPUs each", "memory each, about")
    rows = layout(plan)
    for row in rows:
        place = f"{row.gpus:g} GPUs" if row.gpus > 1 else "a GPU" if row.gpus else "the host"
        memory = f"{size_text(row.memory)} of {place}" if row.memory else "no model"
        each = f"{row.gpus:g}" + (" (that of a rank)" if row.shared else "")
        table.add_row(row.what, str(row.count), f"{row.cpus:g}", each, memory)
    console.print(table)
    cpus = sum(row.count * row.cpus for row in rows)
    gpus = sum(row.count * row.gpus for row in rows if not row.shared)
    console.print(f"In all: {cpus:g} CPUs and {gpus:g} GPUs.", highlight=False)
    engine = plan.recipe.engine
    if gpus and not is_available() and (engine.kind == "local" or plan.recipe.cluster.engines):
        console.print(
            "Local engines on GPUs also take up to a quarter of the memory that is free, for their key-value cache. It "
            "is not in the table, because this machine has no GPU.",
            highlight=False,
            soft_wrap=True,
        )
    if gpus and engine.kind == "vllm" and engine.url is None:
        console.print(
            f"A vLLM server fills its GPUs up to engine.gpu_share ({engine.gpu_share:g}) with its key-value cache, "
            "which is not in the table.",
            highlight=False,
            soft_wrap=True,
        )
    where = plan.recipe.cluster.address
    if plan.recipe.cluster.uses_ray:
        known = {"local": "a cluster that the run starts on this machine", "auto": "the cluster of this machine"}
        whose = known.get(where, f"the cluster at {where}")
        console.print(
            f"The process of the run is on this machine. Ray places the others in {whose}.",
            highlight=False,
            soft_wrap=True,
        )
