"""Serves the viewer to the browser of this machine: loopback only, with a token, and without writing to a run (except
`labels.jsonl`, which holds a person's verdicts).

The token is in the URL that `interplay view` prints. The first request exchanges it for a cookie, since links between
pages do not carry it. Requests from other hosts' pages are refused: the Host header must name this machine.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from interplay.errors import InterplayError
from interplay.viewer.api import Api, written
from interplay.viewer.library import Library
from interplay.viewer.page import WEB, served
from interplay.viewer.pairs import label

if TYPE_CHECKING:
    from interplay.viewer.game import Games

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
POLL = 0.5  # seconds between two looks at the files of the runs
_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_TYPES = {".js": "text/javascript", ".css": "text/css", ".html": "text/html"}
_ENDINGS = {".png": "image/png", ".wav": "audio/wav"}
_MOST = 1 << 20  # bytes of a request


class Viewer:
    """The routes of the server. `token` must be in the first request."""

    def __init__(self, library: Library, token: str) -> None:
        self.library, self.api, self.token = library, Api(library), token

    @cached_property
    def games(self) -> Games:
        """Made when the first game begins: it imports what models need."""
        from interplay.viewer.game import Games

        return Games(self.library)

    def close(self) -> None:
        if "games" in self.__dict__:
            self.games.close()

    def app(self) -> Starlette:
        routes = [
            Route("/", self.page),
            Route("/web/{file:path}", self.file),
            Route("/api/events", self.events),
            Route("/api/run/{run}/media/{digest}", self.media),
            Route("/api/run/{run}/label", self.label, methods=["POST"]),
            Route("/api/play", self.begin, methods=["POST"]),
            Route("/api/play/{game}", self.game, methods=["GET", "POST"]),
            Route("/api/{path:path}", self.answer),
        ]
        return Starlette(routes=routes, middleware=[Middleware(BaseHTTPMiddleware, dispatch=self._guard)])

    async def _guard(self, request: Request, then: Callable[[Request], Awaitable[Response]]) -> Response:
        host = request.headers.get("host", "")
        if host.rpartition(":")[0] not in LOOPBACK and host not in LOOPBACK:
            return _refused(403, "this address is not the viewer's; open the URL that interplay view printed.")
        cookie = f"interplay_{request.url.port}"
        given = request.query_params.get("token")
        if given is not None and _same(given, self.token) and request.url.path == "/":
            reply: Response = RedirectResponse("/", 303)
            reply.set_cookie(cookie, self.token, httponly=True, samesite="strict")
            return reply
        if not _same(request.cookies.get(cookie, ""), self.token):
            return _refused(401, "the token is missing or wrong; open the URL that interplay view printed.")
        if request.method == "POST":
            origin = request.headers.get("origin")
            plain = request.headers.get("content-type", "").partition(";")[0] != "application/json"
            if plain or (origin is not None and origin != f"http://{host}"):
                return _refused(403, "only the viewer's own page may send this.")
            if int(request.headers.get("content-length", _MOST + 1)) > _MOST:
                return _refused(413, f"the request is too large; send at most {_MOST:,} bytes.")
        reply = await then(request)
        reply.headers.update({k: v for k, v in _HEADERS.items() if k not in reply.headers})
        return reply

    # -- the page -------------------------------------------------------------------------------------------------

    async def page(self, request: Request) -> Response:
        text, policy = served(secrets.token_urlsafe(16))
        return Response(text, media_type="text/html", headers={"Content-Security-Policy": policy})

    async def file(self, request: Request) -> Response:
        path = (WEB / request.path_params["file"]).resolve()
        if not path.is_relative_to(WEB.resolve()) or not path.is_file():
            return _refused(404, "there is no such file.")
        return Response(path.read_bytes(), media_type=_TYPES.get(path.suffix, "text/plain"))

    # -- answers --------------------------------------------------------------------------------------------------

    async def answer(self, request: Request) -> Response:
        path, query = request.path_params["path"], dict(request.query_params)
        return await _answered(lambda: self.api.answer(path, query))

    async def media(self, request: Request) -> Response:
        digest = request.path_params["digest"]
        if not digest.isalnum():
            return _refused(404, "there is no such picture or sound.")
        try:
            folder = self.library.run(request.path_params["run"]).folder
        except InterplayError as error:
            return _refused(404, str(error))
        for media in (folder / "media", folder / "eval" / "media"):
            for ending, kind in _ENDINGS.items():
                path = media / f"{digest}{ending}"
                if path.is_file():
                    return FileResponse(path, media_type=kind)
        return _refused(404, "there is no such picture or sound.")

    async def label(self, request: Request) -> Response:
        given = await _sent(request)
        return await _answered(lambda: {"labelled": label(self.library.run(request.path_params["run"]), given)})

    async def begin(self, request: Request) -> Response:
        given = await _sent(request)
        return await _answered(lambda: self.games.begin(given))

    async def game(self, request: Request) -> Response:
        name = request.path_params["game"]
        if request.method == "GET":
            return await _answered(lambda: self.games.show(name))
        given = await _sent(request)
        return await _answered(lambda: self.games.move(name, str(given.get("text", ""))))

    async def events(self, request: Request) -> Response:
        async def changes() -> AsyncIterator[str]:
            before = None
            while not await request.is_disconnected():
                stamps = await run_in_threadpool(lambda: {run.key: run.stamp() for run in self.library.runs()})
                yield f"data: {json.dumps(stamps)}\n\n" if stamps != before else ": still here\n\n"
                before = stamps
                await asyncio.sleep(POLL)

        return StreamingResponse(changes(), media_type="text/event-stream")


async def _answered(work: Callable[[], Any]) -> Response:
    try:
        data = await run_in_threadpool(lambda: written(work()))
    except InterplayError as error:
        return _refused(404, str(error))
    return Response(data, media_type="application/json")


async def _sent(request: Request) -> dict[str, Any]:
    try:
        found = json.loads(await request.body())
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _refused(status: int, why: str) -> Response:
    return Response(written({"error": why}), status, media_type="application/json", headers=dict(_HEADERS))


def _same(one: str, other: str) -> bool:
    return secrets.compare_digest(one.encode(), other.encode())


def serve(folders: list[Path], port: int, ready: Callable[[str], None]) -> None:
    """Serve until interrupted. `ready` is told the URL with its token once the port is open. Port 0 takes a free
    one."""
    import socket

    import uvicorn

    library, token = Library(folders), secrets.token_urlsafe(18)
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(("127.0.0.1", port))
    except OSError as error:
        listening.close()
        raise InterplayError(f"port {port} cannot be used ({error.strerror}); choose another with --port.") from None
    listening.listen()  # a browser that is told the URL now waits until the server is ready
    viewer = Viewer(library, token)
    settings = uvicorn.Config(viewer.app(), log_level="error", timeout_graceful_shutdown=1)
    ready(f"http://127.0.0.1:{listening.getsockname()[1]}/?token={token}")
    try:
        uvicorn.Server(settings).run(sockets=[listening])
    finally:
        viewer.close()
