"""The guards warn if something goes wrong, and only then."""

from __future__ import annotations

import json

import pytest

from interplay.config import TrainSection
from interplay.training.guards import Guards


def guards(**options: float) -> Guards:
    return Guards(TrainSection(**options))  # type: ignore[arg-type]


def test_a_gradient_that_leaps_is_named_once_there_is_a_mean() -> None:
    watch = guards(guard_grad_spike=10.0)
    assert [watch.look("p", {"grad_norm": n}, {}) for n in (50.0, 1.0, 1.0, 1.0, 1.0)] == [[]] * 5, "too young to say"
    for _ in range(60):
        assert watch.look("p", {"grad_norm": 1.0}, {}) == []
    (said,) = watch.look("p", {"grad_norm": 30.0}, {})
    assert "policy 'p': the gradient norm is 30" in said and "guard_grad_spike" in said
    assert watch.look("other", {"grad_norm": 30.0}, {}) == [], "each policy has its own mean"


@pytest.mark.parametrize(("entropy", "count"), [(0.2, 0), (0.04, 1)])
def test_collapsed_entropy(entropy: float, count: int) -> None:
    assert len(guards(guard_entropy=0.05).look("p", {"entropy": entropy}, {})) == count
    watch = guards()
    assert len(watch.look("p", {"entropy": 1e-4}, {})) == 1, "watched by default"
    assert watch.look("p", {"entropy": 1e-4}, {}) == [], "said once, when it begins"
    assert watch.look("p", {"entropy": 1.0}, {}) == []
    assert len(watch.look("p", {"entropy": 1e-4}, {})) == 1, "and again when it comes back"
    assert guards(guard_entropy=0.0).look("p", {"entropy": 0.0}, {}) == [], "0 is off"


def test_credit_that_says_nothing_is_named_by_role() -> None:
    (said,) = guards(guard_zero_share=0.9).look("p", {}, {"X": 0.95, "O": 0.5})
    assert said.startswith("role X: 95%")


def test_a_role_that_has_nothing_to_learn_from_for_long_is_named_without_being_asked() -> None:
    watch = guards()
    assert [watch.look("p", {}, {"X": 1.0, "O": 0.99}) for _ in range(4)] == [[]] * 4, "it may be chance"
    (said,) = watch.look("p", {}, {"X": 1.0, "O": 0.99})
    assert "role X: all of its advantages have been exactly zero for 5 steps" in said
    assert watch.look("p", {}, {"X": 1.0}) == watch.look("p", {}, {"X": 0.5}) == []


def test_a_role_that_nobody_trains_is_not_named(caplog: pytest.LogCaptureFixture) -> None:
    """The turns of a frozen partner have advantages too, but nobody learns from them."""
    watch = guards()
    for step in range(6):
        watch.watch(step, ["p"], {"credit/zero_share/X": 0.5, "credit/zero_share/O": 1.0}, {"X"})
    assert not ours(caplog)
    for step in range(6):
        watch.watch(step, ["p"], {"credit/zero_share/X": 0.5, "credit/zero_share/O": 1.0}, {"X", "O"})
    assert [said[:14] for said in ours(caplog)] == ["step 4: role O"]


def ours(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What Interplay logged. What other tests left may be collected now, and asyncio then logs something."""
    return [record.getMessage() for record in caplog.records if record.name == "interplay"]


def test_what_they_know_survives_a_checkpoint() -> None:
    one, two = guards(), guards()
    for norm in (1.0, 2.0, 3.0, 3.0):
        one.look("p", {"grad_norm": norm, "entropy": 0.0}, {"X": 1.0})
    two.load_state_dict(json.loads(json.dumps(one.state_dict())))
    assert two.state_dict() == one.state_dict() != {}
    assert two.look("p", {"entropy": 0.0}, {}) == [], "it was said before the run was cut"
    assert len(two.look("p", {}, {"X": 1.0})) == 1, "the fifth step"
