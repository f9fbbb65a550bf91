"""VDN: the value of the team is the sum of one utility per agent (1706.05296).

Q_tot(s, a) = Σ Q_i(h_i, a_i) is fitted to what the team earned. The reply of agent i is then judged by its own utility,
which estimates what this agent contributed. There are two forms, and the metric `credit/legal` says which one a run
used. If the environment lists legal actions, VDN is Q-learning: a utility for each legal action, a target network, a
replay buffer, and the maximum over legal joint actions. For free text, it is a credit model fitted to returns.

The team earns its team-level rewards and the mean of the agent-level rewards of its roles. Process rewards (such as a
format penalty) stay with the agent that earned them and are not part of Q_tot, so teammates do not pay for them. A role
that waits has a utility for waiting, computed from what it knows. MADDPG has one critic per agent instead, and QMIX
uses a mixer instead of a sum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from interplay.algorithms import credit
from interplay.algorithms.algorithm import register
from interplay.algorithms.fitted import FittedCredit, Judged
from interplay.algorithms.replay import Transition, move_of, steps
from interplay.types import Credit, Episode, Role, Turn

if TYPE_CHECKING:
    from torch import Tensor

    from interplay.algorithms.networks import Network, TeamValue

TEAM = "team"


@register("vdn")
class VDN(FittedCredit):
    mixed: ClassVar[bool] = False

    def names(self) -> Sequence[str]:
        return [TEAM]

    def build(self, name: str) -> TeamValue:
        from interplay.algorithms.networks import TeamValue

        return TeamValue(self.roles, self.mixed)

    @property
    def value(self) -> TeamValue:
        return self.network(TEAM).module  # type: ignore[return-value]

    def judge(
        self, episodes: Sequence[Episode], turns: Sequence[Turn], options: Mapping[str, Sequence[str]]
    ) -> list[Judged]:
        """A_i = ∂Q_tot/∂Q_i · (Q_i(h_i, a_i) − mean_k Q_i(h_i, a_i^k)). The slope says how much the agent's utility
        counts for the team."""
        slopes = self._slopes(episodes)
        asked = [(move_of(t), action) for t in turns for action in (t.text, *options[t.id])]
        values = iter(self.value.utilities(asked).tolist())
        out: list[Judged] = []
        for turn in turns:
            slope = slopes[turn.keys.episode, turn.decision, turn.role]
            mine, *others = (slope * next(values) for _ in range(1 + len(options[turn.id])))
            out.append((mine, others))
        return out

    def _slopes(self, episodes: Sequence[Episode]) -> dict[tuple[str, int, Role], float]:
        """∂Q_tot/∂Q_i at the actions that were played, by (episode, decision, role)."""
        played = [(episode.id, step) for episode in episodes for step in steps(episode, self.reward)]
        utilities = self.value.table([s for _, s in played]).detach().requires_grad_()
        self.value.total(utilities, [s for _, s in played]).sum().backward()
        assert utilities.grad is not None
        found = zip(played, utilities.grad.tolist(), strict=True)
        return {
            (episode, step.decision, role): slope
            for (episode, step), row in found
            for role, slope in zip(self.roles, row, strict=True)
        }

    def credit(self, episodes: Sequence[Episode], given: Credit) -> Mapping[str, float]:
        metrics = super().credit(episodes, given)
        credited = [t for e in episodes for t in e.line() if given.advantage(t) is not None]
        for turns in credit.by_seat(credited):
            own = [credit.mix(credit.own(t.rewards), t.role, self.reward) for t in turns]
            for turn, extra in zip(turns, credit.centred(own, False), strict=True):
                given.give(turn, (given.advantage(turn) or 0.0) + extra)
        return metrics

    def error(self, name: str, network: Network, sample: Sequence[Transition]) -> Tensor:
        from torch import tensor

        target: TeamValue = network.target  # type: ignore[assignment]
        now = [t.step for t in sample]
        if all(move.legal for step in now for move in step.moves):
            wanted = tensor([step.team for step in now])
            ahead = [(i, t.after) for i, t in enumerate(sample) if t.after is not None]
            if ahead:
                best = target.greedy([after for _, after in ahead])
                wanted = wanted.index_add(0, tensor([i for i, _ in ahead]), self.reward.gamma * best)
        else:
            wanted = tensor([step.ahead for step in now])
            cut = [(i, t.last, t.step.tail) for i, t in enumerate(sample) if t.last is not None]
            if cut:
                last = [step for _, step, _ in cut]
                value = target.total(target.table(last), last).detach()
                wanted = wanted.index_add(0, tensor([i for i, *_ in cut]), tensor([tail for *_, tail in cut]) * value)
        return (self.value.total(self.value.table(now), now) - wanted).pow(2).mean()
