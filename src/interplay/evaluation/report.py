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
    """One row per policy, opponent, seat and stage, then all seats together; narrow enough for 80 columns."""
    several = len({r.policy for results in stages.values() for r in results}) > 1
    out = Table(
        title=f"{title}; shares in percent", title_justify="left", box=None, padding=(0, 2, 0, 0), pad_edge=False
    )
    for name in (*(("policy",) if several else ()), "against", "seat", "stage"):
        out.add_column(name)
    for name in ("wins (95%)", "draws", "losses", "illegal", "games"):
        out.add_column(name, justify="right")
    for policy, opponent in _pairs(stages):
        for seat in [*_seats(stages, policy, opponent), "all"]:
            for stage, results in stages.items():
                rows = [r for r in results if (r.policy, r.opponent) == (policy, opponent) and seat in (r.role, "all")]
                if rows:
                    who = [policy, opponent] if several else [opponent]
                    out.add_row(*who, seat, stage, *_cells(rows))
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


def _pairs(stages: Stages) -> list[tuple[str, str]]:
    return list(dict.fromkeys((r.policy, r.opponent) for results in stages.values() for r in results))


def _seats(stages: Stages, policy: str, opponent: str) -> list[str]:
    found = (r.role for rs in stages.values() for r in rs if (r.policy, r.opponent) == (policy, opponent))
    return list(dict.fromkeys(found))


def write(path: Path, stages: Stages, extra: Mapping[str, Any]) -> None:
    data = {**extra, "results": {stage: [r.to_json() for r in results] for stage, results in stages.items()}}
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
