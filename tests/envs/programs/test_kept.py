"""A process that runs several episodes (`env.program.keep`): each is what it would be in a process of its own."""

from __future__ import annotations

import signal
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from program_player import hurried, newest, played, result
from rich.console import Console

from interplay import envs
from interplay.cli.twice import check_program
from interplay.envs.programs import process
from interplay.envs.programs.gateway import HttpRun, gateway
from interplay.envs.programs.options import OutsideOptions
from interplay.envs.programs.program import OutsideProgram
from interplay.errors import ConfigError, EnvError
from interplay.types import Task


def task_of(function: str, index: int = 0, keep: int = 8, **how: Any) -> Task:
    made = {"function": function if ":" in function else f"kept:{function}", "reward": "commands:length"}
    return envs.sample_task("program", {**made, "roles": ["planner"], "program": {"keep": keep, **how}}, "train", index)


def asked(env: OutsideProgram) -> list[str]:
    return [call.question.messages[-1].content for call in env.calls]


def test_a_process_runs_as_many_episodes_as_keep_says_and_the_next_one_is_fresh() -> None:
    """What the program remembers is there in its next episode: the user promises that it remembers nothing."""
    assert [result(played(task_of("counts", n, keep=3))) for n in range(7)] == [1, 2, 3, 1, 2, 3, 1]
    assert [result(played(task_of("counts", n, keep=1))) for n in range(3)] == [1, 1, 1]


@pytest.mark.parametrize("how", [{"walls": "none"}, {"network": True}])
def test_processes_are_kept_with_fewer_walls_too(how: dict[str, Any]) -> None:
    """A thread or a process that a run leaves is found there too, also a process whose parent has ended."""
    how = {"environment": {"WALLS": "fewer"}, **how}  # so that no process of another test waits
    said = ["hello", "hello", "thread", "hello", "child", "hello", "orphan", "hello"]
    assert [result(played(task_of("leaves", n, **how), one)) for n, one in enumerate(said)] == [1, 2, 3, 1, 2, 1, 2, 1]


def test_episodes_that_run_at_once_have_processes_of_their_own() -> None:
    runs = [envs.make(task_of("counts", n, environment={"AT": "once"})) for n in range(3)]
    for n, env in enumerate(runs):
        assert env.observe()["planner"].messages[-1].content == f"Task {n}."
    for env in runs:
        env.step({"planner": "x"})
        assert env.observe() == {} and result(env) == 1  # type: ignore[arg-type]


@pytest.mark.parametrize("said", ["crash", "exit", "kill", "sleep"])
def test_a_run_that_fails_costs_its_own_episode_and_ends_its_process(said: str) -> None:
    """A replay in another process fails too, so the reply is to blame. Only a run that sleeps has a short limit."""
    how = {"environment": {"SAID": said}}
    assert [result(played(task_of("fails_as_told", **how))) for _ in range(2)] == [1, 2]
    with hurried() if said == "sleep" else nullcontext():
        env = played(task_of("fails_as_told", **how), said)
    assert [(r.name, r.value) for r in envs.outcome_of(env)] == [("crashed", -0.1)]
    assert [result(played(task_of("fails_as_told", **how))) for _ in range(2)] == [1, 2]


def test_a_crash_that_an_earlier_episode_caused_is_no_fault_of_the_policy() -> None:
    """The replay runs in a fresh process, also if another one waits."""
    task = task_of("crashes_in_its_second_run")
    assert result(played(task)) == 1
    with pytest.raises(EnvError, match=r"crashed, but not again.*the state of the first run"):
        played(task)
    assert result(played(task)) == 1


def test_a_run_that_is_not_needed_any_more_ends_its_process() -> None:
    task = task_of("counts", environment={"NOT": "needed"})
    assert result(played(task)) == 1
    env = envs.make(task)
    env.observe()
    env.close()
    assert result(played(task)) == 1


@pytest.mark.parametrize("said", ["thread", "child", "fork", "file", "result", "connections", "limit", "output"])
def test_a_run_that_leaves_something_behind_counts_and_ends_its_process(said: str) -> None:
    """Its late requests are not those of the next episode."""
    how = {"environment": {"SAID": said}}
    assert result(played(task_of("leaves", **how))) == 1
    env = played(task_of("leaves", 1, **how), said)
    assert (result(env) == 2 or said == "result") and asked(env) == ["Task 1."]
    for n in (2, 3):
        env = played(task_of("leaves", n, **how))
        assert result(env) == n - 1 and asked(env) == [f"Task {n}."]
        time.sleep(0.3)


