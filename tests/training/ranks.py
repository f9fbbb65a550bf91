"""Run by test_shards.py in one process for each rank: a sharded learner, compared with a learner in one process.

    python ranks.py RANK SIZE STORE CASE…

`STORE` is a file through which the ranks find each other. A case is a name of `CASES`, or
NAME:FOLDER, where FOLDER is one from which training is continued. The first rank prints one line of JSON for each case.
"""

from __future__ import annotations

import json
import os
import random
import sys
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from transformers import AutoModelForCausalLM, GPT2Config
from transformers.utils.logging import disable_progress_bar

sys.path.insert(0, str(Path(__file__).parent))
from runs import example

from interplay.algorithms.losses import Outputs, Targets, policy_loss
from interplay.config import TrainSection
from interplay.models.adapter import Adapter
from interplay.models.attention import NAME
from interplay.models.load import load
from interplay.models.locate import locate
from interplay.models.lora import new_adapter
from interplay.training.learner import Objective
from interplay.training.local import LocalLearner
from interplay.training.ranks import spread, whole_tensor
from interplay.training.shards import shard
from interplay.training.step import step
from interplay.training.transfer import read_weights, write_weights
from interplay.training.tries import Example


@dataclass(frozen=True)
class Case:
    settings: dict[str, Any] = field(default_factory=dict)
    adapters: tuple[int, ...] = ()  # the rank of each policy's adapter; none: one policy with full weights
    tied: bool = False
    family: str = "llama"
    examples: int = 24
    limit: int = 160
    dtype: torch.dtype = torch.float32
    keep: bool = False  # gathered weights, until they change


CASES = {
    "full": Case(),
    "tied": Case(tied=True),
    "recompute": Case({"recompute": True}),
    "adapters": Case(adapters=(4, 8)),
    "adapters_recompute": Case({"recompute": True}, adapters=(4,)),
    "minibatches": Case({"minibatches": 2, "epochs": 2}),
    "empty": Case(examples=1),  # all ranks but one have nothing to train on
    "uneven": Case(examples=5, limit=40),
    "gpt2": Case(family="gpt2"),
    "bfloat16": Case({"gap_mean_stop": 1e9}, dtype=torch.bfloat16),  # the optimiser has fp32 copies, sharded too
    "kept": Case({"minibatches": 2, "epochs": 2}, keep=True),  # begins with a pass that has no backward pass
    "kept_recompute": Case({"recompute": True}, tied=True, keep=True),
    "kept_adapters": Case(adapters=(4, 8), keep=True),
}


def pulled(targets: Targets, outputs: Outputs) -> tuple[Tensor, dict[str, Tensor]]:
    return policy_loss(targets, outputs, 0.2, 0.2, None, 0.01, 0.0)


def examples_of(case: Case, policies: list[str]) -> dict[str, list[Example]]:
    rng = random.Random(0)
    some = lambda low, high: [rng.randrange(6, 500) for _ in range(rng.randint(low, high))]  # noqa: E731
    prompts = [some(5, 40) for _ in range(7)]
    out: dict[str, list[Example]] = {name: [] for name in policies}
    for i in range(case.examples):
        name = policies[i % len(policies)]
        one = example(f"t{i:02}", prompts[i % 7], some(1, 12), policy=name, advantage=(-1.0) ** i * (1 + i % 3))
        out[name].append(one)
        if i % 5 == 0 and case.examples > 1:  # its next turn, laid into the same row
            asked = [*one.sample.prompt, *one.sample.action, *some(2, 6)]
            out[name].append(example(f"x{i:02}", asked, some(2, 9), one.sample.id, policy=name, advantage=0.5))
    return out


def gpt2() -> Any:
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=512, n_positions=256, n_embd=32, n_layer=2, n_head=4)
    return AutoModelForCausalLM.from_config(config, attn_implementation=NAME).eval()


def learners_of(case: Case, sharded: bool) -> list[LocalLearner]:
    model: Any = gpt2() if case.family == "gpt2" else load("tiny", "cpu", case.dtype, 0).model
    if case.tied:
        model.lm_head.weight = model.model.embed_tokens.weight
    settings = {"lr": 1e-3, "gap_stop": 1e9, "grad_clip": 0.5, "weight_decay": 0.1, **case.settings}
    config = TrainSection(micro_batch_tokens=case.limit, **settings)
    made = {f"p{i}": _adapter(model, rank, i) for i, rank in enumerate(case.adapters)}
    if sharded:
        shard(model, "cpu", case.keep, bool(made))
    if not made:
        return [LocalLearner("p0", model, config, config.lr, 0)]
    return [LocalLearner(name, model, config, config.lr, 0, adapter) for name, adapter in made.items()]


