"""The before → after table: as a rich table for the terminal, as JSON for machines."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from interplay.evaluation import intervals
from interplay.evaluation.benchmark import SeatResult

Stages = Mapping[str, Sequence[SeatResult]]  # "before", "after" -> results


def table(stages: Stages, title: str) -> Table:
    """One row per opponent, seat and stage (with who sits there, where that varies), then all seats together."""
    sat = {(r.policy, r.role) for results in stages.values() for r in results}
    several = len(sat) > len({role for _, role in sat})  # else the seat says who it is
    out = Table(
        title=f"{title}; shares in percent", title_justify="left", box=None, padding=(0, 2, 0, 0), pad_edge=False
    )
    for name in (*(("policy",) if several else ()), "against", "seat", "stage"):
        out.add_column(name)
    for name in ("wins (95%)", "draws", "losses", "illegal", "games"):
        out.add_column(name, justify="right")
    for opponent in dict.fromkeys(r.opponent for results in stages.values() for r in results):
        seats = _seats(stages, opponent)
        for policy, seat in [*seats, *([("", "all")] if len(seats) > 1 else [])]:
            for stage, results in stages.items():
                mine = [r for r in results if r.opponent == opponent]
                rows = [r for r in mine if seat == "all" or (r.policy, r.role) == (policy, seat)]
                if rows:
                    out.add_row(*([policy] if several else []), opponent, seat, stage, *_cells(rows))
        out.add_row()
    return out


def _cells(rows: Sequence[SeatResult]) -> list[str]:
    games, wins = sum(r.games for r in rows), sum(r.wins for r in rows)
    low, high = intervals.wilson(wins, games)
    share = lambda n: f"{100 * n / games:.1f}"  # noqa: E731
    illegal = sum(r.illegal for r in rows) / max(1, sum(r.turns for r in rows))
    return [
        f"{share(wins)} ({100 * low:.1f}–{100 * high:.1f})",
        share(sum(r.draws for r in rows)),
        share(sum(r.losses for r in rows)),
        f"{100 * illegal:.2f}",
        str(games),
    ]


def _seats(stages: Stages, opponent: str) -> list[tuple[str, str]]:
    found = ((r.policy, r.role) for results in stages.values() for r in results if r.opponent == opponent)
    return list(dict.fromkeys(found))


def write(path: Path, stages: Stages, extra: Mapping[str, Any]) -> None:
    data = {**extra, "results": {stage: [r.to_json() for r in results] for stage, results in stages.items()}}
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
