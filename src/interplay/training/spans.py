"""Sequences laid end to end without padding, for the learner on a GPU, and attention over them.

A prefix that several sequences share is stored once: a *span* is followed by all the spans that continue it. A token
attends causally within its own span, and to the whole of every span above it. The first takes one call of an attention
kernel, the second one call for each level of spans above. The results are combined by their log-sum-exps. This is
exact: given the combined output and log-sum-exp, the kernel's backward pass on each part yields exactly that part of
the gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from interplay.models.attention import Causal
from interplay.models.staging import to_device
from interplay.training.direct import direct

_BACKENDS = [
    SDPBackend.CUDNN_ATTENTION,
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.MATH,
]
_LONG, _WIDTH, _WASTE = 1024, 256, 1.3  # when to use padded rows for packed sequences
# Shapes: T tokens, H query heads, G key-value heads, D head size; Q and L queries and keys of a part.


@dataclass(frozen=True)
class Part:
    """One attention call: the i-th run of queries attends to the i-th run of keys."""

    query_lengths: tuple[int, ...]
    key_lengths: tuple[int, ...]
    query_bounds: Tensor
    key_bounds: Tensor
    queries: Tensor | None = None  # which tokens they are; None: all of them
    keys: Tensor | None = None

    @property
    def causal(self) -> bool:
        return self.queries is None

    @cached_property
    def most(self) -> tuple[int, int]:
        """The largest numbers of queries and of keys."""
        return max(self.query_lengths), max(self.key_lengths)


@dataclass(frozen=True)
class Spans:
    """`lengths` are in the order of the layout. `bounds` says where each span begins, and where the last one ends.
    `above` holds, for each level, the attention of deeper spans to the spans of that level."""

    bounds: Tensor
    lengths: tuple[int, ...]
    above: tuple[Part, ...] = ()

    @staticmethod
    def of(lengths: Sequence[int], depths: Sequence[int], device: torch.device) -> Spans:
        """Spans in depth-first order; `depths` says how many spans are above each."""
        size, depth = np.array(lengths), np.array(depths)
        bounds = np.concatenate([[0], np.cumsum(size)])
        to = partial(to_device, device=device)
        ends = _ends(depths)
        above = []
        for level in range(int(depth.max())):
            below = [(i, ends[i]) for i in np.flatnonzero(depth == level).tolist() if ends[i] > i + 1]
            queries = [np.arange(bounds[i + 1], bounds[end]) for i, end in below]
            keys = [np.arange(bounds[i], bounds[i + 1]) for i, _ in below]
            many, each = ([len(a) for a in runs] for runs in (queries, keys))
            cuts = [np.cumsum([0, *counts]).astype(np.int32) for counts in (many, each)]
            which = (to(np.concatenate(queries)), to(np.concatenate(keys)))
            above.append(Part(tuple(many), tuple(each), to(cuts[0]), to(cuts[1]), *which))
        return Spans(to(bounds.astype(np.int32)), tuple(size.tolist()), tuple(above))

    @cached_property
    def whole(self) -> Part:
        """Every span attends to itself."""
        return Part(self.lengths, self.lengths, self.bounds, self.bounds)

    @cached_property
    def longest(self) -> int:
        return max(self.lengths)

    @property
    def width(self) -> int:
        """The width of padded rows, one sequence each. Long rows use few widths, since kernels are planned for each."""
        step = _WIDTH if self.longest >= _LONG else 16
        return -(-self.longest // step) * step

    @cached_property
    def alike(self) -> bool:
        """Whether the sequences are long and of similar length. As padded rows they then take little more work, and
        cuDNN's kernel for rows is faster than flash attention for packed tokens."""
        work = len(self.lengths) * self.width**2
        return self.longest >= _LONG and work <= _WASTE * sum(n * n for n in self.lengths)

    @cached_property
    def places(self) -> Tensor | None:
        """The index of each token in the padded rows; None if there is no padding."""
        if all(n == self.width for n in self.lengths):
            return None
        at = np.concatenate([np.arange(n) + i * self.width for i, n in enumerate(self.lengths)])
        return to_device(at, self.bounds.device)


def _ends(depths: Sequence[int]) -> list[int]:
    """For each span, the index after its last descendant."""
    out = [len(depths)] * len(depths)
    path: list[int] = []
    for i, depth in enumerate(depths):
        while path and depths[path[-1]] >= depth:
            out[path.pop()] = i
        path.append(i)
    return out


@dataclass(frozen=True)
class Varlen:
    """The layout for a model with the code of transformers: one row of spans."""

    spans: Spans

    def attend(
        self, layer: int, q_BHQD: Tensor, k_BGQD: Tensor, v_BGQD: Tensor, scale: float, window: int | None
    ) -> Tensor:
        q, k, v = (x[0].transpose(0, 1) for x in (q_BHQD, k_BGQD, v_BGQD))
        return varlen(q, k, v, self.spans, scale, window or 1 << 30).transpose(0, 1).unsqueeze(0)


