"""Makes new LoRA adapters, and reads and writes them in PEFT's format.

PEFT writes adapter_config.json and adapter_model.safetensors. The weights of layer L are named
`base_model.model.L.lora_A.weight` (down) and `.lora_B.weight` (up). Settings that an `Adapter` cannot represent are
refused.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from interplay.errors import ModelError, did_you_mean
from interplay.models.adapter import Adapter, sizes
from interplay.models.stacked import layers

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_NAME = re.compile(r"base_model\.model\.(.+)\.lora_([AB])\.weight")
_REFUSED = (
    "use_dora", "lora_bias", "rank_pattern", "alpha_pattern", "modules_to_save", "layer_replication",
    "trainable_token_indices", "target_parameters", "use_qalora", "alora_invocation_tokens",
)  # fmt: skip
_CHANGES_BASE = ("pissa", "olora", "corda", "loftq")  # initialisations that also change the base weights


def new_adapter(model: Any, rank: int, alpha: float, targets: Sequence[str], seed: int) -> Adapter:
    """A new adapter, which changes nothing yet: down is Kaiming-uniform, as in PEFT, and up is zero. `targets` name
    layers by the end of their names, such as "q_proj". No targets means every layer that can take an adapter."""
    if rank < 1:
        raise ModelError(f"an adapter's rank is {rank}; expected at least 1.")
    known = layers(model)
    for target in targets:
        if not any(_ends(name, target) for name in known):
            ends = {name.rpartition(".")[2] for name in known}
            raise ModelError(f"no layer of the model is called '{target}'; {did_you_mean(target, ends)}")
    generator = torch.Generator().manual_seed(seed)
    device = next(model.parameters()).device
    weights: dict[str, tuple[Tensor, Tensor]] = {}
    for name, layer in known.items():
        if targets and not any(_ends(name, t) for t in targets):
            continue
        k, n = sizes(layer)
        down = torch.empty(rank, k)
        torch.nn.init.kaiming_uniform_(down, a=math.sqrt(5), generator=generator)
        weights[name] = (down.to(device), torch.zeros(n, rank, device=device))
    return Adapter(rank, alpha / rank, weights)


def _ends(name: str, target: str) -> bool:
    return name == target or name.endswith("." + target)


def save_adapter(adapter: Adapter, folder: Path, base: str | None = None) -> None:
    """Write PEFT's files. `base` names the model that the adapter belongs to, for those who load it."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {}
    for name, (down, up) in adapter.weights.items():
        for letter, tensor in (("A", down), ("B", up)):
            tensors[f"base_model.model.{name}.lora_{letter}.weight"] = tensor.detach().cpu().contiguous()
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "r": adapter.rank,
        "lora_alpha": adapter.scale * adapter.rank,
        "lora_dropout": 0.0,
        "target_modules": sorted(adapter.weights),
        "bias": "none",
        "use_rslora": False,
        "use_dora": False,
        "inference_mode": True,
    }
    (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n")
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})


def load_adapter(folder: Path) -> Adapter:
    """Load an adapter that PEFT or `save_adapter` wrote, in fp32 on the CPU."""
    config = _config(folder)
    rank, alpha = int(config["r"]), float(config["lora_alpha"])
    try:
        tensors = load_file(folder / WEIGHTS)
    except (OSError, SafetensorError) as error:
        raise ModelError(f"adapter '{folder}' has no readable {WEIGHTS} ({error}); expected PEFT's files.") from None
    sides: dict[str, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        match = _NAME.fullmatch(key)
        if match is None:
            raise ModelError(f"adapter '{folder}' contains '{key}'; expected only lora_A and lora_B weights of layers.")
        sides.setdefault(match[1], {})[match[2]] = tensor.float()
    weights: dict[str, tuple[Tensor, Tensor]] = {}
    for name, pair in sides.items():
        if len(pair) != 2 or pair["A"].shape[:1] != (rank,) or pair["B"].shape[1:] != (rank,):
            shapes = ", ".join(f"lora_{letter} {tuple(t.shape)}" for letter, t in sorted(pair.items()))
            raise ModelError(
                f"adapter '{folder}' has {shapes} for '{name}'; expected lora_A ({rank}, in) and lora_B (out, {rank})."
            )
        weights[name] = (pair["A"], pair["B"])
    if not weights:
        raise ModelError(f"adapter '{folder}' has no weights; expected lora_A and lora_B of at least one layer.")
    return Adapter(rank, alpha / (math.sqrt(rank) if config.get("use_rslora") else rank), weights)


def base_of(folder: Path) -> str:
    """The model that an adapter's folder says it belongs to."""
    base = _config(folder).get("base_model_name_or_path")
    if not base:
        raise ModelError(
            f"adapter '{folder}' does not say which model it belongs to; expected base_model_name_or_path."
        )
    return str(base)


def on_device(adapter: Adapter, device: torch.device) -> Adapter:
    weights = {name: (down.to(device), up.to(device)) for name, (down, up) in adapter.weights.items()}
    return Adapter(adapter.rank, adapter.scale, weights)


def _config(folder: Path) -> dict[str, Any]:
    """The settings of an adapter's folder; raises if one of them is not supported."""
    try:
        config: dict[str, Any] = json.loads((folder / CONFIG).read_text())
    except (OSError, ValueError) as error:
        raise ModelError(f"adapter '{folder}' has no readable {CONFIG} ({error}); expected PEFT's files.") from None
    if config.get("peft_type") != "LORA":
        raise ModelError(f"adapter '{folder}' is of type {config.get('peft_type')}; expected LORA.")
    for setting in _REFUSED:
        if config.get(setting):
            raise ModelError(
                f"adapter '{folder}' sets {setting}, which Interplay does not support; expected plain LoRA."
            )
    if config.get("bias", "none") != "none":
        raise ModelError(f"adapter '{folder}' trains biases (bias = {config['bias']}); expected bias = none.")
    beginning = str(config.get("init_lora_weights", "")).lower()
    if beginning.startswith(_CHANGES_BASE):
        raise ModelError(
            f"adapter '{folder}' was initialised with {beginning}, which also changes the base; expected an adapter "
            "converted to LoRA."
        )
    if not isinstance(config.get("r"), int) or config["r"] < 1 or not isinstance(config.get("lora_alpha"), int | float):
        raise ModelError(f"adapter '{folder}' has no rank and alpha in {CONFIG}; expected r and lora_alpha.")
    return config
