"""A soft channel: it turns what one agent read and wrote into vectors for another agent, and gradients flow through it.

The sender's frozen base reads the sender's tokens, without any adapter. The channel attends to its last hidden states.
With `tokens`, learned queries give that many vectors, which become tokens of the receiver's prompt (in the manner of
DIAL, 1605.06676). Without `tokens`, the queries are made from the embeddings of the receiver's message, and the result,
times tanh(gate), is added to these embeddings (in the manner of Flamingo, 2204.14198). The gate starts at 0, so at
first nothing changes.

The weights are fp32. They are saved in two files like those of PEFT.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from interplay.errors import ModelError

CONFIG, WEIGHTS = "channel_config.json", "channel_model.safetensors"
# Shapes: L tokens of the sender, S its hidden size, N places in the receiver's prompt, C its hidden size, D size,
# H heads.


@dataclass(frozen=True)
class ChannelShape:
    """`source` and `hidden` are the hidden sizes of the sender's and the receiver's base. `tokens` is 0 for a gated
    channel. `scale` is the root mean square of the receiver's embeddings, by which the vectors are multiplied."""

    source: int
    hidden: int
    tokens: int
    size: int
    heads: int
    scale: float


class Channel(nn.Module):
    """`version` counts the optimiser steps. If `mute`, the channel passes on nothing."""

    def __init__(self, name: str, shape: ChannelShape, seed: int = 0) -> None:
        super().__init__()
        self.name, self.shape = name, shape
        self.version, self.mute = 0, False
        generator = torch.Generator().manual_seed(seed)

        def matrix(rows: int, columns: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(rows, columns, generator=generator) * columns**-0.5)

        S, C, D = shape.source, shape.hidden, shape.size
        self.key, self.value, self.out = matrix(D, S), matrix(D, S), matrix(C, D)
        if shape.tokens:
            self.queries = nn.Parameter(torch.randn(shape.tokens, D, generator=generator))
        else:
            self.query = matrix(D, C)
            self.gate = nn.Parameter(torch.zeros(()))

    def forward(self, source_LS: Tensor, words_NC: Tensor) -> Tensor:
        """The vectors [N, C] that replace the embeddings `words_NC`, from the sender's hidden states."""
        gated = not self.shape.tokens
        words_NC = words_NC.float()
        if self.mute:
            return words_NC if gated else torch.zeros_like(words_NC)
        asked_ND = _unit(words_NC) @ self.query.T if gated else self.queries
        source_LS = _unit(source_LS.float())
        q, k, v = (self._split(x) for x in (asked_ND, source_LS @ self.key.T, source_LS @ self.value.T))
        weights_HNL = torch.softmax(q @ k.transpose(1, 2) * q.shape[2] ** -0.5, dim=2)
        found_NC = self.shape.scale * (weights_HNL @ v).transpose(0, 1).flatten(1) @ self.out.T
        return words_NC + torch.tanh(self.gate) * found_NC if gated else found_NC

    def _split(self, x_ND: Tensor) -> Tensor:
        return x_ND.unflatten(1, (self.shape.heads, -1)).transpose(0, 1)

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / CONFIG).write_text(json.dumps({"name": self.name, **asdict(self.shape)}, indent=2) + "\n")
        tensors = {name: p.detach().cpu().contiguous() for name, p in self.named_parameters()}
        save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})


def load_channel(folder: Path) -> Channel:
    """Read a channel that `Channel.save` wrote."""
    try:
        config = json.loads((folder / CONFIG).read_text())
        found = Channel(config.pop("name"), ChannelShape(**config))
        found.load_state_dict(load_file(folder / WEIGHTS))
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        raise ModelError(
            f"folder '{folder}' holds no channel ({error}); expected {CONFIG} and {WEIGHTS}, as a run writes them."
        ) from None
    return found


def _unit(x: Tensor) -> Tensor:
    """Each row, scaled to a mean square of 1."""
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
