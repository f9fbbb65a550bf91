"""MAPPO: PPO whose critic sees everything (The Surprising Effectiveness of PPO, 2103.01955).

A_t = δ_t + γλ·A_{t+1}, δ_t = r_t + γ·V(s_{t+1}) − V(s_t), s the whole state; the loss is PPO's. V reads the role and
`Env.state()`, the policy only its own observation: training is central, play is not. Where roles hide things from one
another, a critic of one observation averages over what it cannot see, and that average is noise in every advantage.
Values are normalised (the paper's sec. 5.1; `critic.normalise`). Everything else is PPO.
"""

from __future__ import annotations

from pydantic import Field

from interplay.algorithms.algorithm import CriticSettings, Need, register
from interplay.algorithms.ppo import PPO, PPOSettings


class StateCriticSettings(CriticSettings):
    normalise: bool = Field(True, description="divide returns by their running standard deviation (PopArt)")


class MAPPOSettings(PPOSettings):
    critic: StateCriticSettings = StateCriticSettings()


@register("mappo")
class MAPPO(PPO):
    Settings = MAPPOSettings
    needs: frozenset[Need] = frozenset({"values", "central"})
