"""VDN: the team's value is the sum of one utility per agent (1706.05296).

Q_tot(s, a) = Σ Q_i(h_i, a_i) is fitted to what the team earned (the mean of its roles' returns); agent i's reply is
then judged by its own utility, which holds what *it* contributed. There are two forms, chosen by what the environment
offers, and each run says which (`credit/legal`). With listed legal actions it is Q-learning proper (a utility per
legal action, a target network, replay, the maximum over legal joint actions), and A_i = Q_i(h_i, a_i) − mean over
legal a of Q_i(h_i, a). For free text it is a credit model fitted to returns, the mean being over the group's other
replies to the same prompt. The language model takes ε-greedy's place: it plays, and is drawn towards its best utility.
QMIX mixes instead of adding.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from interplay.algorithms import credit
from interplay.algorithms.algorithm import Algorithm, Independent, LossSettings, register
from interplay.algorithms.replay import Replay, Step, steps
from interplay.config import RewardSection
from interplay.types import Episode, Turn, seed_of

if TYPE_CHECKING:
    from interplay.algorithms.networks import Fitted, TeamValue


class VDNSettings(LossSettings):
    group: int = Field(8, ge=2, description="episodes per task")
    warmup: int = Field(20, ge=0, description="training steps in which only the networks learn; ε-greedy's first part")
    lr: float = Field(5e-3, gt=0, description="learning rate of the networks")
    replay: int = Field(512, ge=1, description="episodes remembered")
    updates: int = Field(4, ge=1, description="gradient steps per training step")
    batch: int = Field(32, ge=1, description="joint decisions per gradient step")
    target_every: int = Field(5, ge=1, description="training steps between copies to the target network")


@register("vdn")
class VDN(Algorithm):
    Settings = VDNSettings
    settings: VDNSettings
    uses_legal = True
    mixed: ClassVar[bool] = False

    def __init__(self, settings: LossSettings, reward: RewardSection) -> None:
        super().__init__(settings, reward)
        self.roles: list[str] = []
        self.fitted: Fitted | None = None
        self.replay = Replay(self.settings.replay)
        self.steps = 0

    @property
    def plan(self) -> Independent:
        return Independent(self.settings.group)

    def model(self, roles: Sequence[str]) -> Fitted:
        if self.fitted is None:
            from interplay.algorithms.networks import Fitted, TeamValue

            self.roles = list(roles)
            self.fitted = Fitted(lambda: TeamValue(self.roles, self.mixed), self.settings.lr, seed=0)
        return self.fitted

    def credit(self, episodes: Sequence[Episode]) -> Mapping[str, float]:
        net: TeamValue = self.model(list(episodes[0].seats)).module  # type: ignore[assignment]
        found = self._slopes(net, episodes)
        turns = [turn for turn, _, _ in found]
        replies = self._alternatives(turns)
        moves = {t.id: next(m for m in step.moves if m.role == t.role) for t, step, _ in found}
        values = iter(net.utilities([(moves[t.id], a) for t in turns for a in (t.text, *replies[t.id])]).tolist())
        lonely = 0
        for turn, _, slope in found:
            mine, others = next(values), list(itertools.islice(values, len(replies[turn.id])))
            lonely += not others
            turn.advantage = slope * (mine - sum(others) / len(others)) if others else 0.0
        if self.steps < self.settings.warmup:
            credit.withdraw(turns)
        legal = sum(bool(t.legal) for t in turns) / max(1, len(turns))
        return {"credit/legal": legal, "credit/groups_of_one": lonely, **credit.summary(turns)}

    def _slopes(self, net: TeamValue, episodes: Sequence[Episode]) -> list[tuple[Turn, Step, float]]:
        """∂Q_tot/∂Q_i at what was played, for every model turn: the utility's worth in the team's own units."""
        played = [(episode, step) for episode in episodes for step in steps(episode, self.reward)]
        utilities = net.table([s for _, s in played]).detach().requires_grad_()
        net.total(utilities, [s for _, s in played]).sum().backward()
        assert utilities.grad is not None
        slope = utilities.grad.tolist()
        turns = {(t.keys.episode, t.decision, t.role): t for e in episodes for t in e.line() if t.is_model}
        out = []
        for row, (episode, step) in enumerate(played):
            for move in step.moves:
                turn = turns.get((episode.id, step.decision, move.role))
                if turn is not None:
                    out.append((turn, step, slope[row][self.roles.index(move.role)]))
        return out

    def _alternatives(self, turns: Sequence[Turn]) -> dict[str, list[str]]:
        """What else could have been said: the legal actions, or else the other replies to the same prompt."""
        out = {t.id: list(t.legal) for t in turns}
        for group in credit.groups([t for t in turns if not t.legal], ("task", "role", "prompt")):
            for turn in group:
                out[turn.id] = [t.text for t in group if t is not turn]
        return out

    def update(self, episodes: Sequence[Episode]) -> Mapping[str, float]:
        from torch import tensor

        fitted, s = self.model(list(episodes[0].seats)), self.settings
        net: TeamValue = fitted.module  # type: ignore[assignment]
        target: TeamValue = fitted.target  # type: ignore[assignment]
        self.replay.add(steps(e, self.reward) for e in episodes)
        total = 0.0
        for n in range(s.updates):
            sample = self.replay.sample(s.batch, seed_of("replay", self.steps, n))
            now = [step for step, _ in sample]
            wanted = tensor([step.team(step.returns) for step in now])
            if all(move.legal for step, _ in sample for move in step.moves):
                wanted = tensor([step.team(step.rewards) for step in now])
                ahead = [(i, after) for i, (_, after) in enumerate(sample) if after is not None]
                if ahead:
                    best = target.greedy([after for _, after in ahead])
                    wanted = wanted.index_add(0, tensor([i for i, _ in ahead]), self.reward.gamma * best)
            loss = (net.total(net.table(now), now) - wanted).pow(2).mean()
            total += fitted.descend(loss) / s.updates
        self.steps += 1
        if self.steps % s.target_every == 0:
            fitted.sync()
        return {"credit/model_loss": total}

    def state_dict(self) -> dict[str, Any]:
        if self.fitted is None:
            return {}
        return {
            "roles": self.roles,
            "networks": self.fitted.state_dict(),
            "replay": self.replay.state_dict(),
            "steps": self.steps,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if state:
            self.model(state["roles"]).load_state_dict(state["networks"])
            self.replay.load_state_dict(state["replay"])
            self.steps = state["steps"]
