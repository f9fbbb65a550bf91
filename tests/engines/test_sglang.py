"""What the SGLang engine sends and what it makes of answers.

The answers are in the shapes of SGLang 0.5.23, read from its code. `make test-sglang` installs its Python files, and
the last test then has SGLang's own request classes read what the engine sends."""

from __future__ import annotations

import asyncio
import copy
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from runs import make, rows
from transformers import AutoModelForCausalLM
from vllm_fake import Fake, serving

from interplay.config import parse
from interplay.engines.engine import Request, Sampling
from interplay.engines.served import Timeouts
from interplay.engines.sglang import SglangEngine
from interplay.errors import ConfigError, EngineError, EngineLost, GuardError
from interplay.models.adapter import Adapter
from interplay.models.load import Loaded, load
from interplay.models.locate import locate
from interplay.models.lora import load_adapter
from interplay.rollout.resolve import resolve
from interplay.types import Completion, Stop

PROMPT = (5, 6, 7)
FOLDER = os.environ.get("INTERPLAY_SGLANG")


class FakeSglang(Fake):
    replies_at: ClassVar[str] = "/generate"

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        start = body["logprob_start_len"]
        scored = (
            [] if start < 0 else [[-float(t) if i else None, t, None] for i, t in enumerate(body["input_ids"][start:])]
        )
        told: dict[str, Any] = {"id": "r", "finish_reason": {"type": self.reason}, "weight_version": "default"}
        told |= {"input_token_logprobs": scored}
        told |= {"output_token_logprobs": [[-0.5 - i, t, None] for i, t in enumerate(self.reply)]}
        if self.spans is not None:
            told["weight_versions"] = self.spans
        return {"text": "", "output_ids": list(self.reply), "meta_info": told}


PATHS = (
    "/generate", "/pause_generation", "/continue_generation", "/update_weights_from_disk", "/flush_cache",
    "/load_lora_adapter", "/unload_lora_adapter", "/v1/models",
)  # fmt: skip


@pytest.fixture
def fake() -> Iterator[FakeSglang]:
    with serving(FakeSglang(paths=PATHS)) as made:
        yield made


@pytest.fixture
def engine(fake: FakeSglang) -> Iterator[SglangEngine]:
    made = SglangEngine(fake.url, 100, Timeouts(60.0, 60.0), 8)
    yield made
    made.close()


@pytest.fixture(scope="module")
def model() -> Loaded:
    return load(locate("tiny", 0), "cpu", torch.float32, 0)


def request(**changes: Any) -> Request:
    return Request(**{"key": (0,), "ids": PROMPT, "seed": 9, "sampling": Sampling(0.7, 8, (2,)), **changes})


def ask(engine: SglangEngine, one: Request) -> Completion:
    return asyncio.run(engine.generate(one))


def test_a_reply_has_the_sampled_ids_their_logprobs_and_versions(fake: FakeSglang, engine: SglangEngine) -> None:
    fake.spans = [{"version": "default", "start": 0, "end": 1}, {"version": "4", "start": 1, "end": 3}]
    assert ask(engine, request()) == Completion((11, 12, 13), (-0.5, -1.5, -2.5), (0, 4, 4), Stop.END)
    (body,) = fake.asked("/generate")
    settings = {"max_new_tokens": 8, "temperature": 0.7, "sampling_seed": 9, "stop_token_ids": [2], "ignore_eos": True}
    settings |= {"skip_special_tokens": False, "no_stop_trim": True}
    asked = {"input_ids": [5, 6, 7], "return_logprob": True, "logprob_start_len": -1}
    assert body == {**asked, "sampling_params": settings}


def test_scores_are_those_of_the_reply_after_the_prompt(fake: FakeSglang, engine: SglangEngine) -> None:
    assert asyncio.run(engine.score(PROMPT, [(8, 9), (10,)])) == [(-8.0, -9.0), (-10.0,)]
    assert {b["logprob_start_len"] for b in fake.asked("/generate")} == {2}


def test_an_update_pauses_loads_a_folder_and_continues(fake: FakeSglang, engine: SglangEngine, model: Loaded) -> None:
    engine.update(7, model)
    steps = ["/pause_generation", "/update_weights_from_disk", "/continue_generation"]
    assert [path for path, _, _ in fake.calls] == steps
    (body,) = fake.asked("/update_weights_from_disk")
    assert not Path(body.pop("model_path")).exists()  # files of an update are removed afterwards
    assert body == {"weight_version": "7", "flush_cache": True} and engine.version == 7


def test_without_in_flight_the_server_finishes_its_replies_before_it_loads(fake: FakeSglang, model: Loaded) -> None:
    engine = SglangEngine(fake.url, 100, Timeouts(60.0, 60.0, drain=True), 8)
    engine.update(1, model)
    engine.close()
    assert [path for path, _, _ in fake.calls] == ["/update_weights_from_disk"]


