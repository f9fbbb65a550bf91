"""What the vLLM engine sends, in which order, and what it makes of answers, failures and silence."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch
from vllm_fake import PATHS_0_25, Fake, fake_vllm

from interplay.config import EngineSection, parse
from interplay.engines.delivery import Delivery, FolderDelivery, delivery_of
from interplay.engines.engine import Request, Sampling
from interplay.engines.served import Timeouts
from interplay.engines.vllm import VllmEngine
from interplay.engines.vllm_server import VllmServer, arguments
from interplay.errors import ConfigError, EngineError, EngineLost
from interplay.models.adapter import Adapter
from interplay.models.load import Loaded, load
from interplay.models.locate import locate
from interplay.rollout.resolve import resolve
from interplay.types import Completion, Stop

Connect = Callable[..., tuple[Fake, VllmEngine]]
PROMPT = (5, 6, 7)


@pytest.fixture
def connect() -> Iterator[Connect]:
    """`connect(reply=(1, 2), …)`: a server that answers so, and an engine on it."""
    with ExitStack() as stack:

        def made(
            timeouts: Timeouts | None = None, delivery: Delivery | None = None, **settings: Any
        ) -> tuple[Fake, VllmEngine]:
            fake = stack.enter_context(fake_vllm(**settings))
            engine = VllmEngine(fake.url, 100, timeouts or Timeouts(60.0, 60.0), 8, delivery=delivery)
            stack.callback(engine.close)
            return fake, engine

        yield made


def request(key: object = 0, **changes: Any) -> Request:
    return Request(**{"key": (key,), "ids": PROMPT, "seed": 9, "sampling": Sampling(0.7, 8, (2,)), **changes})


def ask(engine: VllmEngine, one: Request) -> Completion:
    return asyncio.run(engine.generate(one))


@pytest.fixture(scope="module")
def model() -> Loaded:
    """What an update delivers; no test here looks at the weights."""
    return load(locate("tiny", 0), "cpu", torch.float32, 0)


def adapter() -> Adapter:
    return Adapter(2, 1.0, {"model.layers.0.mlp.up_proj": (torch.ones(2, 4), torch.ones(6, 2))})


def test_a_request_says_what_the_learner_can_rebuild_and_nothing_else(connect: Connect) -> None:
    fake, engine = connect()
    legal = ((11, 2), (12, 13, 2))
    found = ask(engine, request(legal=legal))
    (body,) = fake.asked("/inference/v1/generate")
    settings = {"max_tokens": 8, "temperature": 0.7, "seed": 9, "logprobs": 0, "stop_token_ids": [2]}
    settings |= {"ignore_eos": True, "detokenize": False, "extra_args": {"legal": [[11, 2], [12, 13, 2]]}}
    assert body == {"model": "base", "token_ids": [5, 6, 7], "sampling_params": settings}
    assert found == Completion((11, 12, 13), (-0.5, -1.5, -2.5), (0, 0, 0), Stop.END)
    assert engine.limits().context_tokens == 64 and engine.stats().sampled_tokens == 3


def test_stop_strings_are_part_of_the_reply(connect: Connect) -> None:
    fake, engine = connect(reason="length")
    assert ask(engine, request(sampling=Sampling(1.0, 3, (2,), stop_strings=("</x>",)))).stop is Stop.LENGTH
    (body,) = fake.asked("/inference/v1/generate")
    assert body["sampling_params"]["stop"] == ["</x>"] and body["sampling_params"]["include_stop_str_in_output"]


@pytest.mark.parametrize("cut", [{"top_k": 5}, {"top_p": 0.9}, {"min_p": 0.1}])
def test_what_the_learner_cannot_rebuild_is_refused(connect: Connect, cut: dict[str, Any]) -> None:
    _, engine = connect()
    with pytest.raises(EngineError, match="top_k, top_p or min_p is set"):
        ask(engine, request(sampling=Sampling(1.0, 4, **cut)))
    with pytest.raises(EngineError, match=r"plus max_tokens .62. is 65 tokens, but the model takes at most 64"):
        ask(engine, request(sampling=Sampling(1.0, 62)))


def test_a_reply_carries_the_versions_that_the_server_reports(connect: Connect) -> None:
    """Before the first update the server has a name of its own for its weights."""
    spans = [{"version": "default", "start": 0, "end": 1}, {"version": "4", "start": 1, "end": 3}]
    _, engine = connect(spans=spans)
    assert ask(engine, request()).versions == (0, 4, 4)


def test_without_reported_versions_a_reply_has_the_oldest_it_can_have(connect: Connect, model: Loaded) -> None:
    fake, engine = connect(paths=PATHS_0_25)
    held = fake.hold["/inference/v1/generate"] = threading.Event()

    async def across() -> Completion:
        asked = asyncio.ensure_future(engine.generate(request()))
        while not fake.asked("/inference/v1/generate"):
            await asyncio.sleep(0.01)
        await asyncio.to_thread(engine.update, 3, model)
        held.set()
        return await asked

    assert asyncio.run(across()).versions == (0, 0, 0)
    assert ask(engine, request()).versions == (3, 3, 3)


@pytest.mark.parametrize("paths", [PATHS_0_25, Fake().paths])
def test_every_token_is_scored_as_sampling_computes_it(connect: Connect, paths: tuple[str, ...]) -> None:
    fake, engine = connect(paths=paths, reply=(11,))
    assert asyncio.run(engine.score(PROMPT, [(8, 9), (0,), (11,)])) == [(-8.0, -9.0), (0.0,), (-11.0,)]
    bodies = fake.asked("/inference/v1/generate")
    assert sorted(b["token_ids"] for b in bodies) == [[5, 6, 7], [5, 6, 7], [5, 6, 7], [5, 6, 7, 8]]
    for body in bodies:
        said = body["sampling_params"]
        wanted = said.pop("logprob_token_ids")
        assert said == {"max_tokens": 1, "temperature": 1.0, "logprobs": len(wanted), "detokenize": False}


@pytest.mark.parametrize("paths", [PATHS_0_25, Fake().paths])
def test_an_update_pauses_reloads_forgets_and_resumes_in_this_order(
    connect: Connect, model: Loaded, paths: tuple[str, ...]
) -> None:
    fake, engine = connect(paths=paths)
    engine.update(7, model)
    named = ["/update_weight_version"] if "/update_weight_version" in paths else []
    steps = ["/pause", "/collective_rpc", "/collective_rpc", *named, "/reset_prefix_cache", "/resume"]
    assert [path for path, _, _ in fake.calls] == steps
    assert fake.calls[0][1] == {"mode": "keep"}
    assert [b["method"] for b in fake.asked("/collective_rpc")] == ["reload_weights", "interplay_repack"]
    (folder,) = fake.asked("/collective_rpc")[0]["kwargs"].values()
    assert not Path(folder).exists()  # files of an update are removed afterwards
    assert fake.calls[-2][1] == {"reset_running_requests": "true"}
    assert engine.version == 7


@pytest.mark.parametrize("broken", ["/collective_rpc", "/reset_prefix_cache", "/resume"])
def test_after_a_failed_update_the_engine_takes_no_requests(connect: Connect, model: Loaded, broken: str) -> None:
    fake, engine = connect()
    fake.failing.add(broken)
    with pytest.raises(EngineLost, match=rf"version 7 failed, .*answered {broken} with status 500.*on purpose"):
        engine.update(7, model)
    assert fake.calls[-1][0] == "/resume"  # somebody else has started this server, and may use it too
    fake.failing.clear()
    for again in (lambda: ask(engine, request()), lambda: engine.update(8, model), engine.flush):
        with pytest.raises(EngineError, match=r"the engine takes no more requests"):
            again()


def test_without_in_flight_an_update_waits_for_the_replies_that_are_being_sampled(
    connect: Connect, model: Loaded
) -> None:
    fake, engine = connect(Timeouts(reply=60.0, update=60.0, drain=True))
    engine.update(1, model)
    assert fake.calls[0][:2] == ("/pause", {"mode": "wait"}) and fake.calls[-1][0] == "/resume"


class Broken(FolderDelivery):
    async def send(self, rpc: Any, ready: Any) -> None:
        raise ZeroDivisionError("a mistake in this program")


def test_a_server_of_somebody_else_goes_on_whatever_ended_the_update_and_ours_is_stopped(model: Loaded) -> None:
    for server in (None, Ended()):
        with fake_vllm() as fake:
            given: Any = server
            engine = VllmEngine(fake.url, 100, Timeouts(60.0, 60.0), 8, given, Broken())
            with pytest.raises(ZeroDivisionError):
                engine.update(7, model)
            assert [path for path, _, _ in fake.calls] == ["/pause", *([] if server else ["/resume"])]
            assert server is None or server.closed
            with pytest.raises(EngineLost, match="version 7 failed, so the engine takes no more requests: a mistake"):
                ask(engine, request())
            engine.close()


class Ended:
    """Stands for a server's process that has ended."""

    closed = False

    def ends_within(self, seconds: float) -> bool:
        return True

    def tail(self) -> str:
        return "out of memory"

    def close(self) -> None:
        self.closed = True


