"""The sandbox: what a program may do, what its result says, which walls a machine has, and refusing to do without."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from interplay.errors import SandboxError
from interplay.execution import isolation, worker
from interplay.execution.sandbox import LEVELS, Job, Limits, Sandbox, choose, offered

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
    with pytest.raises(SandboxError, match="expected one of them"):
        Job("x", argv=("y",))


def test_a_dead_worker_is_an_error_and_then_replaced() -> None:
    """Promise 7: a failure of the machinery is never a result."""
    with Sandbox(1) as box:
        box.warm()
        first = box._idle.get()
        box._idle.put(first)
        assert first is not None
        os.kill(first.process.pid, signal.SIGKILL)
        with pytest.raises(SandboxError, match="worker died"):
            box.run(Job("print(1)"))
        assert box.run(Job("print(1)")).stdout == "1\n"
    with pytest.raises(SandboxError, match="closed"):
        box.run(Job(""))


def test_the_job_ends_with_the_one_who_asked(tmp_path: Path) -> None:
    asks = (
        "import threading, time, sys\nfrom interplay.execution.sandbox import *\nbox = Sandbox(1).warm()\n"
        "print(box._idle.queue[0].folder, flush=True)\n"
        "threading.Thread(target=box.run, args=(Job('import time; time.sleep(60)', limits=Limits(60)),)).start()"
    )
    asker = subprocess.Popen(
        [sys.executable, "-c", asks], env={"PYTHONPATH": str(SOURCE)}, stdout=subprocess.PIPE, text=True
    )
    assert asker.stdout is not None
    folder = asker.stdout.readline().strip()
    time.sleep(0.3)
    asker.kill()
    asker.wait()

    def left() -> list[str]:
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and folder in (entry / "cmdline").read_text():
                    found.append(entry.name)
            except OSError:
                continue
        return found

    until = time.monotonic() + 10
    while left() and time.monotonic() < until:
        time.sleep(0.05)
    assert left() == []
    os.rmdir(folder)


# An interpreter that anybody may start; this one may lie in a folder of root's.
ANYBODY = "/usr/bin/python3"
AS_NOBODY = """
import os, sys
os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
sys.path.insert(0, sys.argv[1])
from interplay.execution.sandbox import *
for level in LEVELS:
    if offered(level): print(level, "not offered:", offered(level)); continue
    with Sandbox(1, level) as box:
        bomb = box.run(Job("import os\\nwhile True: os.fork()", limits=Limits(seconds=20, processes=8)))
        print(level, box.run(Job("import json\\nprint(json.dumps([1]))")).stdout.strip(), bomb.status)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become somebody else")
def test_a_normal_user_has_the_same_walls() -> None:
    version = "import sys; sys.exit(sys.version_info < (3, 11))"
    if subprocess.run([ANYBODY, "-c", version], check=False, capture_output=True).returncode:
        pytest.skip(f"{ANYBODY} is no Python 3.11 or later")
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        jail = [f"execution/jail/{path.name}" for path in (SOURCE / "interplay" / "execution" / "jail").glob("*.py")]
        room = [f"execution/{name}.py" for name in ("sandbox", "isolation", "job", "worker")]
        for name in ("__init__.py", "errors.py", "execution/__init__.py", *room, *jail):
            target = Path(folder) / "interplay" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((SOURCE / "interplay" / name).read_bytes())
        done = subprocess.run([ANYBODY, "-c", AS_NOBODY, folder], capture_output=True, text=True, check=False, env={})
    assert done.stdout.splitlines() == [
        f"{level} [1] processes" if not offered(level) else done.stdout.splitlines()[n]
        for n, level in enumerate(LEVELS)
    ], done


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
    with pytest.raises(SandboxError, match="isolation = 'namespaces' is more than this machine offers: switched off"):
        Sandbox(1, "namespaces")
    with pytest.raises(SandboxError, match="Did you mean 'landlock'"):
        choose("landlok")  # type: ignore[arg-type]


def test_a_level_is_offered_only_if_a_program_cannot_get_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Detection tries to break out: walls that were only half put up are found."""
    weaker = worker.START.replace("main(int", "program.restrict = zygote.fence = lambda *_: None\nmain(int")
    weaker = weaker.replace("import main", "import main\nfrom interplay.execution.jail import program, zygote")
    monkeypatch.setattr(worker, "START", weaker)
    if not offered("landlock"):
        assert "read a file outside its folder, use the network" in offered.__wrapped__("landlock")


def test_without_user_namespaces_the_reason_is_said() -> None:
    """In a process that may not make them, as in many containers."""
    code = "from interplay.errors import SandboxError\nfrom interplay.execution.sandbox import Sandbox\n"
    code += "try: Sandbox(1, 'namespaces')\n"
    code += "except SandboxError as e: print(e)"
    off = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'
    prevented = ["unshare", "--user", "--map-root-user", "sh", "-c", off, "sh", sys.executable, "-c", code]
    env = {"PYTHONPATH": str(SOURCE), "PATH": os.environ["PATH"]}
    done = subprocess.run(prevented, env=env, capture_output=True, text=True, check=False)
    if done.returncode and "Traceback" not in done.stderr:
        pytest.skip(f"user namespaces cannot be switched off for a process here: {done.stderr.strip()}")
    assert "isolation = 'namespaces' is more than this machine offers: user namespaces" in done.stdout, done