def test_after_a_failed_update_the_engine_takes_no_requests(
    fake: FakeSglang, engine: SglangEngine, model: Loaded
) -> None:
    fake.failing.add("/update_weights_from_disk")
    with pytest.raises(EngineLost, match="an update of the weights to version 7 failed, so the engine takes no more"):
        engine.update(7, model)
    assert fake.calls[-1][0] == "/continue_generation"  # the server is somebody else's, who may use it too
    with pytest.raises(EngineError, match="takes no more requests"):
        ask(engine, request())


def test_adapters_get_a_new_name_for_every_version(fake: FakeSglang, engine: SglangEngine) -> None:
    adapter = Adapter(2, 1.0, {"model.layers.0.mlp.up_proj": (torch.ones(2, 4), torch.ones(6, 2))})
    engine.load("player", adapter, 1)
    engine.load("player", adapter, 2)
    assert ask(engine, request(adapter="player")).versions == (2, 2, 2)
    first, second = (body["lora_name"] for body in fake.asked("/load_lora_adapter"))
    assert first != second and fake.asked("/unload_lora_adapter") == [{"lora_name": first}]
    assert fake.asked("/generate")[0]["lora_path"] == second


@pytest.mark.parametrize("asked", [{"legal": ((11, 2),)}, {"sampling": Sampling(1.0, 4, top_p=0.9)}])
def test_what_cannot_be_done_exactly_is_refused(engine: SglangEngine, asked: dict[str, Any]) -> None:
    with pytest.raises(EngineError, match=r"cannot be limited to legal replies|top_k, top_p or min_p is set"):
        ask(engine, request(**asked))


RECIPE: dict[str, Any] = {
    "name": "sglang",
    "env": {"name": "tictactoe"},
    "policies": {"a": {"base": "tiny"}},
    "seats": "a",
    "algorithm": {"name": "grpo"},
}


def test_settings_that_do_not_fit_sglang_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"engine.kind is 'sglang' without engine.url"):
        parse({**RECIPE, "engine": {"kind": "sglang"}})
    served = {"kind": "sglang", "url": "http://127.0.0.1:1"}
    with pytest.raises(ConfigError, match=r"engine.transfer is 'gloo', but engine.kind is 'sglang'"):
        parse({**RECIPE, "engine": {**served, "transfer": "gloo"}})
    with pytest.raises(ConfigError, match=r"sampling.legal is true with engine.kind = 'sglang'"):
        resolve(parse({**RECIPE, "engine": served, "sampling": {"legal": True}}))


