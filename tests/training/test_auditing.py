"""The audit of judges inside a run: planted biases are found, it gives no rewards, and a resumed run is the same."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from runs import Killed, killed_at, rows, train
from test_judges import LEARNS, SMALL, judged, played, remote

from interplay.config import parse
from interplay.errors import ConfigError
from interplay.rollout.resolve import resolve

CHECKS = ["length", "position", "echo", "style", "drift"]
AUDIT = {"checks": CHECKS, "checks_every": 1, "pairs": 4}


def longer(body: dict[str, Any]) -> str:
    """A judge that counts characters."""
    text = body["messages"][-1]["content"]
    first, second = (len(text.partition(f"<{mark}>")[2].partition(f"</{mark}>")[0]) for mark in "AB")
    return "tie" if first == second else "A" if first > second else "B"


def audited(served: Any, answer: Any) -> dict[str, Any]:
    data = remote(served(answer))
    data["judges"]["taste"] |= {"audit": AUDIT}
    return data


@pytest.mark.parametrize(("answer", "named"), [(longer, {"length", "echo", "style"}), (lambda body: "A", {"position"})])
def test_a_planted_bias_is_a_metric_and_a_warning(
    tmp_path: Path,
    served: Any,
    caplog: pytest.LogCaptureFixture,
    answer: Any,
    named: set[str],
) -> None:
    with caplog.at_level(logging.WARNING, "interplay"):
        train(tmp_path, audited(served, answer), "train.steps=2", "algorithm.entropy=0.01")
    last = rows(tmp_path)[-1]
    for check in named:
        assert last[f"judge/taste/audit/{check}"] == 1.0
    assert last["judge/taste/audit/faults"] == len(named)
    said = [m for m in caplog.messages if "do not trust its reward" in m]
    assert len(said) == 2 * len(named) and all(m.startswith("judges.taste prefers") for m in said)


def test_a_judge_that_answers_nothing_is_not_called_faultless(tmp_path: Path, served: Any) -> None:
    train(tmp_path, audited(served, lambda body: "perhaps"), "train.steps=1", "algorithm.entropy=0.01")
    assert not [name for name in rows(tmp_path)[-1] if name.startswith("judge/taste/audit/")]


def test_the_audits_questions_are_recorded_and_pay_nobody(tmp_path: Path, served: Any) -> None:
    train(tmp_path / "with", audited(served, longer), "train.steps=1", "algorithm.entropy=0.01")
    train(tmp_path / "without", remote(served(longer)), "train.steps=1", "algorithm.entropy=0.01")
    one, other = (list(played(tmp_path / name)) for name in ("with", "without"))
    assert [x.episode.rewards for x in one] == [x.episode.rewards for x in other]
    asked = [t for x in one for t in x.episode.judged if t.observation.phase == "taste/audit"]
    assert len(asked) == len(CHECKS) * 4 * 2 == len({t.id for t in asked})
    assert not any(t.observation.phase == "taste/audit" for x in other for t in x.episode.judged)


def test_a_reward_model_is_audited_in_the_run_and_a_resumed_run_is_bit_identical(tmp_path: Path) -> None:
    """Drift compares with the previous audit, also across a resume. A judge that learns may change its verdicts."""
    checks = [c for c in CHECKS if c != "position"]
    data = judged({**LEARNS, "audit": {**AUDIT, "gold": "gold:gold", "checks": checks}})
    train(tmp_path / "whole", data)
    with pytest.raises(Killed):
        train(tmp_path / "cut", data, observer=killed_at(2))
    train(tmp_path / "cut", data)
    assert rows(tmp_path / "whole") == rows(tmp_path / "cut")
    first, *rest = rows(tmp_path / "whole")
    assert "judge/taste/audit/drift" not in first
    for row in rest:
        assert all(0 <= row[f"judge/taste/audit/{c}"] <= 1 for c in checks) and "judge/taste/gold" in row


@pytest.mark.parametrize(
    ("judge", "message"),
    [
        (
            {"kind": "pointwise", "who": "gold:proxy", "audit": {"checks": ["length"]}},
            "a program has no biases to check",
        ),
        ({**LEARNS, "audit": {"checks": ["position"]}}, "only a pairwise judge sees replies in an order"),
        ({**LEARNS, "audit": {}}, "neither gold nor checks"),
        ({**LEARNS, "audit": {"checks": ["lenght"]}}, "length"),
    ],
)
def test_an_audit_that_makes_no_sense_is_refused(judge: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve(parse({**SMALL, "judges": {"taste": judge}}))
