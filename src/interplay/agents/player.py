"""The interface of a player, who plays a role for one episode.

`look` makes a view (with a model's prompt) from an observation. `sample` samples a reply without adding it to the
history, so that K candidates can be sampled. `commit` adds one reply to the history. A turn gets its keys when it is
sampled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

from interplay.envs import Env
from interplay.errors import ConfigError
from interplay.types import Keys, Message, Observation, Role, Sample, Status, Task, Turn

if TYPE_CHECKING:
    from interplay.agents.memory import Recalled
    from interplay.agents.render import Prompt


@dataclass(frozen=True, slots=True)
class Stamp:
    """The place in the run where a turn is sampled. All its random numbers and keys are derived from this."""

    seed: int
    task: Task
    replica: int
    episode: str
    decision: int
    path: tuple[int, ...] = ()  # in a playout: (decision, role if several act, candidate, playout) of its fork
    candidate: int = 0
    state: str = ""  # Env.state() at this decision, if it is recorded
    asked: tuple[str, int] | None = None  # for outside programs: digest of the prompt, how often it was asked before

    @property
    def playout(self) -> int | None:
        return self.path[-1] if self.path else None

    def at(self, decision: int, candidate: int) -> Stamp:
        """The same place at another decision, or of another candidate. `dataclasses.replace` would be slower."""
        return Stamp(
            self.seed, self.task, self.replica, self.episode, decision, self.path, candidate, self.state, self.asked
        )

    def key(self, role: Role, call: int = 0) -> tuple[object, ...]:
        """The key from which the random numbers of one model call are derived. Calls of an outside program may arrive
        in any order, so their key holds what is asked and not the number of the decision."""
        if self.asked is not None:
            return self.seed, self.task.id, self.replica, self.path, -1, role, self.candidate, *self.asked
        key = (self.seed, self.task.id, self.replica, self.path, self.decision, role, self.candidate)
        return (*key, call) if call else key

    def turn_id(self, role: Role) -> str:
        path = "".join([f".{p}" for p in self.path])
        return f"{self.episode}{path}/{self.decision}{role}{self.candidate}"


@dataclass(frozen=True, slots=True)
class View:
    """What a player sees when it is about to reply."""

    observation: Observation
    prompt: Prompt | None = None
    messages: tuple[Message, ...] = ()
    recalled: Recalled | None = None  # for a conversation with an outside program


class Player(Protocol):
    """Plays a role in one line of play."""

    policy: str
    parent: str | None  # the id of the role's previous turn

    @property
    def trainable(self) -> bool: ...

    def look(self, observation: Observation) -> View: ...
    async def sample(self, env: Env, view: View, stamp: Stamp) -> Turn: ...
    def commit(self, view: View, turn: Turn) -> None: ...


class Agent(Player, Protocol):
    """A player that can be copied with its current state. Trees continue play from the copies."""

    def fork(self) -> Agent: ...


def forkable(players: Mapping[Role, Player]) -> dict[Role, Agent]:
    # This runs for all players of an episode. `isinstance` with the protocol would look up each of its attributes.
    out = {role: cast(Agent, player) for role, player in players.items() if hasattr(player, "fork")}
    if missing := next((role for role in players if role not in out), None):
        raise ConfigError(
            f"{players[missing].policy} in role {missing} plays only one line and cannot be copied, but a tree of "
            "candidates continues from copies; expected a plan with independent episodes."
        )
    return out


def refuse_media(role: Role, messages: Sequence[Message], takes: Set[str]) -> None:
    """Raise if a program sent media that the model does not take: they must not be left out silently."""
    sent: set[str] = {m.kind for message in messages for m in message.media}
    if missing := sorted(sent - takes):
        taken = ", ".join(("text", *sorted(takes)))
        raise ConfigError(
            f"the program sent media of the kind {' and '.join(missing)} to the role '{role}', and the model in this "
            f"seat takes only {taken}; expected a model that takes them, or a program that does not send them."
        )


def turn_of(
    stamp: Stamp,
    role: Role,
    player: Player,
    observation: Observation,
    said: str | tuple[Sample, ...],
    digest: str = "",
) -> Turn:
    """Make the turn of a player from its reply: a text (a bot), or samples, the last of which is the action. `digest`
    identifies the prompt."""
    samples = () if isinstance(said, str) else said
    tools = sorted({tool for s in samples if s.tool for tool in s.tool.split("+")})
    keys = Keys(
        stamp.task.id,
        stamp.replica,
        stamp.episode,
        stamp.decision,
        role,
        observation.phase,
        "+".join(tools),
        digest,
    )
    return Turn(
        samples[-1].id if samples else stamp.turn_id(role),
        player.parent,
        keys,
        player.policy,
        said if isinstance(said, str) else samples[-1].text,
        observation,
        samples,
        Status.OK,
        state=stamp.state,
        candidate=stamp.candidate,
        playout=stamp.playout,
    )
