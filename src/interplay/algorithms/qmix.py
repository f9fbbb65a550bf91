"""QMIX: a network mixes the utilities, with non-negative weights that depend on the state (1803.11485, sec. 4).

VDN's sum cannot represent that a reply matters only in some states, or only together with another reply. QMIX can, as
long as raising one agent's utility never lowers the team's value (∂Q_tot/∂Q_i ≥ 0). Because of this condition, each
agent can choose its action on its own. It is also the limit of QMIX: it cannot represent a game in which a good action
becomes bad through a teammate's choice (a non-monotonic payoff). As in VDN, there is one form for legal actions and one
for free text. For text, QMIX is a credit model that uses the mixer:
A_i = ∂Q_tot/∂Q_i · (Q_i(h_i, a_i) − mean_k Q_i(h_i, a_i^k)).
"""

from __future__ import annotations

from typing import ClassVar

from interplay.algorithms.algorithm import register
from interplay.algorithms.vdn import VDN


@register("qmix")
class QMIX(VDN):
    mixed: ClassVar[bool] = True
