"""PPO with a critic of turns or of tokens (PPO, 1707.06347; Turn-PPO, 2512.17008).

Loss −min(ρ·A, clip(ρ, 1 − ε, 1 + ε)·A), ρ = π/π_old; A_t = δ_t + γλ·A_{t+1}, δ_t = r_t + γ·V_{t+1} − V_t (GAE).
V is read at the end of a turn's prompt, and one advantage is given to all tokens of the turn. GAE runs over *one
role's* turns: chaining it across players would flip signs in zero-sum games. With `level = "token"` V is read before
every sampled token and GAE runs over them: γ is 1 inside a turn, and what others (or tools) said in between is skipped.
Advantages are whitened per role, over trained tokens only. Truncated episodes bootstrap with the last value, finished
ones with 0. The critic's targets have a λ of their own, 1: the Monte-Carlo return, so that it is never taught by its
guesses (VC-PPO, 2503.01491; VAPO, 2504.05118). GRPO needs no critic and no values inside the episode; it pays with a
group of episodes for every task.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import Field

from interplay.algorithms import credit
from interplay.algorithms.algorithm import Algorithm, CriticSettings, Independent, LossSettings, Need, register
from interplay.config import RewardSection
from interplay.errors import GuardError
from interplay.types import Credit, Episode, Role, Turn


class PPOSettings(LossSettings):
    replicas: int = Field(1, ge=1, description="episodes per task")
    gae_lambda: float = Field(0.9, ge=0, le=1, description="of the policy's advantages")
    critic_lambda: float = Field(1.0, ge=0, le=1, description="of the critic's targets; 1 is the Monte-Carlo return")
    level: Literal["turn", "token"] = Field("turn", description="what has a value and an advantage of its own")
    critic: CriticSettings = CriticSettings()


@register("ppo")
class PPO(Algorithm):
    Settings = PPOSettings
    settings: PPOSettings
    needs: frozenset[Need] = frozenset({"values"})

    def __init__(self, settings: LossSettings, reward: RewardSection, seed: int = 0) -> None:
        super().__init__(settings, reward, seed)
        if self.settings.level == "token":
            self.needs = self.needs | {"tokens"}

    @property
    def plan(self) -> Independent:
        return Independent(self.settings.replicas)

    @property
    def critic(self) -> CriticSettings:
        return self.settings.critic

    def credit(self, episodes: Sequence[Episode], given: Credit) -> Mapping[str, float]:
        truncated = {e.id for e in episodes if e.truncated}
        # A frozen policy in some seat has no critic: its lines are not trained, and enter no mean.
        played = [line for line in credit.lines(episodes) if any(given.value(t) is not None for t in line)]
        by_role: dict[Role, list[Turn]] = defaultdict(list)
        for line in played:
            if any(given.value(t) is None for t in line):
                missing = next(t.id for t in line if given.value(t) is None)
                raise GuardError(f"turn {missing} has no critic value; PPO needs the score step before credit.")
            over = line[0].keys.episode not in truncated
            if self.settings.level == "turn":
                self._by_turn(line, over, given)
            else:
                self._by_token(line, over, given)
            by_role[line[0].role] += line
        for turns in by_role.values():
            credit.whiten(turns, given)
        return credit.summary((t for line in played for t in line), given)

    def _by_turn(self, line: list[Turn], over: bool, given: Credit) -> None:
        values = [given.value(t) or 0.0 for t in line]
        rewards = [credit.mix(t.rewards, t.role, self.reward) for t in line]
        advantages, targets = self._estimate(rewards, values, [self.reward.gamma] * len(line), over)
        for turn, advantage, target in zip(line, advantages, targets, strict=True):
            given.give(turn, advantage)
            given.targets[turn.last.id] = (target,)

    def _by_token(self, line: list[Turn], over: bool, given: Credit) -> None:
        values: list[float] = []
        rewards: list[float] = []
        gammas: list[float] = []
        for turn in line:
            for sample in turn.samples:
                last = sample is turn.last  # before it the decision goes on after a tool has answered
                rest = len(sample.action) - 1
                values += given.values[sample.id]
                rewards += [0.0] * rest + [credit.mix(turn.rewards, turn.role, self.reward) if last else 0.0]
                gammas += [1.0] * rest + [self.reward.gamma if last else 1.0]
        advantages, targets = self._estimate(rewards, values, gammas, over)
        at = 0
        for sample in (s for turn in line for s in turn.samples):
            span = slice(at, at := at + len(sample.action))
            given.advantages[sample.id], given.targets[sample.id] = tuple(advantages[span]), tuple(targets[span])

    def _estimate(
        self, rewards: list[float], values: list[float], gammas: list[float], over: bool
    ) -> tuple[list[float], list[float]]:
        """Advantages, and what the critic should have said."""
        end = 0.0 if over else values[-1]
        advantages = credit.gae(rewards, values, end, gammas, self.settings.gae_lambda)
        errors = credit.gae(rewards, values, end, gammas, self.settings.critic_lambda)
        return advantages, [v + e for v, e in zip(values, errors, strict=True)]
