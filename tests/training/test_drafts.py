"""Speculative sampling in a run: the run is the same as without it, and a resumed run has the same drafts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from runs import Killed, killed_at, rows, train
from test_trainer import BASE, assert_same_run, played

from interplay.config import parse
from interplay.errors import ConfigError

# Without imitation, the replies are longer than a game needs, so that there is something to guess. A low temperature
# makes them alike. They are all illegal, so that nothing is trained, and the probe has nothing to compare.
SAMPLING = {"max_tokens": 12, "temperature": 0.02}
DATA: dict[str, Any] = {**BASE, "sampling": SAMPLING, "warmstart": None, "stream": {"probe": 0}}
ON = "engine.speculate=on"


def replies(folder: Path) -> list[tuple[int, ...]]:
    samples = [s for e in played(folder) for t in e["episode"]["turns"] for s in t["samples"]]
    return [tuple(s["action"]) for s in samples]


def test_a_run_samples_the_same_replies_with_drafts_and_reports_them(tmp_path: Path) -> None:
    """Only the first step is compared: later ones train on log-probs that may differ in their last bits."""
    for name, overrides in (("off", ()), ("on", (ON,))):
        train(tmp_path / name, DATA, "train.steps=1", *overrides)
    assert replies(tmp_path / "off") == replies(tmp_path / "on") != []
    (off,), (on,) = rows(tmp_path / "off"), rows(tmp_path / "on")
    assert "tokens_drafted" not in off
    assert 0 < on["tokens_accepted"] <= on["tokens_drafted"]
    assert on["tokens_accepted"] < on["tokens_sampled"] == off["tokens_sampled"]


def test_a_killed_run_with_drafts_resumes_bit_identically(tmp_path: Path) -> None:
    """The log-probs of all replies are compared, and the kept replies in the checkpoint."""
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    overrides = (ON, "train.steps=4", "checkpoint.every=2")
    train(whole, DATA, *overrides)
    with pytest.raises(Killed):
        train(cut, DATA, *overrides, observer=killed_at(3))
    train(cut, DATA, *overrides)
    assert sum(row.get("tokens_accepted", 0) for row in rows(whole)) > 0
    assert_same_run(whole, cut, 4)


def test_drafts_with_a_server_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"engine\.speculate is 'auto', but engine\.kind is 'vllm'"):
        parse({**DATA, "engine": {"kind": "vllm", "speculate": "auto"}})
