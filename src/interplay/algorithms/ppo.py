"""PPO with a turn-level critic (PPO, 1707.06347; Turn-PPO, 2512.17008).

V is read at the end of a turn's prompt, and one advantage is given to all tokens of the turn. GAE runs over *one
role's* turns: chaining it across players would flip signs in zero-sum games. Advantages are whitened per role, over
trained tokens only. Truncated episodes bootstrap with the last value, finished ones with 0.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

from pydantic import Field

from interplay.algorithms import credit
from interplay.algorithms.algorithm import Algorithm, CriticSettings, Independent, LossSettings, register
from interplay.errors import GuardError
from interplay.types import Episode, Role, Turn


class PPOSettings(LossSettings):
    replicas: int = Field(1, ge=1, description="episodes per task")
    gae_lambda: float = Field(0.9, ge=0, le=1)
    critic: CriticSettings = CriticSettings()


@register("ppo")
class PPO(Algorithm):
    Settings = PPOSettings
    settings: PPOSettings
    needs = frozenset({"values"})

    @property
    def plan(self) -> Independent:
        return Independent(self.settings.replicas)

    @property
    def critic(self) -> CriticSettings:
        return self.settings.critic

    def credit(self, episodes: Sequence[Episode]) -> Mapping[str, float]:
        truncated = {e.id for e in episodes if e.truncated}
        # A frozen policy in some seat has no critic: its lines are not trained, and enter no mean.
        played = [line for line in credit.lines(episodes) if any(t.value is not None for t in line)]
        by_role: dict[Role, list[Turn]] = defaultdict(list)
        for line in played:
            values = []
            for turn in line:
                if turn.value is None:
                    raise GuardError(f"turn {turn.id} has no critic value; PPO needs the score step before credit.")
                values.append(turn.value)
            rewards = [credit.mix(t.rewards, t.role, self.reward) for t in line]
            end = values[-1] if line[0].keys.episode in truncated else 0.0
            advantages = credit.gae(rewards, values, end, self.reward.gamma, self.settings.gae_lambda)
            for turn, advantage in zip(line, advantages, strict=True):
                turn.advantage = advantage
                turn.target = advantage + turn.value  # type: ignore[operator]
            by_role[line[0].role] += line
        for turns in by_role.values():
            _whiten(turns)
        return credit.summary(t for line in played for t in line)


def _whiten(turns: list[Turn]) -> None:
    """Mean 0 and deviation 1 over the trained tokens of these turns."""
    tokens = sum(len(t.action) for t in turns)
    mean = sum(_advantage(t) * len(t.action) for t in turns) / tokens
    variance = sum((_advantage(t) - mean) ** 2 * len(t.action) for t in turns) / tokens
    for turn in turns:
        turn.advantage = (_advantage(turn) - mean) / (math.sqrt(variance) + 1e-6)


def _advantage(turn: Turn) -> float:
    assert turn.advantage is not None
    return turn.advantage
