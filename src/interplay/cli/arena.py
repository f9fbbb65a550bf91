"""`interplay arena`: who beats whom, or who plays well with whom."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from interplay import envs
from interplay.agents.bots import make_bot
from interplay.cli.progress import games_played
from interplay.cli.recipe import recipe_for, split_overrides
from interplay.config import REMOTE, RemoteSection, load
from interplay.errors import ConfigError, counted, did_you_mean
from interplay.rollout.resolve import resolve
from interplay.seats import RunPlan
from interplay.types import Occupant, Policy, Remote, Role, Scripted

if TYPE_CHECKING:
    from interplay.rollout.team import Team

_NAMED = re.compile(r"([^=/:]+)=(.+)")


def run_arena(
    console: Console, path: str, players: Sequence[str], games: int, together: bool | None, out: Path | None
) -> None:
    """Runs the arena. A player is `bot:NAME`, a policy of the recipe, a run or checkpoint folder (each role with its
    own policy), any model or PEFT folder, or `openai:MODEL@URL`. `name=` before a player sets its name in the table. An
    argument that begins with a key of the recipe, such as `env.size=4`, changes the recipe."""
    from interplay.cli.evaluate import Findings, newest, publish, with_evolved

    changes, players = split_overrides(players)
    if any(change.startswith("eval.games=") for change in changes):
        raise ConfigError("eval.games has no effect in an arena; say --games N, or leave eval.games out.")
    recipe = recipe_for(path, changes)
    recipe = recipe.model_copy(update={"eval": recipe.eval.model_copy(update={"games": games})})
    plan = with_evolved(path, resolve(recipe, training=False), None)
    named = _named(players)
    from interplay.cli.quiet import quiet_libraries

    quiet_libraries()
    from interplay.evaluation import arena
    from interplay.evaluation.field import Field
    from interplay.evaluation.played import Played
    from interplay.rollout.team import Team

    folder = out or Path("runs") / f"{recipe.name}-arena"
    if together is None:
        together = arena.shares_rewards(plan)
    team = Team(recipe, newest(path, plan, None))
    try:
        seated = {name: _seat(plan, team, name, source) for name, source in named.items()}
        folder.mkdir(parents=True, exist_ok=True)
        field = Field(plan, team, games, "test", recipe.eval.temperature, played=Played(folder / "played.jsonl"))
        with games_played(console, len(arena.meetings(plan, seated, together)) * field.size) as one_more:
            field.done = lambda _: one_more()
            found = asyncio.run(arena.meet(field, seated, together))
    finally:
        team.close()
    lead = (
        f"{recipe.env.name}: {len(seated)} players {'together' if together else 'against each other'}, "
        f"{counted(games, 'task')} per seating, seed {recipe.seed}, temperature {recipe.eval.temperature:g}"
        + (", only legal replies" if recipe.eval.legal else "")
        + (f"; {counted(found.failed, 'game')} failed" if found.failed else "")
    )
    console.print(lead, highlight=False, soft_wrap=True)
    sheets, charts = list(arena.sheets(found)), list(arena.charts(found))
    publish(console, folder, "arena", Findings(f"{recipe.name}: arena", lead, found.to_json(), sheets, charts))


def _named(players: Sequence[str]) -> dict[str, str]:
    out: dict[str, str] = {}
    for player in players:
        match = _NAMED.fullmatch(player)
        name, source = (match[1], match[2]) if match else ("", player)
        if not name:
            name = source.removeprefix(REMOTE).partition("@")[0] if source.startswith(REMOTE) else source
            name = Path(name).name if Path(source).is_dir() else name
        if name in out:
            raise ConfigError(f"two players are called '{name}'; give one another name: NAME={source}.")
        out[name] = source
    return out


def _seat(plan: RunPlan, team: Team, name: str, source: str) -> dict[Role, Occupant]:
    """Who plays each role if this player has it. Policies of a run are added to the team."""
    who = plan.occupant(source)
    if isinstance(who, Scripted):
        make_bot(who.bot, plan.recipe.env.name).suits(envs.make(plan.task(0)))
    if isinstance(who, Scripted) or source in team.members or source in team.remotes:
        return dict.fromkeys(plan.roles, who)
    if source.startswith(REMOTE):
        model, at, url = source.removeprefix(REMOTE).partition("@")
        if not model:
            raise ConfigError(f"player '{source}' does not name a model; expected {REMOTE}MODEL@http://HOST/v1.")
        team.add_remote(name, model, RemoteSection(url=url) if at else RemoteSection())
        return dict.fromkeys(plan.roles, Remote(name))
    from interplay.models.locate import can_be_a_model

    folder = Path(source)
    if not folder.exists() and not can_be_a_model(source):
        raise ConfigError(
            f"'{source}' is not a player; expected bot:NAME, a run or checkpoint folder, a model, {REMOTE}MODEL@URL or "
            f"a policy of the recipe, {did_you_mean(source, plan.recipe.policies)}"
        )
    if (folder / "checkpoints").is_dir() or (folder / "MANIFEST.json").is_file():
        return _run(plan, team, name, folder)
    team.add(name, source, plan.recipe)
    return dict.fromkeys(plan.roles, Policy(name))


def _run(plan: RunPlan, team: Team, name: str, folder: Path) -> dict[Role, Occupant]:
    """Seats the policies of a run, each in the roles it was trained for. `folder` is a run, of which the newest
    checkpoint is used, or a checkpoint."""
    from interplay.training import checkpoint

    whole = (folder / "checkpoints").is_dir()
    found = checkpoint.latest(folder / "checkpoints") if whole else checkpoint.read(folder)
    run = folder if whole else folder.resolve().parents[1]
    if found is None:
        raise ConfigError(f"run folder '{folder}' has no checkpoint; expected one made by interplay train.")
    theirs = resolve(load(run), training=False)
    if theirs.roles != plan.roles:
        raise ConfigError(
            f"{name} was trained for the roles {', '.join(theirs.roles)}, but this game has {', '.join(plan.roles)}; "
            "expected a run that was trained for the same roles."
        )
    trained = [p for p in theirs.trainable if Policy(p) in theirs.seats.values()]
    out: dict[Role, Occupant] = {}
    for role, who in theirs.seats.items():
        policy = str(who) if str(who) in trained else trained[0] if len(trained) == 1 else None
        if policy is None:
            raise ConfigError(
                f"{name} has no trained policy for {role}, because {who} plays {role} in that run; expected one of its "
                f"policies as the player: {found.folder}/policies/NAME."
            )
        seated = name if len(trained) == 1 else f"{name}/{policy}"
        out[role] = Policy(seated)
        if seated not in team.members:
            team.add(seated, str(found.policy(policy)), theirs.recipe, theirs.recipe.policies[policy])
    return out
