"""`interplay export --push`: a policy goes to a hub by huggingface_hub's own client. The hub is a local server."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pytest
from rich.console import Console
from transformers import AutoModelForCausalLM

from interplay.cli.card import card
from interplay.cli.export import ExportRequest, export_run
from interplay.config import parse
from interplay.errors import ConfigError, InterplayError
from interplay.rollout.resolve import resolve
from interplay.training.trainer import Trainer

RECIPE: dict[str, Any] = {
    "name": "pushed",
    "device": "cpu",
    "env": {"name": "tictactoe", "size": 2, "line": 2},
    "policies": {"player": {"base": "tiny-16x1"}},
    "seats": "player",
    "algorithm": {"name": "grpo", "group": 2},
    "sampling": {"max_tokens": 2},
    "rollout": {"tasks": 2},
    "train": {"steps": 1},
    "records": {"tensorboard": "off"},
}
RESULT = {
    "policy": "player", "opponent": "bot:random", "role": "X", "games": 50, "failed": 0, "wins": 40, "draws": 5,
    "losses": 5, "win_low": 0.67, "win_high": 0.89, "reward": 0.7, "reward_low": 0.5, "reward_high": 0.9, "turns": 200,
    "illegal": 1, "tokens": 400,
}  # fmt: skip


class Hub(ThreadingHTTPServer):
    """As much of the hub's HTTP interface as creating a repository and one commit need."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.made: dict[str, Any] = {}
        self.files: dict[str, bytes] = {}
        self.unknown: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Hub

    def log_message(self, *args: Any) -> None:
        pass

    def _reply(self, data: Any, status: int = 200) -> None:
        body = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        if "/revision/" in self.path or self.path.startswith("/api/models/"):
            self._reply({"id": "me/pushed", "sha": "0" * 40, "siblings": []})
        else:
            self.server.unknown.append(f"GET {self.path}")
            self._reply({"error": "unknown"}, 404)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.headers.get("Authorization") != "Bearer hf_secret":
            self._reply({"error": "Invalid credentials"}, 401)
        elif self.path == "/api/repos/create":
            self.server.made = json.loads(body)
            self._reply({"url": f"{self.server.url}/me/pushed", "id": "me/pushed", "name": "me/pushed"})
        elif "/preupload/" in self.path:
            asked = json.loads(body)["files"]
            files = [{"path": f["path"], "uploadMode": "regular", "shouldIgnore": False} for f in asked]
            self._reply({"files": files})
        elif "/commit/" in self.path:
            for row in map(json.loads, body.splitlines()):
                if row["key"] == "file":
                    self.server.files[row["value"]["path"]] = base64.b64decode(row["value"]["content"])
            url = f"{self.server.url}/me/pushed/commit/{'1' * 40}"
            self._reply({"success": True, "commitOid": "1" * 40, "commitUrl": url})
        elif self.path == "/api/validate-yaml":
            self._reply({"errors": [], "warnings": []})
        else:
            self.server.unknown.append(f"POST {self.path}")
            self._reply({"error": "unknown"}, 404)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    server = Hub()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", server.url)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pushed") / "run"
    trainer = Trainer(resolve(parse(RECIPE)), folder)
    trainer.train()
    trainer.close()
    (folder / "report.json").write_text(json.dumps({"steps": 1, "results": {"before": [], "after": [RESULT]}}))
    return folder


def test_a_pushed_policy_is_a_model_with_a_card(run: Path, hub: Hub, tmp_path: Path) -> None:
    export_run(Console(quiet=True), str(run), ExportRequest(push="me/pushed"))
    assert hub.made["name"] == "pushed" and hub.made["organization"] == "me"
    assert hub.made.get("visibility") == "private" or hub.made.get("private") is True
    assert [asked for asked in hub.unknown if asked.startswith("POST")] == []
    for name, content in hub.files.items():
        (tmp_path / name).write_bytes(content)
    AutoModelForCausalLM.from_pretrained(tmp_path)  # what was sent can be loaded
    text = hub.files["README.md"].decode()
    assert text.startswith('---\nlibrary_name: "transformers"') and "80.0 (67.0–89.0)" in text
    assert "`tictactoe`" in text and "1 step, seed 0" in text and '"group": 2' in text
    assert 'AutoModelForCausalLM.from_pretrained("me/pushed")' in text


def test_a_hub_that_refuses_is_one_sentence(run: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    with pytest.raises(InterplayError, match=r"the hub refused 'me/pushed'.*HF_TOKEN"):
        export_run(Console(quiet=True), str(run), ExportRequest(push="me/pushed"))
    with pytest.raises(ConfigError, match="expected OWNER/NAME"):
        export_run(Console(quiet=True), str(run), ExportRequest(push="me/pushed/again"))
    hub.shutdown()
    hub.server_close()
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(InterplayError, match="--to FOLDER"):
        export_run(Console(quiet=True), str(run), ExportRequest(push="me/pushed"))


def test_a_name_cannot_break_out_of_the_card(run: Path) -> None:
    recipe = parse({**RECIPE, "policies": {"player": {"base": 'me/x"\n---\nevil: 1'}}})
    text = card(run, recipe, "player", False)
    assert text.split("\n---\n")[0].count("\n") == 4  # the front matter ends where it should
