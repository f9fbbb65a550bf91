"""Methods that are added to vLLM's workers, for `/collective_rpc`."""

from __future__ import annotations

from typing import Any


class Worker:
    model_runner: Any

    def interplay_repack(self) -> int:
        """vLLM on a CPU (0.32) keeps a packed copy of the output layer. After a reload with tied embeddings this copy
        has the old weights, so it is packed again. Returns the number of layers; 0 on a GPU."""
        from vllm.model_executor.layers.vocab_parallel_embedding import VocabParallelEmbedding

        modules = self.model_runner.model.modules()
        packed = [m for m in modules if isinstance(m, VocabParallelEmbedding) and hasattr(m, "cpu_linear")]
        if packed:
            from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm

            for module in packed:
                dispatch_cpu_unquantized_gemm(module, remove_weight=False)
        return len(packed)
