"""One play of one task."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from interplay.types.occupant import Occupant
from interplay.types.rewards import Rewards, Role
from interplay.types.task import Task
from interplay.types.turn import Turn


@dataclass(frozen=True, slots=True)
class Cut:
    """The point at which a limit ended an episode. `due` are the turns that would have come next: they have prompts and
    no replies. `outcome` is the reward that the environment gave for its state at that point. With a critic, the value
    of the turns in `due` replaces `outcome`."""

    due: tuple[Turn, ...]
    outcome: Rewards


@dataclass(slots=True)
class Episode:
    """One play of one task. `error` is set when the system failed; such an episode is never trained on."""

    id: str
    task: Task
    replica: int
    seats: Mapping[Role, Occupant]
    turns: list[Turn] = field(default_factory=list)
    rewards: Rewards = field(default_factory=Rewards)
    truncated: bool = False  # a limit ended the main line (then `cut` is set) or a playout
    cut: Cut | None = None  # not written to records
    error: str | None = None
    seconds: float = 0.0
    final_state: str = ""
    answered: bool = True  # whether final_state holds an answer, in environments whose goal is an answer
    # Set if the main line was selected by its return, as in a tree that keeps the best candidate: the rewards of
    # complete plays of this task without that selection. Empty if these are not known.
    plays: tuple[Rewards, ...] | None = None
    # Tokens sampled by each policy, with rejected candidates and playouts, whether their turns are kept or not. Not
    # written to records.
    used: dict[str, int] = field(default_factory=dict, compare=False)
    judged: list[Turn] = field(default_factory=list)  # the calls of judges about this episode, as turns of role `judge`

    @property
    def own(self) -> tuple[Rewards, ...]:
        """The rewards of plays that were not selected by their return: those of the main line, unless it was selected
        that way."""
        return (self.rewards,) if self.plays is None else self.plays

    def line(self, role: Role | None = None) -> list[Turn]:
        """The turns of the main line in order (no rejected candidates, no playouts); only those of `role` if given."""
        return [t for t in self.turns if t.kept and t.playout is None and (role is None or t.role == role)]


def reply_share(episodes: Iterable[Episode], policies: Collection[str], holds: Callable[[Turn], bool]) -> float:
    """The share of the replies of these policies for which `holds`, as a mean over decisions. The candidates that a
    tree rejected count too, because the policy sampled them; playouts do not."""
    replies: dict[tuple[str, int, Role], list[bool]] = {}
    for episode in episodes:
        for turn in episode.turns:
            if turn.playout is None and turn.is_model and turn.policy in policies:
                keys = turn.keys
                replies.setdefault((episode.id, keys.decision, keys.role), []).append(holds(turn))
    return sum(sum(found) / len(found) for found in replies.values()) / max(1, len(replies))
