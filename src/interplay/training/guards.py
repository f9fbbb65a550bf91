"""Watches every step of every policy, and says so when something goes wrong: never silently on.

The gate between engine and learner (promise 2) and non-finite losses stop a step in `learner.py`, before the weights
move. Here are the slower illnesses: gradients that leap, entropy that collapses, credit that says nothing. Each warns;
with `train.stop_on_guard` the run stops instead, its newest checkpoint whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from interplay.config import TrainSection

_MEMORY = 0.9  # of the running mean of gradient norms
_YOUNG = 5  # steps before a mean means anything


class Guards:
    def __init__(self, config: TrainSection) -> None:
        self.config = config
        self._norms: dict[str, tuple[int, float]] = {}  # per policy: steps seen, running mean

    def look(self, name: str, metrics: Mapping[str, float], zero_shares: Mapping[str, float]) -> list[str]:
        """What is wrong with this step of policy `name`, a sentence each. `zero_shares` are by role."""
        found = []
        norm = metrics.get("grad_norm")
        if norm is not None:
            seen, mean = self._norms.get(name, (0, 0.0))
            limit = self.config.guard_grad_spike
            if seen >= _YOUNG and norm > limit * mean:
                found.append(
                    f"policy '{name}': the gradient norm is {norm:.3g}, over {limit:g} times its mean of {mean:.3g} "
                    "(train.guard_grad_spike)"
                )
            self._norms[name] = (seen + 1, norm if seen == 0 else _MEMORY * mean + (1 - _MEMORY) * norm)
        entropy = metrics.get("entropy")
        if entropy is not None and entropy < self.config.guard_entropy:
            found.append(
                f"policy '{name}': the entropy is {entropy:.3g} nats a token, under train.guard_entropy "
                f"({self.config.guard_entropy:g}): it says nearly the same whatever it sees"
            )
        found += [
            f"role {role}: {share:.0%} of its advantages are exactly zero, over train.guard_zero_share "
            f"({self.config.guard_zero_share:.0%}): there is little to learn from"
            for role, share in zero_shares.items()
            if share > self.config.guard_zero_share
        ]
        return found

    def state_dict(self) -> dict[str, Any]:
        return {name: list(pair) for name, pair in self._norms.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._norms = {name: (int(seen), float(mean)) for name, (seen, mean) in state.items()}
