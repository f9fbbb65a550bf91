"""`interplay arena`: who beats whom."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from interplay.config import load
from interplay.errors import ConfigError
from interplay.policies.policy import BOT
from interplay.rollout.resolve import resolve


def run_arena(console: Console, path: str, players: Sequence[str], games: int, out: Path | None) -> None:
    """A player is `bot:NAME`, a policy of the recipe, a run folder, a checkpoint's policy folder or any model; `name=`
    before it names it in the table."""
    plan = resolve(load(path, []))
    from interplay.cli.quiet import quiet_libraries

    quiet_libraries()
    from interplay.cli.evaluate import newest
    from interplay.evaluation.arena import round_robin
    from interplay.rollout.team import Team

    named: dict[str, str] = {}
    for player in players:
        name, _, source = player.rpartition("=")
        name = name or Path(source).name if "/" in source else name or source
        if name in named:
            raise ConfigError(f"two players are called '{name}'; give one another name: NAME={source}.")
        named[name] = source
    team = Team.load(plan.recipe, newest(path, plan, None))
    seated = {}
    for name, source in named.items():
        if source.startswith(BOT) or source in team.members:
            seated[name] = source
        else:
            seated[name] = team.add(name, _weights(source), plan.recipe)
    total = len(named) * (len(named) - 1) * games
    with Progress(console=console, transient=True) as bar:
        job = bar.add_task("playing", total=total)
        temperature = plan.recipe.eval.temperature
        found = asyncio.run(round_robin(plan, team, seated, games, temperature, done=lambda _: bar.advance(job)))
    team.close()
    table = _table("player", "rating (95%)", "Elo", "score", "games", "illegal")
    for r in found.ratings:
        table.add_row(
            r.name, f"{r.value:.0f} ({r.low:.0f}–{r.high:.0f})", f"{r.elo:.0f}", f"{r.score:.3f}", str(r.games),
            f"{100 * found.illegal[r.name]:.2f}%",
        )  # fmt: skip
    console.print(table)
    payoff = _table("mean score of", *(f"vs {r.name}" for r in found.ratings))
    for r in found.ratings:
        versus = ["" if o.name == r.name else f"{found.payoff[r.name][o.name]:.2f}" for o in found.ratings]
        payoff.add_row(r.name, *versus)
    console.print()
    console.print(payoff)
    if out is not None:
        text = found.to_markdown() if out.suffix == ".md" else json.dumps(found.to_json(), indent=1) + "\n"
        out.write_text(text, encoding="utf-8")


def _table(*columns: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for i, column in enumerate(columns):
        table.add_column(column, justify="right" if i else "left", no_wrap=True)
    return table


def _weights(source: str) -> str:
    """The weights of the only policy of a run folder; anything else is a model already."""
    from interplay.training import checkpoint

    folder = Path(source)
    if not (folder / "checkpoints").is_dir():
        return source
    latest = checkpoint.latest(folder / "checkpoints")
    policies = sorted((latest.folder / "policies").iterdir()) if latest else []
    if len(policies) != 1:
        raise ConfigError(f"run folder '{source}' holds {len(policies)} policies; name one: CHECKPOINT/policies/NAME.")
    return str(policies[0])
