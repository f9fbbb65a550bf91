"""What a process keeps when it connects to Ray, with a stand-in for the ray package."""

from __future__ import annotations

import signal
from types import FrameType, SimpleNamespace
from typing import Any

import pytest

from interplay.config import ClusterSection
from interplay.distributed import connection
from interplay.errors import ConfigError
from interplay.training.interrupt import Interrupt


class Taking:
    """Like Ray, it sets a handler of SIGTERM when it connects."""

    exceptions = SimpleNamespace()

    def is_initialized(self) -> bool:
        return False

    def init(self, **given: Any) -> None:
        signal.signal(signal.SIGTERM, self.handler)

    @staticmethod
    def handler(number: int, frame: FrameType | None) -> None:
        raise SystemExit(number)


def test_a_run_that_connects_to_ray_still_hears_sigterm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise it would end without a checkpoint."""
    monkeypatch.setattr(connection, "package", Taking)
    interrupt = Interrupt()
    with interrupt.heard():
        connection.connect(ClusterSection(address="auto"))
        signal.raise_signal(signal.SIGTERM)
    assert interrupt.asked


class Refused(RuntimeError):
    pass


@pytest.mark.parametrize("error", [ConnectionError("no answer"), Refused("the token is wrong\nand more")])
def test_a_cluster_that_does_not_answer_or_wants_another_token_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    class Silent(Taking):
        exceptions = SimpleNamespace(AuthenticationError=Refused)

        def init(self, **given: Any) -> None:
            raise error

    monkeypatch.setattr(connection, "package", Silent)
    with pytest.raises(
        ConfigError, match=r"no Ray cluster answers there \((no answer|the token is wrong)\).*RAY_AUTH_MODE"
    ):
        connection.connect(ClusterSection(address="host:6379"))
