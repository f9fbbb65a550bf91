"""The sandbox: what a program may do, what its result says, which levels a machine offers, and refusing without
them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest
from hostile import limits_of
from hostile_programs import PROGRAMS, HostileProgram

from interplay.errors import SandboxError
from interplay.execution import isolation, worker
from interplay.execution.jail import folder, processes
from interplay.execution.sandbox import LEVELS, IsolationLevel, Job, Limits, RunResult, Sandbox, choose, offered

SOURCE = Path(__file__).parents[2] / "src"


@pytest.fixture(scope="module", params=LEVELS)
def box(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    if reason := offered(request.param):
        pytest.skip(f"this machine does not offer {request.param}: {reason}")
    with Sandbox(2, request.param) as made:
        yield made


def test_a_program_is_run_like_a_script(box: Sandbox) -> None:
    source = "import sys\nprint(__name__, sys.argv, input(), open('data/a.txt').read())\nsys.stderr.write('hm')"
    result = box.run(Job(source, stdin="ä\n", files={"data/a.txt": "content"}))
    assert (result.status, result.code, result.stderr) == ("ok", 0, "hm"), result
    assert result.stdout == "__main__ ['main.py'] ä content\n"


def test_an_exception_has_its_traceback(box: Sandbox) -> None:
    result = box.run(Job("def f():\n    return 1 / 0\nf()"))
    assert result.status == "error" and result.code == 1
    assert result.stderr.startswith("Traceback") and "return 1 / 0" in result.stderr and "jail" not in result.stderr
    assert box.run(Job("def f(:")).stderr.rstrip().endswith("SyntaxError: invalid syntax")


@pytest.mark.parametrize(("leaving", "code"), [("", 0), ("sys.exit()", 0), ("sys.exit(3)", 3), ("sys.exit('no')", 1)])
def test_exit_codes(box: Sandbox, leaving: str, code: int) -> None:
    assert box.run(Job(f"import sys\n{leaving}")).code == code


def test_what_a_script_ends_with_is_done(box: Sandbox) -> None:
    source = "import atexit, threading, time\natexit.register(print, 'bye')\n"
    source += "threading.Thread(target=lambda: (time.sleep(.05), print('thread'))).start()\nprint('main')"
    assert box.run(Job(source)).stdout == "main\nthread\nbye\n"


def test_commands(box: Sandbox) -> None:
    result = box.run(Job(argv=("sh", "-c", "cat; cat a; exit 5"), stdin="in ", files={"a": b"file"}))
    assert (result.status, result.code, result.stdout) == ("error", 5, "in file")
    with pytest.raises(SandboxError, match="'no-such-program' cannot be started"):
        box.run(Job(argv=("no-such-program",)))
    assert box.run(Job("print(1)")).ok


def test_the_same_program_does_the_same_again(box: Sandbox) -> None:
    job = Job("import random\nprint(random.random(), hash('a'), list({'a', 'b', 'c', 'd'}))")
    assert len({r.stdout for r in box.map([job] * 6)}) == 1


def test_nothing_is_left_for_the_next_program(box: Sandbox) -> None:
    look = "import os\nprint(os.listdir('.'))\nopen('left', 'w').write('x')"
    assert [r.stdout for r in box.map([Job(look)] * 6)] == ["[]\n"] * 6


def test_large_input_and_output(box: Sandbox) -> None:
    text = "".join(f"{i}\n" for i in range(300_000))
    limits = Limits(output_kb=4096)
    result = box.run(Job("import sys\nsys.stdout.write(sys.stdin.read())", stdin=text, limits=limits))
    assert result.ok and result.stdout == text
    assert box.run(Job("print('not read')", stdin=text)).stdout == "not read\n"


def test_input_is_not_in_the_memory_of_a_program_that_has_not_read_it(box: Sandbox) -> None:
    """A harness may fork a program before it reads the answers from its input."""
    hunt = (
        "import gc\nword = ''.join(reversed('yzzyx'))\n"
        "found = [o for o in gc.get_objects() for r in gc.get_referents(o) if isinstance(r, (str, bytes, bytearray))"
        " and r is not word and (word if isinstance(r, str) else word.encode()) in r]\nprint(len(found))"
    )
    assert box.run(Job(hunt, stdin="xyz" + "zy")).stdout == "0\n"


def test_many_at_once_keep_their_order(box: Sandbox) -> None:
    assert [r.stdout for r in box.map(Job(f"print({i})") for i in range(20))] == [f"{i}\n" for i in range(20)]


def test_wrong_jobs() -> None:
    for name in ("/etc/x", "../x", "a/../../x", ""):
        with pytest.raises(SandboxError, match="expected a relative path"):
            Job("", files={name: ""})
    with pytest.raises(SandboxError, match="expected only one of them"):
        Job("x", argv=("y",))


def score(box: Sandbox, job: Job) -> RunResult:
    """The result of a program: there must be one, and in time."""
    found: Future[RunResult] = Future()

    def run() -> None:
        try:
            found.set_result(box.run(job))
        except BaseException as error:
            found.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    try:
        return found.result(10 * job.limits.seconds)
    except TimeoutError:
        pytest.fail("the slot never came back")
    except Exception as error:
        pytest.fail(f"a program became a failure of the machinery: {type(error).__name__}: {error}")


@pytest.mark.parametrize(
    "source",
    [
        "import os\nos.kill(1, 2)",
        "import os\nos.kill(os.getppid(), 2)",
        "import os\nfor s in range(1, 65):\n    for p in (1, os.getppid()):\n"
        "        try: os.kill(p, s)\n        except OSError: pass",
        "import os\nos.rmdir(os.getcwd())",
        "import os\nos.rename(os.getcwd(), os.getcwd() + '2')",
        "import os, resource\nfor p in (1, os.getppid()): resource.prlimit(p, resource.RLIMIT_CPU, (0, 0))",
        "import os\nfor _ in range(1200):\n    os.mkdir('d'); os.chdir('d')",
        "import os\nfor _ in range(60):\n    os.mkdir('d' * 200, 0o300); os.chdir('d' * 200)",
    ],
)  # fmt: skip
def test_whatever_a_program_does_it_gets_a_score_and_the_slot_comes_back(box: Sandbox, source: str) -> None:
    """Also a program that attacks process 1 or its parent, removes its own folder, or leaves a folder that is deeper
    than Python can recurse."""
    if box.level == "rlimits":
        pytest.skip("without walls a program can reach the sandbox")
    limits = Limits(seconds=10)
    assert score(box, Job(source, limits=limits)).status in ("ok", "error", "killed", "disk")
    assert [score(box, Job("print(1)", limits=limits)).stdout for _ in range(4)] == ["1\n"] * 4


@pytest.mark.parametrize(("name", "mode", "levels"), [("d", 0o700, 3000), ("d" * 200, 0o300, 60)])
def test_a_folder_of_any_depth_is_removed(tmp_path: Path, name: str, mode: int, levels: int) -> None:
    """Audit C3: clean-up raised RecursionError. Paths in it are also longer than the kernel accepts."""
    at = os.open(tmp_path, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir(name, mode, dir_fd=at)
        inner = os.open(name, os.O_PATH, dir_fd=at)
        os.close(at)
        at = inner
    os.close(at)
    try:
        assert folder.remove(str(tmp_path)) and not tmp_path.exists()
    finally:  # pytest cannot remove what is left either
        subprocess.run(["rm", "-rf", tmp_path], check=True)


@pytest.mark.parametrize(
    "program", [p for p in PROGRAMS if p.kind in ("uncounted memory", "hidden disk") or "thread" in p.name],
    ids=lambda p: p.name,
)  # fmt: skip
def test_memory_and_disk_that_belong_to_no_process_or_folder_are_counted(box: Sandbox, program: HostileProgram) -> None:
    if box.level == "rlimits":
        pytest.skip("without a filter a program has memory that nobody counts")
    result = score(box, Job(program.source, limits=limits_of(program)))
    assert "ESCAPED" not in result.stdout and result.status in program.ends, result


def test_a_pipe_is_counted_with_all_that_it_can_hold() -> None:
    """More on machines with larger pages: 256 KiB with pages of 16 KiB, as some aarch64 kernels have."""
    ends = os.pipe()
    try:
        assert fcntl.fcntl(ends[0], fcntl.F_GETPIPE_SZ) <= processes.PIPE * (1 << 20)
    finally:
        for fd in ends:
            os.close(fd)


def test_half_a_character_on_standard_input_is_no_error_of_ours(box: Sandbox) -> None:
    assert score(box, Job("print(len(input()))", stdin="\ud800x")).stdout == "2\n"


def test_copies_of_files_can_be_made(box: Sandbox) -> None:
    """With Landlock, modes and times of files cannot be set, and this must not be an error."""
    source = "import shutil\nopen('a', 'w').write('x')\nshutil.copy('a', 'b'); shutil.copy2('a', 'c')\n"
    assert box.run(Job(source + "shutil.copytree('.', 'd')\nprint(open('d/c').read())")).stdout == "x\n"


def test_a_program_whose_worker_died_is_run_again() -> None:
    with Sandbox(1) as box:
        box.warm()
        first = box.pool.idle.get()
        box.pool.idle.put(first)
        assert first is not None
        os.kill(first.process.pid, signal.SIGKILL)
        assert box.run(Job("print(1)")).stdout == "1\n"
    with pytest.raises(SandboxError, match="closed"):
        box.run(Job(""))


def test_machinery_that_fails_every_program_is_an_error_and_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """Promise 7."""
    broken = "import os\nfrom interplay.execution.jail import zygote\nzygote.supervise = lambda *_: os._exit(1)\ndel "
    with Sandbox(1) as box:
        monkeypatch.setattr(worker, "START", worker.START.replace("del ", broken))
        with pytest.raises(SandboxError, match="worker died"):
            box.run(Job("print(1)"))
        monkeypatch.undo()
        assert box.run(Job("print(1)")).stdout == "1\n"


def commands(text: str) -> list[str]:
    """Processes whose command contains the text; forks keep the command of their parents."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and text in (command := (entry / "cmdline").read_text()):
                found.append(command)
    return found


