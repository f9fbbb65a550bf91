"""MADDPG-style: one central critic per agent judges the joint action (1706.02275, eq. 4 to 6).

Q_i(s, a_1 … a_n) is fitted to y = r_i + γ·Q_i'(s', a'), from replay and with target networks; nothing about its form
is assumed, so it also fits games that QMIX cannot represent, and every agent has its own, so rewards may differ or
oppose. MADDPG moves the actor through the critic by a relaxed (Gumbel) action, which needs a head over legal actions:
`losses.gumbel_loss` with `action_values` is that form. A language model has no such head: it is moved by the score
function with a COMA baseline, A_i = Q_i(s, a) − mean_k Q_i(s, (a_−i, a_i^k)), the a_i^k being the legal actions or,
for text, the other replies to the same prompt. The paper's target actor is replaced by the action taken next (SARSA).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from interplay.algorithms import credit
from interplay.algorithms.algorithm import Algorithm, Independent, LossSettings, register
from interplay.algorithms.replay import Replay, Step, steps
from interplay.algorithms.vdn import VDNSettings
from interplay.config import RewardSection
from interplay.types import Episode, Role, Turn, seed_of

if TYPE_CHECKING:
    from interplay.algorithms.networks import Fitted

Joint = tuple[str, list[tuple[Role, str]]]


@register("maddpg")
class MADDPG(Algorithm):
    Settings = VDNSettings
    settings: VDNSettings
    uses_legal = True

    def __init__(self, settings: LossSettings, reward: RewardSection) -> None:
        super().__init__(settings, reward)
        self.critics: dict[Role, Fitted] = {}
        self.replay = Replay(self.settings.replay)
        self.steps = 0

    @property
    def plan(self) -> Independent:
        return Independent(self.settings.group)

    def critic_of(self, role: Role) -> Fitted:
        if role not in self.critics:
            from interplay.algorithms.networks import CentralCritic, Fitted

            self.critics[role] = Fitted(CentralCritic, self.settings.lr, seed=len(self.critics))
        return self.critics[role]

    def action_values(
        self, role: Role, asked: Sequence[tuple[Turn, Mapping[Role, str], Sequence[str]]]
    ) -> list[list[float]]:
        """Q_i(s, (a_−i, a)) of one role for each of a turn's alternatives, the others' being what they did."""
        joints: list[Joint] = [
            (turn.state, sorted({**others, role: a}.items())) for turn, others, actions in asked for a in actions
        ]
        values = iter(self.critic_of(role).module(joints).tolist())
        return [list(itertools.islice(values, len(actions))) for _, _, actions in asked]

    def credit(self, episodes: Sequence[Episode]) -> Mapping[str, float]:
        turns = [t for e in episodes for t in e.line() if t.is_model]
        siblings = {
            t.id: [o.text for o in group if o is not t]
            for group in credit.groups(turns, ("task", "role", "prompt"))
            for t in group
        }
        joint = {episode.id: joint_actions(episode) for episode in episodes}
        lonely = 0
        for role in sorted({t.role for t in turns}):
            mine = [t for t in turns if t.role == role]
            asked = [(t, joint[t.keys.episode][t.decision], [t.text, *(t.legal or siblings[t.id])]) for t in mine]
            for turn, (value, *others) in zip(mine, self.action_values(role, asked), strict=True):
                lonely += not others
                turn.advantage = value - sum(others) / len(others) if others else 0.0
        if self.steps < self.settings.warmup:
            credit.withdraw(turns)
        legal = sum(bool(t.legal) for t in turns) / max(1, len(turns))
        return {"credit/legal": legal, "credit/groups_of_one": lonely, **credit.summary(turns)}

    def update(self, episodes: Sequence[Episode]) -> Mapping[str, float]:
        from torch import tensor

        s = self.settings
        self.replay.add(steps(e, self.reward) for e in episodes)
        metrics = {}
        for role in episodes[0].seats:
            fitted, total = self.critic_of(role), 0.0
            for n in range(s.updates):
                sample = self.replay.sample(s.batch, seed_of("replay", role, self.steps, n))
                wanted = tensor([step.rewards[role] for step, _ in sample])
                ahead = [(i, after) for i, (_, after) in enumerate(sample) if after is not None]
                if ahead:
                    following = fitted.target([_joint(after) for _, after in ahead]).detach()
                    wanted = wanted.index_add(0, tensor([i for i, _ in ahead]), self.reward.gamma * following)
                loss = (fitted.module([_joint(step) for step, _ in sample]) - wanted).pow(2).mean()
                total += fitted.descend(loss) / s.updates
            metrics[f"credit/critic_loss/{role}"] = total
        self.steps += 1
        if self.steps % s.target_every == 0:
            for fitted in self.critics.values():
                fitted.sync()
        return metrics

    def state_dict(self) -> dict[str, Any]:
        critics = {role: fitted.state_dict() for role, fitted in self.critics.items()}
        return {"critics": critics, "replay": self.replay.state_dict(), "steps": self.steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for role, networks in state["critics"].items():
            self.critic_of(role).load_state_dict(networks)
        self.replay.load_state_dict(state["replay"])
        self.steps = state["steps"]


def joint_actions(episode: Episode) -> dict[int, dict[Role, str]]:
    """What everybody did at each decision of the line that was played."""
    out: dict[int, dict[Role, str]] = {}
    for turn in episode.line():
        out.setdefault(turn.decision, {})[turn.role] = turn.text
    return out


def _joint(step: Step) -> Joint:
    return step.state, sorted((m.role, m.action) for m in step.moves)
