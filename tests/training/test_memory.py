"""The estimate before a run is compared with counted bytes, and running out of memory is one sentence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from runs import example, rounding
from transformers import AutoConfig

from interplay.algorithms.algorithm import CriticSettings
from interplay.config import AdapterSection, TrainSection, parse
from interplay.engines.local import LocalEngine, room
from interplay.errors import ConfigError, ResourceError
from interplay.models.attention import Causal, using
from interplay.models.device import limit_memory
from interplay.models.load import Loaded, read_config
from interplay.models.locate import locate
from interplay.models.lora import new_adapter
from interplay.rollout.resolve import resolve
from interplay.seats import RunPlan
from interplay.training import memory
from interplay.training.activations import count_saved
from interplay.training.critic import Critic
from interplay.training.local import LocalLearner
from interplay.training.model_shape import shape_of
from interplay.training.shortage import explained
from interplay.training.trainer import Trainer
from interplay.training.tries import Example

RECIPE: dict[str, Any] = {
    "name": "test",
    "device": "cpu",
    "env": {"name": "tictactoe", "size": 2, "line": 2},
    "policies": {"player": {"base": "tiny"}, "other": {"base": "tiny-16x1", "adapter": {"rank": 4}}},
    "seats": {"X": "player", "O": "other"},
    "algorithm": {"name": "grpo", "group": 2},
    "sampling": {"max_tokens": 2},
    "rollout": {"tasks": 2},
    "train": {"steps": 1, "micro_batch_tokens": 512},
    "records": {"tensorboard": "off"},
}


def plan(*overrides: str, **sections: Any) -> RunPlan:
    return resolve(parse({**RECIPE, **sections}, overrides))


def bytes_of(tensors: Any) -> int:
    return sum(t.nbytes for t in tensors)


def reply(i: int, action: tuple[int, ...] = (10,)) -> Example:
    return example(f"{i}{action}", (7 + i, 8, 9), action)


@pytest.mark.parametrize("optimizer", ["adamw", "adamw_8bit"])
def test_weights_optimiser_and_gradients_are_what_is_counted(tmp_path: Path, optimizer: str) -> None:
    made = plan(f"train.optimizer={optimizer}")
    found = memory.estimate(made).parts
    trainer = Trainer(made, tmp_path)
    members = [trainer.team.members[n] for n in ("player", "other")]
    adapter = members[1].adapter
    assert adapter is not None
    weights = bytes_of(p for m in members for p in m.loaded.model.parameters())
    lora = bytes_of(t for pair in adapter.weights.values() for t in pair)
    assert found["weights"] == weights + 2 * lora, "an adapter's own, and its place in the engine"
    assert found["masters"] == 0, "fp32 is its own master"
    moments = 0
    for learner in trainer.learners.values():
        for tensor in learner.masters.own:
            tensor.grad = torch.ones_like(tensor)
        learner.optimizer.step()
        for kept in learner.optimizer.state.values():
            moments += sum(
                t.nbytes for k, t in kept.items() if torch.is_tensor(t) and t.numel() > 1 and "qmap" not in k
            )
    assert found["optimiser"] == pytest.approx(moments, rel=0.01)
    assert found["gradients"] == bytes_of(t.grad for t in trainer.learners["player"].masters.own)
    trainer.close()


@pytest.mark.parametrize("base", ["tiny", "tiny-128x3"])
def test_activations_are_what_autograd_keeps(make_tiny: Callable[..., Loaded], base: str) -> None:
    """Counted in a real pass over padded rows, with torch's own attention."""
    model = make_tiny(0, base).model
    ids = torch.randint(6, 600, (8, 64))
    with count_saved(model) as counted, using(Causal()):
        model.base_model(input_ids=ids, position_ids=torch.arange(64).expand(8, 64), use_cache=False)
    one = {"policies": {"player": {"base": base}}, "seats": "player"}
    found = memory.estimate(plan(**one)).parts["activations"]
    assert found == pytest.approx(sum(counted.values()), rel=0.15)
    less = memory.estimate(plan("train.recompute=true", **one)).parts["activations"]
    assert less < found