@pytest.mark.parametrize("level", ["namespaces", "landlock"])
def test_a_killed_run_leaves_neither_processes_nor_folders(level: IsolationLevel, tmp_path: Path) -> None:
    """Killed in the middle of a program that has children and files."""
    if reason := offered(level):
        pytest.skip(f"this machine does not offer {level}: {reason}")
    os.chmod(tmp_path, 0o777)
    program = "import os, time; open('x', 'w').write('x'); os.fork(); time.sleep(60)"
    asks = (
        f"from interplay.execution.sandbox import *\nprint(choose({level!r}), flush=True)\n"
        f"print(Sandbox(1, {level!r}).run(Job({program!r}, limits=Limits(60, 60))))"
    )
    env = {"PYTHONPATH": str(SOURCE), "TMPDIR": str(tmp_path)}
    asker = subprocess.Popen([sys.executable, "-c", asks], env=env, stdout=subprocess.PIPE, text=True)
    assert asker.stdout and asker.stdout.readline() == f"{level}\n"  # it has tried the level with a program of its own
    until = time.monotonic() + 120
    while len(commands(str(tmp_path))) < 4 and time.monotonic() < until:
        time.sleep(0.05)
    time.sleep(0.3)
    asker.kill()
    asker.wait()
    asker.stdout.close()
    until = time.monotonic() + 120
    while (commands(str(tmp_path)) or os.listdir(tmp_path)) and time.monotonic() < until:
        time.sleep(0.05)
    assert commands(str(tmp_path)) == [] and os.listdir(tmp_path) == []


