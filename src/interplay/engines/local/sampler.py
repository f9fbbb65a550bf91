"""Samples tokens from logits: one uniform number per (request seed, position) goes through the inverse of the CDF.

The returned log-prob is that of the distribution that was sampled from, after temperature, top-k, top-p, min-p and
legal mask, in fp32. The result of a row depends only on its own logits, seed and position.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq

import numpy as np
import torch
from torch import Tensor

from interplay.engines.engine import Sampling

_GOLDEN, _MIX1, _MIX2 = (np.uint64(c) for c in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def uniforms(seeds: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Counter-based uniforms in [0, 1): splitmix64 of seed + position."""
    with np.errstate(over="ignore"):
        z = seeds.astype(np.uint64) + (positions.astype(np.uint64) + np.uint64(1)) * _GOLDEN
        z = (z ^ (z >> np.uint64(30))) * _MIX1
        z = (z ^ (z >> np.uint64(27))) * _MIX2
        z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(11)).astype(np.float64) * 2.0**-53


def sample(logits_NV: Tensor, temperatures: Seq[float], uniforms_N: Tensor) -> tuple[Tensor, Tensor]:
    """Token ids and their log-probs. Temperature 0 takes the argmax; its log-prob is 0, because it is certain."""
    scaled_NV, kinds = logits_NV.float(), set(temperatures)
    if kinds - {0, 1}:
        scaled_NV = scaled_NV / torch.tensor([[t or 1.0] for t in temperatures], device=logits_NV.device)
    logp_NV = torch.log_softmax(scaled_NV, dim=-1)
    cdf_NV = logp_NV.exp().cumsum(dim=-1, dtype=torch.float64)
    drawn_N1 = torch.searchsorted(cdf_NV, uniforms_N.unsqueeze(1) * cdf_NV[:, -1:], right=True)
    tokens_N = drawn_N1.clamp_max_(logits_NV.shape[1] - 1).squeeze(1)
    logp_N = logp_NV.gather(1, tokens_N.unsqueeze(1)).squeeze(1)
    if 0 in kinds:
        greedy_N = torch.tensor([t == 0 for t in temperatures], device=logits_NV.device)
        tokens_N = torch.where(greedy_N, logits_NV.argmax(dim=-1), tokens_N)
        logp_N = logp_N.masked_fill(greedy_N, 0.0)
    return tokens_N, logp_N


def restrict(logits_NV: Tensor, samplings: Seq[Sampling], allowed: Seq[Seq[int] | None]) -> Tensor:
    """Set the logits of excluded tokens to −∞: first of illegal tokens, then of those that top-k, top-p and min-p
    remove from the distribution at the row's temperature. Other rows stay unchanged."""
    logits_NV = logits_NV.float()
    masked = [(i, a) for i, a in enumerate(allowed) if a is not None]
    if masked:
        rows, words = (
            torch.tensor(list(flat), device=logits_NV.device)
            for flat in zip(*((i, t) for i, ids in masked for t in ids), strict=True)
        )
        kept = logits_NV[rows, words]
        logits_NV = logits_NV.index_fill(0, rows.unique(), -torch.inf)
        logits_NV[rows, words] = kept
    cut = [i for i, s in enumerate(samplings) if s.cuts]
    if not cut:
        return logits_NV
    rows = torch.tensor(cut, device=logits_NV.device)
    column = lambda f: torch.tensor([f(samplings[i]) for i in cut], device=logits_NV.device).unsqueeze(1)  # noqa: E731
    heat = column(lambda s: s.temperature or 1.0)
    ordered, order = (logits_NV[rows] / heat).sort(dim=1, descending=True, stable=True)
    p = ordered.softmax(dim=1)
    rank = torch.arange(ordered.shape[1], device=ordered.device)
    top_k = column(lambda s: s.top_k or ordered.shape[1])
    before = p.cumsum(dim=1) - p  # a token is kept if the more likely ones sum to less than top_p
    top_p = column(lambda s: s.top_p if s.top_p < 1 else 2.0)  # the sum may pass 1 by rounding
    keep = (rank < top_k) & (before < top_p) & (p >= column(lambda s: s.min_p) * p[:, :1])
    keep[:, 0] = True
    out = logits_NV[rows].masked_fill(~torch.zeros_like(keep).scatter(1, order, keep), -torch.inf)
    return logits_NV.index_copy(0, rows, out)