@pytest.mark.parametrize("walls", ["sandbox", "none"])
@pytest.mark.parametrize("size", [0, 1_000_000])
def test_a_request_never_counts_for_the_next_episode_of_a_process(size: int, walls: str) -> None:
    """It is sent on a new connection at the very end of a run, while the gateway is busy. The gateway then learns of
    the end before it sees the request, and the next run begins at once. It reads a large request in several parts."""
    first, second = (envs.make(task_of("leaves", n, walls=walls)) for n in range(2))
    assert isinstance(first, OutsideProgram) and isinstance(second, OutsideProgram)
    first.observe()
    loop = gateway()._loop
    loop.call_soon_threadsafe(loop.call_later, 0.05, time.sleep, 0.5)
    first.step({"planner": "request" + "x" * size})
    while seen := first.observe():
        first.step(dict.fromkeys(seen, "x"))
    assert list(second.observe()) == ["planner"]
    time.sleep(0.1)
    second.step({"planner": "hello"})
    assert second.observe() == {} and asked(second) == ["Task 1."]


def test_a_late_request_is_refused_with_a_sentence_and_ends_the_process() -> None:
    """Whoever sends it: here it is this test, with the key of a process that waits."""
    import http.client

    task = task_of("counts", environment={"LATE": "1"})
    env = played(task)
    run = env._run
    assert isinstance(run, process.ProcessRun) and newest()._waiting
    for _ in range(2):
        connection = http.client.HTTPConnection("127.0.0.1", run.gateway.port)
        connection.request("POST", f"/s/{run.key}/v1/chat/completions", '{"model": "planner", "messages": "hi"}')
        answer = connection.getresponse()
        assert answer.status == 410 and b"the episode of this key has ended" in answer.read()
    assert not newest()._waiting and result(played(task)) == 1


def test_a_run_begins_with_the_same_state_as_in_a_fresh_process() -> None:
    """Variables, folder, timers and random numbers. Threads that a run has waited for do not end its process."""
    runs = [result(played(task_of("leaves_nothing"))) for _ in range(3)]
    assert [run[4] for run in runs] == [1, 2, 3], "they ran in one process"
    assert runs[1][:4] == runs[0][:4] == runs[2][:4] and runs[0][1:3] == [[], None]
    assert all(run[5] == 0.0 for run in runs) and len({run[6] for run in runs}) == 3


def test_a_run_begins_with_the_mask_limits_timers_and_handlers_of_a_fresh_process() -> None:
    runs = [result(played(task_of("changes_its_process"))) for _ in range(3)]
    assert [run[0] for run in runs] == [1, 2, 3], "they ran in one process"
    assert runs[0][1] == runs[1][1] == runs[2][1] and runs[0][1][2] == [0.0, 0.0]


