"""RAE: REINFORCE with a running baseline per environment and role (SPIRAL, 2506.24119).

A = R − b(env, role), where R is the return of the role over its episode. All turns of the role get this advantage. The
baseline is updated as b ← d·b + (1 − d)·R and is read *before* the update. (The paper updates it first, so its baseline
contains the return that it is compared with.) Each occupant of a role has its own baseline, because the returns of a
frozen opponent in this role say nothing about the policy. In self-play of a zero-sum game, the mean return over both
seats is always 0. This baseline instead estimates the value of each seat (such as the advantage of moving first).
Unlike GRPO, it needs only one episode per task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from interplay.algorithms import credit
from interplay.algorithms.algorithm import Algorithm, Independent, LossSettings, register
from interplay.config import RewardSection
from interplay.types import Credit, Episode


class RAESettings(LossSettings):
    decay: float = Field(0.95, ge=0, lt=1, description="decay of the running baseline")
    replicas: int = Field(1, ge=1, description="episodes per task")


@register("rae")
class RAE(Algorithm):
    Settings = RAESettings
    settings: RAESettings

    def __init__(self, settings: LossSettings, reward: RewardSection, seed: int = 0) -> None:
        super().__init__(settings, reward, seed)
        self.baselines: dict[str, float] = {}

    @property
    def plan(self) -> Independent:
        return Independent(self.settings.replicas)

    def credit(self, episodes: Sequence[Episode], given: Credit) -> Mapping[str, float]:
        of = {e.id: e for e in episodes}
        played = credit.lines(episodes)
        decay = self.settings.decay
        for line in played:
            episode, role = of[line[0].keys.episode], line[0].role
            key = f"{episode.task.env}/{role}/{episode.seats[role]}"
            value, baseline = credit.returns(line, self.reward)[0], self.baselines.get(key, 0.0)
            for turn in line:
                given.give(turn, value - baseline)
            self.baselines[key] = decay * baseline + (1 - decay) * value
        metrics = {f"credit/baseline/{key}": value for key, value in sorted(self.baselines.items())}
        return {**metrics, **credit.summary((t for line in played for t in line), given)}

    def state_dict(self) -> dict[str, Any]:
        return {"baselines": dict(self.baselines)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.baselines = dict(state["baselines"])
