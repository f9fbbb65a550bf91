"""The equilibria of Kuhn poker (Kuhn 1950). The first player has a family of strategies with one parameter, alpha; the
second player has one strategy."""

from __future__ import annotations

import random
from collections.abc import Mapping

from interplay.agents.bots.bot import Bot, legal_actions, register_bot
from interplay.envs.env import Env
from interplay.envs.games.kuhn import Kuhn
from interplay.errors import ConfigError
from interplay.types import Role


@register_bot("equilibrium")
class EquilibriumBot(Bot):
    """Kuhn poker's equilibrium; `equilibrium:0.2` bluffs with the jack 20% of the time, from 0 to 1/3 (default 1/3)."""

    takes = "alpha, from 0 to 1/3"

    def __init__(self, env_name: str, setting: str = "") -> None:
        super().__init__(env_name, setting)
        try:
            alpha = float(setting) if setting else 1 / 3
        except ValueError:
            alpha = -1.0
        if not 0.0 <= alpha <= 1 / 3 + 1e-3:  # accepts 0.333 and 0.3334 as 1/3
            raise ConfigError(f"bot 'equilibrium:{setting}' has a wrong alpha; expected a number from 0 to 1/3.")
        self.alpha = min(alpha, 1 / 3)

    def bets(self, card: str, betting: tuple[str, ...]) -> float:
        """The probability of a bet."""
        if not betting:
            return {"J": self.alpha, "Q": 0.0, "K": 3 * self.alpha}[card]
        if betting == ("pass",):
            return {"J": 1 / 3, "Q": 0.0, "K": 1.0}[card]
        return {"J": 0.0, "Q": 1 / 3 if betting == ("bet",) else self.alpha + 1 / 3, "K": 1.0}[card]

    def act(self, env: Env, role: Role, rng: random.Random) -> str:
        return "bet" if rng.random() < self.odds(env, role)["bet"] else "pass"

    def odds(self, env: Env, role: Role) -> Mapping[str, float]:
        legal_actions(env, role)
        if not isinstance(env, Kuhn):
            self.refuse("is another game; expected Kuhn poker")
        bet = self.bets(env.cards[env.roles.index(role)], env.betting)
        return {"bet": bet, "pass": 1 - bet}

    def suits(self, env: Env) -> None:
        if not isinstance(env, Kuhn):
            self.refuse("is another game; expected Kuhn poker")
