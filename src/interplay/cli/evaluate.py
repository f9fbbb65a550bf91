"""`interplay eval`: a run's policies against fixed opponents."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from interplay.config import load
from interplay.errors import ConfigError
from interplay.policies.policy import BOT
from interplay.rollout.resolve import Plan, resolve


def newest(path: str, plan: Plan, folder: Path | None) -> dict[str, str]:
    """Where the trained policies' weights are: `folder`, else the run's newest checkpoint, else nowhere (untrained)."""
    from interplay.training import checkpoint

    if folder is not None:
        found = checkpoint.read(folder)
    elif Path(path).is_dir():
        latest = checkpoint.latest(Path(path) / "checkpoints")
        if latest is None:
            raise ConfigError(f"run folder '{path}' holds no checkpoint; expected one made by interplay train.")
        found = latest
    else:
        return {}
    return {name: str(found.policy(name)) for name in plan.trainable}


def evaluate_run(console: Console, path: str, overrides: Sequence[str], folder: Path | None, out: Path | None) -> None:
    plan = resolve(load(path, overrides))
    from interplay.cli.quiet import quiet_libraries

    quiet_libraries()
    from interplay.evaluation import report
    from interplay.evaluation.benchmark import evaluate, roles_of
    from interplay.rollout.team import Team

    recipe, section = plan.recipe, plan.recipe.eval
    team = Team.load(recipe, newest(path, plan, folder))
    policies = list(dict.fromkeys(w for w in plan.seats.values() if not w.startswith(BOT)))
    total = sum(len(roles_of(plan, w)) for w in policies) * len(section.opponents) * section.games
    with Progress(console=console, transient=True) as bar:
        job = bar.add_task("playing", total=total)
        results = asyncio.run(
            evaluate(
                plan,
                team,
                policies,
                section.opponents,
                section.games,
                "test",
                section.temperature,
                lambda _: bar.advance(job),
            )
        )
    team.close()
    console.print(report.table({"now": results}, f"{recipe.name}, seed {recipe.seed}"))
    if out is not None:
        report.write(out, {"now": results}, {"name": recipe.name, "seed": recipe.seed})
