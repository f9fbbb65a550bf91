"""`interplay eval`: measures the policies of a run; prints tables on the terminal and writes a folder of reports."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from interplay.cli.progress import games_played
from interplay.config import TEAM, load
from interplay.errors import ConfigError
from interplay.rollout.evolve import evolved
from interplay.rollout.resolve import resolve
from interplay.seats import RunPlan
from interplay.types import Occupant, Policy, Role, Scripted, Snapshot

if TYPE_CHECKING:
    from interplay.agents.best_of import Choosing
    from interplay.evaluation.sheet import Chart, Sheet
    from interplay.evaluation.suite import Report
    from interplay.rollout.team import Team
    from interplay.training.checkpoint import Checkpoint
    from interplay.training.judges import Judges


def newest(path: str, plan: RunPlan, folder: Path | None) -> dict[str, str]:
    """Where the weights of the trained policies are: in `folder`, else in the newest checkpoint of the run. Empty if
    `path` is not a run folder: the policies are then untrained."""
    found = _checkpoint(path, folder)
    return {} if found is None else {name: str(found.policy(name)) for name in plan.saved}


def with_evolved(path: str, plan: RunPlan, folder: Path | None) -> RunPlan:
    """The plan with the workflow that evolved up to the same checkpoint, if the recipe has [evolve]."""
    found = None if plan.recipe.evolve is None else _checkpoint(path, folder)
    return plan if found is None else evolved(plan, found.trainer)


def trained_judges(path: str, plan: RunPlan, folder: Path | None) -> Judges:
    """The judges of a run. Judges that learned in it have the weights of the same checkpoint as the policies."""
    from interplay.training.judges import Judges

    judges = Judges(plan)
    if judges.pupils and (found := _checkpoint(path, folder)) is not None:
        judges.load_weights(found.state()["judges"])
    return judges


def _checkpoint(path: str, folder: Path | None) -> Checkpoint | None:
    from interplay.training import checkpoint

    if folder is not None:
        if not (folder / "MANIFEST.json").is_file():
            raise ConfigError(
                f"--checkpoint is '{folder}', which holds no checkpoint; expected one of a run's checkpoints, such as "
                "runs/NAME/checkpoints/step-000020."
            )
        return checkpoint.read(folder)
    if not Path(path).is_dir():
        return None
    latest = checkpoint.latest(Path(path) / "checkpoints")
    if latest is None:
        raise ConfigError(f"run folder '{path}' has no checkpoint; expected one made by interplay train.")
    return latest


def evaluate_run(
    console: Console, path: str, overrides: Sequence[str], folder: Path | None, out: Path | None
) -> Report:
    plan = with_evolved(path, resolve(load(path, overrides), training=False), folder)
    from interplay.cli.quiet import quiet_libraries
    from interplay.evaluation import ablation

    ablation.check(plan)
    quiet_libraries()
    from interplay.envs.workflows.graph import mermaid
    from interplay.envs.workflows.machine import workflow_of
    from interplay.evaluation import report
    from interplay.evaluation.field import Field
    from interplay.evaluation.played import Played
    from interplay.evaluation.suite import expected, measure
    from interplay.rollout.team import Team

    recipe, section = plan.recipe, plan.recipe.eval
    target = out or (Path(path) / "eval" if Path(path).is_dir() else Path("runs") / f"{recipe.name}-eval")
    if _only_bots(plan):  # nothing needs to be loaded
        if folder is not None:
            raise ConfigError("--checkpoint has no effect if only bots play; leave --checkpoint out.")
        team = Team(recipe.model_copy(update={"policies": {}}))
    else:
        team = Team(recipe, newest(path, plan, folder))
    if section.best_of > 1:
        team.choosing = _choosing(plan, path, folder)
    target.mkdir(parents=True, exist_ok=True)
    try:
        substitutes = _substitutes(plan, team, path) if "without" in section.ablations else {}
        field = Field(
            plan, team, section.games, "test", section.temperature, section.seeds, section.samples,
            Played(target / "played.jsonl"),
        )  # fmt: skip
        with games_played(console, expected(field, substitutes)) as one_more:
            field.done = lambda _: one_more()
            found = asyncio.run(measure(field, substitutes))
    finally:
        team.close()
    lead = report.headline(found)
    console.print(lead, highlight=False, soft_wrap=True)
    findings = Findings(recipe.name, lead, found.to_json(), list(report.sheets(found)), list(report.charts(found)))
    publish(console, target, "eval", findings)
    if (workflow := workflow_of(plan.options)) is not None:
        with (target / "eval.md").open("a", encoding="utf-8") as file:
            file.write(f"\n## Workflow\n\n```mermaid\n{mermaid(workflow)}\n```\n")
    return found


def _only_bots(plan: RunPlan) -> bool:
    section = plan.recipe.eval
    players = [*plan.seats.values(), *(plan.occupant(name) for name in section.opponents if name != TEAM)]
    return all(isinstance(who, Scripted) for who in players) and not section.ablations and section.best_of == 1


def _choosing(plan: RunPlan, path: str, folder: Path | None) -> Choosing:
    """The judge that chooses among replies. If it learned in the run, its version is that of the checkpoint."""
    from interplay.agents.best_of import Choosing
    from interplay.training.judges import ModelScorer
    from interplay.training.preference import digest

    section, judges = plan.recipe.eval, trained_judges(path, plan, folder)
    assert section.best_by is not None
    judge = judges.scorers[section.best_by]
    version = digest(judge.model) if isinstance(judge, ModelScorer) else ""
    return Choosing(section.best_of, judge, everybody=True, version=version)


@dataclass(frozen=True)
class Findings:
    """The results of an evaluation. `lead` describes the evaluation in a sentence; `data` holds all results as JSON
    data."""

    title: str
    lead: str
    data: dict[str, object]
    sheets: Sequence[Sheet]
    charts: Sequence[Chart]


def publish(console: Console, folder: Path, stem: str, found: Findings) -> None:
    """Shows the tables on the terminal, and writes JSON, Markdown and HTML files called `stem` to the folder."""
    from interplay.evaluation.page import page
    from interplay.evaluation.sheet import markdown, terminal, write_json

    for sheet in found.sheets:
        if not sheet.long:
            console.print()
            console.print(terminal(sheet))
    write_json(folder / f"{stem}.json", found.data)
    text = "\n".join([f"# {found.title}", "", found.lead, "", *map(markdown, found.sheets)])
    (folder / f"{stem}.md").write_text(text, encoding="utf-8")
    html = page(found.title, found.lead, found.sheets, found.charts)
    (folder / f"{stem}.html").write_text(html, encoding="utf-8")
    console.print(f"\n{folder}/{stem}.html, .md and .json contain all results", highlight=False, soft_wrap=True)


def _substitutes(plan: RunPlan, team: Team, path: str) -> dict[Role, Occupant]:
    """Who takes each agent's seat when that agent is left out. If this needs weights, they are added to the team."""
    wanted, out = plan.recipe.eval.substitute, dict[Role, Occupant]()
    for role, who in plan.seats.items():
        if isinstance(who, Scripted):
            continue
        if wanted == "start":
            out[role] = _start(team, str(who), path)
        elif wanted == "base":
            if not isinstance(who, Policy):
                raise ConfigError(
                    f"{who} is not a policy with weights here, so it has no base; set eval.substitute to a policy or "
                    "bot:NAME."
                )
            out[role] = team.bare(who.name, plan.recipe)
        elif wanted != str(who):
            out[role] = plan.occupant(wanted)
    return out


def _start(team: Team, policy: str, path: str) -> Snapshot:
    who = Snapshot(policy)
    source = Path(path) / "snapshots" / str(who)
    if not source.is_dir():
        raise ConfigError(
            f"eval.substitute is 'start', but '{source}' does not exist, because a run keeps these weights only if a "
            "matchup or the algorithm names them; expected base, bot:NAME or a policy."
        )
    if str(who) not in team.members:
        team.snapshot(who, source)
    return who