def varlen(q_THD: Tensor, k_TGD: Tensor, v_TGD: Tensor, spans: Spans, scale: float, window: int) -> Tensor:
    """Causal attention along every path through the spans, with the fastest kernel for this dtype. `window` is ignored
    if some spans have others above them."""
    given = q_THD, k_TGD, v_TGD, spans, scale, window
    if _is_ours(q_THD, spans, window):
        mixed: Tensor = direct(Attended, *given)
        return mixed
    return _by_torch(*given)


Back = Callable[[Tensor], tuple[Tensor, ...]]  # from the gradient of the result to those of q, k and v


def attended(
    heads: tuple[Tensor, Tensor, Tensor], spans: Spans, scale: float, window: int, keep: bool = True
) -> tuple[Tensor, Back]:
    """`varlen` of queries, keys and values without autograd, and its backward pass, which can be called only with
    `keep`."""
    if spans.above:
        return _joined(*heads, spans, scale)
    if _is_ours(heads[0], spans, window):
        return _packed(*heads, spans, scale, window)
    with torch.enable_grad() if keep else torch.no_grad():
        q, k, v = (t.detach().requires_grad_(keep) for t in heads)
        out = _by_torch(q, k, v, spans, scale, window)
    return out.detach(), lambda grad: torch.autograd.grad(out, (q, k, v), grad)


class Attended(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, spans: Spans, scale: float, window: int) -> Tensor:
        out, ctx.back = attended((q, k, v), spans, scale, window)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        back, ctx.back = ctx.back, None
        return *back(grad), None, None, None


def _is_ours(q: Tensor, spans: Spans, window: int) -> bool:
    """Whether the backward pass is ours and not torch's."""
    if spans.above:
        return True
    rows = q.is_cuda and window >= spans.longest and spans.alike
    return _has_kernel(q) and not rows


def _by_torch(q_THD: Tensor, k_TGD: Tensor, v_TGD: Tensor, spans: Spans, scale: float, window: int) -> Tensor:
    if q_THD.is_cuda and window >= spans.longest:  # no kernel packs fp32
        return as_rows(q_THD, k_TGD, v_TGD, spans, scale)
    out = []
    for q, k, v in zip(*(x.split(spans.lengths) for x in (q_THD, k_TGD, v_TGD)), strict=True):
        q, k, v = (x.transpose(0, 1).unsqueeze(0) for x in (q, k, v))
        out.append(Causal().attend(0, q, k, v, scale, window)[0].transpose(0, 1))
    return torch.cat(out)


def as_rows(q_THD: Tensor, k_TGD: Tensor, v_TGD: Tensor, spans: Spans, scale: float) -> Tensor:
    """The same, with one padded row per sequence. Padding comes last, so the causal mask hides it."""
    shape = (len(spans.lengths), spans.width)
    places = spans.places

    def row(x: Tensor) -> Tensor:
        if places is not None:
            x = x.new_zeros((shape[0] * shape[1], *x.shape[1:])).index_copy(0, places, x)
        return x.unflatten(0, shape).transpose(1, 2)

    q, k, v = row(q_THD), row(k_TGD), row(v_TGD)
    with sdpa_kernel(_BACKENDS, set_priority=True):
        mixed = scaled_dot_product_attention(
            q, k, v, is_causal=True, scale=scale, enable_gqa=q.shape[1] != k.shape[1]
        ).transpose(1, 2).flatten(0, 1)  # fmt: skip
    return mixed if places is None else mixed.index_select(0, places)


def _packed(q: Tensor, k: Tensor, v: Tensor, spans: Spans, scale: float, window: int) -> tuple[Tensor, Back]:
    """Causal attention within every span. With a `window`, a token sees at most so many tokens: itself and those just
    before it. Torch has a function for this, but its bookkeeping takes longer than a short pass."""
    reach = window if window < spans.longest else None
    out, lse_HT = _flash(q, k, v, spans.whole, scale, reach)
    kept = out.detach()  # not the tensor itself: it may be the result of an autograd function that keeps `back`

    def back(grad: Tensor) -> tuple[Tensor, ...]:
        return _flash_backward(grad.contiguous(), q, k, v, kept, lse_HT, spans.whole, scale, reach)

    return out, back


