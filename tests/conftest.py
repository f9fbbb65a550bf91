"""Fixtures for all tests. Models are made in a folder of this session, never in the user's cache."""

from __future__ import annotations

import atexit
import gc
import importlib.util
import os
import sys
from collections.abc import Callable, Generator, Iterator
from ctypes.util import find_library
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings

if find_library("OSMesa"):  # MuJoCo then renders without a screen; it reads this when it is imported
    os.environ.setdefault("MUJOCO_GL", "osmesa")
# Every run draws the same examples, and a slow machine may take its time for each.
settings.register_profile("same", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("same")
T = TypeVar("T")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With `-m slow`, files that do not even contain this word are not imported, which would take half a minute."""
    if config.option.markexpr == "slow" and collection_path.match("test_*.py"):
        return True if "slow" not in collection_path.read_text(encoding="utf-8").lower() else None
    return None


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """What is imported and collected here, a million objects, lives as long as the process. Searching it for garbage
    took a fifth of the time of the collection, and half a second of every later `gc.collect`."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        atexit.register(gc.unfreeze)  # else Triton's bindings print at the exit that objects were not freed
        gc.enable()


@pytest.hookimpl(trylast=True)  # after `-m` has taken items away
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests that take minutes start first, so that no processor waits for one of them at the end."""
    minutes = {i: mark.kwargs.get("minutes", 1) for i in items if (mark := i.get_closest_marker("long"))}
    others = [item for item in items if item not in minutes]
    processes = getattr(config, "workerinput", {}).get("workercount", 1)
    items[:] = long_first(sorted(minutes, key=lambda item: -minutes[item]), others, processes)


def long_first(long: list[T], others: list[T], processes: int) -> list[T]:
    """With `--dist worksteal`, pytest-xdist divides the list into equal parts, one for each process. Each part begins
    with its share of the long tests. The others keep their order, so that tests of one file share their fixtures."""
    total, out, rest = len(long) + len(others), list[T](), iter(others)
    for i in range(processes):
        mine = long[processes - 1 - i :: processes]
        out += [*mine, *islice(rest, (total + i) // processes - len(mine))]
    return out


@pytest.fixture(scope="session", autouse=True)
def private_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests neither write to the user's cache nor read from it."""
    before = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))
    yield
    if before is None:
        del os.environ["XDG_CACHE_HOME"]
    else:
        os.environ["XDG_CACHE_HOME"] = before


@pytest.fixture(scope="session")
def load_script() -> Callable[[str], ModuleType]:
    """`load_script("benchmarks/envs.py")`: a file outside the package, as a module."""

    def module(path: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(f"script_{Path(path).stem}", Path(__file__).parents[1] / path)
        assert spec and spec.loader
        sys.modules[spec.name] = made = importlib.util.module_from_spec(spec)  # dataclasses look their module up
        spec.loader.exec_module(made)
        return made

    return module


@pytest.fixture(scope="session")
def samples() -> Path:
    """The folder of public data that INTERPLAY_DATA names; without it the tests that need one are skipped."""
    folder = os.environ.get("INTERPLAY_DATA")
    if not folder:
        pytest.skip("INTERPLAY_DATA names no folder of real samples")
    return Path(folder)


@pytest.fixture(scope="session")
def make_tiny(private_cache: None) -> Callable[..., Any]:
    """`make_tiny(seed=0, base="tiny")`: a new `Loaded`, for tests that change weights."""
    import torch
    from transformers.utils import logging

    from interplay.models import load as model

    logging.disable_progress_bar()

    def make(seed: int = 0, base: str = "tiny") -> model.Loaded:
        return model.load(base, "cpu", torch.float32, seed)

    return make


@pytest.fixture(scope="session")
def tiny(make_tiny: Callable[..., Any]) -> Any:
    """One `Loaded` for the whole session, which must not be changed."""
    return make_tiny(0)
