"""Ablations that show what each agent and each channel contributes: policies exchange their roles, one agent is
replaced, or a channel is muted.

A drop is the figure of the original line-up minus the figure of the changed one, paired task by task, with a bootstrap
interval. An interval that does not contain 0 means that the change makes a difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from interplay.config import TEAM, Recipe
from interplay.errors import ConfigError
from interplay.evaluation import intervals
from interplay.evaluation.benchmark import Lineup
from interplay.evaluation.intervals import Estimate
from interplay.evaluation.measures import by_task, paired, verdict
from interplay.seats import RunPlan
from interplay.types import Episode, Occupant, Role, Scripted

if TYPE_CHECKING:
    from interplay.rollout.team import Team


@dataclass(frozen=True)
class Change:
    """A changed line-up and what the change cost. `won` is the share of successes of a team, or of wins of a role."""

    what: str
    opponent: str
    seats: Mapping[Role, Occupant]
    games: int
    won: Estimate
    score: Estimate
    won_drop: Estimate | None
    score_drop: Estimate | None


def swaps(plan: RunPlan, lineup: Lineup) -> Iterator[tuple[str, dict[Role, Occupant]]]:
    """In a team, every two different policies exchange their roles. Against an opponent, each of the recipe's other
    policies takes the measured role."""
    seats = plan.seats
    if lineup.role == TEAM:
        for a, b in combinations(plan.roles, 2):
            if seats[a] != seats[b]:
                yield f"{a} ↔ {b}", {**seats, a: seats[b], b: seats[a]}
        return
    for who in dict.fromkeys(w for w in seats.values() if str(w) != lineup.policy and not isinstance(w, Scripted)):
        yield f"{who} as {lineup.role}", {**lineup.seats, lineup.role: who}


def without(plan: RunPlan, substitutes: Mapping[Role, Occupant]) -> Iterator[tuple[str, dict[Role, Occupant]]]:
    """The team with one agent replaced by its substitute, for each agent that has one."""
    for role in plan.roles:
        if role in substitutes:
            yield f"{role} = {substitutes[role]}", {**plan.seats, role: substitutes[role]}


@contextmanager
def muted(team: Team, name: str) -> Iterator[None]:
    """Inside, a channel passes on nothing. `Field.play` begins with an empty cache, so none of its vectors stay."""
    channel = team.pool.channels[name]
    before, channel.mute = channel.mute, True
    try:
        yield
    finally:
        channel.mute = before


def change(
    recipe: Recipe,
    what: str,
    lineup: Lineup,
    seats: Mapping[Role, Occupant],
    whole: Sequence[Episode],
    changed: Sequence[Episode],
) -> Change:
    role = lineup.role
    tasks = [[verdict(recipe, e, role) for e in games] for games in by_task(changed).values()]
    return Change(
        what,
        lineup.opponent,
        dict(seats),
        sum(map(len, tasks)),
        intervals.share([[v.won for v in games] for games in tasks]),
        intervals.bootstrap([sum(v.score for v in games) / len(games) for games in tasks]),
        paired(whole, changed, lambda e: float(verdict(recipe, e, role).won)),
        paired(whole, changed, lambda e: verdict(recipe, e, role).score),
    )


def check(plan: RunPlan) -> None:
    """Raises ConfigError for ablations that this recipe cannot run, before any model is loaded."""
    section = plan.recipe.eval
    policies = {w for w in plan.seats.values() if not isinstance(w, Scripted)}
    if "swap" in section.ablations and len(policies) < 2:
        raise ConfigError(
            "eval.ablations has 'swap', but a single policy plays every role, so no roles can be exchanged; remove "
            "'swap', or give the roles different policies in [seats]."
        )
    if "mute" in section.ablations and not plan.recipe.channels:
        raise ConfigError("eval.ablations has 'mute', but the recipe has no [channels] to mute; remove it.")
    of_a_team = [name for name in section.ablations if name not in ("swap", "mute")]
    if of_a_team and TEAM not in section.opponents:
        raise ConfigError(
            f"eval.ablations has {' and '.join(map(repr, of_a_team))}, which measures a team; set "
            f'eval.opponents = ["{TEAM}"], and eval.success to the reward that says whether the team succeeded.'
        )
    if "without" in section.ablations:
        _check_substitute(plan)
    if "budget" in section.ablations:
        single(plan)


def _check_substitute(plan: RunPlan) -> None:
    who, recipe = plan.recipe.eval.substitute, plan.recipe
    if who in ("base", "start") or isinstance(plan.occupant(who), Scripted) or who in recipe.policies:
        return
    raise ConfigError(
        f"eval.substitute is '{who}'; expected base, start, bot:NAME or a policy: {', '.join(recipe.policies)}."
    )


def single(plan: RunPlan) -> tuple[Role, str]:
    """The role and the policy of the single agent that the team is compared with."""
    from interplay import envs

    section = plan.recipe.eval.single
    if section is None:
        raise ConfigError(
            "eval.ablations has 'budget', but eval.single is missing; expected options that leave only one role, "
            'such as eval.single = { options = { team = "single" } }.'
        )
    roles = envs.make(plan.task(0, "test", section.options)).roles
    if len(roles) != 1:
        raise ConfigError(
            f"eval.single.options leaves the roles {', '.join(roles)}; expected options of {plan.recipe.env.name} that "
            "leave only one role."
        )
    policy = section.policy or str(plan.seats.get(roles[0], ""))
    if policy not in plan.recipe.policies:
        known = ", ".join(plan.recipe.policies)
        raise ConfigError(f"eval.single.policy is '{policy}'; expected a policy that samples tokens: {known}.")
    return roles[0], policy
