"""What is to be played, and what a role sees when it must act."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from interplay.types.message import Message, Spoken

HistoryMatch = Literal["exact", "noise", "ids"]


@dataclass(frozen=True, slots=True)
class Task:
    """What is to be played. With the actions it reproduces the episode exactly.

    `data` holds the environment's options and, for dataset environments, the item itself.
    """

    id: str
    env: str
    seed: int
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument of a tool; `type` is JSON's: string, integer, number or boolean."""

    name: str
    description: str
    type: str = "string"
    required: bool = True


@dataclass(frozen=True, slots=True)
class Tool:
    """What a role may call inside its turn: `run(**arguments)` gives the text that the caller reads next.

    A tool reads the environment and changes nothing. A caller's mistake is an answer like any other ("error: no such
    table"); what `run` raises is a failure of the machinery, and so is running past `seconds`: a tool limits itself.
    """

    name: str
    description: str
    parameters: tuple[Parameter, ...]
    run: Callable[..., str] = field(repr=False, compare=False)
    seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class ProgramCall:
    """What an outside program wants besides the messages: `tools` are JSON schemas as text, which the program runs
    itself; `stop` strings end the reply and are not shown to it; `only` lists the only replies that it accepts, where
    there are few enough to list. `history` says how closely a message must equal a recorded reply to count as it."""

    tools: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()
    max_tokens: int | None = None
    only: tuple[Spoken, ...] = ()
    logprobs: bool = False
    parallel: bool = True  # whether a reply may make several calls; else the first counts
    history: HistoryMatch = "noise"


@dataclass(frozen=True, slots=True)
class Observation:
    """What one role sees when it must act.

    `messages` are new since that role last acted, or, with `fresh`, the whole prompt. `legal` lists the
    legal actions as text where they can be listed. `phase` names the part of the game, for grouping. `tools` may be
    called, some times, before the action is given; the environment never sees those calls. `call` is there where an
    outside program asks: the messages are then the whole conversation as the program tells it.
    """

    messages: tuple[Message, ...]
    fresh: bool = False
    legal: tuple[str, ...] = ()
    phase: str = ""
    tools: tuple[Tool, ...] = ()
    call: ProgramCall | None = None