def test_requests_to_a_server_that_has_ended_fail_with_the_end_of_its_log() -> None:
    with fake_vllm() as fake:
        ended: Any = Ended()
        engine = VllmEngine(fake.url, 100, Timeouts(60.0, 60.0), 8, ended)
        fake.failing.add("/inference/v1/generate")
        for _ in range(2):  # the second one is not even sent
            with pytest.raises(EngineLost, match=r"has ended\. The end of its log:\nout of memory"):
                ask(engine, request())
        assert len(fake.asked("/inference/v1/generate")) == 1
        with pytest.raises(EngineLost, match="has ended"):
            engine.flush()
        engine.close()


@pytest.mark.parametrize("transfer", ["folder", "gloo"])
def test_an_update_that_hangs_fails_at_its_time_limit_and_so_do_replies_that_wait_for_it(
    connect: Connect, model: Loaded, transfer: str
) -> None:
    fake, engine = connect(Timeouts(reply=600.0, update=1.0), delivery_of(transfer, "http://127.0.0.1:1", 1, 1.0))
    fake.hold |= {"/collective_rpc": threading.Event(), "/inference/v1/generate": threading.Event()}

    async def across() -> None:
        asked = asyncio.ensure_future(engine.generate(request()))
        while not fake.asked("/inference/v1/generate"):
            await asyncio.sleep(0.01)
        with pytest.raises(EngineError, match=r"an update of the weights to version 1 failed"):
            await asyncio.to_thread(engine.update, 1, model)
        with pytest.raises(EngineError, match=r"the engine takes no more requests"):
            await asked
        assert fake.calls[-1][0] == "/resume"

    began = time.monotonic()
    asyncio.run(across())
    assert time.monotonic() - began < 10.0  # ten times the limit


