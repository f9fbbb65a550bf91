"""MADDPG: one central critic per agent judges the joint action (1706.02275, sec. 4.1); for text, MADDPG-style.

Q_i(s, a_1 … a_n) is fitted to y = r_i + γ·Q_i'(s', a'), with a replay buffer and target networks. (The paper's target
actor is replaced by the action that was taken next.) The critic makes no assumption about the form of Q, so it also
fits games that QMIX cannot represent. Every agent has its own critic, so agents may have different or opposed rewards.

The actor has two forms. `gumbel` is the paper's form for discrete actions: a straight-through Gumbel sample over the
legal replies receives its gradient through the critic. It needs `sampling.legal`, because the model's log-probs of all
legal replies are the logits. `score` works for any text and is only MADDPG-*style*: the score-function gradient with a
COMA baseline, A_i = Q_i(s, a) − mean_k Q_i(s, (a_−i, a_i^k)). The a_i^k are the legal actions, or else the other
replies to the prompt.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from interplay.algorithms.algorithm import LossSettings, Weighed, register
from interplay.algorithms.fitted import FittedCredit, FittedSettings, Judged
from interplay.algorithms.replay import Step, Transition
from interplay.config import RewardSection
from interplay.errors import ConfigError
from interplay.types import Credit, Episode, Role, Sample, Turn, seed_of

if TYPE_CHECKING:
    from torch import Tensor

    from interplay.algorithms.networks import CentralCritic, Network

JointAction = tuple[str, list[tuple[Role, str]]]


class MADDPGSettings(FittedSettings):
    actor: Literal["score", "gumbel"] = Field(
        "score", description="how the policy follows its critic; gumbel needs sampling.legal"
    )
    temperature: float = Field(1.0, gt=0, description="temperature of the Gumbel softmax")


@register("maddpg")
class MADDPG(FittedCredit):
    Settings = MADDPGSettings
    settings: MADDPGSettings

    def __init__(self, settings: LossSettings, reward: RewardSection, seed: int = 0) -> None:
        super().__init__(settings, reward, seed)
        self._slopes: dict[str, tuple[float, ...]] = {}  # by sample of this step: advantages of its legal replies
        if self.settings.actor == "gumbel":
            if self.settings.kl:
                raise ConfigError(
                    "algorithm.kl is above 0, but actor = 'gumbel' also trains legal replies that were not sampled, "
                    "and these have no reference log-probs; expected kl = 0 (kl_reward also pulls to the reference), "
                    "or actor = 'score'."
                )
            if self.settings.average == "turn":
                raise ConfigError(
                    "algorithm.average = 'turn' divides the loss of each legal reply by its own length, which changes "
                    "the gradient of actor = 'gumbel' if the lengths differ; expected 'token' or a number."
                )
            self.needs = self.needs | {"legal"}

    def names(self) -> Sequence[str]:
        return self.roles

    def build(self, name: str) -> CentralCritic:
        from interplay.algorithms.networks import CentralCritic

        return CentralCritic()

    def action_values(
        self, role: Role, asked: Sequence[tuple[Turn, Mapping[Role, str], Sequence[str]]]
    ) -> list[list[float]]:
        """Q_i(s, (a_−i, a)) of one role for each alternative action of a turn. The actions of the other roles stay as
        given."""
        joints: list[JointAction] = [
            (turn.state, sorted({**others, role: a}.items())) for turn, others, actions in asked for a in actions
        ]
        values = iter(self.network(role).module(joints).tolist() if joints else [])
        return [list(itertools.islice(values, len(actions))) for _, _, actions in asked]

    def judge(
        self, episodes: Sequence[Episode], turns: Sequence[Turn], options: Mapping[str, Sequence[str]]
    ) -> list[Judged]:
        joint = {episode.id: _joint_actions(episode) for episode in episodes}
        found: dict[str, Judged] = {}
        for role in self.roles:
            mine = [t for t in turns if t.role == role]
            asked = [(t, joint[t.keys.episode][t.decision], [t.text, *options[t.id]]) for t in mine]
            for turn, (value, *others) in zip(mine, self.action_values(role, asked), strict=True):
                found[turn.id] = value, others
        return [found[t.id] for t in turns]

    def credit(self, episodes: Sequence[Episode], given: Credit) -> Mapping[str, float]:
        metrics = super().credit(episodes, given)
        self._slopes.clear()
        if self.settings.actor == "gumbel":
            line = [t for e in episodes for t in e.line()]
            moving = [t for t in line if given.advantage(t) is not None and t.last.id in given.legal]
            joint = {episode.id: _joint_actions(episode) for episode in episodes}
            for role in self.roles:
                mine = [t for t in moving if t.role == role]
                asked = [(t, joint[t.keys.episode][t.decision], t.observation.legal) for t in mine]
                for turn, values in zip(mine, self.action_values(role, asked), strict=True):
                    self._follow(turn, values, given)
        return metrics

    def _follow(self, turn: Turn, values: Sequence[float], given: Credit) -> None:
        """Stores the gradient of the straight-through sample's value, as an advantage for every legal reply."""
        import torch

        from interplay.algorithms.losses import gumbel_loss

        rng = random.Random(seed_of("gumbel", self.seed, self.steps, turn.id))
        noise = [-math.log(rng.expovariate(1.0)) for _ in values]
        logits = torch.tensor([[math.fsum(tokens) for tokens in given.legal[turn.last.id]]], requires_grad=True)
        loss = gumbel_loss(logits, torch.tensor([values]), torch.tensor([noise]), self.settings.temperature)
        (slope,) = torch.autograd.grad(loss, logits)
        # In the learner's mean each of these n replies counts as 1/n of a sample; the factor n makes up for that.
        self._slopes[turn.last.id] = tuple(-len(values) * x for x in slope[0].tolist())
        given.give(turn, max(self._slopes[turn.last.id], key=abs))

    def weighed(self, sample: Sample, given: Credit) -> list[Weighed]:
        """With `gumbel`, one entry for each legal reply, not only for the sampled one. A decision has the same total
        weight whatever the number of its legal replies."""
        slopes = self._slopes.get(sample.id)
        if slopes is None:
            return super().weighed(sample, given)
        out: list[Weighed] = []
        for k, (reply, found) in enumerate(zip(sample.mask, given.legal[sample.id], strict=True)):
            logprobs = sample.logprobs if reply == sample.action else found  # the engine's, if it drew this reply
            versions = (sample.version,) * len(reply)
            other = replace(sample, id=f"{sample.id}~{k}", action=reply, logprobs=logprobs, versions=versions)
            out.append(Weighed(other, slopes[k], 1 / len(slopes)))
        return out

    def error(self, name: str, network: Network, sample: Sequence[Transition]) -> Tensor:
        from torch import tensor

        wanted = tensor([t.step.rewards[name] for t in sample])
        ahead = [(i, t.after) for i, t in enumerate(sample) if t.after is not None]
        if ahead:
            following = network.target([_joint(after) for _, after in ahead]).detach()
            wanted = wanted.index_add(0, tensor([i for i, _ in ahead]), self.reward.gamma * following)
        return (network.module([_joint(t.step) for t in sample]) - wanted).pow(2).mean()


def _joint_actions(episode: Episode) -> dict[int, dict[Role, str]]:
    """What every role did at each decision that was played."""
    out: dict[int, dict[Role, str]] = {}
    for turn in episode.line():
        out.setdefault(turn.decision, {})[turn.role] = turn.text
    return out


def _joint(step: Step) -> JointAction:
    return step.state, sorted((m.role, m.action) for m in step.moves)
