"""What a process keeps when it connects to Ray, with a stand-in for the ray package."""

from __future__ import annotations

import re
import signal
import socket
from types import FrameType, SimpleNamespace
from typing import Any

import pytest

from interplay.config import ClusterSection
from interplay.distributed import connection
from interplay.distributed.rank_actors import RankActors
from interplay.errors import ConfigError, LearnerLost
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
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(
            ConfigError, match=r"no Ray cluster answers there \((no answer|the token is wrong)\).*RAY_AUTH_MODE"
        ):
            connection.connect(ClusterSection(address=address))


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "nonsense", "host:port", "[::1]:1"])
def test_an_address_at_which_nobody_listens_is_a_sentence_before_ray_is_asked(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    """Ray would try to reach it for many minutes."""

    class Unasked(Taking):
        def init(self, **given: Any) -> None:
            raise AssertionError

    monkeypatch.setattr(connection, "package", Unasked)
    with pytest.raises(ConfigError, match=r"no Ray cluster answers there \(.+\); expected 'local', 'auto'"):
        connection.connect(ClusterSection(address=address))


@pytest.mark.parametrize("started", [True, False])
def test_processes_without_room_are_refused_on_an_own_cluster_and_awaited_on_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, started: bool
) -> None:
    ray = SimpleNamespace(cluster_resources=lambda: {"CPU": 8.0, "GPU": 1.0})
    monkeypatch.setattr(connection, "_started_here", started)
    connection.check_room(ray, "2 ranks (cluster.learners)", CPU=8, GPU=1)
    assert "2 ranks" not in caplog.text
    said = r"2 ranks \(cluster.learners\) need 2 GPUs, and .* 1 GPUs"
    if started:
        with pytest.raises(ConfigError, match=said):
            connection.check_room(ray, "2 ranks (cluster.learners)", CPU=8, GPU=2)
    else:
        connection.check_room(ray, "2 ranks (cluster.learners)", CPU=8, GPU=2)
        assert re.search(said, caplog.text) and "waits for more machines" in caplog.text


def test_a_rank_that_ends_while_it_starts_is_not_said_to_have_taken_too_long() -> None:
    names = ("RayError", "GetTimeoutError", "RayTaskError", "RayActorError")
    kinds = {"RayError": Exception} | {name: type(name, (Exception,), {}) for name in names[1:]}
    group = RankActors.__new__(RankActors)
    group._timeout = 9.0
    sentences = {"GetTimeoutError": r"did not start within 9 s \(cluster.learner_timeout\)\.$"}
    for name in names[1::2]:

        def get(asked: object, timeout: float, raised: str = name) -> None:
            raise kinds[raised]("the actor died")

        group.ray = SimpleNamespace(get=get, exceptions=SimpleNamespace(**kinds))
        with pytest.raises(LearnerLost, match=sentences.get(name, r"has ended while it started \(the actor died\)")):
            group._get(None)