def test_a_server_that_says_nothing_costs_one_reply_its_time_limit(connect: Connect) -> None:
    fake, engine = connect(Timeouts(reply=1.0, update=60.0))
    fake.hold["/inference/v1/generate"] = threading.Event()
    began = time.monotonic()
    with pytest.raises(EngineError, match=r"gave no answer to /inference/v1/generate within 1 s"):
        ask(engine, request())
    assert time.monotonic() - began < 10.0  # ten times the limit


def test_a_reply_that_was_aborted_or_lacks_logprobs_is_an_error(connect: Connect) -> None:
    fake, engine = connect(reason="abort")
    with pytest.raises(EngineError, match="ended a reply with 'abort' after 3 tokens"):
        ask(engine, request())
    fake.reason, fake.reply = "stop", ()
    with pytest.raises(EngineError, match="after 0 tokens"):
        ask(engine, request())


def test_adapters_get_a_new_name_for_every_version_and_old_ones_go_when_nobody_uses_them(connect: Connect) -> None:
    fake, engine = connect()
    engine.load("player", adapter(), 1)
    held = fake.hold["/inference/v1/generate"] = threading.Event()

    async def across() -> Completion:
        asked = asyncio.ensure_future(engine.generate(request(adapter="player")))
        while not fake.asked("/inference/v1/generate"):
            await asyncio.sleep(0.01)
        await asyncio.to_thread(engine.load, "player", adapter(), 2)
        assert not fake.asked("/v1/unload_lora_adapter")  # a request still names the old one
        held.set()
        return await asked

    assert asyncio.run(across()).versions == (1, 1, 1)
    assert ask(engine, request(adapter="player")).versions == (2, 2, 2)
    engine.load("player", adapter(), 3)
    first, second, third = (body["lora_name"] for body in fake.asked("/v1/load_lora_adapter"))
    assert len({first, second, third}) == 3
    assert [b["model"] for b in fake.asked("/inference/v1/generate")] == [first, second]
    assert {b["lora_name"] for b in fake.asked("/v1/unload_lora_adapter")} == {first, second}
    engine.unload("player")
    with pytest.raises(EngineError, match="no adapter 'player' is loaded"):
        ask(engine, request(adapter="player"))


