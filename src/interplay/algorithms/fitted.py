"""Credit from networks that an algorithm fits beside the policies. VDN, QMIX and MADDPG share this code.

Joint decisions are stored in a replay buffer (`replay.py`). Each training step takes a few gradient steps on them, with
target networks that are copied at intervals. Episodes that a limit cut off are not treated as ended.

A turn's advantage is the fitted value of its reply minus the mean value of the alternatives: the legal actions if they
are listed, else the group's other replies to the same prompt (the metric `credit/legal` is the share of turns with
listed actions). In the first `warmup` steps only the networks learn. There is no ε-greedy exploration: the language
model itself plays, and is trained towards replies with a high value.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import Field

from interplay.algorithms import credit
from interplay.algorithms.algorithm import Algorithm, Independent, LossSettings
from interplay.algorithms.compare import EpisodeSettings
from interplay.algorithms.replay import Replay, Trajectory, Transition, steps
from interplay.config import RewardSection
from interplay.types import Credit, Episode, Turn, seed_of

if TYPE_CHECKING:
    from torch import Tensor, nn

    from interplay.algorithms.networks import Network

Judged = tuple[float, Sequence[float]]  # the value of a reply, and of each alternative to it


class FittedSettings(EpisodeSettings):
    warmup: int = Field(
        20, ge=0, description="training steps at the start in which only these networks are trained, not the policies"
    )
    lr: float = Field(5e-3, gt=0, description="learning rate of the networks")
    replay: int = Field(512, ge=1, description="how many episodes are remembered")
    updates: int = Field(4, ge=1, description="gradient steps per training step")
    batch: int = Field(32, ge=1, description="joint decisions per gradient step")
    target_every: int = Field(5, ge=1, description="training steps between copies to the target network")


class FittedCredit(Algorithm):
    Settings = FittedSettings
    settings: FittedSettings
    uses_legal = True

    def __init__(self, settings: LossSettings, reward: RewardSection, seed: int = 0) -> None:
        super().__init__(settings, reward, seed)
        self.roles: list[str] = []
        self.networks: dict[str, Network] = {}
        self.replay = Replay(self.settings.replay)
        self.steps = 0

    @property
    def plan(self) -> Independent:
        return Independent(self.settings.group)

    # -- what a subclass defines ---------------------------------------------------------------------------------

    @abstractmethod
    def build(self, name: str) -> nn.Module:
        """Builds the network called `name`, for the roles in `self.roles`."""

    @abstractmethod
    def names(self) -> Sequence[str]:
        """The names of all networks."""

    @abstractmethod
    def error(self, name: str, network: Network, sample: Sequence[Transition]) -> Tensor:
        """The loss of one network on decisions from the replay buffer."""

    @abstractmethod
    def judge(
        self, episodes: Sequence[Episode], turns: Sequence[Turn], options: Mapping[str, Sequence[str]]
    ) -> list[Judged]:
        """The values of each turn's reply and of its `options`."""

    # -- what all subclasses share -------------------------------------------------------------------------------

    def network(self, name: str) -> Network:
        if name not in self.networks:
            from interplay.algorithms.networks import Network

            seed = seed_of("network", self.seed, name)
            self.networks[name] = Network(lambda: self.build(name), self.settings.lr, seed)
        return self.networks[name]

    def credit(self, episodes: Sequence[Episode], given: Credit) -> Mapping[str, float]:
        self.roles = list(episodes[0].seats)
        turns = [t for e in episodes for t in e.line() if t.is_model]
        lonely = 0
        for turn, (mine, others) in zip(turns, self.judge(episodes, turns, _options(turns)), strict=True):
            lonely += not others
            given.give(turn, mine - sum(others) / len(others) if others else 0.0)
        if self.steps < self.settings.warmup:
            given.withdraw(turns)
        legal = sum(bool(t.observation.legal) for t in turns) / max(1, len(turns))
        return {"credit/legal": legal, "credit/groups_of_one": lonely, **credit.summary(turns, given)}

    def update(self, episodes: Sequence[Episode]) -> Mapping[str, float]:
        s, self.roles = self.settings, list(episodes[0].seats)
        self.replay.add(Trajectory(steps(e, self.reward), e.cut is not None) for e in episodes)
        losses = dict.fromkeys(self.names(), 0.0)
        for name in losses:
            network = self.network(name)
            for n in range(s.updates if self.replay.plays else 0):
                sample = self.replay.sample(s.batch, seed_of("replay", self.seed, name, self.steps, n))
                losses[name] += network.descend(self.error(name, network, sample)) / s.updates
        self.steps += 1
        if self.steps % s.target_every == 0:
            for network in self.networks.values():
                network.sync()
        return {f"credit/fit_loss/{name}": loss for name, loss in losses.items()}

    def state_dict(self) -> dict[str, Any]:
        networks = {name: network.state_dict() for name, network in self.networks.items()}
        return {"roles": self.roles, "networks": networks, "replay": self.replay.state_dict(), "steps": self.steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.roles, self.steps = list(state["roles"]), state["steps"]
        for name, saved in state["networks"].items():
            self.network(name).load_state_dict(saved)
        self.replay.load_state_dict(state["replay"])


def _options(turns: Sequence[Turn]) -> dict[str, list[str]]:
    """The replies that each turn is compared with: all legal actions if they are listed, else the other replies to the
    same prompt."""
    out = {t.id: list(t.observation.legal) for t in turns}
    for group in credit.groups([t for t in turns if not t.observation.legal], ("task", "role", "prompt")):
        for turn in group:
            out[turn.id] = [t.text for t in group if t is not turn]
    return out