@pytest.mark.parametrize("adapted", [False, True])
def test_activations_computed_again_give_the_same_gradients_from_less(
    make_tiny: Callable[..., Loaded], adapted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With prompts that several replies share, and with an adapter: the second pass uses the same attention."""
    loaded = make_tiny(0, "tiny-32x3")
    examples = [reply(i % 2, (11 + i, 12)) for i in range(6)]
    found = []
    for recompute in (False, True):
        adapter = new_adapter(loaded.model, 2, 4.0, [], 0) if adapted else None
        loaded.model.requires_grad_(True)
        config = TrainSection(recompute=recompute, gap_stop=1e9, lr=1e-9)
        learner = LocalLearner("player", loaded.model, config, 1e-9, 0, adapter)
        monkeypatch.setattr(learner, "apply", lambda loss: 0.0)
        with count_saved(loaded.model) as counted:
            learner.imitate(examples)
        grads = [t.grad.clone() for t in learner.masters.own if t.grad is not None]
        learner.optimizer.zero_grad()
        found.append((grads, sum(counted.values())))
    (plain, much), (again, less) = found
    limit = rounding(loaded.model, sum(len(e.sample.prompt + e.sample.action) for e in examples))
    assert plain and limit < 1e-3
    assert all((a - b).norm() <= limit * a.norm() for a, b in zip(plain, again, strict=True))
    assert less < 0.7 * much


def test_the_cache_is_as_large_as_the_engine_makes_it(make_tiny: Callable[..., Loaded]) -> None:
    one = {"policies": {"player": {"base": "tiny"}}, "seats": "player"}
    engine: Any = LocalEngine(make_tiny(0).model)
    assert memory.estimate(plan(**one)).cache == pytest.approx(
        bytes_of([*engine.runner.keys, *engine.runner.values]), rel=0.001
    )
    engine.close()


def test_kept_pictures_are_counted_up_to_their_limit_and_refuse_no_run(private_cache: None) -> None:
    pytest.importorskip("PIL")
    seen = {
        "env": {"name": "plan_path", "view": "image", "size": 3, "team": "single"},
        "policies": {"player": {"base": "tiny-vl-16x1x24"}}, "seats": {"actor": "player"},
    }  # fmt: skip
    found = memory.estimate(plan(**seen))
    assert found.features == 1 << 31 and "pictures and sounds up to 2.0 GiB" in str(found)
    replace(found, available=found.needed).refuse(plan(**seen))
    assert memory.estimate(plan()).features == 0 and "pictures" not in str(memory.estimate(plan()))


ONE: dict[str, Any] = {"policies": {"player": {"base": "tiny"}}, "seats": "player", "eval": {"games": 6}}


def on_a_gpu(monkeypatch: pytest.MonkeyPatch, total: int) -> None:
    """A GPU with `total` bytes, as far as the estimate sees it."""
    monkeypatch.setattr(memory, "wanted_device", lambda recipe: "cuda")
    monkeypatch.setattr(memory, "available_bytes", lambda device: total)


def test_weights_that_ranks_keep_gathered_are_counted_whole_on_every_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    on_a_gpu(monkeypatch, 1 << 30)
    whole = 2 * shape_of("tiny", 0, torch.bfloat16).count
    found = {
        (ranks, gather): memory.estimate(
            plan("train.shard=fsdp", f"cluster.learners={ranks}", f"train.gather={gather}", "dtype=bfloat16", **ONE)
        ).parts
        for ranks in (1, 4)
        for gather in ("layer", "step")
    }
    assert all(parts["shards"] == -(-whole // ranks) for (ranks, _), parts in found.items())
    kept = {key: parts.get("gathered weights", 0) for key, parts in found.items()}
    assert kept == {(1, "layer"): whole, (1, "step"): whole, (4, "layer"): 0, (4, "step"): whole}
    base = {"policies": {"player": {"base": "tiny", "adapter": {"rank": 2}}}, "seats": "player"}
    sharded = ("train.shard=fsdp", "cluster.learners=4", "dtype=bfloat16")
    apart, kept = (memory.estimate(plan(*sharded, f"train.gather={g}", **base)).parts for g in ("layer", "step"))
    assert apart["shards"] == -(-whole // 4) and apart["gathered weights"] == 0
    assert kept["shards"] == 0 and kept["gathered weights"] == whole, "a frozen base that is kept is not sharded"


def test_ranks_on_gpus_of_their_own_are_counted_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Adapters are whole on every rank. Ray gives ranks other GPUs than that of the run, if there are several. Ranks
    that are child processes use it too."""
    on_a_gpu(monkeypatch, 1 << 30)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    shape = memory.shape_of("tiny", 0, torch.bfloat16)
    ranks = ("train.shard=fsdp", "cluster.learners=4", "dtype=bfloat16")
    on_ray = (*ranks, "cluster.rollout_workers=1", "cluster.worker_gpus=1")
    apart, together = (memory.estimate(plan(*how, **ONE)) for how in (on_ray, ranks))
    assert {k: n for k, n in apart.parts.items() if n} == {"weights": 2 * shape.count} and not together.rank
    assert sum(together.parts.values()) == sum(apart.parts.values()) + sum(apart.rank.values())
    assert apart.rank["optimiser"] == 2 * shape.count and apart.rank["gradients"] == -(-6 * shape.count // 4)
    base = {"policies": {"player": {"base": "tiny", "adapter": {"rank": 2}}}, "seats": "player"}
    adapter = sum(shape.adapter(AdapterSection(rank=2)))
    found = memory.estimate(plan(*on_ray, **base)).rank
    assert (found["optimiser"], found["adapters"], found["gradients"]) == (8 * adapter, 4 * adapter, 4 * adapter)


def test_a_model_that_is_larger_than_a_gpu_may_train_on_ranks_and_a_rank_that_is_too_large_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a vLLM server, the process of the run has its copy of the weights in host memory."""
    on_a_gpu(monkeypatch, 1 << 40)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    large = replace(memory.shape_of("tiny", 0, torch.bfloat16), tensors=(10**9,))
    monkeypatch.setattr(memory, "shape_of", lambda *_: large)
    ranks, weights = ("train.shard=fsdp", "dtype=bfloat16", "train.micro_batch_tokens=256"), 2 * 10**9
    served = plan(*ranks, "cluster.learners=64", "engine.kind=vllm", **ONE)
    found = memory.estimate(served)
    assert found.parts["weights"] == 0 and found.needed < weights
    on_a_gpu(monkeypatch, weights - 1)
    memory.estimate(served).refuse(served)
    on_ray = plan(*ranks, "cluster.rollout_workers=1", "cluster.worker_gpus=1", **ONE)
    on_a_gpu(monkeypatch, weights + 1)
    with pytest.raises(ConfigError, match=r"each rank of the learner needs about .*expected more cluster\.learners"):
        memory.estimate(on_ray).refuse(on_ray)


def test_a_run_may_take_its_share_of_the_memory_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    on_a_gpu(monkeypatch, 1 << 28)
    many = "eval.games=2000"
    whole, half = (memory.estimate(plan(f"memory.share={share}", many, **ONE)) for share in (1.0, 0.5))
    assert half.available == whole.available // 2 == 1 << 27
    assert half.parts == whole.parts
    for found in (whole, half):
        assert found.cache == pytest.approx((found.available - found.parts["weights"]) / 4, rel=0.01)
    on_a_gpu(monkeypatch, 2 * whole.needed - 2)
    memory.estimate(plan("memory.share=1.0", **ONE)).refuse(plan(**ONE))
    with pytest.raises(ConfigError, match="without a key-value cache"):
        memory.estimate(plan("memory.share=0.5", **ONE)).refuse(plan("memory.share=0.5", **ONE))


def test_the_cache_has_room_for_the_episodes_in_flight_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step has 2 tasks with 2 episodes each, and an evaluation 6 games; a tree samples its candidates together."""
    on_a_gpu(monkeypatch, 1 << 40)
    token = shape_of("tiny", 0, torch.bfloat16).cache
    context = shape_of("tiny", 0, torch.bfloat16).context
    found = memory.estimate(plan("memory.prompt_tokens=1000", **ONE))
    assert found.cache == 6 * (1000 + 2 + 32) * token
    assert str(found).endswith("; the cache is for 6 requests of up to 1,002 tokens")
    tree = {"algorithm": {"name": "at_grpo", "candidates": 5, "continuation": "playout", "playouts": 2}}
    assert memory.estimate(plan("memory.prompt_tokens=1000", **ONE, **tree)).cache == 60 * (1000 + 2 + 32) * token
    assert memory.estimate(plan("memory.prompt_tokens=1", **ONE)).cache == (context + 32) * token, "a long one fits"
    assert memory.estimate(plan(**ONE)).cache == 6 * (context + 32) * token
    on_a_gpu(monkeypatch, 1 << 28)
    many = memory.estimate(plan("eval.games=2000", **ONE))
    assert "the cache is 25% of what is free; 1,024 requests of up to" in str(many)


def test_the_engine_makes_the_cache_that_is_estimated(
    monkeypatch: pytest.MonkeyPatch, make_tiny: Callable[..., Loaded]
) -> None:
    """With a GPU of 1,000 MB, of which another run has 300 and this one 100."""
    mb = 1_000_000
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (600 * mb, 1000 * mb))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 100 * mb)
    model = make_tiny(0).model
    left = {share: room.free_bytes(model.device, share) // mb for share in (1.0, 0.5, 0.7)}
    assert left == {1.0: 600, 0.5: 400, 0.7: 600}
    token = shape_of("tiny", 0, torch.float32).cache
    for share, most in ((1.0, 150), (0.5, 100)):
        assert room.gpu_cache_tokens(model, room.CacheRoom(share)) == most * mb // token
    context = shape_of("tiny", 0, torch.float32).context
    assert room.gpu_cache_tokens(model, room.CacheRoom(1.0, 3, context)) == 3 * (context + 32)


def test_the_cache_leaves_what_the_learners_need(
    monkeypatch: pytest.MonkeyPatch, make_tiny: Callable[..., Loaded]
) -> None:
    """A quarter of what is free may be more than the learners leave: runs that share a GPU ran out of memory so."""
    on_a_gpu(monkeypatch, 1 << 40)
    roomy = memory.estimate(plan("eval.games=2000", **ONE))
    on_a_gpu(monkeypatch, int(1.28 * roomy.needed))
    tight = memory.estimate(plan("eval.games=2000", **ONE))
    assert roomy.needed == tight.needed and tight.available is not None
    assert tight.cache > 0 and 0.99 * tight.available < tight.total <= tight.available
    assert "the cache is what the learners leave; 1,024 requests of up to" in str(tight)
    on_a_gpu(monkeypatch, int(1.0001 * roomy.needed))
    shape = shape_of("tiny", 0, torch.bfloat16)
    least = memory.estimate(plan("eval.games=2000", **ONE)).cache
    assert least == (shape.context + 32) * shape.cache, "the longest request always fits"
    assert memory.learner_bytes(plan(**ONE)) == roomy.needed - roomy.parts["weights"] > 0
    mb = 1_000_000
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (600 * mb, 1000 * mb))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 100 * mb)
    shape = shape_of("tiny", 0, torch.float32)
    assert room.gpu_cache_tokens(make_tiny(0).model, room.CacheRoom(1.0, reserve=550 * mb)) == 50 * mb // shape.cache
    little = 2 * (shape.context + 32) * shape.cache  # a quarter of it is less than the longest request
    assert room.CacheRoom().size(little, shape.cache, shape.context)[0] == shape.context + 32
    assert room.CacheRoom().size(little // 4, shape.cache, shape.context)[0] == little // 4 // shape.cache


def test_on_a_gpu_the_estimate_is_a_metric(monkeypatch: pytest.MonkeyPatch) -> None:
    assert memory.estimated_metrics(plan(**ONE)) == {}
    on_a_gpu(monkeypatch, 1 << 40)
    found = memory.estimated_metrics(plan(**ONE))
    assert found["memory_estimate_gib"] * (1 << 30) == memory.estimate(plan(**ONE)).total


def test_a_run_on_a_gpu_has_a_limit_and_a_peak_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the same process did another run before, as in an experiment."""
    done: list[float | str] = []
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", done.append)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: done.append("peak"))
    for share, device in ((0.4, "cuda"), (0.4, "cpu"), (1.0, "cuda")):
        limit_memory(plan(f"memory.share={share}").recipe, device)
    assert done == [0.4, "peak", 1.0, "peak"]


def test_on_a_gpu_the_cache_is_a_share_of_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or as much as could ever be used; logits are computed in pieces."""
    one: dict[str, Any] = {"policies": {"player": {"base": "tiny"}}, "seats": "player"}
    monkeypatch.setattr(memory, "wanted_device", lambda recipe: "cuda")
    monkeypatch.setattr(memory, "available_bytes", lambda device: 1 << 28)
    small = memory.estimate(plan(**one))
    assert small.cache == pytest.approx((small.available - small.parts["weights"]) / 4, rel=0.01)
    monkeypatch.setattr(memory, "available_bytes", lambda device: 1 << 50)
    assert memory.estimate(plan(**one)).cache < 1 << 40
    wide = memory.estimate(plan("train.micro_batch_tokens=10000000", **one))
    assert wide.parts["logits"] == 6 * (1 << 29), "fp32 and a bf16 gradient"


def test_copies_are_counted() -> None:
    """A snapshot for the KL penalty, a critic's model, fp32 copies in bf16: each is another set of weights."""
    one: dict[str, Any] = {"policies": {"player": {"base": "tiny"}}, "seats": "player"}
    plain = memory.estimate(plan(**one)).parts
    pulled = memory.estimate(plan("algorithm.kl=0.1", **one)).parts
    assert pulled["weights"] == 2 * plain["weights"]
    critic = memory.estimate(plan(algorithm={"name": "ppo"}, **one)).parts
    assert critic["weights"] == 2 * plain["weights"] and critic["optimiser"] == 2 * plain["optimiser"]
    slim = memory.estimate(plan(algorithm={"name": "ppo", "critic": {"adapter": {"rank": 2}}}, **one)).parts
    assert critic["optimiser"] > slim["optimiser"] > plain["optimiser"]
    half = memory.estimate(plan("dtype=bfloat16", **one)).parts
    assert half["weights"] == plain["weights"] / 2 and half["masters"] == plain["weights"]
    assert half["gradients"] == 1.5 * plain["gradients"]


def test_reward_models_are_counted(make_tiny: Callable[..., Loaded]) -> None:
    """A judge that is trained in the run has weights of its own, and moments for all but the output layer, which it
    does not use. A server's are elsewhere."""
    trunk = sum(p.numel() for p in make_tiny().model.base_model.parameters())
    one: dict[str, Any] = {"policies": {"player": {"base": "tiny"}}, "seats": "player"}
    plain = memory.estimate(plan(**one)).parts
    train = {"labels": "gold:win"}

    def judged(train: Any, *overrides: str) -> dict[str, int]:
        judge = {"kind": "reward_model", "who": "base:tiny", "train": train}
        return memory.estimate(plan(*overrides, **one, judges={"taste": judge})).parts

    whole = judged(train)
    assert whole["weights"] == 2 * plain["weights"] and whole["optimiser"] == plain["optimiser"] + 8 * trunk
    assert whole["gradients"] == plain["gradients"], "only one model has gradients at a time"
    half, alone = judged(train, "dtype=bfloat16"), memory.estimate(plan("dtype=bfloat16", **one)).parts
    assert half["masters"] == alone["masters"] + 4 * trunk and half["weights"] == 2 * alone["weights"]
    slim = judged({**train, "adapter": {"rank": 2}})
    assert whole["optimiser"] > slim["optimiser"] > plain["optimiser"] and slim["weights"] > whole["weights"]
    served = {"kind": "reward_model", "who": "http://localhost:1"}
    assert memory.estimate(plan(**one, judges={"taste": served})).parts == plain


def test_a_leagues_lineup_is_counted() -> None:
    """As many snapshots as a step may draw; adapters share their base."""
    one: dict[str, Any] = {"policies": {"player": {"base": "tiny"}}, "seats": "player"}
    plain = memory.estimate(plan(**one))
    drawn: dict[str, Any] = {
        "league": {"lineup": 3},
        "matchups": [{"share": 0.5, "one": "player", "others": "@league"}],
    }
    league = memory.estimate(plan(**one, **drawn))
    assert league.parts["weights"] == 4 * plain.parts["weights"] and league.cache == 4 * plain.cache
    one["policies"] = {"player": {"base": "tiny", "adapter": {"rank": 2}}}
    assert memory.estimate(plan(**one, **drawn)).cache == memory.estimate(plan(**one)).cache


def test_a_base_that_is_imitated_is_counted_as_trained() -> None:
    """Adapters need little memory: the base's moments and gradients are the most that the run ever needs."""
    one: dict[str, Any] = {"policies": {"player": {"base": "tiny", "adapter": {"rank": 2}}}, "seats": "player"}
    warm = {"bot": "bot:random", "base": True}
    whole = memory.estimate(plan(policies={"player": {"base": "tiny"}}, seats="player")).parts
    found = memory.estimate(plan(**one, warmstart=warm)).parts
    most = found["imitation of the base"] + found["optimiser"] + found["gradients"]
    assert most == whole["optimiser"] + whole["gradients"]
    assert "imitation of the base" not in memory.estimate(plan(**one)).parts


def test_a_remote_model_needs_nothing_here() -> None:
    own: dict[str, Any] = {"player": {"base": "tiny"}}
    far = {"base": "openai:some-model", "remote": {"url": "http://localhost:1/v1"}, "trainable": False}
    alone = plan(policies=own, seats={"X": "player", "O": "bot:random"})
    both = plan(policies={**own, "far": far}, seats={"X": "player", "O": "far"})
    assert memory.estimate(both) == memory.estimate(alone)


def test_a_run_on_a_gpu_is_planned_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    found = memory.estimate(plan("device=cuda"))
    assert found.available is None and found.cache == 0
    assert found.parts["masters"] > 0, "weights are in bf16 on a GPU, so the optimiser has fp32 copies"
    assert "of a GPU's memory, and more for its key-value cache" in str(found)
    with pytest.raises(ConfigError, match="device is 'cuda', but this machine has no CUDA device"):
        found.refuse(plan("device=cuda"))


def test_what_cannot_fit_is_refused_with_what_to_lower() -> None:
    found = memory.estimate(plan("train.micro_batch_tokens=100000000000"))
    assert "needs about" in str(found) and "GiB" in str(found) and "activations" in str(found)
    with pytest.raises(ConfigError, match=r"the run needs about .*it would fit with train\.micro_batch_tokens=\d+"):
        found.refuse(plan("train.micro_batch_tokens=100000000000"))
    memory.estimate(plan()).refuse(plan())


@pytest.mark.parametrize("base", ["tiny-262144x2", "tiny-vl-262144x2", "tiny-av-262144x2"])
def test_a_model_that_is_made_here_is_made_only_after_its_memory_was_estimated(
    base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its weights would fill terabytes. The estimate has the shape of the model that would be made."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    large = plan(f'policies.player.base="{base}"')
    with pytest.raises(ConfigError, match="the run needs about"):
        memory.estimate(large).refuse(large)
    assert not list(tmp_path.rglob("*"))
    small = base.replace("262144x2", "16x1")
    made = AutoConfig.from_pretrained(locate(small, 0)).to_dict()
    by_name = read_config(small, 0).to_dict()
    kept = {"architectures", "dtype", "_name_or_path"}  # of the file alone
    assert _without(by_name, kept) == _without(made, kept)


def _without(data: Any, keys: set[str]) -> Any:
    return {k: _without(v, keys) for k, v in data.items() if k not in keys} if isinstance(data, dict) else data


def test_where_nothing_fits_the_refusal_says_what_to_train_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    slim = ("train.recompute=true", "train.optimizer=adamw_8bit", "train.micro_batch_tokens=256")
    least = memory.estimate(plan(*slim)).needed
    monkeypatch.setattr(memory, "available_bytes", lambda device: least - 1)
    with pytest.raises(ConfigError, match=r"train adapters \(policies\.NAME\.adapter\)"):
        memory.estimate(plan()).refuse(plan())
    monkeypatch.setattr(memory, "available_bytes", lambda device: least)
    with pytest.raises(ConfigError, match="it would fit with " + " ".join(slim)):
        memory.estimate(plan()).refuse(plan())


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        MemoryError(),
        RuntimeError("[enforce fail at alloc_cpu.cpp:124] data. DefaultCPUAllocator: not enough memory"),
    ],
    ids=["cuda", "python", "cpu"],
)
def test_out_of_memory_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    trainer = Trainer(plan(), tmp_path)

    def fails(*args: Any) -> None:
        raise error

    monkeypatch.setattr(trainer.learning, "_batch", fails)
    with pytest.raises(ResourceError, match=r"out of memory \(.*lower train\.micro_batch_tokens.*is 512") as caught:
        trainer.train()
    assert "\n" not in str(caught.value)
    trainer.close()


