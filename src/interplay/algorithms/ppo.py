"""PPO with a critic of turns or of tokens (PPO, 1707.06347; Turn-PPO, 2512.17008).

The loss is −min(ρ·A, clip(ρ, 1 − ε, 1 + ε)·A) with ρ = π/π_old. The advantages come from GAE: A_t = δ_t + γλ·A_{t+1}
with δ_t = r_t + γ·V_{t+1} − V_t. V is read at the end of a turn's prompt, and all tokens of the turn get one advantage.
GAE runs over the turns of *one role* that a trained policy took. If it ran across players, signs would flip in zero-sum
games.

With `level = "token"`, V is read before every sampled token and GAE runs over tokens. γ is 1 inside a turn, tokens of
others (or of tools) in between are skipped, and `kl_reward` is given for each token. Advantages are whitened per policy
and role, over trained tokens only.

The value after the last turn is 0 if the episode ended. If a limit cut it off, it is the value of the prompt that the
role had to answer next. The critic's targets have their own λ, 1 by default: this is the Monte Carlo return, so the
critic is never trained on its own estimates (VC-PPO, 2503.01491; VAPO, 2504.05118). GRPO needs neither a critic nor
values inside the episode, but it needs a group of episodes for every task.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar, Literal, NamedTuple

from pydantic import Field

from interplay.algorithms import credit
from interplay.algorithms.algorithm import Algorithm, CriticSettings, Independent, LossSettings, Need, register
from interplay.config import RewardSection
from interplay.errors import GuardError
from interplay.types import Credit, Episode, Level, Reward, Rewards, Role, Sample, Turn


class PPOSettings(LossSettings):
    replicas: int = Field(1, ge=1, description="episodes per task")
    gae_lambda: float = Field(0.9, ge=0, le=1, description="λ of GAE, for the policy's advantages")
    critic_lambda: float = Field(1.0, ge=0, le=1, description="λ of the critic's targets; 1 is the Monte Carlo return")
    level: Literal["turn", "token"] = Field(
        "turn", description="whether each turn or each token has its own value and advantage"
    )
    critic: CriticSettings = CriticSettings()


class Stretch(NamedTuple):
    """A trained turn, and what its role earned until its next trained turn. If a frozen policy or a bot takes some of
    the role's turns, these turns count as part of the environment. `gamma` discounts what follows this stretch."""

    turn: Turn
    reward: float
    gamma: float


@register("ppo")
class PPO(Algorithm):
    Settings: ClassVar[type[PPOSettings]] = PPOSettings
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
        # A frozen policy has no critic. Its turns are not trained and are not part of any mean.
        trained = {t.policy for e in episodes for t in e.line() if given.value(t) is not None}
        turns: list[Turn] = []
        for episode in episodes:
            earned = credit.in_play(episode)
            for line in credit.lines([episode]):
                stretches = self._stretches(line, trained, earned, given)
                end = _bootstrap(episode, line[0].role, given)
                if stretches and end is None:
                    # The value after the last turn is unknown, so leave this turn out and bootstrap from its own value.
                    end = given.values[stretches.pop().turn.samples[0].id][0]
                if stretches and end is not None:
                    (self._by_turn if self.settings.level == "turn" else self._by_token)(stretches, end, given)
                turns += [s.turn for s in stretches]
        for members in credit.by_seat(turns):
            credit.whiten(members, given)
        return credit.summary(turns, given)

    def _stretches(
        self, line: Sequence[Turn], trained: Collection[str], earned: Mapping[str, Rewards], given: Credit
    ) -> list[Stretch]:
        """Splits one role's line of play into one stretch per turn of a trained policy."""
        out: list[Stretch] = []
        gamma, after, factor = self.reward.gamma, 0.0, 1.0
        for turn in reversed(line):
            reward = credit.mix(self._whole(earned[turn.id]), turn.role, self.reward)
            if turn.policy not in trained:
                after, factor = reward + gamma * after, gamma * factor
                continue
            if given.value(turn) is None:
                raise GuardError(f"turn {turn.id} has no critic value; PPO needs the score step before credit.")
            out.append(Stretch(turn, reward + gamma * after, gamma * factor))
            after, factor = 0.0, 1.0
        return out[::-1]

    def _whole(self, rewards: Rewards) -> Rewards:
        """The rewards of a turn as a whole. At token level these exclude the KL reward, which is given per token."""
        if self.settings.level == "turn":
            return rewards
        return Rewards(tuple(r for r in rewards if r.name != credit.KL))

    def _by_turn(self, line: list[Stretch], end: float, given: Credit) -> None:
        values = [given.value(s.turn) or 0.0 for s in line]
        advantages, targets = self._estimate([s.reward for s in line], values, [s.gamma for s in line], end)
        for stretch, advantage, target in zip(line, advantages, targets, strict=True):
            given.give(stretch.turn, advantage)
            given.targets[stretch.turn.last.id] = (target,)

    def _by_token(self, line: list[Stretch], end: float, given: Credit) -> None:
        values: list[float] = []
        rewards: list[float] = []
        gammas: list[float] = []
        samples = [(stretch, sample) for stretch in line for sample in stretch.turn.samples]
        for stretch, sample in samples:
            last = sample is stretch.turn.last  # earlier samples are tool calls, after which the decision goes on
            values += given.values[sample.id]
            earned = self._drift_rewards(stretch.turn.role, sample, given)
            earned[-1] += stretch.reward if last else 0.0
            rewards += earned
            gammas += [1.0] * (len(earned) - 1) + [stretch.gamma if last else 1.0]
        advantages, targets = self._estimate(rewards, values, gammas, end)
        at = 0
        for _, sample in samples:
            span = slice(at, at := at + len(sample.action))
            given.advantages[sample.id], given.targets[sample.id] = tuple(advantages[span]), tuple(targets[span])

    def _drift_rewards(self, role: Role, sample: Sample, given: Credit) -> list[float]:
        """`kl_reward` of each token. A token is thus judged by its own drift and that of later tokens, not of earlier
        ones."""
        if not self.settings.kl_reward:
            return [0.0] * len(sample.action)
        weight = credit.weight_of(Reward(credit.KL, Level.PROCESS, role, None), self.reward)
        return [-self.settings.kl_reward * weight * drift for drift in credit.token_drifts(sample, given)]

    def _estimate(
        self, rewards: list[float], values: list[float], gammas: list[float], end: float
    ) -> tuple[list[float], list[float]]:
        """The advantages and the critic's targets. `end` is the value of what follows the last step."""
        advantages = credit.gae(rewards, values, end, gammas, self.settings.gae_lambda)
        errors = credit.gae(rewards, values, end, gammas, self.settings.critic_lambda)
        return advantages, [v + e for v, e in zip(values, errors, strict=True)]


def _bootstrap(episode: Episode, role: Role, given: Credit) -> float | None:
    """The value of what follows a role's last turn: 0 if the episode ended. If a limit cut the episode off, it is the
    value of the prompt that the role had to answer next, or None if another role had to act first."""
    if episode.cut is None:
        return 0.0
    return next((given.value(turn) for turn in episode.cut.due if turn.role == role), None)
