"""The vLLM engine against a real server. Run by `make test-vllm`, which names vLLM's interpreter in INTERPLAY_VLLM."""

from __future__ import annotations

import asyncio
import io
import json
import os
import random
import signal
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

from interplay.cli.session import Session
from interplay.config import EngineSection, parse
from interplay.engines.engine import Request, Sampling
from interplay.engines.vllm import VllmEngine, open_engine
from interplay.engines.vllm_server import VllmServer
from interplay.errors import EngineError, GuardError
from interplay.models.adapter import Adapter
from interplay.models.load import Loaded, load
from interplay.models.locate import locate
from interplay.models.lora import new_adapter
from interplay.models.save import save
from interplay.rollout.resolve import resolve
from interplay.training.forward import logprobs
from interplay.training.trainer import Trainer
from interplay.training.tries import Example
from interplay.types import Completion, Sample

PYTHON = os.environ.get("INTERPLAY_VLLM")
pytestmark = pytest.mark.skipif(not PYTHON, reason="INTERPLAY_VLLM names no interpreter with vLLM (make test-vllm)")
CLOSE = 1e-4  # promise 2 in fp32
SECTION = EngineSection(
    kind="vllm",
    python=PYTHON or "python",
    context=512,
    concurrency=16,
    options=["--enforce-eager", "--block-size", "32"],  # short blocks, so that prompts of a few tokens are cached
    variables={"VLLM_CPU_CI_ENV": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": "1"},
)


@pytest.fixture(scope="module")
def tied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with tied embeddings: the output layer that vLLM forgets to update is that of such a model."""
    folder = tmp_path_factory.mktemp("tied")
    loaded = load(locate("tiny-128x2", 0), "cpu", torch.float32, 0)  # heads of 32: vLLM takes no smaller ones on a CPU
    loaded.model.config.tie_word_embeddings = True
    loaded.model.lm_head.weight = loaded.model.model.embed_tokens.weight
    save(loaded, folder)
    return folder


@pytest.fixture(scope="module")
def ours(tied: Path) -> Loaded:
    return load(str(tied), "cpu", torch.float32, 0)


@pytest.fixture(scope="module")
def engine(ours: Loaded) -> Iterator[VllmEngine]:
    made = open_engine(ours.model, SECTION, [4, 8], cpu=True)
    yield made
    made.close()


def requests(count: int, **changes: Any) -> list[Request]:
    rng = random.Random(count)
    sampling = changes.pop("sampling", Sampling(1.0, 24))
    prompts = [tuple(rng.randrange(6, 500) for _ in range(rng.randint(3, 40))) for _ in range(count)]
    return [Request((i,), prompt, i, sampling, **changes) for i, prompt in enumerate(prompts)]


def ask(engine: VllmEngine, wanted: list[Request]) -> list[Completion]:
    async def together() -> list[Completion]:
        return await asyncio.gather(*(engine.generate(request) for request in wanted))

    return asyncio.run(together())


def worst_gap(
    model: Any, wanted: list[Request], found: list[Completion], adapters: dict[str, Adapter] | None = None
) -> float:
    """The largest difference between the log-probs of engine and learner."""
    examples = [
        Example("player", Sample(str(i), r.ids, c.tokens, c.logprobs, c.versions, "", r.sampling.temperature, r.legal))
        for i, (r, c) in enumerate(zip(wanted, found, strict=True))
    ]
    expected = logprobs(model, examples, 10_000, adapters)
    return max(abs(a - b) for c, lp in zip(found, expected, strict=True) for a, b in zip(c.logprobs, lp, strict=True))


@pytest.mark.parametrize("heat", [1.0, 0.7])
def test_sampled_logprobs_are_the_learners(engine: VllmEngine, ours: Loaded, heat: float) -> None:
    wanted = requests(8, sampling=Sampling(heat, 24, ours.stop_ids))
    found = ask(engine, wanted)
    assert worst_gap(ours.model, wanted, found) < CLOSE
    assert all(c.versions == (engine.version,) * len(c.tokens) for c in found)
    assert ask(engine, wanted) == found  # the same seeds


def test_scores_are_the_learners(engine: VllmEngine, ours: Loaded) -> None:
    prompt, replies = (7, 8, 9, 10), [(11, 12), (13,), (14, 15, 16)]
    found = asyncio.run(engine.score(prompt, replies))
    examples = [Example("player", Sample(str(i), prompt, r, (), (), "")) for i, r in enumerate(replies)]
    expected = logprobs(ours.model, examples, 10_000)
    assert max(abs(a - b) for x, y in zip(found, expected, strict=True) for a, b in zip(x, y, strict=True)) < CLOSE


def test_only_legal_replies_are_sampled_and_their_logprobs_are_those_of_the_mask(
    engine: VllmEngine, ours: Loaded
) -> None:
    end = ours.stop_ids[0]
    legal = ((20, end), (20, 21, end), (30, end))
    wanted = requests(12, sampling=Sampling(1.0, 8, ours.stop_ids), legal=legal)
    found = ask(engine, wanted)
    assert {c.tokens for c in found} <= set(legal)
    assert len({c.tokens for c in found}) > 1
    assert worst_gap(ours.model, wanted, found) < CLOSE


def adapter_of(model: Any, seed: int) -> Adapter:
    fresh = new_adapter(model, 4, 8.0, [], seed)
    generator = torch.Generator().manual_seed(seed)
    weights = {n: (d, 0.1 * torch.randn(u.shape, generator=generator)) for n, (d, u) in fresh.weights.items()}
    return replace(fresh, weights=weights)


def test_adapters_are_sampled_with_their_newest_version(engine: VllmEngine, ours: Loaded) -> None:
    for version in (3, 4, 5, 6):
        adapter = adapter_of(ours.model, version)
        engine.load("player", adapter, version)
        wanted = requests(4, adapter="player")
        found = ask(engine, wanted)
        assert worst_gap(ours.model, wanted, found, {"player": adapter}) < CLOSE
        assert {v for c in found for v in c.versions} == {version}
    engine.unload("player")
    with pytest.raises(EngineError, match="no adapter 'player' is loaded"):
        ask(engine, requests(1, adapter="player"))


def over(engine: VllmEngine, ours: Loaded, **changes: Any) -> VllmEngine:
    """Another engine on the same server, with the same weights and other settings."""
    section = SECTION.model_copy(update={"url": engine.url, **changes})
    made = open_engine(ours.model, section, [4, 8], cpu=True)
    made.update(engine.version + 1, ours)
    return made


@pytest.mark.parametrize("transfer", ["folder", "gloo"])
def test_an_update_reaches_every_layer_and_replies_in_flight_carry_both_versions(
    engine: VllmEngine, ours: Loaded, tied: Path, transfer: str
) -> None:
    """Tokens before and after the update agree with the weights of their own version."""
    first, engine = engine, over(engine, ours, transfer=transfer)
    changed = load(str(tied), "cpu", torch.float32, 0)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in changed.model.parameters():
            parameter += 0.02 * torch.randn(parameter.shape, generator=generator)
    before = engine.version
    wanted = requests(4, sampling=Sampling(1.0, 400))

    async def across() -> list[Completion]:
        asked = [asyncio.ensure_future(engine.generate(request)) for request in wanted]
        await asyncio.sleep(1.0)
        await asyncio.to_thread(engine.update, before + 1, changed)
        return await asyncio.gather(*asked)

    found = asyncio.run(across())
    for model, version in ((ours.model, before), (changed.model, before + 1)):
        own = [tuple(v == version for v in c.versions) for c in found]
        assert any(any(mask) for mask in own)
        examples = [
            Example("player", Sample(str(i), r.ids, c.tokens, (), (), ""))
            for i, (r, c) in enumerate(zip(wanted, found, strict=True))
        ]
        for c, expected, mask in zip(found, logprobs(model, examples, 10_000), own, strict=True):
            for a, b, mine in zip(c.logprobs, expected, mask, strict=True):
                assert not mine or abs(a - b) < CLOSE
    later = requests(6)
    answers = ask(engine, later)
    assert worst_gap(changed.model, later, answers) < CLOSE < worst_gap(ours.model, later, answers)
    assert {v for c in answers for v in c.versions} == {before + 1}
    engine.close()
    first.update(before + 2, ours)


def test_without_in_flight_replies_are_finished_before_the_update(engine: VllmEngine, ours: Loaded) -> None:
    waiting = over(engine, ours, in_flight=False)
    wanted, before = requests(2, sampling=Sampling(1.0, 200)), waiting.version

    async def across() -> list[Completion]:
        asked = [asyncio.ensure_future(waiting.generate(request)) for request in wanted]
        await asyncio.sleep(0.5)
        await asyncio.to_thread(waiting.update, before + 1, ours)
        return await asyncio.gather(*asked)

    assert {v for c in asyncio.run(across()) for v in c.versions} == {before}
    waiting.close()
    engine.update(before + 2, ours)


def test_a_cancelled_request_ends_and_others_go_on(engine: VllmEngine) -> None:
    async def cancelled() -> Completion:
        long, short = requests(2, sampling=Sampling(1.0, 400))
        lost = asyncio.ensure_future(engine.generate(replace(long, key=("lost",))))
        kept = asyncio.ensure_future(engine.generate(replace(short, sampling=Sampling(1.0, 5))))
        await asyncio.sleep(0.5)
        assert engine.cancel(("lost",)) and not engine.cancel(("unknown",))
        with pytest.raises(asyncio.CancelledError):
            await lost
        return await kept

    assert len(asyncio.run(cancelled()).tokens) == 5


RUN: dict[str, Any] = {
    "name": "vllm",
    "env": {"name": "tictactoe", "brief": True},
    "seats": "player",
    "algorithm": {"name": "grpo", "group": 2},
    "sampling": {"max_tokens": 3, "legal": True},
    "rollout": {"tasks": 2},
    "train": {"steps": 2, "lr": 1e-2, "minibatches": 2},
    "eval": {"opponents": ["bot:random"]},
    "records": {"tensorboard": "off"},
}
LORA = {"adapter": {"rank": 4, "alpha": 16.0}}
LONG = {"env": {"name": "kuhn"}, "rollout": {"tasks": 8}}  # prompts that are longer than a block of the cache


def train(
    engine: VllmEngine, base: Path, folder: Path, policy: Mapping[str, Any] | None = None, **changes: Any
) -> list[dict[str, float]]:
    """The metrics of a run on this server."""
    policies = {"player": {"base": str(base), **(policy or {})}}
    data = {**RUN, "policies": policies, "engine": {"kind": "vllm", "url": engine.url}, **changes}
    trainer = Trainer(resolve(parse(data)), folder)
    seen: list[dict[str, float]] = []
    trainer.observer.stepped = lambda step, metrics: seen.append(dict(metrics))
    try:
        trainer.train()
    finally:
        trainer.close()
    return seen


def test_a_run_trains_with_vllm_as_its_engine(engine: VllmEngine, tied: Path, tmp_path: Path) -> None:
    """The gate and the probe compare every update with the learner."""
    seen = train(engine, tied, tmp_path)
    assert len(seen) == 2 and all(row["player/probe"] < CLOSE and row["player/gap"] < CLOSE for row in seen)
    first, last = (tmp_path / "checkpoints" / f"step-00000{n}" / "policies" / "player" for n in (1, 2))
    one, two = (load_file(folder / "model.safetensors") for folder in (first, last))
    assert any(not torch.equal(one[name], two[name]) for name in one)


async def _no_repack(self: VllmEngine, method: str, **arguments: str) -> None:
    """vLLM 0.32 on a CPU does not pack a tied output layer again after a reload; the engine has to ask for it."""
    if method != "interplay_repack":
        await _rpc(self, method, **arguments)


def _not_loaded(self: VllmEngine, name: str, adapter: Adapter, version: int) -> None:
    """A new version of an adapter is only noted, and the server keeps the old one."""
    if name in self._adapters:
        self._adapters[name] = replace(self._adapters[name], version=version)
    else:
        _load(self, name, adapter, version)


def _scaled_twice(self: VllmEngine, name: str, adapter: Adapter, version: int) -> None:
    _load(self, name, replace(adapter, scale=adapter.scale**2), version)


async def _keeps_blocks(self: VllmEngine, version: int, source: Loaded) -> None:
    """The caches are not reset: not by the engine, and not by vLLM itself, which otherwise does so when it pauses."""
    limit = self._timeouts.update
    async with self._delivery.prepared(source) as ready:
        await self._wire.post("/pause", limit, mode="keep", clear_cache="false")
        await self._delivery.send(self._rpc, ready)
        await self._rpc("interplay_repack")
        await self._wire.post("/update_weight_version", limit, {"new_version": str(version)})
        self.version = version
        await self._wire.post("/resume", limit)


_rpc, _load = VllmEngine._rpc, VllmEngine.load
PLANTED: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "an output layer that kept the old weights": ("_rpc", _no_repack, {}),
    "an adapter that was not delivered": ("load", _not_loaded, {"policy": LORA}),
    "an adapter whose alpha is applied twice": ("load", _scaled_twice, {"policy": LORA}),
    "prefix blocks that were computed with older weights": ("_update", _keeps_blocks, LONG),
}


@pytest.mark.parametrize("failure", list(PLANTED))
def test_the_probe_finds(
    engine: VllmEngine, ours: Loaded, tied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: str
) -> None:
    engine.update(engine.version + 1, ours)
    where, broken, changes = PLANTED[failure]
    try:
        with monkeypatch.context() as planted:
            planted.setattr(VllmEngine, where, broken)
            with pytest.raises(GuardError, match="after the update the engine's log-probs differ from the learner's"):
                train(engine, tied, tmp_path, **changes)
    finally:
        engine.update(engine.version + 1, ours)


def test_a_run_with_prompts_of_several_blocks_trains_with_vllm_as_its_engine(
    engine: VllmEngine, ours: Loaded, tied: Path, tmp_path: Path
) -> None:
    """The same run as that of the prefix blocks. Not every step of it changes the weights."""
    seen = train(engine, tied, tmp_path, **LONG)
    probed = [row["player/probe"] for row in seen if "player/probe" in row]
    assert probed and max(probed) < CLOSE and all(row.get("player/gap", 0.0) < CLOSE for row in seen)
    engine.update(engine.version + 1, ours)


def test_a_run_trains_an_adapter_with_vllm_as_its_engine(engine: VllmEngine, tied: Path, tmp_path: Path) -> None:
    """The same run as those of the planted failures."""
    seen = train(engine, tied, tmp_path, LORA)
    assert len(seen) == 2 and all(row["player/probe"] < CLOSE and row["player/gap"] < CLOSE for row in seen)


class Killing(Session):
    """A session that kills vLLM's server after the first step, once."""

    kills = 0

    def _stepped(self, step: int, metrics: Mapping[str, float]) -> None:
        super()._stepped(step, metrics)
        if not self.kills:
            self.kills += 1
            engine = self.trainer.team.members["player"].engine
            assert isinstance(engine, VllmEngine) and isinstance(engine._server, VllmServer)
            os.killpg(engine._server.process.pid, signal.SIGKILL)


def test_a_run_goes_on_from_its_checkpoint_with_a_new_server_when_the_old_one_is_killed(
    tied: Path, tmp_path: Path
) -> None:
    data = {**RUN, "policies": {"player": {"base": str(tied)}}, "engine": SECTION.model_dump()}
    data["eval"] = {**RUN["eval"], "before": False, "after": False}
    session = Killing(Console(file=io.StringIO()), resolve(parse(data)), tmp_path)
    assert session.run() and session.kills == 1
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2]
    assert all(line["player/probe"] < CLOSE and line["episodes_failed"] == 0 for line in lines)
    assert lines[1]["time"] - lines[0]["time"] < 180.0  # in which the only server starts again


def test_after_a_failed_update_the_engine_takes_no_requests_and_its_server_ends(engine: VllmEngine) -> None:
    """The last test with this server. The weights are those of a smaller model."""
    other = load(locate("tiny", 0), "cpu", torch.float32, 0)
    with pytest.raises(EngineError, match="an update of the weights to version 99 failed, so the engine takes no more"):
        engine.update(99, other)
    assert engine._server is not None and engine._server.ends_within(0.0)
    with pytest.raises(EngineError, match="takes no more requests"):
        ask(engine, requests(1))
