"""Signalling: what each role sees, and what can be won without a way to pass the state on."""

from __future__ import annotations

from fractions import Fraction
from typing import cast

import pytest

from interplay import envs
from interplay.envs.check import check
from interplay.envs.env import outcome_of, sample_task
from interplay.envs.games.signalling import NOTHING, Signalling


def made(index: int = 0, **options: object) -> Signalling:
    return cast(Signalling, envs.make(sample_task("signalling", options, index=index)))


def match(env: Signalling, said: str, named: str) -> float | None:
    env.step({"sender": said})
    if not env.over:
        env.step({"receiver": named})
    (reward,) = outcome_of(env)
    return reward.value


def test_naming_the_state_is_rewarded() -> None:
    for index in range(8):
        hidden = made(index).hidden
        assert match(made(index), NOTHING, str(hidden)) == 1.0
        assert match(made(index), NOTHING, str((hidden + 1) % 8)) == 0.0
        assert match(made(index), str(hidden), str(hidden)) == 0.0, "the sender has nothing to say"
        assert match(made(index, talk=True), str(hidden), str(hidden)) == 1.0
    assert match(made(), NOTHING, "8") == 0.0


def test_without_talk_the_receiver_sees_the_same_in_every_state() -> None:
    """So it can match one state in `states`, whatever it does; with talk it can match all."""
    seen: dict[bool, dict[int, str]] = {False: {}, True: {}}
    for index in range(100):
        for talk in seen:
            env = made(index, talk=talk)
            env.step({"sender": str(env.hidden) if talk else NOTHING})
            seen[talk][env.hidden] = env.observe()["receiver"].messages[0].content
    assert len(seen[False]) == 8 and len(set(seen[False].values())) == 1
    assert len(set(seen[True].values())) == 8
    best = Fraction(max(sum(named == hidden for hidden in range(8)) for named in range(8)), 8)
    assert best == Fraction(1, 8)


def test_a_picture_tells_the_state_and_nothing_else_does() -> None:
    pictures: dict[int, set[str]] = {}
    for index in range(60):
        for alone in (False, True):
            env = made(index, view="image", alone=alone)
            (seen,) = env.observe()[env.roles[0]].messages
            assert seen.content == ("number?" if alone else "You see") and env.caption(env.roles[0]) == str(env.hidden)
            pictures.setdefault(env.hidden, set()).add(seen.media[0].digest)
    assert len(pictures) == 8 and all(len(digests) == 1 for digests in pictures.values())
    assert len(set.union(*pictures.values())) == 8
    env = made(alone=True)
    env.step({"receiver": str(env.hidden)})
    assert [r.value for r in outcome_of(env)] == [1.0]


@pytest.mark.parametrize(
    "options", [{}, {"talk": True, "states": 3}, {"view": "image"}, {"view": "both"}, {"alone": True}]
)
def test_signalling_passes_the_conformance_suite(options: dict[str, object]) -> None:
    assert [f for f in check("signalling", options) if not f.passed] == []
