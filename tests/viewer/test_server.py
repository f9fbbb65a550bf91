"""The server: for this machine alone, with a token, and read-only."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from written import add_step, illegal, write_run

pytest.importorskip("httpx")
from starlette.testclient import TestClient

from interplay.viewer.library import Library
from interplay.viewer.pairs import LABELS
from interplay.viewer.server import Viewer

TOKEN = "correct-token"
BASE = "http://127.0.0.1:8000"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = write_run(tmp_path / "runs" / "one", 2)
    add_step(folder, 3, more=[illegal(90)])
    return folder


@pytest.fixture
def client(run: Path) -> Iterator[TestClient]:
    viewer = Viewer(Library([run.parent]), TOKEN)
    with TestClient(viewer.app(), base_url=BASE) as made:
        made.get(f"/?token={TOKEN}")
        yield made
    viewer.close()


def test_without_the_token_nothing_is_shown(run: Path) -> None:
    with TestClient(Viewer(Library([run]), TOKEN).app(), base_url=BASE) as client:
        for path in ("/", "/api/runs", "/web/app.js", "/api/events", "/?token=wrong", f"/api/runs?token={TOKEN}"):
            assert client.get(path).status_code == 401, path
        first = client.get(f"/?token={TOKEN}", follow_redirects=False)
        assert first.status_code == 303 and first.headers["location"] == "/"  # the token leaves the address bar
        cookie = first.headers["set-cookie"].lower()
        assert "httponly" in cookie and "samesite=strict" in cookie
        assert client.get("/api/runs").status_code == 200


def test_a_page_of_another_host_gets_nothing(client: TestClient) -> None:
    """DNS rebinding: the browser sends our cookie, but the name in the address is not this machine's."""
    for host in ("evil.example:8000", "evil.example", "127.0.0.1.evil.example:8000"):
        assert client.get("/api/runs", headers={"host": host}).status_code == 403, host
    sent = {"input": [], "output_1": "a", "output_2": "b", "label": 1}
    assert client.post("/api/run/one/label", json=sent, headers={"origin": "http://evil.example"}).status_code == 403
    form = {"content-type": "text/plain"}
    assert client.post("/api/run/one/label", content="{}", headers=form).status_code == 403


def test_the_page_may_load_nothing_from_elsewhere(client: TestClient) -> None:
    page = client.get("/")
    policy = page.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'") and "connect-src 'self'" in policy
    assert "http://" not in page.text and "https://" not in page.text
    assert client.get("/").headers["content-security-policy"] != policy  # the nonce is new each time


@pytest.mark.parametrize("path", ["../server.py", "..%2fserver.py", "%2e%2e/server.py", "/etc/passwd", "nothing.js"])
def test_only_files_of_the_page_are_sent(client: TestClient, path: str) -> None:
    assert client.get(f"/web/{path}").status_code == 404


def test_pictures_are_sent_by_digest_alone(client: TestClient, run: Path) -> None:
    picture = next((run / "media").glob("*.png"))
    found = client.get(f"/api/run/one/media/{picture.stem}")
    assert found.content == picture.read_bytes() and found.headers["content-type"] == "image/png"
    for name in ("..%2frun", "0" * 32, "run.json"):
        assert client.get(f"/api/run/one/media/{name}").status_code == 404


def test_looking_at_everything_changes_no_file(client: TestClient, run: Path) -> None:
    before = {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in run.rglob("*") if p.is_file()}
    at = "step=3&id=task-90%230"
    for question in (
        "about",
        "metrics",
        "episodes",
        f"episode?{at}",
        "pair",
        "evaluation",
        "verdicts",
        "disagreements",
        "task?id=task-90",
    ):
        assert client.get(f"/api/run/one/{question}").status_code == 200, question
    assert {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in run.rglob("*") if p.is_file()} == before


def test_a_label_is_the_one_thing_that_is_written(client: TestClient, run: Path) -> None:
    pair = client.get("/api/run/one/pair").json()["pair"]
    assert client.post("/api/run/one/label", json={**pair, "label": 1}).json() == {"labelled": 1}
    assert (run / LABELS).read_text().count("\n") == 1


def test_an_answer_that_cannot_be_given_is_one_sentence(client: TestClient) -> None:
    for path in ("/api/run/none/about", "/api/run/one/none", "/api/run/one/episode?step=x&id=y", "/api/nothing"):
        found = client.get(path)
        assert found.status_code == 404 and set(found.json()) == {"error"}, path