def test_the_walls_hold_in_every_run(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("x")
    tried = {"TRIED_SECRET": str(secret), "TRIED_PORT": "22", "TRIED_SOCKET": "/run/none"}
    runs = [result(played(task_of("surroundings_again", environment=tried))) for _ in range(3)]
    closed = {"secret": False, "own": True, "beside": False, "neighbour": False, "service": False}
    assert [run["runs"] for run in runs] == [1, 2, 3]
    assert all({name: run[name] for name in closed} == closed for run in runs)


def test_limits_of_cpu_time_and_output_are_those_of_one_run() -> None:
    limited = {"cpu_seconds": 1.0, "blame": "machinery"}
    runs = [result(played(task_of("computes_a_while", **limited))) for _ in range(3)]
    assert runs == [1, 2, 3], "together they used more than a run may"
    with pytest.raises(EnvError, match=r"more than env.program.cpu_seconds \(1\)"):
        played(task_of("computes_a_while", **limited), "much")
    assert [result(played(task_of("prints"))) for _ in range(3)] == [1, 2, 3]


def test_a_process_that_was_killed_while_it_waited_is_replaced() -> None:
    import psutil

    task = task_of("counts", environment={"KILLED": "1"})
    assert result(played(task)) == 1
    children = psutil.Process(newest()._process.pid).children(recursive=True)[1:]
    for child in children:
        child.send_signal(signal.SIGKILL)
    psutil.wait_procs(children, 60)
    assert [result(played(task)) for _ in range(2)] == [1, 2]


def test_the_socket_of_a_process_that_was_killed_while_it_waited_is_closed() -> None:
    """The process that replaces it has the same key, and a socket of its own."""
    import psutil

    task = task_of("counts", environment={"KILLED": "2"})
    assert result(played(task)) == 1
    (place,) = newest()._waiting
    socket = gateway()._server._servers[place.key]
    for child in (children := psutil.Process(newest()._process.pid).children(recursive=True)[1:]):
        child.send_signal(signal.SIGKILL)
    psutil.wait_procs(children, 60)
    assert result(played(task)) == 1
    assert gateway()._server._servers[place.key] is not socket and not socket.is_serving()


def test_reports_are_read_while_an_order_cannot_be_sent() -> None:
    """The worker may be busy with a large report, and reads no order before it is read. A run that nobody needs any
    more has reported that its process waits, and the process must be ended."""
    task = task_of("returns_later")
    left, env = envs.make(task), envs.make(task)
    runs = []
    for one in (left, env):
        one.observe()
        assert isinstance(one, OutsideProgram) and isinstance(one._run, process.ProcessRun)
        runs.append(one._run)
    worker = newest()
    del worker._runs[runs[0]._number]
    left.step({"planner": "0.5"})
    env.step({"planner": "1"})
    time.sleep(0.2)
    with worker._lock:
        until = time.monotonic() + 60
        while not runs[1]._reported and time.monotonic() < until:
            time.sleep(0.01)
        assert runs[1]._reported
    assert env.observe() == {}


def test_a_socket_that_cannot_be_received_is_a_failure_of_the_system() -> None:
    """A trainer that may not open more files gets the key of a process without its socket. Later ones may arrive."""
    import socket

    options = task_of("counts").data
    runs = [HttpRun(OutsideOptions.model_validate({k: v for k, v in options.items() if k != "row"})) for _ in range(2)]
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    gateway().adopt_from(here)
    with there, socket.create_server(("127.0.0.1", 0)) as listener:
        there.send(runs[0].key.encode())
        runs[0].settle_now()
        assert runs[0].crash is not None and runs[0].crash.machinery
        socket.send_fds(there, [runs[1].key.encode()], [listener.fileno()])
        until = time.monotonic() + 60
        while runs[1].key not in gateway()._server._servers and time.monotonic() < until:
            time.sleep(0.01)
        assert runs[1].key in gateway()._server._servers
    for run in runs:
        run.close()


def test_a_large_task_reaches_a_process_that_is_kept() -> None:
    task = task_of("counts")
    large = Task(task.id, task.env, task.seed, {**task.data, "row": {"index": 5, "text": "x" * 2_000_000}})
    assert [result(played(large)) for _ in range(2)] == [1, 2]


def test_a_client_that_the_program_keeps_works_in_all_episodes() -> None:
    pytest.importorskip("openai")
    runs = [played(task_of("with_one_client", n), f"reply {n}") for n in range(3)]
    assert [result(env) for env in runs] == [[n + 1, f"reply {n}", f"reply {n}"] for n in range(3)]
    assert [asked(env) for env in runs] == [[f"Task {n}."] * 2 for n in range(3)]


def test_a_client_that_is_made_when_the_program_is_imported_asks_for_the_episode_of_its_process() -> None:
    """All processes have the same client, with the same key. Each is in a network of its own."""
    pytest.importorskip("openai")
    for first in (0, 3):  # the second time in processes that have run other episodes
        runs = [envs.make(task_of("at_import:run", first + n)) for n in range(3)]
        for n, env in enumerate(runs, first):
            assert env.observe()["planner"].messages[-1].content == f"Task {n}."
        for n, env in enumerate(runs, first):
            env.step({"planner": f"reply {n}"})
            assert env.observe() == {} and result(env) == f"reply {n}"  # type: ignore[arg-type]
    assert [place.left for place in newest()._waiting] == [6, 6, 6]


def test_the_key_and_the_socket_of_a_process_go_with_it() -> None:
    """Of three runs with two in a process, the second process waits for its next run, and then it is not needed."""
    runs = [played(task_of("counts", n, keep=2, environment={"GOES": "1"})) for n in range(3)]
    keys = [run._run.key for run in runs if isinstance(run._run, process.ProcessRun)]
    for run in runs:
        run.close()
    (place,) = newest()._waiting
    served = gateway()._server._servers
    assert keys == [keys[0], keys[0], place.key] and place.key in served
    newest().drop(place)
    until = time.monotonic() + 60
    while served.keys() & set(keys) and time.monotonic() < until:
        time.sleep(0.01)
    assert not served.keys() & set(keys)


def test_recorded_effects_are_those_of_their_own_episode() -> None:
    how = {"effects": True, "recorded": True}
    first = played(task_of("pays", **how), "5")
    env = envs.make(task_of("pays", **how))
    env.observe()
    env.step({"planner": "5"})
    env.observe()
    twin = env.fork()
    for one in (env, twin):
        one.step({"planner": "yes"})
        assert one.observe() == {}
    assert result(first) == [1, "receipt 5 of run 1", "5"] and result(env) == [2, "receipt 5 of run 2", "yes"]  # type: ignore[arg-type]
    assert result(twin) == [3, "receipt 5 of run 2", "yes"]  # type: ignore[arg-type]


def test_only_a_function_can_be_kept() -> None:
    options = {"coroutine": "small_teams:two", "reward": "small_teams:length", "roles": ["planner", "solver"]}
    with pytest.raises(ConfigError, match=r"env\.program\.keep is 4, but the program is no function"):
        envs.make(envs.sample_task("program", {**options, "program": {"keep": 4}}))


@pytest.mark.parametrize(("function", "code"), [("counts", 0), ("tells", 1)])
def test_check_compares_a_kept_process_with_a_fresh_one(
    function: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """`tells` asks something else in each run of a process."""
    options = [f"function=kept:{function}", "reward=commands:length", "roles=['planner']", "program.keep=4"]
    console = Console(width=200)
    assert check_program(console, "program", options, 2, 0) == code
    printed = " ".join(capsys.readouterr().out.split())
    assert "each run twice, and once in a process that had run other episodes" in printed
    assert ("task 0: in a process that had run other episodes, call 0:" in printed) == bool(code)
