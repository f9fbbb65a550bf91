"""Replay: a program runs again from its start and gets the same answers again.

This is how a program is forked, and how to find out whether a reply caused a crash. It works if a program asks the same
questions again when it gets the same answers. If it does not, the replay has diverged: the branch is dropped and
counted. If more than 1% of the replays diverge, the run is stopped.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from interplay.envs.programs.counts import count
from interplay.envs.programs.run import Inquiry, ProgramRun, Reply
from interplay.errors import ConfigError, ReplayError
from interplay.types import Message

ENOUGH, SHARE = 100, 0.01  # from this number of replays on, at most this share of them may diverge


@dataclass(frozen=True, slots=True)
class Answered:
    """One question and its answer."""

    question: Inquiry
    answer: Reply


Decided = tuple[Answered, ...]  # all questions of one decision


class _Tally:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.replays = self.diverged = 0


_tally = _Tally()


def begun() -> None:
    """Count a replay."""
    count("replays")
    with _tally.lock:
        _tally.replays += 1


def expect(run: ProgramRun, record: Sequence[Decided], told: int) -> None:
    """Tell the run which calls of the record come next, after `told` decisions."""
    run.expected = frozenset(one.question.digest for one in record[told]) if told < len(record) else frozenset()


def answer_again(run: ProgramRun, record: Sequence[Decided], told: int) -> None:
    """Give the program the recorded answers of decision `told`. Raises `ReplayError` if it does not ask the same
    questions, and `ConfigError` if this happens too often."""
    for one in record[told]:
        found = next((q for q in run.waiting if q.digest == one.question.digest), None)
        if found is None:
            raise _diverged(one.question, run.waiting)
        run.answer(found, one.answer)
    expect(run, record, told + 1)


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
            "Expected a program that asks the same questions when it gets the same answers (no clock, no random "
            "numbers without a seed), or a plan of independent episodes."
        )
    return ReplayError(f"a replay diverged: {what}")


def difference(wanted: Inquiry, waiting: Sequence[Inquiry]) -> str:
    """How the question differs from the recorded one: the first message that is not the same."""
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
