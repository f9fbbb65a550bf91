"""What may go wrong around judges in a run: a baseline that fails, a reward server that is killed, a version that is
taken back; and that judge and learner never change each other."""

from __future__ import annotations

import copy
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from runs import make, rows, train
from test_judges import LEARNS, SMALL, judged, model, played, says
from test_trainer import assert_same_run, kill_in_a_step

from interplay.agents.best_of import BestOf
from interplay.errors import GuardError, ModelError
from interplay.training.judges import Labelled, ModelScorer
from interplay.training.preference import Better, Fitting
from interplay.training.trainer import Observer
from interplay.types import Message

QUESTION = (Message("user", "Write 4 signs."),)


def test_replies_are_compared_with_a_competing_agent_and_only_the_tasks_that_it_could_not_play_fail(
    tmp_path: Path, served: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The rival is a remote model that writes no filler. One of its four requests of the first step fails. A failed
    request once ended the whole run."""
    asked: list[int] = []

    def rival(body: dict[str, Any]) -> str:
        asked.append(1)
        if len(asked) == 2:
            raise ConnectionError
        return "0000"

    section = {"base": "openai:rival", "trainable": False, "remote": {"url": served(rival), "retries": 0}}
    judge = {"kind": "pairwise", "who": "gold:proxy", "against": "rival"}
    train(tmp_path, judged(judge, policies={**SMALL["policies"], "rival": section}), "train.steps=2")
    assert [row["episodes_failed"] for row in rows(tmp_path)] == [4, 0] and len(asked) == 8
    assert caplog.text.count("the baseline's episode of") == 1
    paid = [{r.name: r.value for r in record.episode.rewards} for record in played(tmp_path)]
    assert len(paid) == 28 and all(one["taste"] == float(bool(one["filler"])) for one in paid)


def test_a_version_that_is_taken_back_is_not_changed_by_the_training_that_follows(tmp_path: Path) -> None:
    """Otherwise the second time the run goes back to other moments, and not to those that a resumed run reads."""
    trainer = make(tmp_path, judged(LEARNS))
    pupil = trainer.judges.pupils["taste"]
    pupil.seen = [Labelled(QUESTION, "1111", "0000", 1.0, f"t{i}", f"t{i}") for i in range(32)]
    pupil.learn()
    pupil.good = pupil.model.state_dict()
    before = copy.deepcopy(pupil.good)
    pupil.model.load_state_dict(pupil.good, 1e-3)
    pupil.learn()
    trainer.close()
    moments = pupil.good["optimizer"]["state"]
    assert moments and all(
        torch.equal(value, before["optimizer"]["state"][i][key])
        for i, each in moments.items()
        for key, value in each.items()
    )
    assert all(torch.equal(value, before["module"][key]) for key, value in pupil.good["module"].items())


@pytest.mark.parametrize("adapter", [False, True])
def test_a_step_of_the_judge_leaves_the_learner_bit_identical_and_the_other_way_round(
    tmp_path: Path, adapter: bool
) -> None:
    """Both start from the same base."""
    section = {**LEARNS, "train": {**LEARNS["train"], **({"adapter": {"rank": 4}} if adapter else {})}}
    trainer = make(tmp_path, judged(section), "train.steps=2")
    pupil, learner = trainer.judges.pupils["taste"], trainer.team.members["learner"].loaded.model
    found: list[tuple[bool, bool, bool]] = []

    def weights(module: torch.nn.Module) -> dict[str, torch.Tensor]:
        return {name: value.clone() for name, value in module.state_dict().items()}

    def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
        return all(torch.equal(value, other[name]) for name, value in one.items())

    learn, start, left = pupil.learn, weights(learner), weights(pupil.model.module)

    def watched() -> dict[str, float]:
        nonlocal left
        kept = same(left, weights(pupil.model.module))  # since the judge's last step the learner has made a step
        before = weights(learner)
        metrics = learn()
        found.append((kept, same(before, weights(learner)), same(left, weights(pupil.model.module))))
        left = weights(pupil.model.module)
        return metrics

    pupil.learn = watched  # type: ignore[method-assign]
    trainer.train()
    trainer.close()
    assert found == [(True, True, False)] * 2 and not same(start, weights(learner))


def test_a_frozen_partner_says_the_best_of_several_replies_by_a_judge_that_learns_in_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []
    chosen: list[str] = []
    sample, scores = BestOf.sample, ModelScorer.scores

    async def sampled(self: BestOf, *given: Any) -> Any:
        turn = await sample(self, *given)
        chosen.append(turn.text)
        return turn

    async def scored(self: ModelScorer, given: Any) -> list[float]:
        found = await scores(self, given)
        if len(given) == 3:  # a group has four episodes
            asked.append([reply for _, reply in given])
        return found

    monkeypatch.setattr(BestOf, "sample", sampled)
    monkeypatch.setattr(ModelScorer, "scores", scored)
    game = {
        "env": {"name": "matrix", "game": "stag_hunt"}, "seats": {"p0": "learner", "p1": "frozen"}, "reward": {},
        "policies": {**SMALL["policies"], "frozen": {"base": "tiny-32x1", "trainable": False}},
        "sampling": {**SMALL["sampling"], "best_of": 3, "best_by": "taste"},
    }  # fmt: skip
    judge = {**LEARNS, "train": {**LEARNS["train"], "labels": "gold:payoff"}, "audit": None}
    train(tmp_path, judged(judge, **game), "train.steps=2", "algorithm.entropy=0.01")
    frozen = [turn for record in played(tmp_path) for turn in record.episode.line("p1")]
    assert len(frozen) == len(chosen) == len(asked) > 0 and {turn.policy for turn in frozen} == {"frozen"}
    assert [row["episodes_failed"] for row in rows(tmp_path)] == [0, 0]


def test_a_folder_of_another_kind_is_refused(tmp_path: Path, make_tiny: Any) -> None:
    made = model(make_tiny, "verifier")
    made.fit([Better(says("4"), None, 1.0), Better(says("5"), None, 0.0)] * 4, Fitting(epochs=1, batch=4))
    made.save(tmp_path / "v")
    judge = {"kind": "reward_model", "who": str(tmp_path / "v")}
    with pytest.raises(ModelError, match="is a verifier, but is used as a reward_model; expected kind = 'verifier'"):
        make(tmp_path / "run", judged(judge))


def test_a_reward_model_with_broken_weights_stops_the_run_with_its_name(tmp_path: Path, make_tiny: Any) -> None:
    made = model(make_tiny, "reward_model")
    torch.nn.init.constant_(made.head.weight, float("nan"))
    made.save(tmp_path / "rm")
    sentence = "all 16 episodes of step 1 failed.*judge 'taste' gave no reward: the reward model gave the score nan"
    with pytest.raises(GuardError, match=sentence):
        train(tmp_path / "run", judged({"kind": "reward_model", "who": str(tmp_path / "rm")}))


def test_a_reply_that_is_too_long_for_a_local_judge_is_an_error_that_names_the_judge(tmp_path: Path) -> None:
    judge = {"kind": "pointwise", "who": "critic", "marks": "expected", "instructions": "word " * 5000}
    policies = {**SMALL["policies"], "critic": {"base": "tiny-32x1", "trainable": False}}
    sentence = (
        "RequestError: judge 'taste' gave no reward: prompt .* takes at most 4096.*judges.NAME.max_tokens for a judge"
    )
    with pytest.raises(GuardError, match=sentence):
        train(tmp_path, judged(judge, policies=policies))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (["sampling.temperature=0.01"], "It needs different replies to the same prompt"),
        (["judges.taste.train.holdout=0.95"], "All labels are of held-out tasks"),
        (["judges.taste.kind=verifier", "sampling.temperature=0.01"], "It needs right and wrong answers to the same"),
    ],
)
def test_a_judge_that_has_nothing_to_learn_from_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, changes: list[str], sentence: str
) -> None:
    train(tmp_path, judged(LEARNS), "train.steps=2", "algorithm.entropy=0.01", *changes)
    assert caplog.text.count("judges.taste has nothing to learn from yet") == 1 and sentence in caplog.text
    assert all("judge/taste/loss" not in row for row in rows(tmp_path))


def test_a_judge_whose_comparisons_were_all_left_out_by_their_lengths_says_so_and_gives_scores(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A training on no comparisons once gave the score NaN to every reply, which ended the run."""
    monkeypatch.setattr("interplay.training.judges.even_lengths", lambda rows, *_: [])
    train(tmp_path, judged(LEARNS), "train.steps=2", "judges.taste.train.balance=length")
    assert "The longer reply won all of its comparisons, or none" in caplog.text
    assert all("judge/taste/loss" not in row and row["episodes_failed"] == 0 for row in rows(tmp_path))


DYING = """
import json, os, signal, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
port, last, asked = int(sys.argv[1]), int(sys.argv[2]), 0
class Judge(BaseHTTPRequestHandler):
    def do_POST(self):
        global asked
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        asked += 1
        if asked == last:
            self.send_response(200)
            self.flush_headers()
            os.kill(os.getpid(), signal.SIGKILL)  # in the middle of an answer
        if self.path == "/score":
            answer = {"version": "1", "scores": [item["reply"].count("1") / 8 for item in body["items"]]}
        else:
            reply = body["messages"][-1]["content"].split("<reply>")[1].split("</reply>")[0]
            message = {"role": "assistant", "content": str(reply.count("1"))}
            answer = {"choices": [{"message": message, "finish_reason": "stop"}], "usage": {"completion_tokens": 2}}
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
    def log_message(self, *given):
        pass
ThreadingHTTPServer.request_queue_size = 128
server = ThreadingHTTPServer(("127.0.0.1", port), Judge)
print("ready", flush=True)
server.serve_forever()
"""


@pytest.fixture
def own_port() -> Iterator[int]:
    """A port that nobody else is given while no server listens there. Linux lets servers listen on it all the same,
    because they set SO_REUSEADDR too."""
    with socket.socket() as kept:
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind(("127.0.0.1", 0))
        yield kept.getsockname()[1]


@pytest.mark.parametrize("kind", ["pointwise", "reward_model", "verifier"])
def test_a_judge_that_is_killed_while_it_answers_and_started_again_loses_nothing(
    tmp_path: Path, own_port: int, kind: str
) -> None:
    """A judge in words, a reward model and a verifier, each behind a server that kills itself with SIGKILL while it
    answers its third request."""
    port = own_port
    servers: list[subprocess.Popen[str]] = []

    def start(last: int) -> None:
        command = [sys.executable, "-c", DYING, str(port), str(last)]
        servers.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        assert servers[-1].stdout is not None and servers[-1].stdout.readline() == "ready\n"

    def revive() -> None:
        servers[0].wait()
        start(0)

    start(3)
    reviving = threading.Thread(target=revive)
    reviving.start()
    data = judged({"kind": kind, "who": f"http://127.0.0.1:{port}"})
    if kind == "pointwise":
        remote = {"url": f"http://127.0.0.1:{port}/v1", "retries": 8}
        data = judged(
            {"kind": kind, "who": "far", "scale": [0, 8]},
            policies={**SMALL["policies"], "far": {"base": "openai:judge", "trainable": False, "remote": remote}},
        )
    try:
        train(tmp_path, data, "train.steps=2")
        reviving.join()
    finally:
        for server in servers:
            server.kill()
            server.wait()
    assert servers[0].returncode == -signal.SIGKILL and len(servers) == 2
    assert [row["episodes_failed"] for row in rows(tmp_path)] == [0, 0]
    found = [(x.episode.line()[-1].text, {r.name: r.value for r in x.episode.rewards}) for x in played(tmp_path)]
    assert len(found) == 32 and len({text for text, _ in found}) > 4
    for text, paid in found:
        share = text.count("1") / 8
        assert paid["taste"] == pytest.approx(2 * share - 1 if kind == "pointwise" else share)


@pytest.mark.slow
def test_a_run_with_a_judge_in_training_that_gets_kill_minus_nine_resumes_bit_identically(tmp_path: Path) -> None:
    """A real SIGKILL in the middle of a step. Judge, learner, their optimisers and all records are compared."""
    data = {**judged(LEARNS), "train": {"steps": 21, "lr": 1e-3}, "checkpoint": {"every": 4}}
    kill_in_a_step(tmp_path / "cut", data, 0.1)
    resumed = make(tmp_path / "cut", data)
    assert 4 <= resumed.step_index < 21 and resumed.judges.pupils["taste"].model.version > 0
    resumed.train()
    resumed.close()
    train(tmp_path / "whole", data)
    assert_same_run(tmp_path / "whole", tmp_path / "cut", 21)


@pytest.mark.slow
def test_a_reward_server_that_is_killed_in_the_middle_of_a_run_loses_nothing(
    tmp_path: Path, own_port: int, make_tiny: Any
) -> None:
    """The run waits until the server is there again, and ends like a run whose server was never killed."""
    pytest.importorskip("uvicorn")
    made = model(make_tiny, "reward_model")
    made.fit([Better(says("1111"), says("0000"))] * 8, Fitting(epochs=4, batch=4, lr=3e-3))
    made.save(tmp_path / "rm")
    port = own_port
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "interplay", "judge", "serve", str(tmp_path / "rm"), "--port", str(port)]

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen([*command, "--device", "cpu"], env={**os.environ, "OMP_NUM_THREADS": "1"})

    servers = [start()]

    def stepped(step: int, metrics: Any) -> None:
        if step == 1:
            servers[-1].send_signal(signal.SIGKILL)
            servers[-1].wait()
            servers.append(start())

    try:
        until = time.monotonic() + 600
        while True:
            try:
                urllib.request.urlopen(f"{url}/health").close()
                break
            except OSError:
                assert servers[0].poll() is None and time.monotonic() < until
                time.sleep(0.2)
        data = judged({"kind": "reward_model", "who": url, "retries": 8})
        train(tmp_path / "whole", data)
        train(tmp_path / "killed", data, observer=Observer(stepped=stepped))
    finally:
        for server in servers:
            server.kill()
            server.wait()
    assert len(servers) == 2
    for one, other in zip(rows(tmp_path / "killed"), rows(tmp_path / "whole"), strict=True):
        assert one["episodes_failed"] == other["episodes_failed"] == 0
        for key in ("reward/taste/writer", "reward/filler/writer"):  # which requests share a batch changes the rounding
            assert one[key] == pytest.approx(other[key], abs=1e-4)
