"""Hostile programs and answers are contained: the host is unharmed, each has a result, and the sandbox still works.

`hostile.py` runs them, at each level that the machine offers, as this user and as an ordinary one.
"""

from __future__ import annotations

import pytest
from hostile import ALL_PROGRAMS, Line, as_myself, as_ordinary, ordinary_reason
from hostile_answers import ANSWERS

from interplay.execution.sandbox import IsolationLevel, offered

QUICK = [one for one in (*ALL_PROGRAMS, *ANSWERS) if not one.long]


def check(lines: list[Line]) -> None:
    wrong = [f"{x['kind']}, {x['name']}: {x['wrong']}" for x in lines if x["wrong"]]
    assert not wrong, "\n".join(wrong)


def strongest() -> IsolationLevel:
    return "namespaces" if not offered("namespaces") else "landlock"


def need(level: IsolationLevel) -> None:
    if reason := offered(level):
        pytest.skip(f"this machine does not offer {level}: {reason}")


def test_quick_hostile_programs_and_answers_are_contained() -> None:
    """At the strongest level of this machine; the remaining programs and levels are in slow tests."""
    level = strongest()
    need(level)
    check(as_myself(level, "--quick"))


@pytest.mark.parametrize("level", ["namespaces", "landlock"])
def test_an_ordinary_user_has_the_same_walls(level: IsolationLevel) -> None:
    """What differs from root: files and processes of the same user, and limits per user."""
    need(level)
    if reason := ordinary_reason():
        pytest.skip(reason)
    kinds = ("attributes of files", "other processes", "signals", "writing files", "SQLite: writing")
    check(as_ordinary(level, "--quick", *(word for kind in kinds for word in ("--kind", kind))))


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("level", ["namespaces", "landlock"])
def test_every_hostile_program_and_answer_is_contained(level: IsolationLevel) -> None:
    """At the strongest level, a test that is not slow runs the quick ones."""
    need(level)
    check(as_myself(level, *(["--long"] if level == strongest() else [])))


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("level", ["namespaces", "landlock"])
def test_every_hostile_program_and_answer_of_an_ordinary_user_is_contained(level: IsolationLevel) -> None:
    need(level)
    if reason := ordinary_reason():
        pytest.skip(reason)
    check(as_ordinary(level))


def test_there_are_at_least_150_of_at_least_30_kinds() -> None:
    everything = [*ALL_PROGRAMS, *ANSWERS]
    assert len({(one.kind, one.name) for one in everything}) == len(everything) >= 150
    assert len({one.kind for one in everything}) >= 30