def test_another_error_is_not_mistaken_for_it() -> None:
    with pytest.raises(RuntimeError, match="shapes"), explained(plan()):
        raise RuntimeError("shapes do not match")


def test_a_critic_on_an_adapter_leaves_its_base_and_learns(make_tiny: Callable[..., Loaded]) -> None:
    """Only the head and the adapter change; the state can be restored."""
    loaded = make_tiny(0, "tiny-16x1")
    base = [p.detach().clone() for p in loaded.model.parameters()]
    adapter = new_adapter(loaded.model, 2, 4.0, [], 0)
    train = parse(RECIPE).train
    critic = Critic("player", loaded.model, train, CriticSettings(lr=3e-2), adapter)
    examples = [replace(reply(i), values=(0.0,), targets=(float(i % 2),)) for i in range(8)]
    losses = [critic.step(examples)["value_loss"] for _ in range(30)]
    assert losses[-1] < 0.2 * losses[0]
    assert all(torch.equal(a, b) for a, b in zip(base, loaded.model.parameters(), strict=True))
    twin = Critic("player", loaded.model, train, CriticSettings(lr=3e-2), new_adapter(loaded.model, 2, 4.0, [], 1))
    twin.load_state_dict(critic.state_dict())
    assert twin.values(examples) == critic.values(examples)
