"""Who plays which role: the occupants of an environment's roles, and the plan of a run."""

from interplay.seats.plan import Matchup, RunPlan
from interplay.seats.seating import Seats, per_role, policy_of
from interplay.types.occupant import (
    ByTurn,
    FromLeague,
    Occupant,
    One,
    Policy,
    Remote,
    Scripted,
    Snapshot,
    everyone,
    learns,
    parse,
    parse_one,
    parse_snapshot,
)

__all__ = [
    "ByTurn", "FromLeague", "Matchup", "Occupant", "One", "Policy", "Remote", "RunPlan", "Scripted", "Seats",
    "Snapshot", "everyone", "learns", "parse", "parse_one", "parse_snapshot", "per_role", "policy_of",
]  # fmt: skip
