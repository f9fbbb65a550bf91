"""Dr. MAS: returns normalised per agent, over that agent's own turns (2602.08847, eq. 5).

A = (R − μ_k) / (σ_k + ε), with μ_k and σ_k over all turns that agent k took in the group. With a mean over the whole
team, an agent whose rewards differ from the others' would get a constant advantage, and its gradients would explode.
GRPO here also compares only within a role, but it counts each episode once. Dr. MAS counts an episode as often as the
agent acts in it, which is how often the episode trains the agent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from interplay.algorithms import credit
from interplay.algorithms.algorithm import register
from interplay.algorithms.compare import CompareEpisodes
from interplay.types import Credit, Episode


@register("dr_mas")
class DrMAS(CompareEpisodes):
    def rule(self, returns: Sequence[float]) -> list[float]:
        return credit.centred(returns, True)

    def credit(self, episodes: Sequence[Episode], given: Credit) -> Mapping[str, float]:
        total = {t.id: credit.returns(line, self.reward)[0] for line in credit.lines(episodes) for t in line}
        turns = [t for line in credit.lines(episodes) for t in line if t.is_model]
        grouped = credit.groups(turns, ("task", "role"))
        for group in grouped:
            for turn, advantage in zip(group, self.rule([total[t.id] for t in group]), strict=True):
                given.give(turn, advantage)
        lonely = sum(len({t.keys.episode for t in g}) == 1 for g in grouped)
        return {"credit/groups_of_one": lonely, **credit.summary(turns, given)}
