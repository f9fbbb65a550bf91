"""Runs the model over cached sequences: prefill of prompts, decoding of one token each.

Rows are right-padded; padding writes to the scratch block. The cache tensors live here.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from interplay.engines.local.attention import Paged, using
from interplay.engines.local.scheduler import Prompt, Sequence


class ModelRunner:
    def __init__(self, model: PreTrainedModel, blocks: int, block_size: int) -> None:
        self.model = model
        self.decoder = model.base_model
        self.head = model.get_output_embeddings()
        config = model.config.get_text_config()
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        parameter = next(model.parameters())
        self.device, self.dtype, self.block_size = parameter.device, parameter.dtype, block_size
        shape = (blocks * block_size, heads, size)
        self.keys = [torch.zeros(shape, dtype=self.dtype, device=self.device) for _ in range(config.num_hidden_layers)]
        self.values = [torch.zeros_like(k) for k in self.keys]

    def prefill(self, prompts: Seq[Prompt], max_tokens: int) -> None:
        """Compute each prompt's uncached tokens and keep the hidden state of its last one."""
        batch: list[Prompt] = []
        for prompt in sorted(prompts, key=lambda p: len(p.ids) - p.cached):
            width = len(prompt.ids) - prompt.cached
            if batch and width * (len(batch) + 1) > max_tokens:
                self._prefill(batch)
                batch = []
            batch.append(prompt)
        if batch:
            self._prefill(batch)

    def _prefill(self, prompts: list[Prompt]) -> None:
        new = [p.ids[p.cached :] for p in prompts]
        starts = np.array([p.cached for p in prompts])
        slots = [self._slots(p.blocks) for p in prompts]
        hidden_BQC = self._forward(new, starts, slots)
        last = torch.tensor([len(n) - 1 for n in new], device=self.device)
        hidden_BC = hidden_BQC[torch.arange(len(new), device=self.device), last]
        for prompt, row in zip(prompts, hidden_BC, strict=True):
            prompt.hidden = row

    def decode(self, sequences: Seq[Sequence]) -> Tensor:
        """The hidden state after each sequence's latest token."""
        new = [(s.tokens[-1],) for s in sequences]
        starts = np.array([s.length - 1 for s in sequences])
        return self._forward(new, starts, [s.slots for s in sequences])[:, 0]

    def logits(self, hidden_NC: Tensor) -> Tensor:
        return self.head(hidden_NC)

    def copy_blocks(self, copies: Seq[tuple[int, int]]) -> None:
        source, target = (self._slots([pair[i] for pair in copies]) for i in (0, 1))
        for tensor in (*self.keys, *self.values):
            tensor[target] = tensor[source]

    def _slots(self, blocks: Seq[int]) -> np.ndarray:
        return (np.asarray(blocks, np.int64)[:, None] * self.block_size + np.arange(self.block_size)).reshape(-1)

    @torch.inference_mode()
    def _forward(self, new: Seq[Seq[int]], starts: np.ndarray, slots: Seq[np.ndarray]) -> Tensor:
        """Hidden states [B, Q, C] of `new` tokens that begin at position `starts` of their sequences."""
        counts = np.array([len(n) for n in new])
        rows, width, context = len(new), int(counts.max()), int((starts + counts).max())
        ids = np.zeros((rows, width), np.int64)
        write = np.zeros((rows, width), np.int64)
        read = np.zeros((rows, context), np.int64)
        for i, tokens in enumerate(new):
            start, count = int(starts[i]), int(counts[i])
            ids[i, :count] = tokens
            write[i, :count] = slots[i][start : start + count]
            read[i, : start + count] = slots[i][: start + count]
        positions = starts[:, None] + np.arange(width)
        mask = np.arange(context)[None, None, :] <= positions[:, :, None]
        to = lambda a: torch.from_numpy(a).to(self.device)  # noqa: E731
        layout = Paged(self.keys, self.values, to(write), to(read), to(mask).unsqueeze(1))
        with using(layout):
            # Padding positions are clipped: they are thrown away, but must index the rotary table.
            position_ids = to(np.minimum(positions, context - 1))
            return self.decoder(input_ids=to(ids), position_ids=position_ids, use_cache=False).last_hidden_state
