"""benchmarks/forks.py runs each part in the sandbox that programs run in."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from interplay.execution.isolation import offered

ROOT = Path(__file__).parents[2]


def test_every_part_of_a_fork_is_measured() -> None:
    if reason := offered("namespaces") or offered("landlock"):
        pytest.skip(reason)
    command = [sys.executable, str(ROOT / "benchmarks" / "forks.py"), "--count", "3"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
    *parts, warm = map(json.loads, found.stdout.splitlines())
    assert len(parts) == 6 and all(part["process ms"] > 0 for part in parts)
    assert parts[-1]["process ms"] > parts[0]["process ms"] and parts[-1]["page faults"] > parts[0]["page faults"]
    assert all(value > 0 for value in warm.values())
