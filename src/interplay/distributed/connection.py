"""Connects a process to its Ray cluster. This is the only file that imports ray."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from interplay.config import ClusterSection
from interplay.errors import ConfigError, ResourceError

log = logging.getLogger("interplay")
_REACH = 10.0  # seconds in which a cluster must accept a connection
_started_here = False  # whether this process has started the cluster that it is connected to


def package() -> Any:
    """The ray package."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # A cluster that is started here runs its processes at the priority of the run. Ray would lower that of workers, so
    # that they hardly get any time on a machine that has other work.
    os.environ.setdefault("RAY_worker_niceness", "0")
    try:
        import ray
    except ImportError:
        raise ConfigError(
            "cluster.rollout_workers and cluster.address need Ray: pip install 'interplay[cluster]'."
        ) from None
    return ray


def connect(section: ClusterSection, models: int = 1) -> Any:
    """Connect to the recipe's Ray cluster, or start one on this machine; return the ray package. `models` is the number
    of models that are trained. A process has one connection, so further calls return the same."""
    ray = package()
    if ray.is_initialized():
        return ray
    with _own_handler():
        _connect(ray, section, models)
    return ray


def _connect(ray: Any, section: ClusterSection, models: int) -> None:
    global _started_here
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if section.address == "local":
        # Processes wait for each other most of the time, so there may be more of them than cores.
        wanted = section.rollout_workers * section.worker_cpus + section.learners * models + section.engines + 1
        cpus = max(os.cpu_count() or 1, int(wanted))
        with _gpus_of_others():
            ray.init(address="local", num_cpus=cpus, include_dashboard=False, **quiet)
        _started_here = True
        return
    # Raised if the cluster wants a token that is not that of this machine; older versions of Ray know no tokens.
    refused = getattr(ray.exceptions, "AuthenticationError", ConnectionError)
    try:
        _reach(section.address)
        ray.init(address=section.address, **quiet)
    except (OSError, refused) as error:
        raise ConfigError(
            f"cluster.address is '{section.address}', but no Ray cluster answers there ({first_line(error)}); expected "
            "'local', 'auto' on a node of a cluster, HOST:PORT or ray://HOST:10001. A cluster that wants a token "
            "answers at HOST:PORT only if this machine has the token (RAY_AUTH_TOKEN) and RAY_AUTH_MODE=token is set."
        ) from None


def _reach(address: str) -> None:
    """Raise if nobody listens at HOST:PORT. Ray itself would try for many minutes."""
    if address == "auto":
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        raise ConnectionError("it is not HOST:PORT")
    socket.create_connection((host.strip("[]"), int(port)), timeout=_REACH).close()


@contextmanager
def _own_handler() -> Iterator[None]:
    """Inside, Ray may set its handler of SIGTERM, which ends the process at once. Afterwards, a handler that this
    process had is set again: a run that is asked to end writes a checkpoint first."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if callable(before) and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


@contextmanager
def _gpus_of_others() -> Iterator[None]:
    """Inside, a Ray cluster that is started does not see the first GPU, which this process uses. If there is only
    one, they share it."""
    from torch.cuda import device_count

    name, before = "CUDA_VISIBLE_DEVICES", os.environ.get("CUDA_VISIBLE_DEVICES")
    seen = [str(i) for i in range(device_count())] if before is None else before.split(",")
    if device_count() > 1:
        os.environ[name] = ",".join(seen[1:])
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = before


def check_room(ray: Any, what: str, **needed: float) -> None:
    """Refuse processes for which a cluster that this process has started has no room. Other clusters can grow, so there
    a warning says what the run waits for. `what` names the processes and the options that ask for them."""
    there = ray.cluster_resources()
    short = {kind: count for kind, count in needed.items() if count > there.get(kind, 0)}
    if not short:
        return
    wanted = ", ".join(f"{count:g} {kind}s" for kind, count in short.items())
    has = ", ".join(f"{there.get(kind, 0):g} {kind}s" for kind in short)
    if _started_here:
        raise ConfigError(f"{what} need {wanted}, and Ray was given {has} of this machine; expected fewer of them.")
    log.warning("%s need %s, and the cluster has %s now. The run waits for more machines.", what, wanted, has)


def disconnect() -> None:
    """End the cluster if this process has started it."""
    global _started_here
    if _started_here:
        package().shutdown()
        _started_here = False


def stored(ray: Any, what: str, value: object) -> Any:
    """Put `value` into Ray's object store and return the reference to it. `what` names it in messages."""
    try:
        return ray.put(value)
    except (ray.exceptions.ObjectStoreFullError, ray.exceptions.OutOfDiskError) as error:
        raise ResourceError(
            f"{what} do not fit into Ray's object store ({first_line(error)}); expected a larger one "
            "(ray start --object-store-memory), or room on the disk to which Ray moves objects."
        ) from None


def losses(ray: Any) -> tuple[type[Exception], ...]:
    """The errors of a call to an actor that has ended: it was killed, also by Ray because its machine was short of
    memory, or its machine was lost, perhaps with an answer that nobody had read."""
    found = ray.exceptions
    return found.RayActorError, found.OutOfMemoryError, found.ObjectLostError


def refusal(error: Exception) -> ConfigError | None:
    """The error of a recipe that an actor has refused when it was made. Ray passes it on as text."""
    _, found, said = first_line(error).partition(f"{ConfigError.__module__}.{ConfigError.__name__}: ")
    return ConfigError(said) if found else None


def first_line(error: Exception) -> str:
    """What an error of Ray says, without the trace. If an actor could not be made, the trace ends with the reason."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[-1] if "raised in its creation task" in lines[0] else lines[0]
