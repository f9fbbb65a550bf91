"""Programs in processes: what they can reach, how they end, and whose fault it is."""

from __future__ import annotations

import socket
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from program_player import hurried, newest, played, result

from interplay import envs
from interplay.envs.programs import process
from interplay.envs.programs.program import OutsideProgram
from interplay.errors import ConfigError, EnvError
from interplay.types import Rewards, Task

TEAMS = Path(__file__).parent / "teams"


def task_of(**options: Any) -> Task:
    made = {"reward": "commands:length", "roles": ["planner"], **options}
    return envs.sample_task("program", made)


def test_a_function_and_a_command_are_asked_for_and_give_their_result() -> None:
    env = played(task_of(function="commands:one"))
    assert result(env) == "hello"
    assert [r.value for r in envs.outcome_of(env)] == [5.0]
    env = played(task_of(command=[sys.executable, str(TEAMS / "commands.py")]))
    assert result(env) == {"said": "hello"}


def test_a_program_reaches_the_gateway_and_its_folder_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the trainer's environment, not files that are not named, not the ports beside the gateway's, and not services
    that have a socket in the file system."""
    secret = tmp_path / "secret.txt"
    secret.write_text("x")
    monkeypatch.setenv("WANDB_API_KEY", "secret")
    with (
        socket.create_server(("127.0.0.1", 0)) as neighbour,
        socket.socket(socket.AF_UNIX) as service,
        tempfile.TemporaryDirectory() as folder,  # the path of a socket must be short
    ):
        service.bind(f"{folder}/service")
        service.listen()
        tried = {"TRIED_SECRET": str(secret), "TRIED_PORT": str(neighbour.getsockname()[1])}
        tried["TRIED_SOCKET"] = f"{folder}/service"
        walled = result(played(task_of(function="commands:surroundings", program={"environment": tried})))
        assert {k: walled[k] for k in ("secret", "own", "beside", "neighbour", "service")} == {
            "secret": False, "own": True, "beside": False, "neighbour": False, "service": False,
        }  # fmt: skip
        assert "WANDB_API_KEY" not in walled["variables"] and walled["processes"] == 1
        assert set(process.SILENT) <= set(walled["variables"]), "tracing and telemetry are off"
        named = {"environment": tried, "readable": [str(secret)], "network": True}
        opened = result(played(task_of(function="commands:surroundings", program=named)))
        assert opened["secret"] and opened["neighbour"] and opened["service"] and not opened["beside"]


def test_the_folder_of_every_run_is_empty_and_has_the_same_path() -> None:
    """A program may tell the model where it is, and a replay must ask the same."""
    task = task_of(function="commands:home")
    first, waiting = played(task), envs.make(task)
    waiting.observe()  # it has its folder while the next one runs
    home = result(first)[0]
    assert result(first) == [home, home, home, []] and result(played(task)) == result(first)
    waiting.step({"planner": "x"})
    assert waiting.observe() == {} and result(waiting) == result(first)  # type: ignore[arg-type]


@pytest.mark.parametrize("keep", [1, 4])
def test_pools_and_shared_memory_work_and_are_those_of_one_run(keep: int) -> None:
    """The semaphores of multiprocessing are files in /dev/shm, which was not writable: PermissionError."""
    memory = {"environment": {"MEMORY": "1"}} if keep == 1 else {}
    task = task_of(function="pools:computes", program={"keep": keep, **memory})
    with tempfile.NamedTemporaryFile(dir="/dev/shm"):  # of another program of this machine
        found = [result(played(task)) for _ in range(6)]
    runs = [run.pop("run") for run in found]
    # One process does three runs. There are more, because on a busy machine the last thread of a pool may take so long
    # to end that its process is not kept.
    assert max(runs) >= 3 if keep > 1 else set(runs) == {1}
    same = {"found": [], "squares": [0, 1, 4, 9], "again": [0, 1, 4, 9], "same": True, "own": []}
    assert found == [same] * 6


def test_shared_memory_counts_as_the_disk_of_a_run() -> None:
    assert result(played(task_of(function="pools:fills", program={"disk_mb": 1.0}))) == [True, False]


@pytest.mark.parametrize("rude", ["close", "fork", "ignore"])
def test_what_a_module_does_when_it_is_imported_does_not_end_the_worker(rude: str) -> None:
    """It closes standard streams, forks, or lets the kernel forget processes that have ended."""
    task = task_of(function="rude_import:run", program={"environment": {"RUDE": rude}})
    assert result(played(task)) == "hello"
    worker = newest()
    assert [result(played(task)) for _ in range(2)] == ["hello", "hello"]
    assert newest() is worker and worker.alive


def test_a_module_whose_import_never_ends_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "IMPORT", 0.5)
    task = task_of(function="rude_import:run", program={"environment": {"RUDE": "hang"}, "seconds": 0.1})
    with pytest.raises(ConfigError, match=r"'rude_import:run' cannot be started: it was not imported within 0.5 sec"):
        envs.make(task).observe()


@pytest.mark.parametrize("keep", [1, 8])
def test_a_process_that_a_program_forks_has_no_result(keep: int) -> None:
    task = task_of(function="commands:forks_once", program={"keep": keep})
    runs = [played(task) for _ in range(2)]
    assert [(result(env), len(env.calls)) for env in runs] == [("hello", 2)] * 2


def test_a_result_that_is_no_json_says_what_was_expected() -> None:
    task = task_of(function="commands:returns_a_set", program={"blame": "machinery"})
    sentence = r"UnreadableResult at an unknown place: its result cannot be written as JSON .*expected text, numbers"
    with pytest.raises(EnvError, match=sentence):
        played(task)


def test_a_replay_waits_for_a_call_that_comes_later_than_the_first_time() -> None:
    """Calls that wait together are answered in an order of their own. Here it begins with the call that comes last, and
    the replay is asked before this call has come."""
    for index in range(64):
        options = {"function": "commands:one_is_late", "reward": "commands:length", "roles": ["planner"]}
        env = envs.make(envs.sample_task("program", options, "train", index))
        assert isinstance(env, OutsideProgram)
        env._begun()
        time.sleep(1.0)
        if env.observe()["planner"].messages[0].content.startswith("Late"):
            break
        env.close()
    twin = env.fork()
    for one in (env, twin):
        one.step({"planner": "first"})
        assert one.observe()["planner"].messages[0].content == f"Early {index}."
        one.step({"planner": "second"})
        assert one.observe() == {} and result(one) == ["second", "first"]


def test_what_a_program_started_ends_with_it() -> None:
    """Also a process in a session of its own: it is in the program's namespace."""
    played(task_of(function="commands:leaves_a_child"))
    assert not left_behind()


