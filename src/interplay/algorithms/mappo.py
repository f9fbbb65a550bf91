"""MAPPO: PPO with a critic that sees the whole state (The Surprising Effectiveness of PPO, 2103.01955).

A_t = δ_t + γλ·A_{t+1} with δ_t = r_t + γ·V(s_{t+1}) − V(s_t), where s is the whole state. The loss is that of PPO. The
critic V reads the role and `Env.state()`, while the policy reads only its own observation. If roles have private
information, a critic of one observation must average over what it cannot see, and this average adds noise to every
advantage. Values are normalised (sec. 5.1 of the paper; `critic.normalise`). Everything else is as in PPO.
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
