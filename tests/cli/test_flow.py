"""The summary of staleness, idle time and updates at the end of a run."""

from __future__ import annotations

import json
from pathlib import Path

from interplay.cli.flow import flow


def test_the_summary_has_means_over_steps_and_totals_of_what_was_lost(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    rows = [
        {"step": 1, "reward": 0.5, "stream/age/0": 1.0, "cluster/idle/worker_0": 0.25, "cluster/workers_lost": 1},
        {"step": 2, "reward": 0.7, "stream/age/0": 0.5, "cluster/idle/worker_0": 0.75, "cluster/workers_lost": 2,
         "player/stale_kl": 0.125, "player/update_seconds_per_gb": 4.0, "player/loss": 1.0},
    ]  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert flow(path) == {
        "cluster/idle/worker_0": 0.5, "cluster/workers_lost": 2, "player/stale_kl": 0.125,
        "player/update_seconds_per_gb": 4.0, "stream/age/0": 0.75,
    }  # fmt: skip


def test_a_run_without_any_of_it_has_no_summary(tmp_path: Path) -> None:
    assert flow(tmp_path / "metrics.jsonl") == {}


def test_a_damaged_line_costs_only_itself(tmp_path: Path) -> None:
    """A run that was trained to its end raised here, because a full disk had cut a line."""
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'\xff\xfe{\n[1]\n{"step": 2, "stream/idle": 0.5}\n{"stream/idle": 0.25}\n{"step": 4, "str')
    assert flow(path) == {"stream/idle": 0.375}
