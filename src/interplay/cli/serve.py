"""`interplay serve`: a trained team behind the server that its program was trained with.

The model's name, or a pattern of the recipe's env.route, says which role answers. Conversations are recognised as in
training, so that a model sees its own replies as it sampled them. `/health` and `/metrics` need no key.
"""

from __future__ import annotations

import asyncio
import hmac
import itertools
import os
import secrets
import signal
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from interplay.config import Recipe, load, validate
from interplay.engines.census import census
from interplay.envs.programs.http import HttpReply, HttpRequest, HttpServer
from interplay.envs.programs.options import OutsideOptions
from interplay.envs.programs.run import Reply
from interplay.envs.programs.server import ChatRouter, Conversations, GoneError
from interplay.envs.programs.talk import Names
from interplay.envs.programs.wire import ChatOrder, route
from interplay.errors import ConfigError, InterplayError
from interplay.rollout.resolve import resolve
from interplay.types import HistoryMatch, Observation, Scripted, Task

if TYPE_CHECKING:
    from interplay.agents.player import Agent
    from interplay.seats import RunPlan

KEY = "INTERPLAY_SERVE_KEY"
REMEMBERED = 512  # replies of a role that are recognised when they come back
PATIENCE = 30.0  # seconds that calls in flight have to end after the server is told to stop


class ServedTeam:
    """Answers for all roles of a team."""

    def __init__(self, options: OutsideOptions, agents: Mapping[str, Agent], seed: int) -> None:
        self.options, self.agents, self.seed = options, dict(agents), seed
        self.names: Names = options.program.names
        self.history: HistoryMatch = options.program.history
        self.models: Sequence[str] = options.roles
        self.embeddings = options.program.embeddings
        self.said = Conversations()
        self.counts: Counter[tuple[str, str]] = Counter()  # by (what is counted, role)
        self._numbers = itertools.count()

    async def answers(self, order: ChatOrder, digest: str, retry: bool, lost: asyncio.Future[None]) -> list[Reply]:
        from interplay.agents.player import Stamp

        asked = route(order, self.options)
        agent, role = self._agent(asked.role), asked.role
        view = agent.look(Observation(asked.messages, fresh=True, phase=asked.phase, call=asked.call))
        number = next(self._numbers)
        task = Task(f"serve-{number}", "serve", self.seed)
        stamps = [Stamp(self.seed, task, 0, task.id, number, candidate=k) for k in range(order.n)]
        self.counts["calls", role] += 1
        sampling = asyncio.gather(*(agent.sample(None, view, s) for s in stamps))  # type: ignore[arg-type]

        def gone(_: object) -> None:
            sampling.cancel()

        lost.add_done_callback(gone)  # otherwise other callers would wait for answers that nobody reads
        try:
            turns = await sampling
        except InterplayError:
            self.counts["errors", role] += 1
            raise
        except asyncio.CancelledError:
            if not lost.done():
                raise
            self.counts["abandoned", role] += 1
            raise GoneError("the client has gone.") from None
        finally:
            lost.remove_done_callback(gone)
        for turn in turns:
            agent.commit(view, turn)  # a program may go on from any of them
            self.counts["tokens", role] += turn.sampled
            if turn.samples:
                self.counts["prompt_tokens", role] += len(turn.last.prompt)
                self.counts[f"history_{turn.last.history or 'none'}", role] += 1
        return [Reply.of(turn) for turn in turns]

    def _agent(self, role: str) -> Agent:
        """The agent of a role. If its memory is full, it gets a new, empty one."""
        from interplay.agents.memory import Memory
        from interplay.agents.model import ModelAgent

        agent = self.agents[role]
        if isinstance(agent, ModelAgent) and len(agent.memory.said) >= REMEMBERED:
            agent.memory = Memory()
        return agent

    def metrics(self, busy: int) -> str:
        """The counts in the text format of Prometheus."""
        lines = [f"interplay_requests_in_flight {busy}"]
        for (what, role), value in sorted(self.counts.items()):
            lines.append(f'interplay_{what}_total{{role="{role}"}} {value}')
        return "\n".join(lines) + "\n"


