"""A tournament: every pair of players plays the same tasks with the same seeds, in every seat.

A player is a seat map: for each role, it says who sits there when this player has the role. A run with one policy per
role plays each role with its own policy. In games that reward roles separately, players play against each other and
are rated. With more than two roles, one player takes one role (each role in turn) and the other player takes all
others. In games that reward the team, such as Hanabi, players play together: every player with every other one and
with itself (cross-play).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from interplay import envs
from interplay.algorithms import credit
from interplay.errors import ConfigError, InterplayError
from interplay.evaluation import strategies
from interplay.evaluation.exploitability import GameTree, decisions
from interplay.evaluation.field import Field
from interplay.evaluation.intervals import Estimate, bootstrap
from interplay.evaluation.ratings import RatedGame, Rating, rate
from interplay.evaluation.sheet import Bars, Chart, Heat, Sheet, number
from interplay.seats import RunPlan
from interplay.types import Episode, Level, Occupant, Reward, Role

Entrant = Mapping[Role, Occupant]  # who sits in each role when this player has it
Meeting = tuple[str, str, Role]  # two players, and the role of the first one; the second one has all other roles
Scores = dict[str, list[float]]  # by task
_PROBES = 32


@dataclass(frozen=True)
class Habits:
    """Statistics of how a player plays, independent of who wins."""

    games: int
    illegal: float  # share of its turns
    tokens: float  # per turn
    turns: float  # per game
    openings: int  # different first replies, by role
    different: float  # distinct sequences of its own replies, as a share of its games


@dataclass(frozen=True)
class Hunted:
    """The exact exploitability of a player, or the reason (`why`) why it cannot be computed."""

    exploitability: float | None
    stray: float | None = None
    why: str = ""


@dataclass(frozen=True)
class Standing:
    """The result of a tournament. `payoff[a][b]` is the mean score of a against b over all seats: 1 if a earned more,
    ½ if both earned the same. `reward[a][b]` is the mean reward of a. If players play together, both tables hold the
    mean reward with a in the first seat and b in all others."""

    together: bool
    roles: tuple[Role, ...]
    ratings: list[Rating]
    payoff: dict[str, dict[str, Estimate]]
    reward: dict[str, dict[str, Estimate]]
    alone: dict[str, Estimate]  # together: each with itself
    mixed: dict[str, Estimate]  # together: each with others, in either seat
    habits: dict[str, Habits]
    hunted: dict[str, Hunted]
    failed: int

    def to_json(self) -> dict[str, Any]:
        named = lambda table: {name: e._asdict() for name, e in table.items()}  # noqa: E731
        return {
            **asdict(self),
            **{k: {a: named(row) for a, row in getattr(self, k).items()} for k in ("payoff", "reward")},
            "alone": named(self.alone),
            "mixed": named(self.mixed),
        }


def shares_rewards(plan: RunPlan) -> bool:
    """Whether any reward is paid to the team as a whole. Found out by playing a few games with random legal replies."""
    rng = random.Random(0)
    for i in range(_PROBES):
        env, given = envs.make(plan.task(i)), list[Reward]()
        while seen := envs.seen_now(env):
            given += env.step({role: rng.choice(o.legal or ("",)) for role, o in seen.items()})
        if any(r.level is Level.TEAM for r in (*given, *envs.outcome_of(env))):
            return True
    return False


async def meet(field: Field, players: Mapping[str, Entrant], together: bool | None = None) -> Standing:
    """Plays all meetings, against each other or together. If `together` is None, `shares_rewards` decides."""
    plan = field.plan
    if len(players) < 2:
        raise ConfigError("an arena needs at least two players; add another one, such as bot:random or a run folder.")
    if together is None:
        together = shares_rewards(plan)
    if len(plan.roles) == 1:
        raise ConfigError(
            f"{plan.recipe.env.name} has only one role, so players cannot meet in it; use interplay eval to measure it."
        )
    played: dict[Meeting, list[Episode]] = {}
    for meeting in meetings(plan, players, together):
        played[meeting] = await field.play(seats_of(plan, players, meeting))
    failed = sum(e.error is not None for games in played.values() for e in games)
    played = {meeting: [e for e in games if e.error is None] for meeting, games in played.items()}
    habits = {name: _habits(plan, played, name) for name in players}
    if together:
        return _cross_play(plan, players, played, habits, failed)
    return _versus(plan, players, played, habits, await _hunt(field, players), failed)


def meetings(plan: RunPlan, players: Mapping[str, Entrant], together: bool) -> list[Meeting]:
    """All meetings to play. With two roles only the first role is listed, because each pair meets in both orders."""
    roles = plan.roles[:1] if together or len(plan.roles) == 2 else plan.roles
    return [(a, b, role) for a in players for b in players if together or a != b for role in roles]


def seats_of(plan: RunPlan, players: Mapping[str, Entrant], meeting: Meeting) -> dict[Role, Occupant]:
    one, other, role = meeting
    return {r: players[one if r == role else other][r] for r in plan.roles}


def _versus(
    plan: RunPlan, players: Mapping[str, Entrant], played: Mapping[Meeting, Sequence[Episode]],
    habits: dict[str, Habits], hunted: dict[str, Hunted], failed: int,
) -> Standing:  # fmt: skip
    games: list[RatedGame] = []
    tasks: list[str] = []
    scores, rewards = ({a: {b: Scores() for b in players if b != a} for a in players} for _ in range(2))
    for (a, b, role), episodes in played.items():
        for e in episodes:
            mine = credit.mix(e.rewards, role, plan.recipe.reward)
            theirs = fmean(credit.mix(e.rewards, r, plan.recipe.reward) for r in plan.roles if r != role)
            score = 0.5 + 0.5 * ((mine > theirs) - (mine < theirs))
            games.append((a, b, score))
            tasks.append(e.task.id)
            for table, ours, others in ((scores, score, 1 - score), (rewards, mine, theirs)):
                table[a][b].setdefault(e.task.id, []).append(ours)
                table[b][a].setdefault(e.task.id, []).append(others)
    ratings = rate(games, seed=plan.recipe.seed, tasks=tasks)
    payoff, reward = (
        {a: {b: _estimate(found) for b, found in row.items() if found} for a, row in table.items()}
        for table in (scores, rewards)
    )
    return Standing(False, plan.roles, ratings, payoff, reward, {}, {}, habits, hunted, failed)


def _cross_play(
    plan: RunPlan, players: Mapping[str, Entrant], played: Mapping[Meeting, Sequence[Episode]],
    habits: dict[str, Habits], failed: int,
) -> Standing:  # fmt: skip
    def scores(episodes: Sequence[Episode]) -> Scores:
        out: Scores = {}
        for e in episodes:
            mixed = [credit.mix(e.rewards, role, plan.recipe.reward) for role in plan.roles]
            out.setdefault(e.task.id, []).append(fmean(mixed))
        return out

    first = plan.roles[0]
    payoff = {a: {b: _estimate(scores(played[a, b, first])) for b in players if played[a, b, first]} for a in players}
    mixed = {}
    for name in players:
        others = [e for (a, b, _), games in played.items() if a != b and name in (a, b) for e in games]
        mixed[name] = _estimate(scores(others))
    alone = {name: payoff[name][name] for name in players}
    return Standing(True, plan.roles, [], payoff, payoff, alone, mixed, habits, {}, failed)


def _estimate(scores: Scores) -> Estimate:
    return bootstrap([fmean(found) for found in scores.values()])


def _habits(plan: RunPlan, played: Mapping[Meeting, Sequence[Episode]], name: str) -> Habits:
    sat: list[tuple[Role, Episode]] = []
    for (one, other, his), games in played.items():
        for role in plan.roles:
            if name == (one if role == his else other):
                sat += [(role, e) for e in games]
    lines = [(role, e.line(role)) for role, e in sat]
    turns = [t for _, line in lines for t in line]
    said = [(role, *(t.text for t in line)) for role, line in lines]
    return Habits(
        len(lines),
        sum(t.illegal for t in turns) / max(1, len(turns)),
        sum(t.sampled for t in turns) / max(1, len(turns)),
        len(turns) / max(1, len(lines)),
        len({words[:2] for words in said if len(words) > 1}),
        len(set(said)) / max(1, len(said)),
    )


async def _hunt(field: Field, players: Mapping[str, Entrant]) -> dict[str, Hunted]:
    """The exploitability of each player, or why it cannot be computed, for example because the game is too large."""
    tree = GameTree(field.plan.task(0))
    try:
        decisions(tree)
    except InterplayError as error:
        return {name: Hunted(None, why=str(error)) for name in players}
    out = {}
    for name, seats in players.items():
        try:
            found = await strategies.measure(field.plan, field.team, seats, tree)
            out[name] = Hunted(found.found.exploitability, found.stray)
        except InterplayError as error:
            out[name] = Hunted(None, why=str(error))
    return out


# -- as tables --------------------------------------------------------------------------------------------------------


def sheets(standing: Standing) -> Iterator[Sheet]:
    if standing.together:
        yield _together(standing)
    else:
        yield _ratings(standing)
    names = _names(standing)
    if standing.together:
        rest = " and ".join(standing.roles[1:])
        yield _cross(
            "Mean reward together", standing.reward, names, f"The row has {standing.roles[0]}, the column {rest}."
        )
    else:
        two = len(standing.roles) == 2
        seats = "both seats" if two else "the row in one seat, each in turn, the column in all others, and the reverse"
        score = "a win is 1, a draw ½" if two else "1 for earning more than the mean of the others, ½ for as much"
        yield _cross("Mean score", standing.payoff, names, f"Of the row against the column: {score}; {seats}.")
        yield _cross("Mean reward", standing.reward, names, f"Of the row against the column; {seats}.")
    yield _habits_sheet(standing, names)


def charts(standing: Standing) -> Iterator[Chart]:
    names = _names(standing)
    cells = [[standing.payoff[a][b].value if b in standing.payoff[a] else None for b in names] for a in names]
    if standing.together:
        yield Heat("Cross-play: mean score of the row in the first seat with the column", names, names, cells)
        return
    rows = [(r.name, Estimate(r.value, r.low, r.high)) for r in standing.ratings]
    yield Bars("Ratings (Bradley–Terry on Elo's scale, 1500 is the mean)", rows, percent=False, note="95% intervals.")
    yield Heat("Mean score of the row against the column", names, names, cells)


def _names(standing: Standing) -> list[str]:
    """The players, best first."""
    if not standing.together:
        return [r.name for r in standing.ratings]
    return sorted(standing.alone, key=lambda n: (-standing.alone[n].value, n))


def _ratings(standing: Standing) -> Sheet:
    exact = any(h.exploitability is not None for h in standing.hunted.values())
    rows = []
    for r in standing.ratings:
        row = [r.name, f"{r.value:.0f} ({r.low:.0f}–{r.high:.0f})", f"{r.elo:.0f}", f"{r.score:.3f}", str(r.games)]
        if exact:
            found = standing.hunted[r.name].exploitability
            row.append("" if found is None else f"{found:.4f}")
        rows.append(row)
    head = ["player", "rating (95%)", "Elo", "score", "games", *(["exploitability"] if exact else [])]
    missing = {n: h.why for n, h in standing.hunted.items() if h.exploitability is None}
    whys = list(dict.fromkeys(missing.values()))
    note = "Ratings are Bradley–Terry's on Elo's scale; intervals by drawing the tasks again."
    if exact:
        note += " Exploitability is exact: what best responses win in the mean of both seats; 0 is an equilibrium."
        note += "".join(f" Not computed for {n}: {why}" for n, why in missing.items())
    elif len(whys) == 1:
        note += f" Exploitability was not computed: {whys[0]}"
    return Sheet("Ratings", head, rows, 1, note)


def _cross(title: str, table: Mapping[str, Mapping[str, Estimate]], names: Sequence[str], note: str) -> Sheet:
    """A table of every player against every other one. A column is headed by the number of its player, which stands
    before the player's name in the rows."""
    rows = []
    for i, a in enumerate(names, 1):
        rows.append([f"{i} {a}", *(f"{table[a][b].value:.2f}" if b in table[a] else "–" for b in names)])
    return Sheet(title, ["", *map(str, range(1, len(names) + 1))], rows, 1, f"{note} Intervals are in the JSON.")


