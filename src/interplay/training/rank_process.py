"""One process of a learner that is sharded: its part of a model, and the learners of the policies on that model.

`rank_group.py` starts it and sends the same call to every rank. A call names a method of `RankWorker`. The answer of
each rank is its result or its exception.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from interplay.config import TrainSection
from interplay.errors import InterplayError, LearnerLost
from interplay.models.adapter import Adapter
from interplay.models.load import load
from interplay.models.lora import on_device
from interplay.training.learner import Objective
from interplay.training.local import LocalLearner
from interplay.training.shards import shard
from interplay.training.step import step
from interplay.training.transfer import read_weights, write_weights
from interplay.training.tries import Example

RankAnswer = tuple[bool, Any]  # whether the call succeeded, and its result or its exception


@dataclass(frozen=True)
class ShardedPolicy:
    """The settings of a policy, and its adapter if it has one."""

    config: TrainSection
    lr: float
    adapter: Adapter | None


@dataclass(frozen=True)
class RankSetup:
    """What a rank needs to begin. `meeting` is the URL at which ranks find each other, `source` the folder of the
    model, and `timeout` the seconds after which a rank gives up on the others. With `keep`, it keeps gathered weights
    until they change."""

    rank: int
    size: int
    meeting: str
    source: str
    device: str
    dtype: str
    seed: int
    timeout: float
    keep: bool
    policies: Mapping[str, ShardedPolicy]


@dataclass(frozen=True)
class Stepped:
    """The result of a training step: metrics, and how many optimiser steps were taken, both by policy."""

    metrics: dict[str, dict[str, float]]
    written: dict[str, int]


class RankWorker:
    def __init__(self, setup: RankSetup) -> None:
        if setup.device == "cuda":
            torch.cuda.set_device(setup.rank % torch.cuda.device_count())
        elif setup.size > 1:
            torch.set_num_threads(max(1, torch.get_num_threads() // setup.size))
        # The model is loaded before the ranks meet: transformers behaves differently inside a process group.
        self.model = load(setup.source, "cpu", getattr(torch, setup.dtype), setup.seed).model
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if setup.device == "cuda" else "gloo",
            init_method=setup.meeting,
            rank=setup.rank,
            world_size=setup.size,
            timeout=timedelta(seconds=setup.timeout),
        )
        frozen = all(policy.adapter is not None for policy in setup.policies.values())
        self.ranks = shard(self.model, setup.device, setup.keep, frozen)
        self.learners: dict[str, LocalLearner] = {}
        self._written: dict[str, int] = {}
        for name, policy in setup.policies.items():
            adapter = None if policy.adapter is None else on_device(policy.adapter, self.model.device)
            made = LocalLearner(name, self.model, policy.config, policy.lr, setup.seed, adapter)
            made.written = lambda name=name: self._count(name)
            self.learners[name] = made

    def _count(self, name: str) -> None:
        self._written[name] = self._written.get(name, 0) + 1

    def logprobs(self, names: Sequence[str], examples: Sequence[Example]) -> list[list[float]]:
        learners = [self.learners[name] for name in names]
        return learners[0].logprobs_together(learners, examples)

    def step(self, examples: Mapping[str, Sequence[Example]], objective: Objective) -> Stepped:
        self._written = {}
        metrics = step([self.learners[name] for name in examples], examples, objective)
        return Stepped(metrics, self._written)

    def imitate(self, name: str, examples: Sequence[Example], lr: float | None = None) -> float:
        return self.learners[name].imitate(examples, lr)

    def reset_optimizer(self, name: str, lr: float) -> None:
        self.learners[name].reset_optimizer(lr)

    # -- weights and state ----------------------------------------------------------------------------------------

    def write_weights(self, folder: Path) -> None:
        write_weights(self.model, folder)

    def adapter(self, name: str) -> Adapter | None:
        """A policy's adapter on the host, if it has one."""
        adapter = self.learners[name].adapter
        return None if adapter is None else adapter.detached()

    def begin_again(self, name: str, source: Path | Adapter) -> None:
        """Replace a policy's weights, and make a new optimiser."""
        learner = self.learners[name]
        if isinstance(source, Path):
            read_weights(self.model, source)
        else:
            assert learner.adapter is not None
            learner.adapter.overwrite(source)
        learner.begin_again()

    def save_state(self, name: str, file: Path) -> None:
        """Write the optimiser's state, with the parts of all ranks."""
        state = self.learners[name].state_dict()
        if self.ranks.rank == 0:
            torch.save(state, file)

    def load_state(self, name: str, file: Path) -> None:
        learner = self.learners[name]
        learner.load_state_dict(torch.load(file, map_location="cpu", weights_only=True, mmap=True))
        # The optimiser may have kept tensors whose memory is the file. The next checkpoint overwrites the file, and a
        # process that reads such memory then is killed (SIGBUS).
        for moments in learner.optimizer.state.values():
            moments.update({key: value.clone() for key, value in moments.items() if isinstance(value, torch.Tensor)})


class RankCalls:
    """Answers the driver's calls. The first one, `begin`, makes the `RankWorker`; the others name a method of it."""

    def __init__(self) -> None:
        self.worker: RankWorker | None = None

    def answer(self, method: str, arguments: tuple[Any, ...]) -> RankAnswer:
        try:
            if self.worker is None:
                self.worker = RankWorker(*arguments)
                return True, None
            found = getattr(self.worker, method)(*arguments)
            # The results of all ranks are alike, and only the first rank's is used.
            return True, found if self.worker.ranks.rank == 0 else None
        except InterplayError as error:  # it is raised in the driver
            return False, error
        except Exception as error:  # exceptions of libraries cannot always be pickled
            said = f"{type(error).__name__}: {error}"
            if _lost_contact(error):
                first = said.splitlines()[0]
                return False, LearnerLost(f"a rank of the learner lost contact with the others ({first})")
            return False, RuntimeError(f"a rank of the learner: {said}")


def _lost_contact(error: Exception) -> bool:
    """Whether another rank has ended, or has not answered in time. Gloo says so in a plain RuntimeError, which names
    the file of gloo that raised it."""
    return isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and "gloo" in str(error))


def serve(connection: Connection) -> None:
    """Answer calls until the driver closes the connection, or has ended."""
    rank = RankCalls()
    while True:
        try:
            method, arguments = pickle.loads(connection.recv_bytes())
        except (EOFError, OSError):
            return
        said = rank.answer(method, arguments)
        with suppress(OSError):  # the driver has ended, and so does this process
            connection.send_bytes(pickle.dumps(said))


def main() -> None:
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    serve(Connection(int(sys.argv[1])))
    # A process group that lost a member can hang when it is destroyed.
    sys.stdout.flush()
    os._exit(0)