class TeamServer:
    """Serves `team` on a port, to callers that send `key`."""

    def __init__(self, team: ServedTeam, key: str, host: str, port: int) -> None:
        self.team, self.key = team, key
        self._router = ChatRouter(self._find, lambda _: True)
        self.http = HttpServer(self._handle, host, port)

    def _find(self, key: str) -> ServedTeam | None:
        return self.team if hmac.compare_digest(key.encode(), self.key.encode()) else None

    async def _handle(self, request: HttpRequest) -> HttpReply:
        if request.method == "GET" and request.path == "/health":
            return HttpReply.json({"status": "ok", "models": list(self.team.models)})
        if request.method == "GET" and request.path == "/metrics":
            return HttpReply(body=self.team.metrics(self.http.busy - 1).encode(), kind="text/plain; version=0.0.4")
        return await self._router(request)

    async def run(self, ready: asyncio.Event, stop: asyncio.Event) -> None:
        """Serve until `stop` is set; then calls in flight have `PATIENCE` seconds to end."""
        census().deterministic = False
        await self.http.start()
        ready.set()
        await stop.wait()
        await self.http.stop(PATIENCE)


def serve_run(console: Console, path: str, host: str, port: int, folder: Path | None) -> None:
    plan = _plan(load(path, []))
    if plan.recipe.channels:
        raise ConfigError(
            f"channels.{next(iter(plan.recipe.channels))} joins the agents of this run, but a served agent gets only "
            "messages; expected a run without [channels]. interplay eval and interplay play work with channels."
        )
    from interplay.cli.evaluate import newest
    from interplay.cli.quiet import quiet_libraries

    quiet_libraries()
    from interplay.rollout.team import Speech, Team

    recipe = plan.recipe
    weights = newest(path, plan, folder)
    team = Team(recipe, weights)
    how = Speech(recipe.eval.temperature, recipe.sampling.max_tokens)
    seats = {role: who for role, who in plan.seats.items() if not isinstance(who, Scripted)}  # bots need their game
    if not seats:
        raise ConfigError(f"all seats of '{path}' are taken by bots; expected a policy in at least one of them.")
    agents = {role: team.agent(role, who, how) for role, who in seats.items()}
    key = os.environ.get(KEY) or secrets.token_hex(16)
    served = ServedTeam(_options(plan, list(seats)), agents, secrets.randbits(62))
    server = TeamServer(served, key, host, port)

    async def main() -> None:
        ready, stop = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            with suppress(NotImplementedError, RuntimeError):
                loop.add_signal_handler(number, stop.set)
        running = asyncio.ensure_future(server.run(ready, stop))
        await asyncio.wait((running, asyncio.ensure_future(ready.wait())), return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
        shown = key if KEY not in os.environ else f"in {KEY}"
        console.print(
            f"{recipe.name}: {', '.join(served.models)} at http://{host}:{server.http.port}/v1, API key {shown}\n"
            "Ctrl-C ends it when the calls in flight are answered.",
            highlight=False, soft_wrap=True,
        )  # fmt: skip
        if plan.saved and not weights:
            words = f"'{path}' holds no checkpoint, so {', '.join(plan.saved)} will answer without any training."
            console.print(words, highlight=False, soft_wrap=True)
        await running

    try:
        asyncio.run(main())
    finally:
        team.close()


def _plan(recipe: Recipe) -> RunPlan:
    """The plan of a team to serve. An outside program asks from elsewhere, so neither the program nor its tasks are
    needed here."""
    if recipe.env.name != "program":
        return resolve(recipe, training=False)
    from interplay import algorithms
    from interplay.rollout.placement import check_engine
    from interplay.seats import RunPlan, per_role

    with recipe.env.explained("env"):
        roles = tuple(validate(OutsideOptions, recipe.env.options, prefix="env").roles)
    recipe = per_role(recipe, roles)
    with recipe.algorithm.explained("algorithm"):
        algorithm = algorithms.make(recipe.algorithm, recipe.reward, recipe.seed)
    plan = RunPlan.make(recipe, roles, algorithm)
    check_engine(plan)
    return plan


def _options(plan: RunPlan, roles: Sequence[str]) -> OutsideOptions:
    """The options of the recipe's program. If the environment is no program, a request names its role as the model."""
    if plan.recipe.env.name == "program":
        found = OutsideOptions.model_validate(plan.recipe.env.options)
        route = {role: how for role, how in found.route.items() if role in roles}
        return found.model_copy(update={"roles": list(roles), "route": route})
    return OutsideOptions(attach=True, roles=list(roles))
