"""What a step's samples are worth: made for one training step, then dropped."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from interplay.types.turn import Turn

Advantage = float | tuple[float, ...]  # one number for all tokens of a sample, or one for each


@dataclass(slots=True)
class Credit:
    """Everything by the id of a sample. `values` and `targets` are a critic's: one number at the end of the prompt, or
    one before each sampled token. `reference` holds log-probs of the reference policy, `legal` those of every reply
    in a sample's mask. A sample without an advantage is not trained."""

    advantages: dict[str, Advantage] = field(default_factory=dict)
    values: dict[str, tuple[float, ...]] = field(default_factory=dict)
    targets: dict[str, tuple[float, ...]] = field(default_factory=dict)
    reference: dict[str, tuple[float, ...]] = field(default_factory=dict)
    legal: dict[str, tuple[tuple[float, ...], ...]] = field(default_factory=dict)

    def give(self, turn: Turn, advantage: float) -> None:
        """One advantage for all that was sampled in a turn, its tool calls included. Bots and remote models have no
        tokens to train."""
        for sample in turn.samples:
            if sample.action:
                self.advantages[sample.id] = advantage

    def withdraw(self, turns: Iterable[Turn]) -> None:
        """Take these turns out of training."""
        for turn in turns:
            for sample in turn.samples:
                self.advantages.pop(sample.id, None)

    def advantage(self, turn: Turn) -> float | None:
        """A turn's advantage, None where it is not trained; where its tokens have their own, the largest in size."""
        found = self.advantages.get(turn.last.id) if turn.samples else None
        return max(found, key=abs) if isinstance(found, tuple) else found

    def value(self, turn: Turn) -> float | None:
        """The critic's value of what a turn answered."""
        found = self.values.get(turn.last.id) if turn.samples else None
        return None if found is None else found[0]

    def target(self, turn: Turn) -> float | None:
        """What the critic should have said of it."""
        found = self.targets.get(turn.last.id) if turn.samples else None
        return None if found is None else found[0]
