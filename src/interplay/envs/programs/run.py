"""One run of a program that asks models: what waits for an answer, and how it ended.

Every way of running a program (a coroutine here, a process behind the gateway, a service that attaches) is a
`ProgramRun`. The environment knows nothing else about it.
"""

from __future__ import annotations

import hashlib
import traceback
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from interplay.envs.programs.effects import EffectLog
from interplay.types import Message, ProgramCall, Role, Spoken, Turn


@dataclass(frozen=True)
class Inquiry:
    """A call that waits for an answer. Two calls with the same digest ask the same. `phase` is the caller's name for a
    part of its work, for grouping."""

    role: Role
    messages: tuple[Message, ...]
    call: ProgramCall
    phase: str = ""

    @cached_property
    def digest(self) -> str:
        known = (self.role, self.messages, self.call, self.phase)
        return hashlib.blake2b(repr(known).encode(), digest_size=12).hexdigest()


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply, and what a server tells about it: why it ended, its tokens and their log-probs."""

    spoken: Spoken
    cut: bool = False  # at the limit of tokens
    prompt_tokens: int = 0
    tokens: int = 0
    logprobs: tuple[float, ...] = ()

    @staticmethod
    def of(turn: Turn) -> Reply:
        spoken = turn.spoken or Spoken(turn.text)
        if not turn.samples:
            return Reply(spoken)
        last = turn.last
        return Reply(spoken, turn.status == "length", len(last.prompt), last.size, last.logprobs)


@dataclass(frozen=True, slots=True)
class ProgramCrash:
    """A program that ended with an error: its kind, its words, and the place in the program's own files."""

    kind: str
    words: str
    place: str
    machinery: bool = False  # certainly not caused by a reply of the policy

    def __str__(self) -> str:
        return f"{self.kind} at {self.place}: {self.words}"

    @property
    def signature(self) -> str:
        """Identifies a bug. The words are left out, because they may contain what the policy said."""
        return f"{self.kind} at {self.place}"

    @staticmethod
    def of(error: BaseException) -> ProgramCrash:
        return ProgramCrash(type(error).__name__, str(error)[:500], _place(traceback.extract_tb(error.__traceback__)))


def _place(frames: Iterable[traceback.FrameSummary]) -> str:
    """The innermost line that is not in a library, as file:line."""
    every = list(frames)
    own = [f for f in every if "site-packages" not in f.filename and "/lib/python" not in f.filename]
    own = [f for f in own if "interplay/envs/programs" not in f.filename] or own or every
    return f"{own[-1].filename}:{own[-1].lineno}" if own else "an unknown place"


@dataclass
class ProgramRun(ABC):
    """Single-use. `settle` waits until the program asks or has ended."""

    waiting: list[Inquiry] = field(default_factory=list)  # in no particular order
    ended: bool = False
    result: Any = None
    crash: ProgramCrash | None = None
    effects: EffectLog = field(default_factory=EffectLog)
    expected: frozenset[str] = frozenset()  # in a replay: the digests of the calls that came next the first time

    @abstractmethod
    async def settle(self) -> None:
        """Wait until the program waits for answers and nothing in it continues without them, or until it has ended."""

    @abstractmethod
    def settle_now(self) -> None:
        """The same for callers without an event loop: it blocks."""

    @abstractmethod
    def answer(self, question: Inquiry, answer: Reply) -> None:
        """Answer a call that waits with this question."""

    @abstractmethod
    def close(self) -> None:
        """End the program at whatever point it is, with everything that it started."""
