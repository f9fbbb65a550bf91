"""A game of Interplay as a program that asks over HTTP, with nothing but the standard library."""

from __future__ import annotations

import http.client
import json
import os
import threading
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from native_game import Game


class Client:
    """One connection that is kept open: what the fastest program would do."""

    def __init__(self, stream: bool = False) -> None:
        self.url = urlsplit(os.environ["OPENAI_BASE_URL"])
        assert self.url.hostname is not None
        self.connection = http.client.HTTPConnection(self.url.hostname, self.url.port)
        self.stream = stream

    def post(self, path: str, body: Mapping[str, Any]) -> tuple[int, bytes]:
        self.connection.request(
            "POST", f"{self.url.path}/{path}", json.dumps(body), {"content-type": "application/json"}
        )
        answer = self.connection.getresponse()
        return answer.status, answer.read()

    def ask(self, model: str, messages: list[dict[str, Any]], **rest: Any) -> str:
        status, data = self.post(
            "chat/completions", {"model": model, "messages": messages, "stream": self.stream, **rest}
        )
        assert status == 200, data
        if not self.stream:
            return str(json.loads(data)["choices"][0]["message"]["content"])
        events = [json.loads(line[6:]) for line in data.decode().splitlines() if line.startswith("data: {")]
        return "".join(e["choices"][0]["delta"].get("content", "") for e in events if e["choices"])


def play(row: Mapping[str, Any], stream: bool = False) -> list[list[Any]]:
    game = Game(row)
    clients = {role: Client(stream) for role in game.env.roles}
    while asks := game.asks():
        said: dict[str, str] = {}

        def ask(role: str, messages: list[dict[str, str]], said: dict[str, str] = said) -> None:
            how = {"guided_choice": list(game.how[role]["only"]), "metadata": {"phase": game.how[role]["phase"]}}
            said[role] = clients[role].ask(role, messages, **how)

        threads = [threading.Thread(target=ask, args=one) for one in asks.items()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        game.moves({role: said[role] for role in asks})
    return game.end()


def play_streaming(row: Mapping[str, Any]) -> list[list[Any]]:
    return play(row, stream=True)
