"""Ways to deliver a model's weights to a vLLM server (`engine.transfer`).

`folder` writes a Hugging Face folder that the server reads. `gloo` and `nccl` broadcast the weights to the server's
workers in a group of processes: `gloo` from host memory, `nccl` from the learner's GPU, which the server must not use.
`ipc` lets a worker read the learner's memory on the same GPU. All but the folder send one tensor at a time, under its
Hugging Face name, so nothing needs memory for a second copy of the model. The receiving side is
`vllm_plugin/worker.py`.
"""

from __future__ import annotations

import asyncio
import json
import socket
import tempfile
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import torch
import torch.distributed as dist
from torch import Tensor
from transformers import PreTrainedModel

from interplay.errors import EngineError
from interplay.models.load import Loaded
from interplay.models.save import save


class Rpc(Protocol):
    """Calls a method of every worker of the server and waits for the results."""

    def __call__(self, method: str, **arguments: str) -> Awaitable[None]: ...


class Delivery(Protocol):
    def prepared(self, source: Loaded) -> Any:
        """An asynchronous context: do what is possible before the server pauses. It yields the argument of `send`."""
        ...

    async def send(self, rpc: Rpc, ready: Any) -> None:
        """Deliver the weights while the server is paused."""
        ...


class FolderDelivery:
    """Writes the weights to a folder in `TMPDIR`, which the server must be able to read."""

    @asynccontextmanager
    async def prepared(self, source: Loaded) -> AsyncIterator[Path]:
        with tempfile.TemporaryDirectory(prefix="interplay-weights-", ignore_cleanup_errors=True) as folder:
            await asyncio.to_thread(save, source, Path(folder))
            yield Path(folder)

    async def send(self, rpc: Rpc, ready: Path) -> None:
        await rpc("reload_weights", weights_path=str(ready))


class GroupDelivery:
    """Broadcasts the weights in a group of processes of which this process is rank 0 and the workers are the others.
    `workers` is the number of GPUs (or CPU processes) of the server at `url`; `limit` is in seconds."""

    def __init__(self, backend: str, url: str, workers: int, limit: float) -> None:
        self._backend, self._size, self._limit = backend, 1 + workers, limit
        self._host = _own_address(url)
        self._store: Any = None  # the group needs it as long as it exists
        self._group: Any = None

    @asynccontextmanager
    async def prepared(self, source: Loaded) -> AsyncIterator[PreTrainedModel]:
        yield source.model

    async def send(self, rpc: Rpc, ready: PreTrainedModel) -> None:
        if self._group is None:
            await self._join(rpc)
        weights = [(n, _dtype(p), list(p.shape)) for n, p in ready.named_parameters()]
        plan = json.dumps({"backend": self._backend, "weights": weights})
        await _both(rpc("interplay_receive", plan=plan), asyncio.to_thread(self._broadcast, ready))

    async def _join(self, rpc: Rpc) -> None:
        limit = timedelta(seconds=self._limit)
        self._store = dist.TCPStore(  # type: ignore[attr-defined]
            self._host, 0, is_master=True, timeout=limit, wait_for_workers=False
        )
        told = {"backend": self._backend, "host": self._host, "port": self._store.port, "size": self._size}
        plan = json.dumps({**told, "timeout": self._limit})
        await _both(rpc("interplay_join", plan=plan), asyncio.to_thread(self._enter, limit))

    def _enter(self, limit: timedelta) -> None:
        if self._backend == "nccl":
            options = dist.ProcessGroupNCCL.Options()
            options._timeout = limit
            self._group = dist.ProcessGroupNCCL(self._store, 0, self._size, options)
        else:
            self._group = dist.ProcessGroupGloo(self._store, 0, self._size, limit)

    def _broadcast(self, model: PreTrainedModel) -> None:
        options = dist.BroadcastOptions()
        options.rootRank = 0
        if self._backend == "nccl":
            torch.cuda.set_device(model.device)  # for this thread
        for _, parameter in model.named_parameters():
            tensor = parameter.detach()
            tensor = tensor.cpu() if self._backend == "gloo" else tensor
            self._group.broadcast([tensor.contiguous()], options).wait()
        if self._backend == "nccl":
            torch.cuda.synchronize()


class IpcDelivery:
    """Shares the learner's own memory with a worker on the same GPU (CUDA IPC). Nothing is copied on the way."""

    @asynccontextmanager
    async def prepared(self, source: Loaded) -> AsyncIterator[PreTrainedModel]:
        yield source.model

    async def send(self, rpc: Rpc, ready: PreTrainedModel) -> None:
        device = ready.device
        if device.type != "cuda":
            raise EngineError(
                f"engine.transfer is 'ipc', and the weights are on '{device}'; expected a model on a GPU, or "
                "engine.transfer = 'folder'."
            )
        torch.cuda.synchronize(device)
        held = [(n, p.detach().contiguous()) for n, p in ready.named_parameters()]
        weights = [(n, _dtype(t), _handle(t)) for n, t in held]
        uuid = str(torch.cuda.get_device_properties(device).uuid)
        await rpc("interplay_receive", plan=json.dumps({"device": uuid, "weights": weights}))
        del held  # a worker reads these tensors until its call has returned
        torch.cuda.ipc_collect()


def delivery_of(transfer: str, url: str, workers: int, limit: float) -> Delivery:
    if transfer == "ipc":
        return IpcDelivery()
    return FolderDelivery() if transfer == "folder" else GroupDelivery(transfer, url, workers, limit)


async def _both(call: Awaitable[None], work: Awaitable[None]) -> None:
    """Wait for a call of the workers and for this process's part of it. If one fails, raise its error at once; the
    other ends at its own time limit."""
    tasks = [asyncio.ensure_future(call), asyncio.ensure_future(work)]
    try:
        for done in asyncio.as_completed(tasks):
            await done
    except RuntimeError as error:  # of torch.distributed
        raise EngineError(
            f"the weights could not be sent to the workers of vLLM ({error}); check the server's log, or set "
            "engine.transfer = 'folder'."
        ) from None
    finally:
        for task in tasks:
            task.cancel()


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _handle(tensor: Tensor) -> list[Any]:
    """What `rebuild_cuda_tensor` in another process needs to open this tensor, as JSON."""
    from torch.multiprocessing.reductions import reduce_tensor

    _, args = reduce_tensor(tensor)
    _, shape, stride, offset, _, _, _, handle, size, start, _, counter, counted, event, wait = args
    given = [list(shape), list(stride), offset, handle, size, start, counter, counted, event, wait]
    return [{"bytes": b64encode(x).decode()} if isinstance(x, bytes) else x for x in given]


def _own_address(url: str) -> str:
    """The address of this machine from which the server at `url` is reached."""
    host = urlsplit(url).hostname or "127.0.0.1"
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as asked:
            asked.connect(address)  # for a datagram socket, this sends nothing
            return str(asked.getsockname()[0])
    except OSError as error:
        raise EngineError(f"the host of '{url}' has no address ({error}); check engine.url.") from None