def left_behind() -> list[Any]:
    """Processes of the newest worker that are still there after a while, besides the two that wait for its next run."""
    import psutil

    *_, worker = process._workers.values()
    until = time.monotonic() + 60
    while len(left := psutil.Process(worker._process.pid).children(recursive=True)) > 2 and time.monotonic() < until:
        time.sleep(0.05)
    return left[2:]


@pytest.mark.parametrize(
    "options",
    [
        {"function": "commands:crashes_on_everything"},
        {"command": [sys.executable, str(TEAMS / "commands.py"), "crash"]},
    ],
)
def test_a_crash_that_comes_again_is_the_policys_and_names_its_place(options: dict[str, Any]) -> None:
    env = played(task_of(**options))
    assert [(r.name, r.value) for r in envs.outcome_of(env)] == [("crashed", -0.1)]
    assert "commands.py:" in env.state()


@pytest.mark.parametrize(
    ("function", "limits", "words"),
    [
        ("eats_memory", {"memory_mb": 400.0}, "MemoryError at .*commands.py"),
        (
            "eats_memory",
            {"memory_mb": 250.0, "environment": {"EATERS": "4"}},
            r"more than env.program.memory_mb \(250\)",
        ),
        ("forks", {"processes": 8}, r"more than env.program.processes \(8\)"),
        ("returns_much", {}, "it returned more than 16 MB"),
        ("prints_much", {}, "it printed more than 16 MB"),
        ("computes", {"cpu_seconds": 0.5}, r"more than env.program.cpu_seconds \(0.5\)"),
    ],
)
def test_a_program_that_uses_more_than_it_may_is_ended(function: str, limits: dict[str, Any], words: str) -> None:
    """With all that it started. Its own replies may be the reason, so by default it is replayed like a crash."""
    how = {**limits, "blame": "machinery"}
    with pytest.raises(EnvError, match=words):
        played(task_of(function=f"commands:{function}", program=how))
    assert not left_behind()


