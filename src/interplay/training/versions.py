"""Which training step each version of a policy's weights belongs to.

Every optimiser step makes a version, and every token has the version that sampled it. The staleness of a token is
counted in training steps: 0 for the newest weights, 1 for those before the last training step, and so on.
"""

from __future__ import annotations

from collections.abc import Sequence

_KEPT = 10_000  # versions of a policy; older ones count as the oldest of these


class Versions:
    def __init__(self) -> None:
        self._born: dict[str, dict[int, int]] = {}  # by policy and version: the training steps taken when it was made

    def made(self, policy: str, version: int, step: int) -> None:
        """Note that `version` was made after `step` completed training steps."""
        born = self._born.setdefault(policy, {})
        born[version] = step
        while len(born) > _KEPT:
            del born[next(iter(born))]

    def newest(self, policy: str) -> int:
        return max(self._born.get(policy, {0: 0}))

    def lags(self, policy: str, versions: Sequence[int], step: int) -> tuple[int, ...]:
        """The age of each token's weights in training steps, after `step` completed training steps."""
        born = self._born.get(policy, {})
        newest = self.newest(policy)
        oldest = min(born.values(), default=step)
        return tuple([0 if v == newest else max(1, step - born.get(v, oldest)) for v in versions])
