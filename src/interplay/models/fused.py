"""Runs Llama-like decoders without their modules, on the same tensors that transformers loaded.

Qwen2/2.5, Qwen3, Llama, SmolLM and Mistral have the same architecture: norm, q/k/v, rotary positions, attention, output
projection, norm, gated MLP. Their matrices are joined in memory once (q, k and v in one block, gate and up in another),
and the modules' parameters become views of these blocks. So the learner trains them as before, and a decoding step
needs few kernels per layer. Each block has spare rows at its end for the adapters' first (down) matrices, so that one
matrix product computes both. The kernels are in Triton on a GPU and in plain torch on a CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import embedding
from transformers import PreTrainedModel

from interplay.models import plain
from interplay.models.adapter import sizes
from interplay.models.rotary import Decoding, Rotary
from interplay.models.senses import Overlay
from interplay.models.shape import decoder_of
from interplay.models.stacked import Bank

FAMILIES = ("llama", "qwen2", "qwen3", "mistral", "qwen2_vl_text", "qwen2_5_vl_text")
ROPES = ("default", "linear", "llama3", "yarn")  # types whose tables do not depend on the length of the sequence
LayerWork = Callable[["Layer", Tensor, Tensor | None], tuple[Tensor, Tensor]]
Attend = Callable[[int, Tensor, float, int], Tensor]  # (layer, queries [T, H, D], scale, window) -> [T, H, D]


def suits(model: PreTrainedModel) -> bool:
    """Whether the model has this architecture, in every detail that the kernels assume."""
    config = model.config.get_text_config()
    rope = getattr(config, "rope_parameters", None) or {}
    if config.model_type not in FAMILIES or rope.get("rope_type", "default") not in ROPES:
        return False
    if rope.get("partial_rotary_factor", 1.0) != 1.0 or config.hidden_act != "silu" or config.intermediate_size % 16:
        return False
    core: Any = decoder_of(model)
    layer = core.layers[0]
    half = layer.self_attn.head_dim // 2
    without_bias = (layer.self_attn.o_proj, layer.mlp.down_proj, layer.mlp.gate_proj)
    return all(m.bias is None for m in without_bias) and half & (half - 1) == 0 and half >= 8


@dataclass
class Block:
    """The matrices [N, K] of layers that read the same input, joined. In `storage`, the adapters' rows come after the
    first `rows` rows, which are `weight`."""

    layers: tuple[Any, ...]
    storage: Tensor
    rows: int
    bias: Tensor | None
    starts: tuple[int, ...]  # the column of the output at which each layer begins
    up: Tensor | None = None  # the adapters' second matrices, [layers · ranks, N]
    copied: bool = False  # the parameters are not views of `storage`, which is a copy for one pass

    @cached_property
    def weight(self) -> Tensor:
        return self.storage[: self.rows]


@dataclass
class Layer:
    norm: Tensor
    qkv: Block
    q_norm: Tensor | None
    k_norm: Tensor | None
    out: Block
    mlp_norm: Tensor
    gate_up: Block
    down: Block
    window: int


def of(model: PreTrainedModel) -> Fused | None:
    """The joined form of a model, made at the first call and shared by engine and learner. None if the model has
    another architecture, or is on a CPU and not in fp32."""
    cuda = next(model.parameters()).device.type == "cuda"
    if not suits(model) or not (cuda or model.dtype is torch.float32):
        return None
    if not isinstance(getattr(model, "_interplay_fused", None), Fused):
        kernels: Any = plain
        if cuda:
            from interplay.models import kernels  # needs Triton
        object.__setattr__(model, "_interplay_fused", Fused(model, kernels))
    return model._interplay_fused


class Fused:
    def __init__(self, model: PreTrainedModel, kernels: Any) -> None:
        self.model, self.kernels = model, kernels
        core: Any = decoder_of(model)
        self.config = config = model.config.get_text_config()
        self.sections = tuple((getattr(config, "rope_parameters", None) or {}).get("mrope_section", ()))
        first = core.layers[0].self_attn
        self.heads, self.size = config.num_attention_heads, first.head_dim
        self.scale, self.eps = float(first.scaling), float(config.rms_norm_eps)
        self.inner, self.depth = config.intermediate_size, config.num_hidden_layers
        self.bank: Bank | None = None
        self._ranks = 0
        self.layers = self._layers(core)
        limit = config.max_position_embeddings
        device = next(model.parameters()).device
        with torch.no_grad():
            like = torch.zeros((1, 1, 1), dtype=model.dtype, device=device)
            positions = torch.arange(limit, device=device).expand(3 if self.sections else 1, 1, limit)
            # Newer transformers return one table; older ones return three equal tables for a model with sections.
            turned = core.rotary_emb(like, positions if self.sections else positions[0])
        self.cos, self.sin = (t.reshape(-1, limit, self.size)[0, :, : self.size // 2].contiguous() for t in turned)

    def _layers(self, core: Any) -> list[Layer]:
        return [self._layer(layer) for layer in core.layers]

    def layer(self, index: int) -> Layer:
        return self.layers[index]

    def run(self, index: int, work: LayerWork, x: Tensor, residual: Tensor | None) -> tuple[Tensor, Tensor]:
        """Run `work` with the weights of a layer."""
        return work(self.layers[index], x, residual)

    def _layer(self, layer: Any) -> Layer:
        attention, mlp = layer.self_attn, layer.mlp
        q_norm, k_norm = (getattr(getattr(attention, n, None), "weight", None) for n in ("q_norm", "k_norm"))
        return Layer(
            layer.input_layernorm.weight,
            self._block(attention.q_proj, attention.k_proj, attention.v_proj),
            q_norm,
            k_norm,
            self._block(attention.o_proj),
            layer.post_attention_layernorm.weight,
            self._block(mlp.gate_proj, mlp.up_proj),
            self._block(mlp.down_proj),
            self._window(attention),
        )

    def _window(self, attention: Any) -> int:
        config = self.config
        window = config.sliding_window if config.model_type == "mistral" else getattr(attention, "sliding_window", None)
        return window or 1 << 30

    @torch.no_grad()
    def _block(self, *layers: Any, ranks: int = 0) -> Block:
        """Copy the layers' matrices into one storage, and make their parameters views of it."""
        total = sum(int(m.weight.shape[0]) for m in layers)
        like = layers[0].weight
        storage = like.new_zeros((total + ranks * len(layers), like.shape[1]))
        biases = [m.bias for m in layers]
        bias = like.new_zeros(total + ranks * len(layers)) if biases[0] is not None else None
        at, starts = 0, []
        for layer in layers:
            starts.append(at)
            size = int(layer.weight.shape[0])
            storage[at : at + size] = layer.weight
            layer.weight.data = storage[at : at + size]
            if bias is not None:
                bias[at : at + size] = layer.bias
                layer.bias.data = bias[at : at + size]
            at += size
        return Block(tuple(layers), storage, total, bias, tuple(starts))

    # -- adapters -------------------------------------------------------------------------------------------------

    def attach(self, bank: Bank) -> None:
        """Make room for the bank's ranks at the end of every block, and copy the bank's weights there."""
        self.bank, self._ranks = bank, bank.capacity
        for layer in self.layers:
            for name in ("qkv", "out", "gate_up", "down"):
                old: Block = getattr(layer, name)
                block = self._block(*old.layers, ranks=bank.capacity)
                block.up = block.storage.new_zeros((bank.capacity * len(old.layers), block.rows))
                setattr(layer, name, block)
        self.refresh()

    @torch.no_grad()
    def refresh(self) -> None:
        """Copy the bank's weights to where the kernels read them; called when they change."""
        bank = self.bank
        assert bank is not None
        for layer in self.layers:
            for block in (layer.qkv, layer.out, layer.gate_up, layer.down):
                assert block.up is not None
                for i, (module, column) in enumerate(zip(block.layers, block.starts, strict=True)):
                    pair = bank.pair(module)
                    assert pair is not None
                    size = sizes(module)[1]
                    rows = slice(i * self._ranks, (i + 1) * self._ranks)
                    block.storage[block.rows :][rows].copy_(pair[0])
                    block.up[rows, column : column + size].copy_(pair[1])

    # -- forward --------------------------------------------------------------------------------------------------

    def _apply(
        self, block: Block, x_TC: Tensor, adapters_T: Tensor | None, gated: bool = False, parts: bool = False
    ) -> Tensor:
        """x·Wᵀ + b plus the adapters' parts, rounded once. With `gated`, these outputs are gate and up, and
        silu(gate) · up is returned. With `parts`, the result may be parts, which `add_norm` adds."""
        if adapters_T is None or block.up is None or self.bank is None:
            return self.kernels.joined(x_TC, block, gated, parts)
        return self.kernels.adapted(x_TC, block, self.bank, adapters_T, gated)

    def forward(
        self, ids_T: Tensor, positions_T: Tensor, slots_T: Tensor, keys: list[Tensor], values: list[Tensor],
        attend: Attend | Decoding, adapters_T: Tensor | None, overlay: Overlay | None = None,
    ) -> Tensor:  # fmt: skip
        """The hidden states [T, C] of packed tokens after the final norm. Their keys and values are written to `slots`
        of the cache before `attend` reads it. On a GPU, `attend` may be rows of one token each, which do not attend to
        each other's."""
        kernels = self.kernels
        residual = embedding(ids_T, self.model.get_input_embeddings().weight)
        cos, sin = self.cos, self.sin
        if overlay is not None:
            residual = overlay.lay(residual)
            cos, sin, positions_T = self.tables(overlay, positions_T)
        residual = residual.float()
        cos, sin = kernels.turns(cos, sin, positions_T)
        x: Tensor | None = None
        for i, layer in enumerate(self.layers):
            if x is None:
                normed = kernels.add_norm(residual, None, layer.norm, self.eps)
            else:
                normed = kernels.add_norm(x, residual, layer.norm, self.eps)
            qkv = self._apply(layer.qkv, normed, adapters_T)
            new = Rotary(cos, sin, positions_T, slots_T, self.heads, layer.q_norm, layer.k_norm, self.eps)
            if isinstance(attend, Decoding):
                mixed = kernels.decode_new(qkv, keys[i], values[i], attend, self.scale, layer.window, new)
            else:
                mixed = attend(i, kernels.rope_store(qkv, keys[i], values[i], new), self.scale, layer.window)
            x = self._apply(layer.out, mixed.flatten(1), adapters_T, parts=True)
            normed = kernels.add_norm(x, residual, layer.mlp_norm, self.eps)
            inner = self._apply(layer.gate_up, normed, adapters_T, gated=True)
            x = self._apply(layer.down, inner, adapters_T, parts=True)
        assert x is not None
        return kernels.add_norm(x, residual, self.norm, self.eps)

    @property
    def norm(self) -> Tensor:
        """The weight of the final norm, read at each use, because a sharded model replaces its parameters."""
        core: Any = decoder_of(self.model)
        weight: Tensor = core.norm.weight
        return weight

    def tables(self, overlay: Overlay, positions_T: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The rotary tables and the index of each token in them. Tokens with three positions (M-RoPE) have rows of
        their own, in which each section of the angles comes from its axis."""
        places = overlay.positions_3T
        if places is None:
            return self.cos, self.sin, positions_T
        axes = [axis % 3 for axis in range(len(self.sections))]
        cos, sin = (
            torch.cat(
                [part[places[axis]] for axis, part in zip(axes, table.split(self.sections, 1), strict=True)], 1
            ).contiguous()
            for table in (self.cos, self.sin)
        )
        return cos, sin, torch.arange(len(positions_T), device=positions_T.device)


class ApartFused(Fused):
    """For a sharded model. A layer's weights are gathered only while the layer runs, so its matrices are joined then.
    Only the learner uses this class."""

    def _layers(self, core: Any) -> list[Layer]:
        self._modules = list(core.layers)
        return []

    @torch.no_grad()
    def _block(self, *layers: Any, ranks: int = 0) -> Block:
        sizes_of = [int(m.weight.shape[0]) for m in layers]
        starts = tuple(sum(sizes_of[:i]) for i in range(len(layers)))
        biases = [m.bias for m in layers]
        bias = side_by_side(biases) if biases[0] is not None else None
        weight = side_by_side([m.weight.detach() for m in layers])
        return Block(layers, weight, sum(sizes_of), bias, starts, copied=True)

    def layer(self, index: int) -> Layer:
        """The layer's weights, which must have been gathered."""
        return self._layer(self._modules[index])

    def run(self, index: int, work: LayerWork, x: Tensor, residual: Tensor | None) -> tuple[Tensor, Tensor]:
        return self._modules[index].interplay_run(work, x, residual)

    def enter_layers(self, register: Callable[[Any, str], None]) -> None:
        """Let each layer run our code. `register` makes FSDP gather the layer's weights around it."""
        for module in self._modules:
            module.interplay_run = partial(self._inside, module)
            register(module, "interplay_run")

    def _inside(self, module: Any, work: LayerWork, x: Tensor, residual: Tensor | None) -> tuple[Tensor, Tensor]:
        return work(self._layer(module), x, residual)


def side_by_side(parts: list[Tensor]) -> Tensor:
    """Matrices joined along their rows; a single one is not copied."""
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def apart(model: PreTrainedModel) -> ApartFused | None:
    """The form of a sharded model, which `of` returns from now on; None if the model has another architecture, or is on
    a CPU and not in fp32."""
    cuda = next(model.parameters()).device.type == "cuda"
    if not suits(model) or not (cuda or model.dtype is torch.float32):
        return None
    made = ApartFused(model, None)
    object.__setattr__(model, "_interplay_fused", made)
    return made