def test_two_runs_on_one_server_do_not_mix_their_adapters_and_leave_none_behind() -> None:
    with fake_vllm() as fake:
        for _ in range(2):
            engine = VllmEngine(fake.url, 100, Timeouts(60.0, 60.0), 8)
            engine.load("player", adapter(), 0)
            engine.close()
        loaded = [body["lora_name"] for body in fake.asked("/v1/load_lora_adapter")]
        assert len(set(loaded)) == 2
        assert [body["lora_name"] for body in fake.asked("/v1/unload_lora_adapter")] == loaded


def test_a_cancelled_request_is_cancelled_by_its_key(connect: Connect) -> None:
    fake, engine = connect()
    fake.hold["/inference/v1/generate"] = threading.Event()

    async def cancelled() -> None:
        asked = asyncio.ensure_future(engine.generate(request("mine")))
        while not fake.asked("/inference/v1/generate"):
            await asyncio.sleep(0.01)
        assert engine.cancel(("mine",)) and not engine.cancel(("other",))
        with pytest.raises(asyncio.CancelledError):
            await asked

    asyncio.run(cancelled())
    assert engine.stats().running == 0


def test_a_server_without_the_endpoints_is_refused_with_what_is_missing() -> None:
    with (
        fake_vllm(paths=("/v1/models", "/pause", "/resume")) as fake,
        pytest.raises(EngineError, match="does not offer /inference/v1/generate, /collective_rpc, /reset_prefix_cache"),
    ):
        VllmEngine(fake.url, 100, Timeouts())


def test_a_server_that_answers_something_else_is_refused_with_a_sentence() -> None:
    with (
        fake_vllm(context="rubbish") as fake,
        pytest.raises(EngineError, match=r"not as vLLM does; expected vLLM 0\.25 or later"),
    ):
        VllmEngine(fake.url, 100, Timeouts())


def test_a_server_is_started_with_logprobs_of_what_is_drawn_and_room_for_two_versions_of_each_adapter() -> None:
    section = EngineSection(kind="vllm", context=512, tensor_parallel=2, options=["--enforce-eager"])
    said = " ".join(arguments(section, "bfloat16", [4, 20], cpu=False))
    for part in (
        "--host 127.0.0.1", "--logprobs-mode processed_logprobs", "--generation-config vllm", "--max-loras 4",
        "--max-lora-rank 32", "--tensor-parallel-size 2", "--max-model-len 512", "--gpu-memory-utilization 0.4",
    ):  # fmt: skip
        assert part in said
    assert said.endswith("--enforce-eager")
    assert "lora" not in " ".join(arguments(section, "float32", [], cpu=True))
    with pytest.raises(EngineError, match="rank 1024; vLLM takes at most 512"):
        arguments(section, "float32", [1024], cpu=True)


def test_options_cannot_replace_what_a_run_sets_for_its_server() -> None:
    """Otherwise the last one on the command line would win, and log-probs could be those of another distribution."""
    section = EngineSection(kind="vllm", context=512, tensor_parallel=2)
    said = arguments(section, "bfloat16", [4], cpu=False)
    flags = [part for part in said if part.startswith("--")]
    assert len(flags) > 10
    for option in (*flags, "--override-generation-config={}", "--max_model_len=9", "--port", "-tp"):
        with pytest.raises(ConfigError, match=rf"engine.options has '{option}', which the run sets itself; expected "):
            EngineSection(kind="vllm", options=["--enforce-eager", option])
    with pytest.raises(ConfigError, match=r"'--max-model-len', which the run sets itself; expected engine.context"):
        EngineSection(kind="vllm", options=["--max-model-len", "64"])


