"""A cluster of two nodes on this machine, and short runs on it."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from importlib.util import find_spec
from types import FrameType
from typing import Any

import fleets
import pytest

from interplay.distributed.connection import package


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    """A cluster of two nodes on this machine, for all tests of a file. Each has one CPU and a small object store."""
    if find_spec("ray") is None:
        pytest.skip("ray is not installed (interplay[cluster])")
    ray = package()
    from ray.cluster_utils import Cluster

    size = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
    made = Cluster()
    for node in ({"include_dashboard": False}, {}):
        fleets.add_node(made, **size, **node)
    ray.init(address=made.address, log_to_driver=False)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _end)
    yield made
    ray.shutdown()
    made.shutdown()


@pytest.fixture(autouse=True)
def began(request: pytest.FixtureRequest) -> None:
    """Remember when this test began, and how busy the machine was if the test is slow. The cluster is started before,
    once for all tests of a file."""
    fleets.SLOWER[0] = 1.0 if request.node.get_closest_marker("slow") is None else fleets.slowness()
    fleets.BEGAN[0] = time.time()


def _end(number: int, frame: FrameType | None) -> None:
    """End all tests, and with them the cluster. Ray's own handler raises SystemExit, for which pytest would blame the
    running test, to go on with the next."""
    pytest.exit("SIGTERM", returncode=128 + number)
