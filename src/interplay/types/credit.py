"""The advantages and values of the samples of one training step. They are dropped after the step."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from interplay.types.turn import Turn

Advantage = float | tuple[float, ...]  # one number for all tokens of a sample, or one number per token


@dataclass(slots=True)
class Credit:
    """All tables are keyed by the id of a sample. `values` are the critic's estimates and `targets` what it is trained
    towards: one number at the end of the prompt, or one before each sampled token. `reference` holds the log-probs of
    the reference policy, and `legal` those of every reply in a sample's mask. `gap` (log-prob of the learner minus that
    of the engine) and `entropy` have a number for each token; they are for the records, and no algorithm reads them.
    A sample without an advantage is not trained on."""

    advantages: dict[str, Advantage] = field(default_factory=dict)
    values: dict[str, tuple[float, ...]] = field(default_factory=dict)
    targets: dict[str, tuple[float, ...]] = field(default_factory=dict)
    reference: dict[str, tuple[float, ...]] = field(default_factory=dict)
    legal: dict[str, tuple[tuple[float, ...], ...]] = field(default_factory=dict)
    gap: dict[str, tuple[float, ...]] = field(default_factory=dict)
    entropy: dict[str, tuple[float, ...]] = field(default_factory=dict)

    def give(self, turn: Turn, advantage: float) -> None:
        """Give the same advantage to all samples of a turn, including its tool calls. Samples without token ids (of
        remote models) get none."""
        for sample in turn.samples:
            if sample.action:
                self.advantages[sample.id] = advantage

    def withdraw(self, turns: Iterable[Turn]) -> None:
        """Take these turns out of training."""
        for turn in turns:
            for sample in turn.samples:
                self.advantages.pop(sample.id, None)

    def advantage(self, turn: Turn) -> float | None:
        """The advantage of a turn's last sample, or None if it is not trained on. If each token has its own advantage,
        this is the one with the largest absolute value."""
        found = self.advantages.get(turn.last.id) if turn.samples else None
        return max(found, key=abs) if isinstance(found, tuple) else found

    def value(self, turn: Turn) -> float | None:
        """The critic's value of the prompt that the turn's last sample answers (the first value, if it has several)."""
        found = self.values.get(turn.last.id) if turn.samples else None
        return None if found is None else found[0]

    def target(self, turn: Turn) -> float | None:
        """The training target of that value."""
        found = self.targets.get(turn.last.id) if turn.samples else None
        return None if found is None else found[0]