@dataclass
class SglangWithWeights(FakeSglang):
    """Computes its replies with a model. `failure` is something that a server can do wrong although it confirms that it
    was done."""

    folder: str = ""
    failure: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)
    adapters: dict[str, Any] = field(default_factory=dict)  # a model that the adapter was added to, by its name
    cache: dict[tuple[str, ...], Any] = field(default_factory=dict)  # keys and values, by adapter and tokens

    def __post_init__(self) -> None:
        self.model = AutoModelForCausalLM.from_pretrained(self.folder)

    def did(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        with self.lock:
            if path == "/update_weights_from_disk" and self.failure != "weights not loaded":
                new = AutoModelForCausalLM.from_pretrained(body["model_path"])
                if self.failure == "output layer left old":
                    new.lm_head = self.model.lm_head
                self.model = new
                if body["flush_cache"] and self.failure != "stale prefix blocks":
                    self.cache.clear()
            if path == "/flush_cache":
                self.cache.clear()
            if path == "/load_lora_adapter":
                kept = list(self.adapters.values())[:1] if self.failure == "adapter not delivered" else []
                self.adapters[body["lora_name"]] = kept[0] if kept else self.merged(Path(body["lora_path"]))
        return super().did(path, body)

    @torch.no_grad()
    def merged(self, folder: Path) -> Any:
        adapter, model = load_adapter(folder), copy.deepcopy(self.model)
        scale = adapter.scale**2 if self.failure == "alpha applied twice" else adapter.scale
        for name, (down, up) in adapter.weights.items():
            model.get_submodule(name).weight += scale * up @ down
        return model

    def prefix(self, lora: str, ids: list[int]) -> tuple[int, Any]:
        """The longest part of these ids from their first one on that is in the cache: its length, and its keys and
        values."""
        wanted, best, found = (lora, *map(str, ids)), 0, None
        for known, kept in self.cache.items():
            same = next((i for i, (a, b) in enumerate(zip(known, wanted, strict=False)) if a != b), len(wanted)) - 1
            if same > best:
                best, found = same, kept
        found = copy.deepcopy(found)
        if found is not None:
            found.crop(best)
        return best, found

    @torch.no_grad()
    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        asked, start, settings = body["input_ids"], body["logprob_start_len"], body["sampling_params"]
        lora, last = str(body.get("lora_path")), len(asked) - 1
        dice = torch.Generator().manual_seed(settings.get("sampling_seed", 0) % 2**63)
        reply: list[list[Any]] = []
        with self.lock:
            model = self.adapters[lora] if "lora_path" in body else self.model
            first, kept = self.prefix(lora, asked[: start if start >= 0 else last])
            seen = model(torch.tensor([asked[first:]]), past_key_values=kept, use_cache=True)
            self.cache[lora, *map(str, asked)] = copy.deepcopy(seen.past_key_values)
            known = seen.logits[0].log_softmax(-1)
            while len(reply) < settings["max_new_tokens"]:
                logits = seen.logits[0, -1] / settings["temperature"]
                token = int(torch.multinomial(logits.softmax(-1), 1, generator=dice))
                reply.append([float(logits.log_softmax(-1)[token]), token, None])
                if token in settings.get("stop_token_ids", ()):
                    break
                seen = model(torch.tensor([[token]]), past_key_values=seen.past_key_values, use_cache=True)
        ended = reply[-1][1] in settings.get("stop_token_ids", ())
        told: dict[str, Any] = {"id": "r", "finish_reason": {"type": "stop" if ended else "length"}}
        told |= {"output_token_logprobs": reply, "input_token_logprobs": []}
        if start >= 0:
            rest = [[float(known[i - 1 - first, asked[i]]), asked[i], None] for i in range(start + 1, len(asked))]
            told["input_token_logprobs"] = [[None, asked[start], None], *rest]
        return {"text": "", "output_ids": [token for _, token, _ in reply], "meta_info": told}


TEAMS = Path(__file__).parents[1] / "envs" / "programs" / "teams"
# Its reward is the length of what was said, so that random replies earn different rewards.
PROGRAM = {"coroutine": "small_teams:two", "reward": "small_teams:length", "roles": ["planner", "solver"]}
RUN: dict[str, Any] = {
    "name": "sglang",
    "env": {"name": "program", **PROGRAM},
    "policies": {"player": {"base": "tiny-16x1"}},
    "seats": {"planner": "player", "solver": "player"},
    "algorithm": {"name": "grpo", "group": 4},
    "sampling": {"max_tokens": 4},
    "rollout": {"tasks": 2},
    "train": {"steps": 1, "lr": 1e-2},
    "eval": {"opponents": ["team"], "success": "score", "before": False, "after": False},
    "records": {"tensorboard": "off"},
}


@pytest.mark.parametrize(
    ("adapted", "failure"),
    [
        (False, ""),
        (False, "weights not loaded"),
        (False, "output layer left old"),
        (False, "stale prefix blocks"),
        (True, ""),
        (True, "adapter not delivered"),
        (True, "alpha applied twice"),
    ],
)
def test_the_probe_finds_what_a_server_did_wrong_although_it_confirmed_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, adapted: bool, failure: str
) -> None:
    """A run with a server that computes with real weights, of which only the protocol is SGLang's."""
    monkeypatch.syspath_prepend(str(TEAMS))
    made = SglangWithWeights(paths=PATHS, context=256, folder=str(locate("tiny-16x1", 0)), failure=failure)
    how = ("policies.player.adapter={rank=2, alpha=8.0}",) if adapted else ()
    with serving(made) as fake:
        trainer = make(tmp_path, RUN, f"engine={{kind='sglang', url='{fake.url}', concurrency=4}}", *how)
        try:
            if failure:
                with pytest.raises(GuardError, match="The engine does not use the weights that were trained"):
                    trainer.train()
            else:
                trainer.train()
                (row,) = rows(tmp_path)
                assert row["player/probe"] < 1e-4 and row["player/gap"] < 1e-4
        finally:
            trainer.close()


@pytest.mark.skipif(not FOLDER, reason="INTERPLAY_SGLANG names no folder with SGLang (make test-sglang)")
def test_sglangs_own_request_classes_read_what_the_engine_sends(
    fake: FakeSglang, engine: SglangEngine, model: Loaded, tmp_path: Path
) -> None:
    """Every body that the tests above look at, read by the class that SGLang's server reads it with."""
    adapter = Adapter(2, 1.0, {"model.layers.0.mlp.up_proj": (torch.ones(2, 4), torch.ones(6, 2))})
    engine.load("player", adapter, 1)
    for sampling in (Sampling(0.7, 8, (2,)), Sampling(0.0, 8), Sampling(1.0, 8, stop_strings=("</x>",))):
        ask(engine, request(sampling=sampling, adapter="player"))
    asyncio.run(engine.score(PROMPT, [(8, 9)]))
    engine.update(1, model)
    engine.load("player", adapter, 2)
    sent = [{"path": path, "body": body} for path, query, body in fake.calls if not query]
    assert {call["path"] for call in sent} == set(PATHS) - {"/v1/models", "/flush_cache"}
    (tmp_path / "sent.json").write_text(json.dumps(sent))
    script = Path(__file__).with_name("sglang_contract.py")
    said = subprocess.run(
        [sys.executable, str(script), str(FOLDER), str(tmp_path / "sent.json")],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert said.returncode == 0, said.stderr[-3000:]
    assert json.loads(said.stdout.splitlines()[-1])["read"] == len(sent)
