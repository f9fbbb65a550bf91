"""Shows measurements as sheets and charts: the before → after table of a run, and all tables of `interplay eval`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Group

from interplay.config import TEAM, Recipe
from interplay.evaluation import intervals
from interplay.evaluation.ablation import Change
from interplay.evaluation.benchmark import SeatResult
from interplay.evaluation.intervals import Estimate
from interplay.evaluation.sheet import Bars, Chart, Curves, Sheet, number, percent, points, terminal, write_json
from interplay.evaluation.suite import Report, SuiteEntry

Stages = Mapping[str, Sequence[SeatResult]]  # "before", "after" -> results


# -- before and after -------------------------------------------------------------------------------------------------


def table(stages: Stages, title: str) -> Group:
    """The table before → after, for a terminal of 80 columns."""
    return terminal(before_after(stages, title))


def before_after(stages: Stages, title: str) -> Sheet:
    """For each opponent, one row per seat and stage, then rows for all seats together. There is a column of policies
    only if several policies play the same seat."""
    seated = {(r.role, r.policy) for results in stages.values() for r in results}
    several = len(seated) > len({role for role, _ in seated})
    rows: list[list[str]] = []
    for opponent in dict.fromkeys(r.opponent for results in stages.values() for r in results):
        found = {(r.role, r.policy) for rs in stages.values() for r in rs if r.opponent == opponent}
        ordered = [k for k in dict.fromkeys((r.role, r.policy) for rs in stages.values() for r in rs) if k in found]
        for seat, policy in [*ordered, *([("all", "")] if len(ordered) > 1 else [])]:
            for stage, results in stages.items():
                mine = [r for r in results if r.opponent == opponent and seat in (r.role, "all")]
                if mine:
                    who = [policy, opponent] if several else [opponent]
                    rows.append([*who, seat, stage, *_cells(mine)])
        rows.append([])
    head = [*(["policy"] if several else []), "against", "seat", "stage"]
    numbers = ["wins (95%)", "draws", "losses", "illegal", "games"]
    return Sheet(f"{title}; shares in percent", [*head, *numbers], rows, len(head))


def unmasked(recipe: Recipe, stages: Stages) -> str | None:
    """A sentence for a table that has illegal replies only because it was measured in another way than the policies
    were trained; None for every other table."""
    last = [*stages.values()][-1] if stages else []
    if not recipe.sampling.legal or recipe.eval.legal or not any(result.illegal for result in last):
        return None
    return (
        "training sampled legal replies only (sampling.legal), and the table was measured without that; to measure as "
        "in training, set eval.legal=true."
    )


def _cells(rows: Sequence[SeatResult]) -> list[str]:
    games, wins = sum(r.games for r in rows), sum(r.wins for r in rows)
    low, high = (rows[0].win_low, rows[0].win_high) if len(rows) == 1 else intervals.wilson(wins, games)
    share = lambda n: f"{100 * n / games:.1f}"  # noqa: E731
    illegal = sum(r.illegal for r in rows) / max(1, sum(r.turns for r in rows))
    return [
        percent(Estimate(wins / games, low, high)),
        share(sum(r.draws for r in rows)),
        share(sum(r.losses for r in rows)),
        f"{100 * illegal:.2f}",
        str(games),
    ]


def write(path: Path, stages: Stages, extra: Mapping[str, Any]) -> None:
    data = {**extra, "results": {stage: [r.to_json() for r in results] for stage, results in stages.items()}}
    write_json(path, data)


# -- interplay eval ---------------------------------------------------------------------------------------------------


def headline(report: Report) -> str:
    seats = ", ".join(f"{role} = {who}" for role, who in report.seats.items())
    seeds = f"seed{'s' if len(report.seeds) > 1 else ''} {', '.join(map(str, report.seeds))}"
    games = f"{report.games} {report.split} tasks" + (f" × {report.samples} games" if report.samples > 1 else "")
    masked = ", only legal replies" if report.legal else ""
    best = f", best of {report.best_of} replies by {report.best_by}" if report.best_of > 1 else ""
    return f"{report.env}, {seats}; {games}, {seeds}, temperature {report.temperature:g}{masked}{best}"


def sheets(report: Report) -> Iterator[Sheet]:
    yield _results(report)
    if len(report.seeds) > 1:
        yield _by_seed(report)
    if report.samples > 1:
        yield _passed(report)
    if report.budget is not None:
        yield _budget(report)
    if report.without:
        yield _changes(
            "One agent replaced",
            report.without,
            "A drop is the figure of the whole team minus the figure of this row, task by task.",
        )
    if report.muted:
        yield _changes(
            "One channel muted",
            report.muted,
            "A drop is the figure with all channels minus the figure of this row, task by task.",
        )
    if report.swaps:
        yield _changes(
            "Policies in each other's roles",
            report.swaps,
            "A drop is the figure in the policy's own role minus the figure of this row, task by task.",
        )
    for entry in report.entries:
        yield _tasks(report, entry)


def charts(report: Report) -> Iterator[Chart]:
    yield Bars(
        "Success of a team and wins of a role, percent",
        [(_who(e), Estimate(e.result.win_rate, e.result.win_low, e.result.win_high)) for e in report.entries],
        note="95% intervals.",
    )
    if report.samples > 1:
        lines = [(_who(e), [(p.k, p.share) for p in e.passed]) for e in report.entries]
        yield Curves(
            "pass@k, percent", lines, note="Chance of at least one success in k games of a task; unbiased estimator."
        )
    if report.budget is not None:
        ways = [(w.name, w.won) for w in report.budget.ways]
        yield Bars("The same tokens for a team and for one agent: success, percent", ways)
    costs = {
        "Cost of replacing one agent": report.without,
        "Cost of muting a channel": report.muted,
        "Cost of exchanged roles": report.swaps,
    }
    for title, changes in costs.items():
        rows = [(_label(c), c.won_drop) for c in changes if c.won_drop is not None]
        if rows:
            yield Bars(
                f"{title}, points of success",
                rows,
                note="An interval without 0 means that the change makes a difference.",
            )


def _who(entry: SuiteEntry) -> str:
    r = entry.result
    return TEAM if r.role == TEAM else f"{r.policy} as {r.role} against {r.opponent}"


def _label(c: Change) -> str:
    return c.what if c.opponent == TEAM else f"{c.what} against {c.opponent}"


def _results(report: Report) -> Sheet:
    called = any(e.result.calls for e in report.entries)
    rows = [
        [
            r.policy, r.opponent, r.role, percent(Estimate(r.win_rate, r.win_low, r.win_high)),
            f"{100 * r.draws / max(1, r.games):.1f}", number(Estimate(r.reward, r.reward_low, r.reward_high)),
            f"{r.tokens_per_episode:.1f}", f"{r.turns / max(1, r.games):.1f}",
            *([f"{r.calls / max(1, r.games):.1f}"] if called else []), f"{100 * r.illegal_rate:.2f}",
            f"{r.games}" + (f" (+{r.failed} failed)" if r.failed else ""),
        ]
        for r in (e.result for e in report.entries)
    ]  # fmt: skip
    spent = ["tokens", "turns", *(["calls"] if called else [])]
    head = ["policy", "against", "seat", "success (95%)", "draws", "score (95%)", *spent, "illegal", "games"]
    each = "sampled tokens, turns and tool calls" if called else "sampled tokens and turns"
    note = f"Success of a role is a win. Shares are in percent; {each} are per episode."
    hide = ["turns", "draws" if all(e.result.role == TEAM for e in report.entries) else "score (95%)"]
    if len({e.result.policy for e in report.entries}) == 1:
        hide.append("policy")
    return Sheet("Results", head, rows, 3, note, hide=hide)


def _by_seed(report: Report) -> Sheet:
    rows = []
    for entry in report.entries:
        for seed, r in entry.seeds.items():
            won, score = Estimate(r.win_rate, r.win_low, r.win_high), Estimate(r.reward, r.reward_low, r.reward_high)
            rows.append([_who(entry), str(seed), percent(won), number(score), str(r.games)])
        found = intervals.mean([r.win_rate for r in entry.seeds.values()])
        within = Estimate(found.value, max(0.0, found.low), min(1.0, found.high))
        rows.append([_who(entry), "all seeds", percent(within), "", str(entry.result.games)])
    note = "The row of all seeds is the mean over seeds, with Student's interval."
    return Sheet("By seed", ["who", "seed", "success (95%)", "score (95%)", "games"], rows, 2, note)


def _passed(report: Report) -> Sheet:
    ks = [p.k for p in report.entries[0].passed]
    rows = [[_who(e), *(percent(p.share) for p in e.passed)] for e in report.entries]
    note = (
        "Chance of at least one success in k games of a task, unbiased (1 − C(n−c, k)/C(n, k)); bootstrap over tasks."
    )
    return Sheet("pass@k, percent", ["who", *(f"k = {k}" for k in ks)], rows, 1, note)


def _budget(report: Report) -> Sheet:
    assert report.budget is not None
    rows = [
        [w.name, percent(w.won), number(w.score), *(f"{v:.1f}" for v in (w.budget, w.used, w.episodes)), points(w.gap)]
        for w in report.budget.ways
    ]
    head = ["who", "success (95%)", "score (95%)", "budget", "used", "episodes", "team ahead (95%)"]
    note = (
        f"One agent ({report.budget.policy} as {report.budget.role}) gets, in each task, as many tokens as the whole "
        "team sampled. It spends them in one episode without another limit on a reply (longer), or in as many usual "
        "episodes as they allow, of which the most common end state (majority) or a perfect judge's choice (best) "
        f"counts. {len(report.budget.tasks)} tasks; budget, used and episodes are per task."
    )
    return Sheet("The same tokens for a team and for one agent", head, rows, 1, note, hide=["score (95%)", "episodes"])


def _changes(title: str, changes: Sequence[Change], note: str) -> Sheet:
    rows = [
        [_label(c), percent(c.won), points(c.won_drop), number(c.score), number(c.score_drop, sign=True)]
        for c in changes
    ]
    return Sheet(
        title,
        ["change", "success (95%)", "drop (95%)", "score (95%)", "score drop"],
        rows,
        1,
        note,
        hide=["score (95%)"],
    )


def _tasks(report: Report, entry: SuiteEntry) -> Sheet:
    rows = [[t.task, f"{t.won}/{t.games}", f"{t.score:.2f}", f"{t.tokens:.1f}", f"{t.turns:.1f}"] for t in entry.tasks]
    head = ["task", "success", "score", "tokens", "turns"]
    return Sheet(f"Every task: {_who(entry)}", head, rows, 1, "Tokens and turns are per episode.", long=True)