def _joined(q: Tensor, k: Tensor, v: Tensor, spans: Spans, scale: float) -> tuple[Tensor, Back]:
    """Attention along paths through spans: the results of all parts, weighted by their shares of the softmax."""
    attend = _flash if _has_kernel(q) else _plain
    mixed, lse_HT = attend(q, k, v, spans.whole, scale)
    out = mixed.float()
    for part in spans.above:
        more, lse = attend(q[part.queries], k[part.keys], v[part.keys], part, scale)
        before = lse_HT[:, part.queries]
        joined = torch.logaddexp(before, lse)
        old, new = ((x - joined).exp().t().unsqueeze(2) for x in (before, lse))
        out[part.queries] = out[part.queries] * old + more * new
        lse_HT[:, part.queries] = joined
    mixed = out.to(q.dtype)
    kept = mixed.detach()  # as in `_packed`

    def back(grad: Tensor) -> tuple[Tensor, ...]:
        backward = _flash_backward if _has_kernel(q) else _plain_backward
        grad = grad.contiguous()
        dq, dk, dv = backward(grad, q, k, v, kept, lse_HT, spans.whole, scale)
        for part in spans.above:
            at, of = part.queries, part.keys
            assert at is not None and of is not None
            lse = lse_HT[:, at].contiguous()
            to_q, to_k, to_v = backward(grad[at], q[at], k[of], v[of], kept[at], lse, part, scale)
            dq.index_add_(0, at, to_q)
            dk.index_add_(0, of, to_k)
            dv.index_add_(0, of, to_v)
        return dq, dk, dv

    return mixed, back


def _has_kernel(q: Tensor) -> bool:
    return q.is_cuda and q.dtype in (torch.bfloat16, torch.float16)


def _flash(
    q_QHD: Tensor, k_LGD: Tensor, v_LGD: Tensor, part: Part, scale: float, window: int | None = None
) -> tuple[Tensor, Tensor]:
    """The output and the log-sum-exps [H, Q] of a part."""
    bounds = part.query_bounds, part.key_bounds
    forward = torch.ops.aten._flash_attention_forward
    given = q_QHD, k_LGD, v_LGD, *bounds, *part.most, 0.0, part.causal and window is None, False
    out, lse, *_ = forward(*given, scale=scale, **_reach(window))
    return out, lse


def _reach(window: int | None) -> dict[str, int]:
    return {} if window is None else {"window_size_left": window - 1, "window_size_right": 0}


def _flash_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse_HQ: Tensor, part: Part, scale: float,
    window: int | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    bounds = part.query_bounds, part.key_bounds
    none = torch.zeros(2, dtype=torch.uint64, device=q.device)  # there is no dropout, so no random state
    backward = torch.ops.aten._flash_attention_backward
    causal = part.causal and window is None
    given = grad, q, k, v, out, lse_HQ, *bounds, *part.most, 0.0, causal, none, none.new_empty(0)
    dq, dk, dv = backward(*given, scale=scale, **_reach(window))
    return dq, dk, dv


def _plain(q_QHD: Tensor, k_LGD: Tensor, v_LGD: Tensor, part: Part, scale: float) -> tuple[Tensor, Tensor]:
    """The same as the kernel in plain torch, for CPUs and for fp32."""
    out, lse = [], []
    for q, k, v in _runs(q_QHD, k_LGD, v_LGD, part):
        scores_HQL = _scores(q, k, part.causal, scale)
        lse.append(torch.logsumexp(scores_HQL, -1))
        out.append(torch.einsum("hql,lhd->qhd", torch.softmax(scores_HQL, -1), v))
    return torch.cat(out), torch.cat(lse, 1)


def _plain_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse_HQ: Tensor, part: Part, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    found = []
    groups = k.shape[1]
    rest = zip(*(x.split(part.query_lengths) for x in (grad, out, lse_HQ.t())), strict=True)
    for (qi, ki, vi), (gi, oi, li) in zip(_runs(q, k, v, part), rest, strict=True):
        p_HQL = (_scores(qi, ki, part.causal, scale) - li.t().unsqueeze(2)).exp()
        slope_HQL = torch.einsum("qhd,lhd->hql", gi, vi) - (gi * oi).sum(-1).t().unsqueeze(2)
        slope_HQL = p_HQL * slope_HQL * scale
        to_k, to_v = torch.einsum("hql,qhd->lhd", slope_HQL, qi), torch.einsum("hql,qhd->lhd", p_HQL, gi)
        to_k, to_v = (x.unflatten(1, (groups, -1)).sum(2) for x in (to_k, to_v))
        found.append((torch.einsum("hql,lhd->qhd", slope_HQL, ki), to_k, to_v))
    dq, dk, dv = (torch.cat(x) for x in zip(*found, strict=True))
    return dq, dk, dv


def _runs(q: Tensor, k: Tensor, v: Tensor, part: Part) -> Any:
    """The runs of a part. Keys and values are repeated for the query heads that share them."""
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    return zip(q.split(part.query_lengths), k.split(part.key_lengths), v.split(part.key_lengths), strict=True)


def _scores(q: Tensor, k: Tensor, causal: bool, scale: float) -> Tensor:
    scores_HQL = torch.einsum("qhd,lhd->hql", q, k) * scale
    if causal:
        hidden = torch.ones(scores_HQL.shape[1:], dtype=torch.bool, device=q.device).triu(1)
        scores_HQL = scores_HQL.masked_fill(hidden, -torch.inf)
    return scores_HQL