def _adapter(model: Any, rank: int, seed: int) -> Adapter:
    fresh = new_adapter(model, rank, 16.0, ["q_proj", "v_proj", "o_proj", "down_proj"], seed)
    generator = torch.Generator().manual_seed(seed)
    weights = {
        name: (down, 0.05 * torch.randn(up.shape, generator=generator)) for name, (down, up) in fresh.weights.items()
    }
    return replace(fresh, weights=weights)


def trained(case: Case, learners: list[LocalLearner]) -> dict[str, Any]:
    """Take a step; what came out, and the clipped gradients of its first optimiser step."""
    grads: dict[str, Tensor] = {}

    def keep(learner: LocalLearner, *_: Any) -> None:
        masters = learner.masters
        for name, tensor, parameter in zip(learner.weights(), masters.own, masters.parameters, strict=True):
            if f"{learner.name}/{name}" not in grads and tensor.grad is not None:
                grads[f"{learner.name}/{name}"] = whole_tensor(spread(tensor.grad, parameter)).clone()

    for learner in learners:
        learner.optimizer.register_step_pre_hook(partial(keep, learner))
    batches = examples_of(case, [x.name for x in learners])
    metrics = step(learners, batches, Objective(pulled, keep_zeros=True))
    scored = [x for each in learners[0].logprobs(batches[learners[0].name]) for x in each]
    return {"metrics": metrics, "grads": grads, "logprobs": scored}


def apart(one: dict[str, Tensor], two: dict[str, Tensor]) -> float:
    assert one.keys() == two.keys() and one
    return max(float((one[k] - two[k]).abs().max()) for k in one)


def compared(name: str) -> dict[str, Any]:
    case = CASES[name]
    alone, ours = trained(case, learners_of(case, False)), trained(case, learners_of(case, True))
    gaps = [
        abs(a - ours["metrics"][who][key]) / max(1.0, abs(a))
        for who, found in alone["metrics"].items()
        for key, a in found.items()
    ]
    assert all(alone["metrics"][who].keys() == ours["metrics"][who].keys() for who in alone["metrics"])
    return {
        "case": name,
        "metrics": max(gaps),
        "gradients": apart(alone["grads"], ours["grads"]),
        "logprobs": max(abs(a - b) for a, b in zip(alone["logprobs"], ours["logprobs"], strict=True)),
    }


def restore(learners: list[LocalLearner], folder: Path) -> None:
    """Load what `resumed` has saved in `folder`. Adapters are saved with the state of their learners."""
    if learners[0].adapter is None:
        read_weights(learners[0].model, folder)
    for learner in learners:
        saved = torch.load(folder / f"{learner.name}.pt", weights_only=True)
        if learner.adapter is not None:
            learner.adapter.overwrite(replace(learner.adapter, weights=saved["adapter"]))
        learner.load_state_dict(saved["state"])


def resumed(name: str, folder: Path) -> dict[str, Any]:
    """Continue from what `folder` holds, if anything, with one more step, and save there."""
    learners = learners_of(CASES[name], True)
    if folder.exists():
        restore(learners, folder)
    trained(CASES[name], learners)
    dist.barrier()  # nobody reads the files any more
    if dist.get_rank() == 0:
        folder.mkdir(exist_ok=True)
    if learners[0].adapter is None:
        write_weights(learners[0].model, folder, bucket=40_000)
    for learner in learners:
        adapter = {} if learner.adapter is None else learner.adapter.detached().weights
        saved = {"state": learner.state_dict(), "adapter": adapter}
        if dist.get_rank() == 0:
            torch.save(saved, folder / f"{learner.name}.pt")
    return {"case": "resume", "steps": [learner.steps for learner in learners]}


def main() -> None:
    rank, size, store, *cases = sys.argv[1:]
    torch.set_num_threads(1)
    disable_progress_bar()
    locate("tiny", 0)  # transformers writes nothing on other ranks than the first
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=int(rank), world_size=int(size))
    for case in cases:
        name, _, folder = case.partition(":")
        line = resumed(name, Path(folder)) if folder else compared(name)
        if dist.get_rank() == 0:
            print(json.dumps(line), flush=True)
    dist.barrier()  # nobody waits for this process any more
    os._exit(0)  # as ranks of a run do: threads of gloo that still run at a usual exit may end the process by SIGABRT


if __name__ == "__main__":
    main()
