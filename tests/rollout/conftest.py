"""A deterministic engine without a model, and a table to seat agents at."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest

from interplay import envs
from interplay.agents.bots import make_bot
from interplay.agents.model import ModelAgent
from interplay.agents.player import Agent, Stamp, View
from interplay.agents.render import Renderer
from interplay.agents.scripted import BotAgent
from interplay.algorithms import Independent, SamplingPlan
from interplay.config import RewardSection, RolloutSection
from interplay.engines.engine import Capabilities, EngineLimits, Request, Sampling
from interplay.envs import Env
from interplay.envs import env as registry
from interplay.rollout.runner import Runner, Seated
from interplay.types import Completion, Episode, Stop, Task, Turn
from interplay.types.occupant import parse

_legal: ContextVar[tuple[str, ...]] = ContextVar("legal", default=())


class Watched(ModelAgent):
    """Tells the script behind the engine which actions are legal."""

    async def sample(self, env: Env, view: View, stamp: Stamp) -> Turn:
        _legal.set(view.observation.legal)
        return await super().sample(env, view, stamp)


@dataclass(frozen=True)
class Call:
    """What a script knows about one request; the names are those of the request's key."""

    text: str
    free: tuple[str, ...]  # the legal actions, which a script may know though a model must read them
    seed: int
    task: str
    replica: int
    path: tuple[int, ...]
    decision: int
    role: str
    candidate: int

    def choose(self, options: Sequence[str]) -> str:
        """Any of `options`, by this request's seed."""
        return random.Random(self.seed).choice(options)


Script = Callable[[Call], "str | BaseException"]


@dataclass
class FakeEngine:
    """Replies with what `script` returns, or raises its exception. `patience` is how long each reply takes."""

    capabilities: ClassVar[Capabilities] = Capabilities(token_ids=True, logprobs=True)
    renderer: Renderer
    script: Script
    patience: Callable[[Call], float] | None = None
    stop: Stop = Stop.END
    version: int = 0
    requests: list[Request] = field(default_factory=list)
    in_flight: int = 0

    async def generate(self, request: Request) -> Completion:
        _, task, replica, path, decision, role, candidate = request.key
        text = self.renderer.tokenizer.decode(request.ids)
        call = Call(text, _legal.get(), request.seed, task, replica, path, decision, role, candidate)  # type: ignore[arg-type]
        self.requests.append(request)
        self.in_flight += 1
        try:
            await asyncio.sleep(self.patience(call) if self.patience else 0)
            said = self.script(call)
            if isinstance(said, BaseException):
                raise said
        finally:
            self.in_flight -= 1
        tokens = self.renderer.encode_reply(said)
        if self.stop is Stop.LENGTH:
            tokens = tokens[:-1]
        logprobs = tuple(-0.5 - i for i in range(len(tokens)))
        return Completion(tokens, logprobs, (self.version,) * len(tokens), self.stop)

    def flush(self) -> None:
        pass

    def limits(self) -> EngineLimits:
        return EngineLimits()

    def close(self) -> None:
        pass


@dataclass
class Table:
    """Plays tasks of one environment with scripted agents and bots. Seats that are not named have the trainable
    policy."""

    renderer: Renderer
    script: Script
    env: str = "tictactoe"
    options: Mapping[str, Any] = field(default_factory=dict)
    seats: Mapping[str, str] = field(default_factory=dict)
    plan: SamplingPlan = field(default_factory=Independent)
    limits: RolloutSection = field(default_factory=RolloutSection)
    reward: RewardSection = field(default_factory=RewardSection)
    seed: int = 0
    record_playouts: bool = False
    critic: Any = None
    patience: Callable[[Call], float] | None = None
    stop: Stop = Stop.END
    run: Callable[[Any], Any] = asyncio.run  # plays on an event loop

    def __post_init__(self) -> None:
        self.engine = FakeEngine(self.renderer, self.script, self.patience, self.stop)

    def agent(self, role: str) -> Agent:
        who = self.seats.get(role, "player")
        if who.startswith("bot:"):
            return BotAgent(role, who, make_bot(who.removeprefix("bot:"), self.env))
        sampling = Sampling(1.0, 8, tuple(self.renderer.stop_ids))
        return Watched(role, who, who == "player", self.engine, self.renderer, sampling)

    def task(self, index: int) -> Task:
        return envs.sample_task(self.env, self.options, "train", index, self.seed)

    def play(self, tasks: int = 1, done: Callable[[Episode], None] | None = None) -> list[Episode]:
        wanted = [self.task(i) for i in range(tasks)]
        roles = envs.make(wanted[0]).roles if wanted else ()
        runner = Runner(self.seed, self.limits, self.plan, self.reward, self.record_playouts, self.critic)

        async def run() -> list[Episode]:
            seats = {r: parse(self.seats.get(r, "player")) for r in roles}
            episodes = await runner.run(wanted, lambda task: Seated(seats, {r: self.agent(r) for r in roles}), done)
            assert self.engine.in_flight == 0, "requests are still in flight after the last episode ended"
            return episodes

        episodes: list[Episode] = self.run(run())
        return episodes


@pytest.fixture(scope="session")
def renderer(tiny: Any) -> Renderer:
    return Renderer(tiny.tokenizer, tiny.stop_ids)


@pytest.fixture
def table(renderer: Renderer) -> Callable[..., Table]:
    """`table(script, env=..., plan=...)`."""

    def make(script: Script, **settings: Any) -> Table:
        return Table(renderer, script, **settings)

    return make


@pytest.fixture
def known_as(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, type[envs.Env]], str]:
    """Registers an environment for one test."""

    def add(name: str, cls: type[envs.Env]) -> str:
        monkeypatch.setitem(registry.ENVIRONMENTS.classes, name, cls)
        return name

    return add
