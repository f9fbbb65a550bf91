"""A model in a role that gives the best of several replies, as scored by a reward model or verifier.

The chosen reply is not a sample of the policy, so a policy that is trained never answers in this way. With n replies,
the resulting policy is at most log n − (n − 1)/n nats away from the model itself.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace

from interplay.agents.model import ModelAgent
from interplay.agents.player import Stamp, View
from interplay.agents.remote import RemoteAgent
from interplay.engines.census import census
from interplay.envs import Env
from interplay.rewards.judge import Scoring
from interplay.types import Observation, Turn


@dataclass(frozen=True)
class Choosing:
    """How many replies are drawn, and who scores them. With `everybody`, trainable policies do this too, for
    evaluations. `version` identifies the weights of a reward model. It is empty if `by` is a function or a server:
    these may score otherwise at another time."""

    count: int
    by: Scoring
    everybody: bool = False
    version: str = ""


@dataclass(slots=True)
class BestOf:
    inner: ModelAgent | RemoteAgent
    choosing: Choosing
    policy: str = field(init=False)
    parent: str | None = None

    def __post_init__(self) -> None:
        self.policy = self.inner.policy

    @property
    def trainable(self) -> bool:
        return False

    def look(self, observation: Observation) -> View:
        return self.inner.look(observation)

    async def sample(self, env: Env, view: View, stamp: Stamp) -> Turn:
        jobs = [self.inner.sample(env, view, replace(stamp, candidate=k)) for k in range(self.choosing.count)]
        drawn: list[Turn] = []
        for turn in await census().gather(jobs):
            if isinstance(turn, BaseException):
                raise turn
            drawn.append(turn)
        scores = await self.choosing.by.scores([(view.messages, turn.text) for turn in drawn])
        return drawn[max(range(len(drawn)), key=lambda k: (scores[k], -k))]

    def commit(self, view: View, turn: Turn) -> None:
        self.inner.commit(view, turn)
        self.parent = self.inner.parent

    def fork(self) -> BestOf:
        return BestOf(copy.copy(self.inner), self.choosing, self.parent)