def test_what_a_killed_worker_left_behind_is_swept(tmp_path: Path) -> None:
    """An unlocked folder is removed after a while; a folder in use, or of another part of Interplay, is not."""
    jails = [worker.PREFIX + name for name in ("old", "new", "used")]
    for name in (*jails, "interplay-adapters-old", "other-old"):
        (tmp_path / name / ("d" * 100) / "e").mkdir(parents=True)
        if name != jails[1]:
            os.utime(tmp_path / name, (0, 0))
    used = os.open(tmp_path / jails[2], os.O_RDONLY)
    fcntl.flock(used, fcntl.LOCK_SH)
    worker.sweep(str(tmp_path))
    os.close(used)
    assert sorted(os.listdir(tmp_path)) == ["interplay-adapters-old", *jails[1:], "other-old"]


# -- which walls there are --------------------------------------------------------------------------------------------


def refuse(monkeypatch: pytest.MonkeyPatch, reasons: dict[str, str]) -> None:
    monkeypatch.setattr(isolation, "offered", lambda level: reasons.get(level, ""))


def test_strongest_is_the_first_that_is_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, {})
    assert choose("strongest") == "namespaces"
    refuse(monkeypatch, {"namespaces": "switched off"})
    assert choose("strongest") == "landlock"


def test_no_silent_downgrade(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, {"namespaces": "switched off", "landlock": "too old"})
    with pytest.raises(SandboxError, match=r"switched off.*too old.*isolation = 'rlimits'"):
        Sandbox(1)
    assert choose("rlimits") == "rlimits"
    with pytest.raises(
        SandboxError, match="isolation is 'namespaces', but this machine does not offer it: switched off"
    ):
        Sandbox(1, "namespaces")
    with pytest.raises(SandboxError, match="Did you mean 'landlock'"):
        choose("landlok")  # type: ignore[arg-type]


def test_a_level_is_offered_only_if_a_program_cannot_get_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is tested by trying to break out, so incomplete isolation is found."""
    weaker = worker.START.replace("main(sys", "program.restrict = zygote.fence = lambda *_: None\nmain(sys")
    weaker = weaker.replace("import main", "import main\nfrom interplay.execution.jail import program, zygote")
    monkeypatch.setattr(worker, "START", weaker)
    if not offered("landlock"):
        assert "read a file outside its folder, use the network" in offered.__wrapped__("landlock")


def test_without_user_namespaces_the_reason_is_said() -> None:
    """In a process that may not create them, as in many containers."""
    code = "from interplay.errors import SandboxError\nfrom interplay.execution.sandbox import Sandbox\n"
    code += "try: Sandbox(1, 'namespaces')\n"
    code += "except SandboxError as e: print(e)"
    off = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'
    prevented = ["unshare", "--user", "--map-root-user", "sh", "-c", off, "sh", sys.executable, "-c", code]
    env = {"PYTHONPATH": str(SOURCE), "PATH": os.environ["PATH"]}
    done = subprocess.run(prevented, env=env, capture_output=True, text=True, check=False)
    if done.returncode and "Traceback" not in done.stderr:
        pytest.skip(f"user namespaces cannot be switched off for a process here: {done.stderr.strip()}")
    assert "isolation is 'namespaces', but this machine does not offer it: user namespaces" in done.stdout, done
