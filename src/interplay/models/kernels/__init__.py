"""Triton kernels for CUDA: the parts of a model step, except matrix products of many rows.

    layers.py       norms, rotary positions, activations
    attention.py    over the paged cache: decode and prefill
    products.py     matrix products: not rounded, and of few rows
    adapters.py     layers with LoRA
    sampling.py     logits, the draw, and the state of every running sequence
    drafts.py       speculative sampling: several tokens of a sequence in one step

Tokens are packed: T rows, one per token, whatever sequence it belongs to. The key-value cache is paged: token t of a
sequence is in slot `table[t // PAGE] * PAGE + t % PAGE`, a row of [G, D] in `keys` and `values`. Sums are in fp32.
Shapes in names: T tokens, B sequences, C hidden size, H query heads, G key-value heads, D head size, V vocabulary.
Import this only if there is a GPU, or with Triton's interpreter, which the tests use to compare it with plain torch.
"""

from interplay.models.kernels.adapters import JoinedLayers, RankOwners, adapted
from interplay.models.kernels.attention import PREFILL_ROWS, Tiles, decode_attention, decode_new, prefill_attention
from interplay.models.kernels.drafts import NOTHING, Lookup
from interplay.models.kernels.launch import PAGE
from interplay.models.kernels.layers import add_norm, rope_store, rotate_heads, silu_mul, turns
from interplay.models.kernels.products import joined
from interplay.models.kernels.sampling import FAN, Rows, Tries, logits, sample_and_advance

__all__ = [
    "FAN", "NOTHING", "PAGE", "PREFILL_ROWS", "JoinedLayers", "Lookup", "RankOwners", "Rows", "Tiles", "Tries",
    "adapted", "add_norm", "decode_attention", "decode_new", "joined", "logits", "prefill_attention",
    "rope_store", "rotate_heads", "sample_and_advance", "silu_mul", "turns",
]  # fmt: skip
