"""Weights on their way to the workers of a vLLM server. Here the workers are the plugin's class, in other threads."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest
import torch
from torch import Tensor

from interplay.engines.delivery import GroupDelivery, IpcDelivery, delivery_of
from interplay.engines.vllm_plugin.worker import Worker
from interplay.errors import EngineError
from interplay.models.load import Loaded, load
from interplay.models.locate import locate


class Receiver(Worker):
    """Takes weights as vLLM's worker does."""

    def __init__(self, rank: int, device: str = "cpu") -> None:
        self.rank, self.device = rank, torch.device(device)
        self.loaded: dict[str, Tensor] = {}

    def reload_weights(self, weights_iterator: Any) -> None:
        self.loaded = dict(weights_iterator)


class Called:
    """`/collective_rpc`: calls a method of every worker. `lost` workers take no calls."""

    def __init__(self, workers: list[Receiver], lost: int = 0) -> None:
        self.workers, self.lost = workers, lost
        self.methods: list[str] = []

    async def __call__(self, method: str, **arguments: str) -> None:
        self.methods.append(method)
        there = self.workers[self.lost :]
        await asyncio.gather(*(asyncio.to_thread(getattr(worker, method), **arguments) for worker in there))


@pytest.fixture(scope="module")
def model() -> Loaded:
    return load(locate("tiny", 0), "cpu", torch.bfloat16, 0)


async def deliver(delivery: Any, rpc: Called, source: Loaded) -> None:
    async with delivery.prepared(source) as ready:
        await delivery.send(rpc, ready)


@pytest.mark.parametrize("count", [1, 2])
def test_a_broadcast_gives_every_worker_every_weight_bit_for_bit(model: Loaded, count: int) -> None:
    there = [Receiver(rank) for rank in range(count)]
    rpc = Called(there)
    delivery = delivery_of("gloo", "http://127.0.0.1:1", count, 30.0)
    for change in (0.0, 1.0):  # the second update uses the same group
        with torch.no_grad():
            for parameter in model.model.parameters():
                parameter += change
        asyncio.run(deliver(delivery, rpc, model))
        for worker in there:
            loaded = worker.loaded
            assert loaded.keys() == dict(model.model.named_parameters()).keys()
            assert all(torch.equal(loaded[name], p) for name, p in model.model.named_parameters())
    assert rpc.methods == ["interplay_join", "interplay_receive", "interplay_receive"]


def test_a_broadcast_to_a_worker_that_does_not_come_ends_at_its_time_limit(model: Loaded) -> None:
    rpc = Called([Receiver(0), Receiver(1)], lost=1)
    began = time.monotonic()
    with pytest.raises(EngineError, match="the weights could not be sent to the workers of vLLM"):
        asyncio.run(deliver(GroupDelivery("gloo", "http://127.0.0.1:1", 2, 1.0), rpc, model))
    assert time.monotonic() - began < 10.0  # ten times the limit


def test_memory_is_shared_only_on_a_gpu(model: Loaded) -> None:
    with pytest.raises(EngineError, match=r"engine.transfer is 'ipc', and the weights are on 'cpu'"):
        asyncio.run(deliver(IpcDelivery(), Called([]), model))


def test_a_worker_rebuilds_shared_tensors_from_what_the_learner_says_about_them(
    model: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CUDA's part is stood in for: the learner's handles arrive unchanged, in the places where torch reads them."""
    uuid = type("Properties", (), {"uuid": "GPU-1"})()
    calls = {"get_device_properties": uuid, "synchronize": None, "ipc_collect": None}
    for name, found in calls.items():
        monkeypatch.setattr(torch.cuda, name, lambda *_, found=found: found)
    monkeypatch.setattr(type(model.model), "device", torch.device("cuda", 0))
    tensors: dict[bytes, Tensor] = {}

    def reduce(tensor: Tensor) -> Any:
        handle = f"handle {len(tensors)}".encode()
        tensors[handle] = tensor
        sizes = (tensor.size(), tensor.stride(), tensor.storage_offset())
        return None, (Tensor, *sizes, object, tensor.dtype, 0, handle, tensor.nbytes, 64, False, b"c", 5, b"e", True)

    def rebuild(*given: Any) -> Tensor:
        tensor = tensors[given[7]]
        expected = (Tensor, tensor.size(), tensor.stride(), 0, torch.UntypedStorage, tensor.dtype, 3)
        assert given == (*expected, given[7], tensor.nbytes, 64, False, b"c", 5, b"e", True)
        return tensor

    monkeypatch.setattr("torch.multiprocessing.reductions.reduce_tensor", reduce)
    monkeypatch.setattr("torch.multiprocessing.reductions.rebuild_cuda_tensor", rebuild)
    worker = Receiver(0, "cuda:3")
    asyncio.run(deliver(IpcDelivery(), Called([worker]), model))
    assert all(torch.equal(worker.loaded[n], p) for n, p in model.model.named_parameters())
    with pytest.raises(RuntimeError, match=r"CUDA IPC needs one GPU: set engine.transfer"):
        worker.interplay_receive(json.dumps({"device": "GPU-2", "weights": []}))
