"""Methods that Interplay adds to vLLM's workers. `/collective_rpc` calls them."""

from __future__ import annotations

from typing import Any


class Worker:
    model_runner: Any

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
