"""Moves weights between processes: from the ranks of a learner to an engine with its own weights, and back.

Weights travel as safetensors files of at most 512 MiB, under their Hugging Face names. They are gathered and read one
tensor at a time, so no process needs memory for a second copy of a model.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from transformers import PreTrainedModel

from interplay.errors import ModelError
from interplay.training.ranks import placed, ranks_of, whole_tensor

BUCKET = 512 * 2**20  # bytes in one file


def write_weights(model: PreTrainedModel, folder: Path, bucket: int = BUCKET) -> None:
    """Write the whole weights to `folder`, which is emptied first. All ranks of a sharded model must call this; the
    first of them writes. Tied weights are written once."""
    first = ranks_of(model).rank == 0
    if first:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    held: dict[str, Tensor] = {}
    size = files = 0
    for name, parameter in model.named_parameters():
        tensor = whole_tensor(parameter.detach())
        if not first:
            continue
        tensor = tensor.cpu().contiguous()
        if held and size + tensor.nbytes > bucket:
            save_file(held, folder / f"weights-{files:05d}.safetensors")
            held, size, files = {}, 0, files + 1
        held[name] = tensor
        size += tensor.nbytes
    if first:
        save_file(held, folder / f"weights-{files:05d}.safetensors")


@torch.no_grad()
def read_weights(model: PreTrainedModel, folder: Path) -> None:
    """Overwrite the weights of a plain or a sharded model with those in `folder`."""
    ranks_of(model).release()  # gathered copies would keep the old weights
    left = dict(model.named_parameters())
    for file in sorted(folder.glob("weights-*.safetensors")):
        with safe_open(file, framework="pt") as found:
            for name in found.keys():  # noqa: SIM118 - it is no dictionary
                mine = left.pop(name)
                mine.copy_(placed(found.get_tensor(name), mine))
    if left:
        raise ModelError(f"the weights in '{folder}' lack '{next(iter(left))}'; expected every weight of the model.")
