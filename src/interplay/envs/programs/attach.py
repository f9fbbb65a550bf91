"""Attach mode: a service that is already running opens a session for each episode and reports the result.

    POST /attach            Authorization: Bearer TOKEN        -> {"task", "seed", "url", "key"}, when an episode waits
    (calls to `url` as to any OpenAI-compatible server)
    POST /s/KEY/end         {"result": ...}, {"rewards": ...} or {"error": {"kind", "words", "place"}}

The trainer reads the token from its variable INTERPLAY_ATTACH_TOKEN; the port is env.program.port. An episode waits
until the service opens a session for it, so the service decides how many episodes run at once.
"""

from __future__ import annotations

import asyncio
import hmac
import os
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from interplay.envs.programs.effects import EffectLog
from interplay.envs.programs.gateway import HttpRun, gateway
from interplay.envs.programs.http import HttpReply, HttpRequest
from interplay.envs.programs.options import OutsideOptions
from interplay.envs.programs.run import ProgramCrash
from interplay.errors import ConfigError

TOKEN = "INTERPLAY_ATTACH_TOKEN"
PATIENCE = 25.0  # seconds that a request waits for an episode; after that the service gets 503 and must ask again


class AttachedRun(HttpRun):
    """One run of an attached service. It begins when a service opens a session and ends when it posts the result."""

    def __init__(self, options: OutsideOptions, row: Mapping[str, Any], seed: int, effects: EffectLog) -> None:
        if not os.environ.get(TOKEN):
            raise ConfigError(f"env.attach is true, but the variable {TOKEN} is not set; expected a secret of yours.")
        super().__init__(options, effects)
        self.row, self.seed = dict(row), seed
        self._opened: Future[None] = Future()
        door = self.gateway.attach if isinstance(self.gateway.attach, Door) else Door()
        self.gateway.attach = door
        self.gateway.call(door.offer, self)

    async def settle(self) -> None:
        if not self._opened.done():
            await asyncio.wrap_future(self._opened)
        await super().settle()

    def settle_now(self) -> None:
        self._opened.result()
        super().settle_now()

    def open(self) -> dict[str, Any]:
        """Give this episode to a service. Must be called on the gateway's loop."""
        if not self._opened.done():
            self._opened.set_result(None)
        return {"task": self.row, "seed": self.seed, "url": self.url, "key": self.key}

    def end(self, body: Mapping[str, Any]) -> HttpReply:
        """End the run with the result or the error that the service posted. Must be called on the gateway's loop."""
        if "error" in body:
            told = body["error"] if isinstance(body["error"], Mapping) else {}
            kind, words, place = (str(told.get(key, default)) for key, default in _CRASH.items())
            self._end(None, ProgramCrash(kind, words, place))
        elif "rewards" in body or "result" in body:
            self._end(body.get("rewards", body.get("result")), None)
        else:
            return HttpReply.error(400, "expected result, rewards or error in the body.")
        return HttpReply.json({"ended": True})


_CRASH = {"kind": "error", "words": "the service gave no reason", "place": "an unknown place"}


class Door:
    """Matches services that wait for an episode with episodes that wait for a service."""

    def __init__(self) -> None:
        self._free: deque[AttachedRun] = deque()
        self._services: deque[asyncio.Future[AttachedRun]] = deque()

    def offer(self, run: AttachedRun) -> None:
        while self._services:
            service = self._services.popleft()
            if not service.done():
                service.set_result(run)
                return
        self._free.append(run)

    async def __call__(self, request: HttpRequest) -> HttpReply:
        if not hmac.compare_digest(request.key.encode(), os.environ.get(TOKEN, "").encode()):
            return HttpReply.error(401, f"the token is not that of the trainer ({TOKEN}).")
        while self._free and self._free[0].ended:
            self._free.popleft()
        if self._free:
            return HttpReply.json(self._free.popleft().open(), 201)
        service: asyncio.Future[AttachedRun] = asyncio.get_running_loop().create_future()
        self._services.append(service)

        def gone(_: object) -> None:
            if not service.done():  # so that no episode is given to it
                service.set_exception(ConnectionError())

        request.lost.add_done_callback(gone)
        try:
            return HttpReply.json((await asyncio.wait_for(service, PATIENCE)).open(), 201)
        except (TimeoutError, ConnectionError):
            return HttpReply.error(503, "no episode waits now; ask again.", retry=True)


def prepare(options: OutsideOptions) -> None:
    """Start the gateway on env.program.port, if that is set."""
    port = options.program.port
    if port and gateway(port).port != port:
        raise ConfigError(
            f"env.program.port is {port}, but the gateway of this process already has the port {gateway().port}; "
            "expected the same port for all programs of a process."
        )
