"""Round-robin among policies, checkpoints and bots: every pair, both seats, the same tasks for all of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from interplay.algorithms import Independent, credit
from interplay.errors import ConfigError, InterplayError
from interplay.evaluation.ratings import Game, Rating, rate
from interplay.rollout.resolve import Plan
from interplay.rollout.runner import Runner
from interplay.rollout.team import Team
from interplay.types import Episode, Status


@dataclass(frozen=True)
class Standing:
    """Ratings, best first; `payoff[a][b]` is a's mean score against b over both seats; per player, the share of illegal
    turns, the tokens of a turn, and how many different replies to the first prompt there were."""

    ratings: list[Rating]
    payoff: dict[str, dict[str, float]]
    illegal: dict[str, float]
    tokens: dict[str, float]
    openings: dict[str, int]
    failed: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def to_markdown(self) -> str:
        names = [r.name for r in self.ratings]
        lines = [
            "| player | rating (95%) | Elo | score | games | illegal | " + " | ".join(f"vs {n}" for n in names) + " |"
        ]
        lines.append("|---" * (6 + len(names)) + "|")
        for r in self.ratings:
            versus = [f"{self.payoff[r.name][n]:.2f}" if n != r.name else "" for n in names]
            cells = [
                r.name, f"{r.value:.0f} ({r.low:.0f}–{r.high:.0f})", f"{r.elo:.0f}", f"{r.score:.3f}", str(r.games),
                f"{100 * self.illegal[r.name]:.2f}%", *versus,
            ]  # fmt: skip
            lines.append("| " + " | ".join(cells) + " |")
        return "\n".join(lines) + "\n"


async def round_robin(
    plan: Plan,
    team: Team,
    players: Mapping[str, str],
    games: int,
    temperature: float,
    split: str = "test",
    done: Callable[[Episode], None] | None = None,
) -> Standing:
    """`players` are names and who they are: a member of the team, or `bot:NAME`. Each pair plays `games` tasks in
    either seating."""
    if len(plan.roles) != 2:
        raise ConfigError(f"{plan.recipe.env.name} has {len(plan.roles)} roles; an arena needs a game for two.")
    if len(players) < 2:
        raise ConfigError("an arena needs at least two players.")
    recipe = plan.recipe
    runner = Runner(recipe.seed + 2, recipe.rollout, Independent(), recipe.reward)
    tasks = [plan.task(i, split) for i in range(games)]
    first, second = plan.roles
    played: list[Game] = []
    turns: dict[str, list[tuple[bool, int]]] = {name: [] for name in players}
    openings: dict[str, set[str]] = {name: set() for name in players}
    failed = 0
    for pair in itertools.combinations(players, 2):
        for a, b in (pair, pair[::-1]):
            seats = {first: players[a], second: players[b]}
            seating = team.seating(lambda _, seats=seats: seats, temperature, recipe.sampling.max_tokens)  # type: ignore[misc]
            for episode in await runner.run(tasks, seating, done):
                if episode.error is not None:
                    failed += 1
                    continue
                score = {r: credit.mix(episode.rewards, r, recipe.reward) for r in plan.roles}
                played.append((a, b, 0.5 + 0.5 * ((score[first] > score[second]) - (score[first] < score[second]))))
                for name, role in ((a, first), (b, second)):
                    mine = episode.line(role)
                    turns[name] += [(t.status is Status.ILLEGAL, t.sampled) for t in mine]
                    openings[name] |= {f"{role} {mine[0].text}"} if mine else set()
    if not played:
        raise InterplayError(f"all {failed} games of the arena failed.")
    ratings = rate(played, seed=recipe.seed)
    return Standing(
        ratings,
        _payoff(played, list(players)),
        {n: sum(bad for bad, _ in t) / max(1, len(t)) for n, t in turns.items()},
        {n: sum(size for _, size in t) / max(1, len(t)) for n, t in turns.items()},
        {n: len(o) for n, o in openings.items()},
        failed,
    )


def _payoff(games: Sequence[Game], names: Sequence[str]) -> dict[str, dict[str, float]]:
    sums: dict[str, dict[str, list[float]]] = {a: {b: [] for b in names} for a in names}
    for a, b, score in games:
        sums[a][b].append(score)
        sums[b][a].append(1 - score)
    return {a: {b: sum(s) / len(s) for b, s in row.items() if s} for a, row in sums.items()}
