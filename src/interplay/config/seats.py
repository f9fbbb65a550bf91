"""[seats] and [[matchups]]: who plays which role, and other seats for a share of the training episodes."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Literal

from pydantic import Field, model_validator

from interplay.config.section import Section
from interplay.errors import ConfigError

Draw = Literal["pfsp", "variance", "uniform", "latest"]


class MatchupSection(Section):
    """Other line-ups for a share of the training episodes. A seat can have a bot, a frozen policy, `policy@start` (its
    weights when reinforcement learning began), `policy@now` (it plays and is not trained), `policy@league` (a snapshot
    that [league] draws) or `@league` (a snapshot of any policy). Roles that are not in `seats` are played as [seats]
    says. Instead of `seats`, `one` plays a role that is drawn for each task, and `others` play the rest.
    """

    share: float | list[list[float]] = Field(
        description="share of the episodes, or a list of [step, share] pairs that begins with step 0"
    )
    change: Literal["switch", "drift"] = Field(
        "switch", description="how a share that is given by steps changes: switch at once, or drift in a straight line"
    )
    period: int = Field(
        0,
        ge=0,
        description="number of steps after which a share that is given by steps begins again; 0: it never does",
    )
    seats: dict[str, str] = Field({}, description="who plays which role; or use `one` and `others`")
    one: str | None = Field(None, description="who plays one role, which is drawn for each task")
    others: str | None = Field(None, description="who plays all roles that `one` does not play")
    draw: Draw | None = Field(
        None, description="how a snapshot for @league is drawn in this matchup; default: league.draw"
    )

    @model_validator(mode="after")
    def _is_whole(self) -> MatchupSection:
        if (self.one is None) != (self.others is None) or (self.one is None) == (not self.seats):
            raise ConfigError(
                "a matchup has none or both of seats and one/others; expected seats (a table of role = player), or "
                "both one and others."
            )
        if isinstance(self.share, list):
            steps = [point[0] for point in self.share if len(point) == 2]
            if len(steps) < len(self.share) or steps[:1] != [0] or any(b <= a for a, b in pairwise(steps)):
                raise ConfigError(
                    f"a matchup's share is {self.share}; expected [[0, share], [step, share], ...], in order."
                )
        shares = [self.share] if isinstance(self.share, float | int) else [point[1] for point in self.share]
        if not all(0 <= share <= 1 for share in shares) or not any(shares):
            raise ConfigError(f"a matchup's share is {self.share}; expected more than 0 and at most 1.")
        return self

    def share_at(self, step: int) -> float:
        """The matchup's share of the episodes in one training step."""
        if not isinstance(self.share, list):
            return self.share
        at = step % self.period if self.period else step
        (begin, low), after = [p for p in self.share if p[0] <= at][-1], [p for p in self.share if p[0] > at]
        if self.change == "switch" or not after:
            return low
        end, high = after[0]
        return low + (high - low) * (at - begin) / (end - begin)

    @property
    def named(self) -> dict[str, str]:
        """The names of all players in this matchup, by the key that names them."""
        if self.one is None or self.others is None:
            return keyed("seats", self.seats)
        return {"one": self.one, "others": self.others}


def split_seat(key: str) -> tuple[str, int | None]:
    """Split a seat's key, `role` or `role@turn`, into role and turn (or None). The first turn is 1."""
    role, at, turn = key.rpartition("@")
    if not at:
        return key, None
    if not turn.isdecimal() or int(turn) < 1:
        raise ConfigError(f"seat '{key}' has the turn '{turn}'; expected role@turn, with turns counted from 1.")
    return role, int(turn)


def keyed(prefix: str, table: Mapping[str, str]) -> dict[str, str]:
    return {f"{prefix}.{role}": name for role, name in table.items()}
