"""Logits to tokens: one uniform number per (request seed, position), inverted through the distribution.

The log-prob that is returned is that of the distribution that was sampled from, after temperature, in fp32.
A row's result depends on its own logits, seed and position only.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

_GOLDEN, _MIX1, _MIX2 = (np.uint64(c) for c in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def uniforms(seeds: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Counter-based uniforms in [0, 1): splitmix64 of seed + position."""
    with np.errstate(over="ignore"):
        z = seeds.astype(np.uint64) + (positions.astype(np.uint64) + np.uint64(1)) * _GOLDEN
        z = (z ^ (z >> np.uint64(30))) * _MIX1
        z = (z ^ (z >> np.uint64(27))) * _MIX2
        z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(11)).astype(np.float64) * 2.0**-53


def sample(logits_NV: Tensor, temperatures_N: Tensor, uniforms_N: Tensor) -> tuple[Tensor, Tensor]:
    """Token ids and their log-probs. Temperature 0 is the argmax, whose log-prob is 0: it was certain."""
    greedy_N = temperatures_N == 0
    scaled_NV = logits_NV.float() / torch.where(greedy_N, 1.0, temperatures_N).unsqueeze(1)
    logp_NV = torch.log_softmax(scaled_NV, dim=-1)
    cdf_NV = logp_NV.double().exp().cumsum(dim=-1)
    drawn_N = torch.searchsorted(cdf_NV, (uniforms_N * cdf_NV[:, -1]).unsqueeze(1), right=True).squeeze(1)
    tokens_N = torch.where(greedy_N, logits_NV.argmax(dim=-1), drawn_N.clamp_max(logits_NV.shape[1] - 1))
    logp_N = logp_NV.gather(1, tokens_N.unsqueeze(1)).squeeze(1)
    return tokens_N, torch.where(greedy_N, 0.0, logp_N)
