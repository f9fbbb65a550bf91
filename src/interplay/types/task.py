"""Tasks, tools, and what a role sees when it must act."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from interplay.types.message import Message, Spoken

HistoryMatch = Literal["exact", "noise", "ids"]


@dataclass(frozen=True, slots=True)
class Task:
    """One problem or game to play. The task and the actions together reproduce the episode exactly.

    `data` holds the environment's options and, for dataset environments, the item itself.
    """

    id: str
    env: str
    seed: int
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument of a tool. `type` is a JSON type: string, integer, number or boolean."""

    name: str
    description: str
    type: str = "string"
    required: bool = True


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that a role may call during its turn. `run(**arguments)` returns the text that the caller reads next,
    and may add pictures and sounds to it (`Pictured`).

    A tool reads the environment and changes nothing. A caller's mistake gets an ordinary answer ("error: no such
    table"). An exception from `run` is a failure of the system, and so is running longer than `seconds`, so a tool
    must limit its own work.
    """

    name: str
    description: str
    parameters: tuple[Parameter, ...]
    run: Callable[..., str] = field(repr=False, compare=False)
    seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class ProgramCall:
    """What an outside program asks for besides the messages. `tools` are JSON schemas as text; the program runs these
    tools itself. `stop` strings end the reply and are not part of what the program gets. `only` lists the replies that
    the program accepts, if there are few enough to list. `history` says how closely a message must match a recorded
    reply to be treated as that reply."""

    tools: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()
    max_tokens: int | None = None
    only: tuple[Spoken, ...] = ()
    logprobs: bool = False
    parallel: bool = True  # whether a reply may contain several calls; if not, only the first counts
    history: HistoryMatch = "noise"


@dataclass(frozen=True, slots=True)
class Observation:
    """What one role sees when it must act.

    `messages` are those since the role last acted or, with `fresh`, the whole prompt. `legal` lists the legal actions
    as text, if they can be listed. `phase` names the part of the game, for grouping. The role may call `tools` a
    limited number of times before it gives its action; the environment never sees these calls. `call` is set if an
    outside program asks. The messages are then the whole conversation, as the program sends it.
    """

    messages: tuple[Message, ...]
    fresh: bool = False
    legal: tuple[str, ...] = ()
    phase: str = ""
    tools: tuple[Tool, ...] = ()
    call: ProgramCall | None = None
