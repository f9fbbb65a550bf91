"""A person plays a seat in the browser, against the newest checkpoint of a run."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("httpx")
from starlette.testclient import TestClient

import interplay as ip
from interplay.viewer import game as games
from interplay.viewer.library import Library
from interplay.viewer.server import Viewer

SMALL: dict[str, Any] = {
    "name": "small", "env": {"name": "tictactoe", "brief": True}, "policies": {"player": {"base": "tiny-16x1"}},
    "seats": "player", "algorithm": {"name": "grpo", "group": 2}, "sampling": {"max_tokens": 3},
    "rollout": {"tasks": 1}, "train": {"steps": 1}, "records": {"tensorboard": "off"},
    "eval": {"opponents": [], "before": False, "after": False},
}  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("games")
    ip.train(SMALL, run=folder / "small", quiet=True)
    return folder


@pytest.fixture(scope="module")
def client(runs: Path) -> Iterator[TestClient]:
    viewer = Viewer(Library([runs]), "token")
    with TestClient(viewer.app(), base_url="http://127.0.0.1:8000") as made:
        made.get("/?token=token")
        yield made
    viewer.close()


def waited(client: TestClient, game: dict[str, Any]) -> dict[str, Any]:
    """The game once it waits for the person, or is over."""
    end = time.monotonic() + 60
    while not game["waiting"] and not game["over"] and time.monotonic() < end:
        time.sleep(0.05)
        game = client.get(f"/api/play/{game['id']}").json()
    assert game["waiting"] or game["over"]
    return game


@pytest.mark.parametrize(("seat", "against"), [("X", "bot:random"), ("O", "")])
def test_any_seat_can_be_played_to_the_end(client: TestClient, seat: str, against: str) -> None:
    began = {"run": "small", "seat": seat, "against": against, "seed": 3}
    game = waited(client, client.post("/api/play", json=began).json())
    assert game["seats"][seat] == "you" and set(game["seats"].values()) == {"you", against or "player"}
    while not game["over"]:
        legal = game["waiting"]["legal"]
        game = waited(client, client.post(f"/api/play/{game['id']}", json={"text": legal[0]}).json())
    assert game["error"] is None and game["state"] and any(r["name"] == "win" for r in game["rewards"])
    assert [row["role"] for row in game["log"] if row["kind"] == "said"][:1] == ["X"]


def test_an_illegal_move_is_refused_and_the_game_goes_on(client: TestClient) -> None:
    began = {"run": "small", "seat": "X", "against": "bot:random"}
    game = waited(client, client.post("/api/play", json=began).json())
    refused = client.post(f"/api/play/{game['id']}", json={"text": "77"})
    assert refused.status_code == 404 and "is no legal move; choose from" in refused.json()["error"]
    assert client.get(f"/api/play/{game['id']}").json()["waiting"]
    for wrong, sentence in (({"seat": "Z"}, "the seat is 'Z'"), ({"against": "bot:nobody"}, "nobody")):
        found = client.post("/api/play", json={**began, **wrong})
        assert found.status_code == 404 and sentence in found.json()["error"]
    assert "no longer there" in client.get("/api/play/none").json()["error"]


def test_games_that_nobody_can_play_on_are_ended(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their tasks would wait for a move for ever, and be destroyed while they wait."""
    monkeypatch.setattr(games, "_GAMES", 2)
    viewer = Viewer(Library([runs]), "token")
    began = {"run": "small", "seat": "X", "against": "bot:random"}
    names = [viewer.games.begin(began)["id"] for _ in range(4)]
    assert list(viewer.games._tasks) == names[2:]
    viewer.close()
    assert viewer.games._tasks == {}
