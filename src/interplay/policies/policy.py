"""Who sits in which seat. The seat map is the whole of L1, L2 and L3; the environment never knows. No torch.

`seats = "player"`                              one policy in every seat (shared weights, self-play)
`seats = { X = "strong", O = "bot:random" }`    a policy or a bot per role
`seats = { "a@1" = "opener", a = "player" }`    another one for a role's first turn; the plain key has the rest

With `per = "role"` a policy of the recipe stands for one in each role that names it (`per_role`). What sits in a role
is one string from here on, an occupant: `player`, or `opener, then player`, who take its turns in that order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from interplay.config import START, Recipe, split_seat
from interplay.errors import ConfigError, did_you_mean
from interplay.types import Role

BOT = "bot:"
_NEXT, _REST, _NO_ONE = ", ", "then ", "then no one"


def seat_map(seats: str | Mapping[str, str], roles: Sequence[Role], key: str = "seats") -> dict[Role, str]:
    """Every role's occupant; a role left out or not of this environment is refused."""
    if isinstance(seats, str):
        return dict.fromkeys(roles, seats)
    found = occupants_of(seats, roles, key)
    for role in roles:
        if role not in found:
            raise ConfigError(f"{key}.{role} is missing; expected a policy or bot:name for each of {', '.join(roles)}.")
    return {role: found[role] for role in roles}


def occupants_of(seats: Mapping[str, str], roles: Sequence[Role], key: str) -> dict[Role, str]:
    """The occupants of the roles that `seats` speaks of."""
    turns: dict[Role, dict[int | None, str]] = {}
    for seat, name in seats.items():
        role, turn = split_seat(seat)
        if role not in roles:
            raise ConfigError(f"{key}.{seat} is no role of this environment; {did_you_mean(role, roles)}")
        turns.setdefault(role, {})[turn] = name
    return {role: _occupant(role, named, key) for role, named in turns.items()}


def _occupant(role: Role, named: Mapping[int | None, str], key: str) -> str:
    rest = named.get(None)
    last = max((turn for turn in named if turn is not None), default=0)
    if not last:
        assert rest is not None
        return rest
    missing = [f"{role}@{turn}" for turn in range(1, last) if turn not in named]
    if rest is None and missing:
        raise ConfigError(
            f"{key}.{role}@{last} is given, but not {', '.join(missing)}; expected every turn of the role, or "
            f"{key}.{role} for the turns that are not named."
        )
    listed = [named.get(turn) or rest or "" for turn in range(1, last + 1)]
    return _NEXT.join([*listed, _REST + rest if rest else _NO_ONE])


def takers(occupant: str) -> tuple[list[str], bool]:
    """Who takes a role's turns, in order, and whether the last one takes all that follow too."""
    parts = occupant.split(_NEXT)
    if parts[-1] == _NO_ONE:
        return parts[:-1], False
    return [part.removeprefix(_REST) for part in parts], True


def sitting(occupant: str) -> list[str]:
    """The policies and bots of a seat, each once."""
    return list(dict.fromkeys(takers(occupant)[0]))


def per_role(recipe: Recipe, roles: Sequence[Role]) -> Recipe:
    """The recipe with a policy of its own, `name-role`, for each role in which a policy with `per = "role"` sits."""
    shared = {name: policy for name, policy in recipe.policies.items() if policy.per == "role"}
    if not shared:
        return recipe
    table = dict.fromkeys(roles, recipe.seats) if isinstance(recipe.seats, str) else dict(recipe.seats)

    def own(seats: Mapping[str, str]) -> dict[str, str]:
        out = {}
        for seat, name in seats.items():
            policy = name.removesuffix(START)
            mine = f"{policy}-{split_seat(seat)[0]}" + name[len(policy) :]
            out[seat] = mine if policy in shared else name
        return out

    for name in recipe.eval.opponents:
        if name in shared:
            raise ConfigError(
                f"eval.opponents names '{name}', which is one policy per role; expected bot:NAME or one policy."
            )
    seats = own(table)
    matchups = [m.model_copy(update={"seats": own(m.seats)}) for m in recipe.matchups]
    policies = {n: p for n, p in recipe.policies.items() if n not in shared}
    for name, policy in shared.items():
        for seat, who in table.items():
            if who == name:
                policies[f"{name}-{split_seat(seat)[0]}"] = policy.model_copy(update={"per": "team"})
    return recipe.model_copy(update={"seats": seats, "matchups": matchups, "policies": policies})
