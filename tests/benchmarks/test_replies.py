"""`benchmarks/replies.py` finds replies that depend on the requests beside them, and wrong versions."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType

import pytest

from interplay.engines.engine import Request
from interplay.engines.local import LocalEngine
from interplay.types import Completion


@pytest.fixture
def call(load_script: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    module = load_script("benchmarks/replies.py")
    monkeypatch.setattr(sys, "argv", ["replies.py", "--quick", "--model", "tiny-32x1"])
    return module.main


def test_equal_replies_pass(call: Callable[[], None], capsys: pytest.CaptureFixture[str]) -> None:
    call()
    assert "100.0% equal, log-probs differ by at most" in capsys.readouterr().out


def test_replies_that_differ_end_it(call: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    real = LocalEngine.generate

    async def crowded(self: LocalEngine, request: Request) -> Completion:
        """A reply that depends on whether others are sampled."""
        return await real(self, replace(request, seed=request.seed + 1000 * bool(self.busy)))

    monkeypatch.setattr(LocalEngine, "generate", crowded)
    with pytest.raises(SystemExit, match="expected at least 98% equal replies"):
        call()


def test_a_wrong_version_ends_it(call: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalEngine, "update", lambda self, version: None)
    with pytest.raises(SystemExit, match="name a version that is not 2 or 3"):
        call()
