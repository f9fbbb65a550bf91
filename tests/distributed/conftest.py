"""A cluster of two nodes on this machine, and short runs on it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    """A cluster of two nodes on this machine, for all tests of a file. Each has one CPU and a small object store."""
    if find_spec("ray") is None:
        pytest.skip("ray is not installed (interplay[cluster])")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray
    from ray.cluster_utils import Cluster

    size = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
    made = Cluster(initialize_head=True, head_node_args={**size, "include_dashboard": False})
    made.add_node(**size)
    ray.init(address=made.address, log_to_driver=False)
    yield made
    ray.shutdown()
    made.shutdown()
