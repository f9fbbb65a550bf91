"""Runs everything that `interplay eval` measures of a recipe's policies, and collects the results in a report.

All results are computed from episodes. If `Field.played` is set, the episodes are saved, and a suite that was killed
continues where it stopped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from interplay.config import TEAM
from interplay.evaluation.ablation import Change, change, muted, swaps, without
from interplay.evaluation.benchmark import Lineup, SeatResult, lineups, tally_lineup
from interplay.evaluation.budget import Matched, matched
from interplay.evaluation.field import Field
from interplay.evaluation.measures import Passed, TaskResult, passed, per_task
from interplay.types import Episode, Occupant, Role


@dataclass(frozen=True)
class SuiteEntry:
    """The results of one line-up: over all games, for each seed, pass@k, and for each task."""

    result: SeatResult
    seeds: dict[int, SeatResult]
    passed: list[Passed]
    tasks: list[TaskResult]


@dataclass(frozen=True)
class Report:
    name: str
    env: str
    seats: dict[Role, Occupant]
    split: str
    seeds: list[int]
    games: int  # tasks per seed
    samples: int
    temperature: float
    legal: bool  # models could only give replies that are listed as legal
    entries: list[SuiteEntry]
    swaps: list[Change]
    without: list[Change]
    muted: list[Change]
    budget: Matched | None
    best_of: int = 1  # models gave the best of this many replies, as scored by `best_by`
    best_by: str | None = None

    def to_json(self) -> dict[str, Any]:
        entries = [
            {
                **e.result.to_json(),
                "seeds": {str(seed): r.to_json() for seed, r in e.seeds.items()},
                "pass_at_k": {str(p.k): {**p.share._asdict(), "tasks": p.tasks} for p in e.passed},
                "tasks": [asdict(t) for t in e.tasks],
            }
            for e in self.entries
        ]
        rest = ("name", "env", "seats", "split", "seeds", "games", "samples", "temperature", "legal")
        return {
            **_plain({name: getattr(self, name) for name in (*rest, "best_of", "best_by")}),
            "results": entries,
            "swap": [_plain(_change(c)) for c in self.swaps],
            "without": [_plain(_change(c)) for c in self.without],
            "mute": [_plain(_change(c)) for c in self.muted],
            "budget": None if self.budget is None else _plain(asdict(self.budget)),
        }


def _change(change: Change) -> dict[str, Any]:
    return {f.name: getattr(change, f.name) for f in fields(change)}


def _plain(data: Any) -> Any:
    """Prepares data for JSON: named tuples such as estimates become objects, occupants become strings."""
    if isinstance(data, Occupant):
        return str(data)
    if hasattr(data, "_asdict"):
        return data._asdict()
    if isinstance(data, Mapping):
        return {k: _plain(v) for k, v in data.items()}
    return [_plain(v) for v in data] if isinstance(data, list) else data


async def measure(field: Field, substitutes: Mapping[Role, Occupant]) -> Report:
    """Runs all measurements. `substitutes` says who takes each agent's seat when that agent is left out. The field's
    team must already hold the weights of the substitutes."""
    plan, recipe = field.plan, field.plan.recipe
    section = recipe.eval
    entries, exchanged, removed, silenced, budget = [], list[Change](), list[Change](), list[Change](), None
    for lineup in lineups(plan, section.opponents):
        episodes = await field.play(lineup.seats)
        entries.append(_entry(field, episodes, lineup))
        if "swap" in section.ablations:
            for what, seats in swaps(plan, lineup):
                exchanged.append(change(recipe, what, lineup, seats, episodes, await field.play(seats)))
        if lineup.role == TEAM and "without" in section.ablations:
            for what, seats in without(plan, substitutes):
                removed.append(change(recipe, what, lineup, seats, episodes, await field.play(seats)))
        for name in recipe.channels if "mute" in section.ablations else ():
            with muted(field.team, name):
                games = await field.play(lineup.seats)
            silenced.append(change(recipe, f"{name} muted", lineup, lineup.seats, episodes, games))
        if lineup.role == TEAM and "budget" in section.ablations:
            budget = await matched(field, episodes)
    seeds = list(field.seeds or [recipe.seed])
    return Report(
        recipe.name, recipe.env.name, dict(plan.seats), field.split, seeds, field.games, field.samples,
        field.temperature, section.legal, entries, exchanged, removed, silenced, budget, section.best_of,
        section.best_by,
    )  # fmt: skip


def expected(field: Field, substitutes: Mapping[Role, Occupant]) -> int:
    """How many games `measure` will play, for a progress bar. Spending the budget of a task counts as one game."""
    plan, ablations = field.plan, field.plan.recipe.eval.ablations
    total = 0
    for lineup in lineups(plan, plan.recipe.eval.opponents):
        total += field.size
        if "swap" in ablations:
            total += field.size * sum(1 for _ in swaps(plan, lineup))
        if "mute" in ablations:
            total += field.size * len(plan.recipe.channels)
        if lineup.role == TEAM:
            total += field.size * len(substitutes) if "without" in ablations else 0
            total += 2 * field.size // field.samples if "budget" in ablations else 0
    return total


def _entry(field: Field, episodes: Sequence[Episode], lineup: Lineup) -> SuiteEntry:
    recipe = field.plan.recipe
    seeds = field.seeds or [recipe.seed]
    each = len(episodes) // len(seeds)
    return SuiteEntry(
        tally_lineup(recipe, episodes, lineup),
        {s: tally_lineup(recipe, episodes[i * each : (i + 1) * each], lineup) for i, s in enumerate(seeds)},
        passed(recipe, episodes, lineup.role, field.samples),
        per_task(recipe, episodes, lineup.role),
    )