def _together(standing: Standing) -> Sheet:
    rows = [
        [
            n,
            number(standing.alone[n]),
            number(standing.mixed[n]),
            f"{standing.mixed[n].value - standing.alone[n].value:+.2f}",
        ]
        for n in _names(standing)
    ]
    note = "With itself: in every seat (self-play). With others: in either seat, over all other players (cross-play)."
    return Sheet("Playing together", ["player", "with itself (95%)", "with others (95%)", "gap"], rows, 1, note)


def _habits_sheet(standing: Standing, names: Sequence[str]) -> Sheet:
    rows = []
    for name in names:
        h, hunted = standing.habits[name], standing.hunted.get(name)
        stray = "" if hunted is None or hunted.stray is None else f"{100 * hunted.stray:.2f}%"
        rows.append(
            [name, f"{100 * h.illegal:.2f}%", stray, f"{h.tokens:.1f}", f"{h.turns:.1f}", str(h.openings),
             f"{100 * h.different:.1f}%"]
        )  # fmt: skip
    head = ["player", "illegal", "stray", "tokens", "turns", "openings", "different"]
    note = (
        "Illegal: share of turns; stray: chance of an illegal reply, mean over all decisions of the game; tokens per "
        "turn; turns per game; openings: distinct first replies; different: distinct sequences of its replies, as a "
        "share of its games."
    )
    empty = [] if any(row[2] for row in rows) else ["stray"]
    return Sheet("How they play", head, rows, 1, note, hide=empty)
