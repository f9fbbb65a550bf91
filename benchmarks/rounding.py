"""Measures how much of a LoRA adapter's first updates bf16 loses, if outputs are rounded once or twice. Runs on a CPU.

    python benchmarks/rounding.py [--base smollm2] [--steps 8] [--lr 5e-5]

An adapter of rank 32 is trained in fp32 on one reply, always with Adam's first step. After every step its
log-probs are computed with the outputs of all layers rounded to bf16 in two ways: base and adapter are added and then
rounded (as Interplay does), or the base's part is rounded first (as PEFT does). "kept" is the mean change of the
log-probs as a part of the exact change in fp32; the other numbers are mean differences of log-probs. The exact change
and bf16's own noise are printed beside them.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, AutoTokenizer

from interplay.models.locate import locate

RANK, SCALE, COUNTED = 32, 2.0, 40
ASKED = "Write Python code: Natalia sold clips to 48 friends in April and half as many in May. How many altogether?"
SAID = (
    "```python\napril = 48\nmay = april // 2\ntotal = april + may\nprint(total)\n```\n"
    "Natalia sold 72 clips altogether in April and May."
)


def rounded(x: Tensor) -> Tensor:
    return x.bfloat16().float()


class Adapted:
    """A model whose layers all have an adapter. `way` says how outputs are rounded: exact, once, twice, or without the
    adapter (base)."""

    def __init__(self, base: str) -> None:
        folder = locate(base, 0)
        tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self.way = "exact"
        said = [{"role": "user", "content": ASKED}, {"role": "assistant", "content": SAID}]
        self.ids = torch.tensor([tokenizer(tokenizer.apply_chat_template(said, tokenize=False)).input_ids])
        self.pairs: dict[nn.Module, tuple[Tensor, Tensor]] = {}
        head = self.model.get_output_embeddings()
        for parameter in self.model.parameters():
            parameter.data = rounded(parameter.data)
        for module in self.model.modules():
            if isinstance(module, nn.Linear) and module is not head:
                down = torch.empty(RANK, module.in_features)
                nn.init.kaiming_uniform_(down, a=5**0.5)
                up = torch.zeros(module.out_features, RANK)
                self.pairs[module] = (down.requires_grad_(), up.requires_grad_())
                module.register_forward_hook(self._layer)
            elif "Norm" in type(module).__name__:
                module.register_forward_hook(lambda _m, _a, out: self._round(out))

    def _round(self, x: Tensor) -> Tensor:
        return x if self.way == "exact" else rounded(x)

    def _layer(self, layer: nn.Module, args: tuple[Tensor], out: Tensor) -> Tensor:
        if self.way == "base":
            return rounded(out)
        down, up = (self._round(t) for t in self.pairs[layer])
        added = self._round(args[0] @ down.t()) * SCALE @ up.t()
        return self._round((rounded(out) if self.way == "twice" else out) + added)

    def logprobs(self, way: str) -> Tensor:
        self.way = way
        found = self.model(self.ids).logits[0, :-1].log_softmax(-1)
        return found.gather(-1, self.ids[0, 1:, None])[-COUNTED:, 0]

    def step(self, lr: float) -> None:
        self.logprobs("exact").mean().backward()
        with torch.no_grad():
            for pair in self.pairs.values():
                for tensor in pair:
                    assert tensor.grad is not None
                    tensor += lr * tensor.grad / (tensor.grad.abs() + 1e-8)
                    tensor.grad = None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", default="smollm2", help="the model")
    parser.add_argument("--steps", type=int, default=8, help="number of updates")
    parser.add_argument("--lr", type=float, default=5e-5, help="learning rate")
    args = parser.parse_args()
    torch.manual_seed(0)
    adapted = Adapted(args.base)
    with torch.no_grad():
        start, start_rounded = adapted.logprobs("exact"), adapted.logprobs("base")
    print(f"{args.base}: bf16 without an adapter differs from fp32 by {(start_rounded - start).abs().mean():.4f}")
    print("step  exact change   once: kept  differs   twice: kept  differs   once from twice")
    for step in range(1, args.steps + 1):
        adapted.step(args.lr)
        with torch.no_grad():
            exact, once, twice = (adapted.logprobs(way) for way in ("exact", "once", "twice"))
        change = (exact - start).mean()
        shown = [f"{step:>4} {(exact - start).abs().mean():>13.4f}"]
        for way in (once, twice):
            shown.append(f"{(way - start_rounded).mean() / change:>12.1%} {(way - exact).abs().mean():>8.4f}")
        print("  ".join([*shown, f"{(once - twice).abs().mean():>15.4f}"]), flush=True)


if __name__ == "__main__":
    main()
