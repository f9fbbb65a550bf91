"""Replay: a program runs again from its start, and is told the same answers again.

That is how a program is forked, and how it is found out whether a crash is the policy's doing. It is sound where a
program asks the same again when it is told the same. Where it does not, the replay has diverged: the branch is dropped
and counted, and a run in which more than 1% diverge is stopped.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from interplay.envs.programs.counts import count
from interplay.envs.programs.run import Inquiry, ProgramRun, Reply
from interplay.errors import ConfigError, ReplayError
from interplay.types import Message

ENOUGH, SHARE = 100, 0.01  # replays from which on the share of divergent ones is looked at, and its limit


@dataclass(frozen=True, slots=True)
class Answered:
    """One question and what it was answered."""

    question: Inquiry
    answer: Reply


Decided = tuple[Answered, ...]  # all that were answered at one decision


class _Tally:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.replays = self.diverged = 0


_tally = _Tally()


def begun() -> None:
    """One more replay."""
    count("replays")
    with _tally.lock:
        _tally.replays += 1


def answer_again(run: ProgramRun, decided: Decided) -> None:
    """Tell the program what it was told; `ReplayError` where it does not ask for that."""
    for one in decided:
        found = next((q for q in run.waiting if q.digest == one.question.digest), None)
        if found is None:
            raise _diverged(one.question, run.waiting)
        run.answer(found, one.answer)


def _diverged(wanted: Inquiry, waiting: Sequence[Inquiry]) -> ReplayError | ConfigError:
    count("diverged")
    with _tally.lock:
        _tally.diverged += 1
        often = _tally.replays >= ENOUGH and _tally.diverged > SHARE * _tally.replays
        share = f"{_tally.diverged} of {_tally.replays}"
    what = difference(wanted, waiting)
    if often:
        return ConfigError(
            f"{share} replays of the program diverged, more than {SHARE:.0%}, so that it cannot be forked: {what} "
            "Expected a program that asks the same when it is told the same (no clock, no unseeded chance), or a plan "
            "of independent episodes."
        )
    return ReplayError(f"a replay diverged: {what}")


def difference(wanted: Inquiry, waiting: Sequence[Inquiry]) -> str:
    """The first message in which what is asked differs from what was asked before."""
    same = [q for q in waiting if q.role == wanted.role]
    if not same:
        others = ", ".join(sorted({q.role for q in waiting})) or "nobody"
        return f"{wanted.role} was asked before, and now {others} is."
    best = max(same, key=lambda q: _common(q.messages, wanted.messages))
    n = _common(best.messages, wanted.messages)
    before, now = _shown(wanted.messages, n), _shown(best.messages, n)
    if before == now:
        return f"{wanted.role} is asked with other settings: {best.call} instead of {wanted.call}."
    return f"message {n} to {wanted.role} was {before} and is now {now}."


def _common(a: Sequence[Message], b: Sequence[Message]) -> int:
    n = 0
    while n < min(len(a), len(b)) and a[n] == b[n]:
        n += 1
    return n


def _shown(messages: Sequence[Message], n: int) -> str:
    if n >= len(messages):
        return "missing"
    text = messages[n].content
    return repr(text if len(text) <= 200 else text[:200] + "…")
