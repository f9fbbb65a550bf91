"""One play of one task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from interplay.types.occupant import Occupant
from interplay.types.rewards import Rewards, Role
from interplay.types.task import Task
from interplay.types.turn import Turn


@dataclass(frozen=True, slots=True)
class Cut:
    """Where a limit cut an episode off. `due` are the turns that had to be taken next, with their prompts and without a
    reply; `outcome` is what the environment paid as it stood then. A critic's value of what was due takes its place."""

    due: tuple[Turn, ...]
    outcome: Rewards


@dataclass(slots=True)
class Episode:
    """One play of one task. `error` is set when the machinery failed: such an episode is never trained on."""

    id: str
    task: Task
    replica: int
    seats: Mapping[Role, Occupant]
    turns: list[Turn] = field(default_factory=list)
    rewards: Rewards = field(default_factory=Rewards)
    truncated: bool = False  # by a limit: the line of play (then there is a `cut`), or a playout
    cut: Cut | None = None  # not part of records
    error: str | None = None
    seconds: float = 0.0
    final_state: str = ""
    answered: bool = True  # whether that holds an answer, where answers are what is played for
    plays: tuple[Rewards, ...] | None = None  # set where the line was chosen by its worth, as a tree that keeps the
    # best does: what whole plays of this task earned without such a choice; empty where that is not known

    @property
    def own(self) -> tuple[Rewards, ...]:
        """What plays by the policies' own choices earned: the line itself, unless it was chosen by its worth."""
        return (self.rewards,) if self.plays is None else self.plays

    def line(self, role: Role | None = None) -> list[Turn]:
        """The turns that were really played, in order; of one role if given."""
        return [t for t in self.turns if t.kept and t.playout is None and (role is None or t.role == role)]
