"""QMIX: utilities mixed by a network whose weights come from the state and are never negative (1803.11485, sec. 4).

VDN's sum cannot say that a reply matters only in some states, or only next to another; QMIX can, as long as raising
one agent's utility never lowers the team's (∂Q_tot/∂Q_i ≥ 0). That is what lets each agent choose on its own, and also
its limit: a game where a good action turns bad through a teammate's choice (the non-monotonic payoff) is out of its
reach. The two forms, for legal actions and for free text, are VDN's; with text it is a credit model that borrows the
mixer: A_i = ∂Q_tot/∂Q_i · (Q_i(h_i, a_i) − mean_k Q_i(h_i, a_i^k)).
"""

from __future__ import annotations

from typing import ClassVar

from interplay.algorithms.algorithm import register
from interplay.algorithms.vdn import VDN


@register("qmix")
class QMIX(VDN):
    mixed: ClassVar[bool] = True
