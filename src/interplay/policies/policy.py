"""Who sits in which seat. The seat map is the whole of L1, L2 and L3; the environment never knows. No torch.

`seats = "player"`                    one policy in every seat (shared weights, self-play)
`seats = {X = "strong", O = "bot:random"}`   a policy or a bot per role
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from interplay.errors import ConfigError, did_you_mean
from interplay.types import Role

BOT = "bot:"


def seat_map(seats: str | Mapping[str, str], roles: Sequence[Role]) -> dict[Role, str]:
    """Every role's policy or `bot:name`; a role left out or not of this environment is refused."""
    if isinstance(seats, str):
        return dict.fromkeys(roles, seats)
    for role in seats:
        if role not in roles:
            raise ConfigError(f"seats.{role} is no role of this environment; {did_you_mean(role, roles)}")
    for role in roles:
        if role not in seats:
            raise ConfigError(f"seats.{role} is missing; expected a policy or bot:name for each of {', '.join(roles)}.")
    return {role: seats[role] for role in roles}