def test_an_option_that_vllm_does_not_know_is_an_error_with_vllms_own_words(tmp_path: Path) -> None:
    python = stand_in(tmp_path, 'for last; do :; done; echo "error: unrecognized arguments: $last"; exit 2')
    section = EngineSection(kind="vllm", python=python, options=["--enforce-egaer"])
    with pytest.raises(EngineError, match=r"check engine.python and engine.options[^$]*arguments: --enforce-egaer"):
        VllmServer(section, "model", "float32", [], cpu=True)


@pytest.mark.parametrize("cut", ["top_k=5", "top_p=0.9", "min_p=0.1", "min_tokens=4"])
def test_a_recipe_cannot_ask_for_what_the_learner_cannot_rebuild(cut: str) -> None:
    """[sampling] is about trainable seats."""
    with pytest.raises(ConfigError, match=rf"unknown key '{cut.partition('=')[0]}' in .sampling."):
        parse(RECIPE, [f"sampling.{cut}"])


def test_an_interpreter_without_vllm_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"has no vLLM; install vllm .* and set engine.python"):
        VllmServer(EngineSection(kind="vllm"), "model", "float32", [], cpu=True)
    with pytest.raises(ConfigError, match=r"engine.python is '.*no-such-python', which cannot be run"):
        VllmServer(EngineSection(kind="vllm", python="no-such-python"), "model", "float32", [], cpu=True)


def stand_in(folder: Path, serve: str) -> str:
    """A program in place of vLLM's interpreter, which does `serve` when it is asked to serve."""
    path = folder / "python"
    path.write_text(f"""#!/bin/sh\nif [ "$1" = -c ]; then echo False; exit 0; fi\n{serve}\n""")
    path.chmod(0o755)
    return str(path)


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_a_server_that_ends_while_it_starts_is_an_error_with_the_end_of_its_log(tmp_path: Path) -> None:
    python = stand_in(tmp_path, "echo no such model; exit 3")
    with pytest.raises(EngineError, match=r"ended while it started \(exit code 3\)[^$]*no such model"):
        VllmServer(EngineSection(kind="vllm", python=python), "model", "float32", [], cpu=True)


def test_a_server_ends_with_the_run_that_started_it_even_if_that_is_killed(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    python = stand_in(tmp_path, f"echo $$ > {file}.new; mv {file}.new {file}; exec sleep 300")
    run = f"""
from interplay.config import EngineSection
from interplay.engines.vllm_server import VllmServer
VllmServer(EngineSection(kind="vllm", python={python!r}), "model", "float32", [], cpu=True)
"""
    driver = subprocess.Popen([sys.executable, "-c", run])
    while not file.exists():
        assert driver.poll() is None
        time.sleep(0.05)
    server = int(file.read_text())
    assert runs(server)
    driver.kill()
    driver.wait()
    until = time.monotonic() + 60.0
    while runs(server) and time.monotonic() < until:
        time.sleep(0.05)
    assert not runs(server)


RECIPE: dict[str, Any] = {
    "name": "vllm",
    "env": {"name": "tictactoe"},
    "policies": {"a": {"base": "tiny"}, "b": {"base": "tiny"}},
    "seats": {"X": "a", "O": "b"},
    "algorithm": {"name": "grpo"},
}


def test_settings_that_do_not_fit_together_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"engine.url names one server, but .policies. has 2 models"):
        resolve(parse({**RECIPE, "engine": {"kind": "vllm", "url": "http://127.0.0.1:1"}}))
    with pytest.raises(ConfigError, match=r"engine.transfer is 'ipc' with engine.tensor_parallel = 2"):
        parse({**RECIPE, "engine": {"kind": "vllm", "transfer": "ipc", "tensor_parallel": 2}})
    sharded = {"engine": {"kind": "vllm", "transfer": "ipc"}, "train": {"shard": "fsdp"}}
    with pytest.raises(ConfigError, match=r"engine.transfer is 'ipc' with train.shard = 'fsdp'"):
        resolve(parse({**RECIPE, **sharded}))
    with pytest.raises(ConfigError, match=r"engine.python is set, but engine.kind is 'local'"):
        parse({**RECIPE, "engine": {"python": "python3"}})
