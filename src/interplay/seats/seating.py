"""The seat map: who plays each role. The environment does not know who plays. No torch.

`seats = "player"`                              one policy in every seat (shared weights, self-play)
`seats = { X = "strong", O = "bot:random" }`    a policy or a bot per role
`seats = { "a@1" = "opener", a = "player" }`    another player for a role's first turn; the plain key is for the rest

A policy with `per = "role"` becomes a separate policy in each role that names it (`per_role`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from interplay.config import MatchupSection, PolicySection, Recipe, split_seat
from interplay.errors import ConfigError, did_you_mean
from interplay.types import ByTurn, FromLeague, Occupant, One, Policy, Remote, Role, Snapshot
from interplay.types.occupant import parse, parse_one


class Seats:
    """Parses the occupants that a recipe names, and marks those that are remote models."""

    def __init__(self, policies: Mapping[str, PolicySection]) -> None:
        self.remotes = {name for name, policy in policies.items() if policy.is_remote}

    def one(self, text: str) -> One:
        return self._marked(parse_one(text))

    def occupant(self, text: str) -> Occupant:
        found = parse(text)
        if isinstance(found, ByTurn):
            return ByTurn(tuple(map(self._marked, found.takers)), found.always)
        return self._marked(found)

    def _marked(self, who: One) -> One:
        return Remote(who.name) if isinstance(who, Policy) and who.name in self.remotes else who

    def map(self, seats: str | Mapping[str, str], roles: Sequence[Role], key: str = "seats") -> dict[Role, Occupant]:
        """The occupant of every role. A missing role, or one that this environment does not have, is an error."""
        if isinstance(seats, str):
            return dict.fromkeys(roles, self.one(seats))
        found = self.some(seats, roles, key)
        for role in roles:
            if role not in found:
                raise ConfigError(
                    f"{key}.{role} is missing; expected a policy or bot:name for each of {', '.join(roles)}."
                )
        return {role: found[role] for role in roles}

    def some(self, seats: Mapping[str, str], roles: Sequence[Role], key: str) -> dict[Role, Occupant]:
        """The occupants of the roles that `seats` names."""
        turns: dict[Role, dict[int | None, One]] = {}
        for seat, name in seats.items():
            role, turn = split_seat(seat)
            if role not in roles:
                raise ConfigError(f"{key}.{seat} is not a role of this environment; {did_you_mean(role, roles)}")
            turns.setdefault(role, {})[turn] = self.one(name)
        return {role: _by_turn(role, named, key) for role, named in turns.items()}


def _by_turn(role: Role, named: Mapping[int | None, One], key: str) -> Occupant:
    """The occupant of a role. `named` says who takes its turns 1, 2, …; the key None stands for all other turns."""
    rest = named.get(None)
    last = max((turn for turn in named if turn is not None), default=0)
    if not last:
        assert rest is not None
        return rest
    missing = [f"{role}@{turn}" for turn in range(1, last) if turn not in named]
    if rest is None and missing:
        raise ConfigError(
            f"{key}.{role}@{last} is set, but {', '.join(missing)} is not; expected every turn of the role, or "
            f"{key}.{role} for all other turns."
        )
    listed = [who for turn in range(1, last + 1) if (who := named.get(turn) or rest) is not None]
    return ByTurn(tuple([*listed, rest] if rest else listed), always=rest is not None)


def policy_of(who: One) -> str:
    """The policy whose current or earlier weights an occupant plays with; empty for bots and for `@league`."""
    if isinstance(who, Policy | Remote):
        return who.name
    return who.policy if isinstance(who, Snapshot | FromLeague) else ""


# -- one policy per role ----------------------------------------------------------------------------------------------


def per_role(recipe: Recipe, roles: Sequence[Role]) -> Recipe:
    """The recipe in which each policy with `per = "role"` is replaced by one policy `name-role` per role it plays."""
    shared = {name: policy for name, policy in recipe.policies.items() if policy.per == "role"}
    if not shared:
        return recipe
    _refuse_for_all(recipe, shared)
    table = dict.fromkeys(roles, recipe.seats) if isinstance(recipe.seats, str) else dict(recipe.seats)
    made: dict[str, PolicySection] = {}

    def own(seats: Mapping[str, str]) -> dict[str, str]:
        """Rename in each seat: `player` becomes `player-X`, and `player@start` becomes `player-X@start`."""
        out = {}
        for seat, name in seats.items():
            who = parse_one(name)
            policy = policy_of(who)
            mine = f"{policy}-{split_seat(seat)[0]}"
            if policy in shared and isinstance(who, Policy):
                made[mine] = shared[policy].model_copy(update={"per": "team"})
            out[seat] = mine + name.removeprefix(policy) if policy in shared else name
        return out

    seats = own(table)
    spread = [m for matchup in recipe.matchups for m in _by_role(matchup, roles, shared)]
    matchups = [m.model_copy(update={"seats": own(m.seats)}) for m in spread]
    for name in (n for m in matchups for n in m.seats.values()):
        who = parse_one(name)
        policy = policy_of(who)
        if policy and not isinstance(who, Policy) and policy not in made and policy not in recipe.policies:
            raise ConfigError(
                f"a matchup seats '{name}', but '{policy}' has per = 'role' and is not trained in that role; expected "
                "it in [seats], or another player there."
            )
    policies = {n: p for n, p in recipe.policies.items() if n not in shared} | made
    return recipe.model_copy(update={"seats": seats, "matchups": matchups, "policies": policies})


def _by_role(matchup: MatchupSection, roles: Sequence[Role], shared: Collection[str]) -> list[MatchupSection]:
    """The matchup unchanged or, if `one` or `others` is a policy with `per = "role"`, one matchup for each role that
    `one` can play. These divide the share evenly."""
    if matchup.one is None or matchup.others is None:
        return [matchup]
    if not any(policy_of(parse_one(name)) in shared for name in (matchup.one, matchup.others)):
        return [matchup]
    part = 1 / len(roles)
    share = (
        [[step, part * value] for step, value in matchup.share]
        if isinstance(matchup.share, list)
        else part * matchup.share
    )
    none = {"one": None, "others": None, "share": share}
    return [
        matchup.model_copy(update={**none, "seats": {r: matchup.one if r == mine else matchup.others for r in roles}})
        for mine in roles
    ]


def _refuse_for_all(recipe: Recipe, shared: Collection[str]) -> None:
    """Refuse a policy with `per = "role"` where the recipe must name a single policy for all roles."""
    league = recipe.league
    named = [("eval.opponents", name) for name in recipe.eval.opponents]
    if league is not None:
        named += [("league.exploiters", name) for name in league.exploiters]
        named += [("league.alarm.panel", name) for name in (league.alarm.panel if league.alarm else ())]
    for key, name in named:
        if policy_of(parse_one(name)) in shared:
            raise ConfigError(
                f"{key} names '{name}', which has per = 'role', so there is one for each role; expected bot:NAME or a "
                "single policy."
            )
