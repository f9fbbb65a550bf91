"""One action of one role."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from interplay.types.message import Spoken
from interplay.types.rewards import Rewards, Role
from interplay.types.sample import Sample
from interplay.types.task import Observation


class Status(StrEnum):
    """How a turn ended. Each of these is caused by the policy, never by a failure of the system."""

    OK = "ok"
    LENGTH = "length"
    ILLEGAL = "illegal"


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys that a turn gets when it is sampled. A grouping is a subset of these names."""

    task: str
    replica: int
    episode: str
    decision: int
    role: Role
    phase: str
    tool: str
    prompt: str

    def pick(self, names: tuple[str, ...]) -> tuple[object, ...]:
        return tuple(getattr(self, n) for n in names)


KEY_NAMES = ("task", "replica", "episode", "decision", "role", "phase", "tool", "prompt")


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a candidate of a tree earned on its own fork: its step rewards plus the (mean) rewards of its continuation,
    discounted to the turn. The rewards are empty if all candidates were the same and only their differences count.

    `coalitions` maps a set of roles, written "a,b", to the rewards if only these roles had acted. `refused` says that
    the environment refused the action."""

    rewards: Rewards = field(default_factory=Rewards)
    coalitions: Mapping[str, Rewards] = field(default_factory=dict)
    refused: bool = False


@dataclass(slots=True)
class Turn:
    """One action: a model's reply, or a bot's move (`policy` is then `bot:name`, and there are no samples).

    A role may call tools before it acts. Each model call is a sample; the last one's text is the action, and all of
    them share the turn's keys and credit. In a tree, the K candidates of a decision are K turns with `candidate` 0 to
    K − 1, one of them `kept`. Turns that were sampled only to estimate a candidate's return have `playout` set; they
    are recorded only on request, and never trained on.
    """

    id: str
    parent: str | None  # the previous turn of the role
    keys: Keys
    policy: str
    text: str
    observation: Observation
    samples: tuple[Sample, ...] = ()
    status: Status = Status.OK
    rewards: Rewards = field(default_factory=Rewards)
    state: str = ""  # Env.state() before this decision, for central critics; empty in playouts
    candidate: int = 0
    kept: bool = True
    playout: int | None = None
    outlook: Outlook | None = None
    spoken: Spoken | None = None  # the reply as it is sent to an outside program

    @property
    def role(self) -> Role:
        return self.keys.role

    @property
    def decision(self) -> int:
        return self.keys.decision

    @property
    def is_model(self) -> bool:
        """Whether the action's token ids are known, so that the turn could be trained on."""
        return bool(self.samples) and bool(self.samples[-1].action)

    @property
    def illegal(self) -> bool:
        """Whether the environment refused the action. It may also refuse a reply that hit the token limit; the status
        of that turn is LENGTH. A candidate that a tree rejected has no rewards of its own, only an outlook."""
        rejected = self.outlook is not None and not self.kept and self.outlook.refused
        return rejected or any(r.name == "illegal" for r in self.rewards)

    @property
    def words(self) -> tuple[str, ...]:
        """All text of the turn, including tool calls. Candidates with equal words lead to the same state."""
        return tuple(s.text for s in self.samples) or (self.text,)

    @property
    def last(self) -> Sample:
        """The last sample, whose reply is the action."""
        return self.samples[-1]

    @property
    def asked(self) -> tuple[int, ...]:
        """The ids of the first prompt of this decision, before any tool output; empty for a bot."""
        return self.samples[0].prompt if self.samples else ()

    @property
    def sampled(self) -> int:
        """The number of tokens sampled for this decision, also by a remote model; 0 for a bot."""
        return sum([s.size for s in self.samples])
