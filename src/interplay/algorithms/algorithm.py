"""The base class of algorithms: a sampling plan, a credit rule over plain records, and a loss. No torch on import.

To write an algorithm, subclass `Algorithm`, set `Settings`, write `plan` and `credit`, and add `@register("name")`. The
trainer does not know which algorithm runs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from pydantic import Field, field_validator, model_validator

from interplay.algorithms import credit
from interplay.config import AdapterSection, Open, RewardSection, Section, validate
from interplay.errors import ConfigError
from interplay.registry import Registry
from interplay.types import Advantage, Credit, Episode, Sample

if TYPE_CHECKING:
    from torch import Tensor

    from interplay.algorithms.losses import Outputs, Targets

Continuation = Literal["none", "round", "playout", "critic"]
PLAYED: tuple[Continuation, ...] = ("playout", "round")  # continuations that are played
Keep = Literal["greedy", "softmax", "uniform", "first"]
Joint = Literal["first", "aligned", "crossed", "without", "coalitions"]
# What `credit` needs: `values` of a critic at the end of each prompt, or of Env.state() (`central`), or at every token
# (`tokens`); `legal`: the log-probs of every legal reply.
Need = Literal["values", "central", "tokens", "legal"]


@dataclass(frozen=True)
class Independent:
    """Plays `replicas` whole episodes of each task."""

    replicas: int = 1


@dataclass(frozen=True)
class Tree:
    """Draws `candidates` replies at every decision of a trainable seat and scores each on a fork. The play goes on with
    one of them, chosen by `keep`.

    A candidate's return is its step rewards plus a continuation. `none` adds nothing. `round` adds what is earned until
    the role is asked again (so a planner's reply is worth what the actor makes of it). `playout` adds the mean of
    `playouts` plays to the end by the same seats. `critic` adds a critic's value of the state that the reply led to.
    With `keep` = `first`, the played line is one that the policy would have played without a tree.

    If several roles act at once, `joint` says which replies of the others a candidate is scored with: their `first`
    ones; `aligned`, the k-th with the k-th; or `crossed`, the mean over all combinations. `without` and `coalitions`
    score the first joint action while some roles say `default` instead: each role left out once, or all coalitions
    that Shapley values need.

    `compares` says that only differences between replies to the same prompt matter. If all replies to a prompt are the
    same, they are then not played out. There are two exceptions: plans whose `joint` is not `first`, and the first
    choice of an episode if `shows_own`.
    """

    candidates: int
    continuation: Continuation
    playouts: int = 1
    keep: Keep = "greedy"
    keep_temperature: float = 1.0
    replicas: int = 1
    joint: Joint = "first"
    default: str = ""
    compares: bool = False

    @property
    def by_worth(self) -> bool:
        """Whether the returns of the replies decide which one the play goes on with."""
        return self.keep in ("greedy", "softmax")

    @property
    def shows_own(self) -> bool:
        """Whether the played line is chosen by returns, while the playouts of the first choice show what the policies
        earn without this selection. False for critics (they only estimate), rounds (they end early), and `without` and
        `coalitions` (they score joint actions that were not played)."""
        return self.by_worth and self.continuation == "playout" and self.joint not in ("without", "coalitions")


SamplingPlan = Independent | Tree


class OverlongSettings(Section):
    """Soft penalty for long replies (DAPO, sec. 3.4): 0 up to `length` − `margin` tokens, then down to −1 at
    `length`."""

    length: int = Field(ge=1, description="replies of this many tokens get the whole penalty")
    margin: int = Field(ge=1, description="the penalty grows from 0 over this many tokens before that length")


class LossSettings(Section):
    """The settings of the policy loss, which all algorithms here share (see `losses.py`)."""

    loss: Literal["clip", "gspo", "cispo"] = Field(
        "clip",
        description="the surrogate loss: clip uses the ratio of each token, gspo that of each turn, cispo clips the "
        "weight",
    )
    clip_low: float = Field(0.2, gt=0, description="the ratio is clipped below 1 minus this")
    clip_high: float = Field(0.2, gt=0, description="the ratio is clipped above 1 plus this")
    dual_clip: float | None = Field(
        None, gt=1, description="limits the loss of bad actions that became likely (dual clip); 3 is usual"
    )
    average: Literal["token", "turn"] | int = Field(
        "token", description="what the loss is averaged over; a number divides by a constant length per turn (Dr.GRPO)"
    )
    entropy: float = Field(0.0, ge=0, description="coefficient of the entropy bonus")
    kl: float = Field(
        0.0,
        ge=0,
        description="weight of the KL divergence from the policy at the start of reinforcement learning, in the loss",
    )
    kl_kind: Literal["k2", "k3", "sequence"] = Field(
        "k2",
        description="how the KL is estimated: k2 for each token given its prefix, k3 (biased), or sequence for the "
        "whole reply (noisier)",
    )
    kl_refresh: int = Field(
        0, ge=0, description="replace the reference by the current policy after every N steps; 0 never replaces it"
    )
    kl_reward: float = Field(
        0.0,
        ge=0,
        description="weight of the KL divergence from the reference policy as a negative reward: its k1 estimate for "
        'each turn, or for each token in PPO with level = "token"',
    )
    correction: Literal["none", "tis", "icepop"] = Field(
        "none", description="correction for engines whose numerics differ from the learner's, or for stale tokens"
    )
    overlong: OverlongSettings | None = Field(None, description="a penalty for long replies")

    @field_validator("average")
    @classmethod
    def _length_is_positive(cls, value: str | int) -> str | int:
        if isinstance(value, int) and value < 1:
            raise ConfigError(f"algorithm.average is {value}; expected 'token', 'turn' or a length of at least 1.")
        return value

    @model_validator(mode="after")
    def _says_nothing_in_vain(self) -> LossSettings:
        given = self.model_fields_set
        if self.dual_clip is not None and self.loss == "cispo":
            raise ConfigError(
                "algorithm.dual_clip is set, but the loss 'cispo' clips the weight of a token and not its objective; "
                "expected dual_clip to be left out, or loss = 'clip'."
            )
        if "kl_kind" in given and not self.kl:
            raise ConfigError("algorithm.kl_kind is set, but algorithm.kl is 0; expected a kl above 0 with it.")
        return self

    @property
    def regularised(self) -> bool:
        """Whether turns have a gradient even if their advantage is 0."""
        return bool(self.entropy or self.kl)


class CriticSettings(Section):
    """The critic of the algorithms that have one: a value head on its own model or adapter. The head starts at zero, so
    until the critic has learned, an advantage is a plain return and not noise."""

    base: str | None = Field(None, description="the model of the critic; default: the policy's base")
    adapter: AdapterSection | None = Field(None, description="train this adapter instead of all weights of the base")
    lr: float = Field(1e-5, gt=0, description="learning rate of the critic")
    warmup: int = Field(0, ge=0, description="steps in which only the critic is trained")
    clip: float | None = Field(None, gt=0, description="how far a value may move from its old estimate in one step")
    normalise: bool = Field(
        False,
        description="divide returns by their running standard deviation (PopArt); clip is then in these units too",
    )


class TreeSettings(LossSettings):
    """Settings of the algorithms that score replies on forks (`Tree`)."""

    continuation: Continuation = Field(
        "playout", description="how the rest of a candidate's return is estimated after its own step"
    )
    playouts: int = Field(1, ge=1, description="playouts of each candidate")
    critic: CriticSettings = CriticSettings()

    @model_validator(mode="after")
    def _continues_one_way(self) -> TreeSettings:
        for name, wanted in (("playouts", PLAYED), ("critic", ("critic",))):
            if name in self.model_fields_set and self.continuation not in wanted:
                raise ConfigError(
                    f"algorithm.{name} is set, but algorithm.continuation is '{self.continuation}'; expected "
                    f"'{wanted[0]}', or {name} to be left out."
                )
        return self


class Weighed(NamedTuple):
    """A reply to train on. `share` is its weight in the mean of the loss: 1 for a sample itself, and 1/n each for n
    replies that replace one sample."""

    sample: Sample
    advantage: Advantage | None
    share: float = 1.0


class Algorithm(ABC):
    Settings: ClassVar[type[LossSettings]] = LossSettings
    settings: LossSettings
    needs: frozenset[Need] = frozenset()
    uses_legal: ClassVar[bool] = False  # has a better form for environments that list legal actions

    def __init__(self, settings: LossSettings, reward: RewardSection, seed: int = 0) -> None:
        """`seed` is the recipe's seed. All random numbers that an algorithm draws itself depend on it."""
        self.settings = settings
        self.reward = reward
        self.seed = seed

    @property
    @abstractmethod
    def plan(self) -> SamplingPlan:
        """How episodes are sampled."""

    @property
    def resample(self) -> int:
        """How many additional batches of tasks a step may play to replace tasks that teach nothing."""
        return 0

    def teaches(self, episodes: Sequence[Episode]) -> bool:
        """Whether there is something to learn from the episodes of one task. Called right after play, before
        shaping."""
        return True

    @property
    def critic(self) -> CriticSettings | None:
        """The critic this run trains, if it has one."""
        s = self.settings
        return s.critic if isinstance(s, TreeSettings) and s.continuation == "critic" else None

    @property
    def reference(self) -> bool:
        """Whether `credit` or the loss needs reference log-probs: those of the policy when reinforcement learning
        began, or at the last refresh. With refreshes the pull to the reference can be strong, and training still ends
        at an equilibrium (R-NaD, 2206.15378)."""
        return bool(self.settings.kl or self.settings.kl_reward)

    def shape(self, episodes: Sequence[Episode], given: Credit) -> Mapping[str, float]:
        """Adds the rewards that the settings ask for (KL, length) to the turns, as named process rewards. Returns their
        means as metrics."""
        s = self.settings
        overlong = (s.overlong.length, s.overlong.margin) if s.overlong else None
        return credit.shape(episodes, given, s.kl_reward, overlong)

    @abstractmethod
    def credit(self, episodes: Sequence[Episode], given: Credit) -> Mapping[str, float]:
        """Gives an advantage to every turn that is to be trained, and returns metrics. Turns are grouped by their
        `keys`. `given` already holds what the algorithm `needs`, such as values, and the reference log-probs."""

    def weighed(self, sample: Sample, given: Credit) -> list[Weighed]:
        """The replies to train for a sample, with their advantages. By default this is the sample itself."""
        return [Weighed(sample, given.advantages.get(sample.id))]

    def loss(self, targets: Targets, outputs: Outputs) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss and its metrics: a pure tensor function. It returns sums, so that micro-batches add up."""
        from interplay.algorithms.losses import policy_loss

        s = self.settings
        return policy_loss(
            targets, outputs, s.clip_low, s.clip_high, s.dual_clip, s.entropy, s.kl,
            surrogate=s.loss, kl_kind=s.kl_kind, correction=s.correction,
        )  # fmt: skip

    def update(self, episodes: Sequence[Episode]) -> Mapping[str, float]:
        """Fits the algorithm's own networks (mixers, central critics) after `credit`, and returns metrics."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """The algorithm's own state, such as baselines, as plain JSON values. It is saved in the checkpoint."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if state:
            raise ConfigError(
                f"the checkpoint holds algorithm state {sorted(state)}, but {type(self).__name__} keeps no state; "
                "expected a checkpoint of the same algorithm."
            )


_NAMES = """
at_grpo c3 cispo coma custom dapo difference dr_grpo dr_mas gspo grpo maddpg magrpo maporl mappo online_dpo ppo qmix rae
reinforce_pp rloo shapley vdn
"""
ALGORITHMS: Registry[Algorithm] = Registry(
    Algorithm,
    "an algorithm",
    "algorithm.name",
    {name: f"interplay.algorithms.{name}" for name in _NAMES.split()},
    group="interplay.algorithms",
)
register, known, lookup = ALGORITHMS.register, ALGORITHMS.known, ALGORITHMS.lookup


def make(section: Open, reward: RewardSection, seed: int) -> Algorithm:
    """Makes the algorithm that a recipe names and checks its settings. `seed` is the recipe's seed."""
    cls = lookup(section.name)
    return cls(validate(cls.Settings, section.options, prefix="algorithm"), reward, seed)