def test_a_program_that_takes_too_long_by_itself_is_ended() -> None:
    """After a reply that may be the policy's doing: it is replayed, and late again."""
    began = time.monotonic()
    with hurried():
        env = played(task_of(function="commands:sleeps"))
    assert "Timeout" in env.state()
    assert time.monotonic() - began < 100, "it would have slept for a minute, twice"


def test_a_program_that_never_asks_ends_with_its_result() -> None:
    env = envs.make(task_of(function="commands:never_asks"))
    assert env.observe() == {}


def test_what_a_run_imports_late_is_there_for_the_next_run() -> None:
    """Only if it is a part of Python or of a package that the program has imported: a run may do what a model says."""
    task = task_of(function="commands:imports_late")
    assert [result(played(task)) for _ in range(2)] == [[False, False], [True, False]]


def test_a_module_that_prints_when_it_is_imported_is_no_trouble() -> None:
    assert result(played(task_of(function="loud:run"))) == "done"


def test_a_program_may_have_modules_with_the_names_of_ours() -> None:
    assert result(played(task_of(function="processes:run"))) == "processes and folder"


def test_sets_have_the_same_order_in_every_worker() -> None:
    """A replay may run in another worker, and must ask the same."""
    task = task_of(function="commands:hashes", program={"workers": 2})
    assert len({result(played(task)) for _ in range(2)}) == 1


def test_a_program_that_cannot_be_started_is_a_sentence_with_its_place() -> None:
    with pytest.raises(ConfigError, match=r"env.function 'commands:missing' cannot be started: AttributeError"):
        envs.make(task_of(function="commands:missing")).observe()
    with pytest.raises(ConfigError, match=r"env\.program\.python"):
        envs.make(task_of(function="commands:one", program={"python": "no-such-python"})).observe()


def wait_for(happened: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not happened() and time.monotonic() < until:
        time.sleep(0.01)


@pytest.mark.parametrize("heard", [False, True])
def test_a_worker_that_is_gone_is_an_error_and_not_the_policys_fault(heard: bool) -> None:
    env = envs.make(task_of(function="commands:sleeps", program={"seconds": 30.0, "environment": {"X": "1"}}))
    assert isinstance(env, OutsideProgram)
    env.observe()
    worker = env._run._worker._process  # type: ignore[union-attr, attr-defined]
    worker.kill()
    if heard:  # before the answer is given
        wait_for(lambda: env._run.ended)  # type: ignore[union-attr]
    env.step({"planner": "x"})
    with pytest.raises(EnvError, match="lost worker"):
        env.observe()
    assert worker.stdin.closed and worker.stdout.closed


def test_a_program_gets_the_log_probs_of_the_tokens_that_were_sampled(players: Any) -> None:
    """Each of the `n` answers of one call is a turn, sampled by itself."""
    told: list[Any] = []

    def heard(env: OutsideProgram, result: Any, calls: Any) -> Rewards:
        told.append(result)
        return Rewards()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OutsideProgram, "rewarded", heard)
        (episode,) = players.play([task_of(function="commands:logprobs")])
    turns = [turn.last for turn in episode.turns]
    assert len(turns) == 2 and turns[0].action != turns[1].action
    for turn, rows in zip(turns, told[0], strict=True):
        assert [value for _, value in rows] == pytest.approx(turn.logprobs)
        assert "".join(text for text, _ in rows).startswith(turn.text)


def test_episodes_of_processes_are_played_by_a_model(players: Any) -> None:
    make: Callable[..., Task] = task_of
    episodes = players.play([make(function="commands:one")] * 4)
    assert [e.error for e in episodes] == [None] * 4
    assert all(e.turns[0].last.action for e in episodes)
