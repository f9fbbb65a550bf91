"""Methods that Interplay adds to vLLM's workers. `/collective_rpc` calls them.

That endpoint passes strings only, so a `plan` is JSON. `engines/delivery.py` is the other side: it sends the weights
that these methods receive.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


class Worker:
    # attributes of vLLM's own worker class
    model_runner: Any
    reload_weights: Any
    rank: int
    device: Any

    _interplay_group: Any = None

    def interplay_join(self, plan: str) -> None:
        """Join the group of processes in which the learner, rank 0, broadcasts weights to the workers."""
        told = json.loads(plan)
        limit = timedelta(seconds=told["timeout"])
        store = dist.TCPStore(  # type: ignore[attr-defined]
            told["host"], told["port"], is_master=False, timeout=limit
        )
        rank = 1 + self.rank
        if told["backend"] == "nccl":
            options = dist.ProcessGroupNCCL.Options()
            options._timeout = limit
            self._interplay_group = dist.ProcessGroupNCCL(store, rank, told["size"], options)
        else:
            self._interplay_group = dist.ProcessGroupGloo(store, rank, told["size"], limit)

    def interplay_receive(self, plan: str) -> None:
        """Load the weights that the plan lists, in its order. They are broadcast, or read from the learner's memory on
        the same GPU (CUDA IPC). vLLM loads them as it loads a checkpoint."""
        told = json.loads(plan)
        arriving = self._interplay_shared(told) if "device" in told else self._interplay_broadcast(told)
        self.reload_weights(weights_iterator=arriving)
        if torch.cuda.is_available():
            torch.cuda.synchronize()  # the learner may change its weights after this call
            torch.cuda.ipc_collect()

    def _interplay_broadcast(self, told: dict[str, Any]) -> Iterator[tuple[str, Tensor]]:
        device = "cpu" if told["backend"] == "gloo" else self.device
        for name, dtype, shape in told["weights"]:
            tensor = torch.empty(shape, dtype=getattr(torch, dtype), device=device)
            options = dist.BroadcastOptions()
            options.rootRank = 0
            self._interplay_group.broadcast([tensor], options).wait()
            yield name, tensor

    def _interplay_shared(self, told: dict[str, Any]) -> Iterator[tuple[str, Tensor]]:
        from torch.multiprocessing.reductions import rebuild_cuda_tensor

        here = self.device.index
        mine = str(torch.cuda.get_device_properties(here).uuid)
        if mine != told["device"]:
            raise RuntimeError(
                f"the learner's weights are on GPU {told['device']} and this worker is on {mine}; CUDA IPC needs one "
                "GPU: set engine.transfer = 'folder'."
            )
        for name, dtype, given in told["weights"]:
            args = [b64decode(x["bytes"]) if isinstance(x, dict) else x for x in given]
            shape, stride, offset, handle, size, start, counter, counted, event, wait = args
            yield (
                name,
                rebuild_cuda_tensor(
                    Tensor, torch.Size(shape), tuple(stride), offset, torch.UntypedStorage, getattr(torch, dtype),
                    here, handle, size, start, False, counter, counted, event, wait,
                ),
            )  # fmt: skip

    def interplay_repack(self) -> int:
        """Pack the output layer again after a reload. On a CPU, vLLM 0.32 keeps a packed copy of this layer, and with
        tied embeddings a reload leaves the old weights in the copy. Return the number of packed layers; 0 on a GPU."""
        from vllm.model_executor.layers.vocab_parallel_embedding import VocabParallelEmbedding

        modules = self.model_runner.model.modules()
        packed = [m for m in modules if isinstance(m, VocabParallelEmbedding) and hasattr(m, "cpu_linear")]
        if packed:
            from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm

            for module in packed:
                dispatch_cpu_unquantized_gemm(module, remove_weight=False)
        return len(packed)
