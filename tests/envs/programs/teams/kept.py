"""Programs whose process may run several episodes. `RUNS` counts the episodes of a process."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy
from commands import surroundings, talk
from http_game import Client

numpy.random.seed(5)
RUNS = [0]
KEPT: list[Any] = []


def count() -> int:
    RUNS[0] += 1
    return RUNS[0]


def counts(row: dict[str, Any]) -> int:
    number = count()
    talk(text=f"Task {row['index']}.")
    return number


def itself(row: dict[str, Any], result: int) -> float:
    return float(result)


def plans_and_solves(row: dict[str, Any]) -> str:
    """Two roles, a second call of each, and a call only if a reply says so. It remembers nothing."""
    count()
    plan = talk("planner", f"Plan {row['index']}.")
    drafts = [talk("solver", f"{plan} Draft {n}.") for n in range(2)]
    history = [{"role": "user", "content": f"Plan {row['index']}."}, {"role": "assistant", "content": plan}]
    more = Client().ask("planner", [*history, {"role": "user", "content": drafts[0]}])
    return drafts[0] + (talk("solver", more) if "a" in more else drafts[1])


def letters(question: str, reply: str) -> float:
    return len(set(reply)) / 10


def tells(row: dict[str, Any]) -> int:
    """The number of the run is in its question, so a fresh process asks something else."""
    number = count()
    talk(text=f"Run {number}.")
    return number


def fails_as_told(row: dict[str, Any]) -> int:
    number, said = count(), talk()
    if said == "crash":
        raise ValueError("as told")
    if said == "exit":
        sys.exit(3)
    if said == "kill":
        os._exit(5)
    if said == "sleep":
        time.sleep(60)
    return number


def crashes_in_its_second_run(row: dict[str, Any]) -> int:
    number = count()
    talk()
    if number == 2:
        raise ValueError("the state of the first run")
    return number


def request(text: str) -> bytes:
    body = json.dumps({"model": "planner", "messages": [{"role": "user", "content": text}]})
    url = urlsplit(os.environ["OPENAI_BASE_URL"])
    return (
        f"POST {url.path}/chat/completions HTTP/1.1\r\nhost: {url.netloc}\r\ncontent-length: {len(body)}\r\n\r\n{body}"
    ).encode()


def connect() -> None:
    KEPT.append(socket.create_connection(("127.0.0.1", urlsplit(os.environ["OPENAI_BASE_URL"]).port or 0)))


def asks_later() -> None:
    time.sleep(0.2)
    talk(text="Late.")


def leaves(row: dict[str, Any]) -> int:
    """Leave something behind that runs, waits or takes space after the end."""
    number, said = count(), talk(text=f"Task {row['index']}.")
    if said == "thread":
        threading.Thread(target=asks_later, daemon=True).start()
    elif said == "child":
        KEPT.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True))
    elif said == "fork":
        os.fork()  # both processes return from this function
    elif said == "orphan":
        subprocess.run([sys.executable, "-c", "import os, time; os.fork() or os.setsid() and time.sleep(60)"])
    elif said.startswith("request"):
        time.sleep(0.1)
        connect()
        KEPT[-1].sendall(request("Late." + said))
    elif said == "connections":
        for _ in range(65):
            connect()
    elif said == "limit":
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    elif said == "output":
        os.close(1)
    elif said == "file":
        KEPT.append(open("deleted", "wb"))  # noqa: SIM115
        os.unlink("deleted")
        KEPT[-1].write(bytes(1 << 20))
        KEPT[-1].flush()
    elif said == "result":
        for fd in range(3, 64):
            try:
                os.write(fd, b'{"result": 99, "imported": [], "again": true}\n')
            except OSError:
                continue
    return number


def leaves_nothing(row: dict[str, Any]) -> list[Any]:
    """Everything that is restored after a run: what it was before, and then it is changed."""
    found = [os.getcwd(), os.listdir(), os.environ.get("LEFT"), float(numpy.random.random()), count()]
    found.append(signal.getitimer(signal.ITIMER_REAL)[0])
    found.append(random.random())
    Path("left").mkdir()
    Path("left/file").write_text("x")
    os.chdir("left")
    os.environ["LEFT"] = "x"
    random.seed(0)
    signal.setitimer(signal.ITIMER_REAL, 100)
    threads = [threading.Thread(target=talk) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def changes_its_process(row: dict[str, Any]) -> list[Any]:
    """What the kernel knows about the process: what it was before, and then it is changed."""
    mask, files = os.umask(0o777), resource.getrlimit(resource.RLIMIT_NOFILE)
    timers = [signal.getitimer(kind)[0] for kind in (signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)]
    found = [mask, files, timers, int(signal.getsignal(signal.SIGCHLD) or 0)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (files[0] - 10, files[1]))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.setitimer(signal.ITIMER_VIRTUAL, 100)
    signal.setitimer(signal.ITIMER_PROF, 100)
    return [count(), found]


def returns_later(row: dict[str, Any]) -> int:
    time.sleep(float(talk()))
    return count()


def surroundings_again(row: dict[str, Any]) -> dict[str, Any]:
    return {**surroundings(row), "runs": count()}


def computes_a_while(row: dict[str, Any]) -> int:
    number, until = count(), time.process_time() + (60.0 if talk() == "much" else 0.6)
    while time.process_time() < until:
        pass
    return number


def prints(row: dict[str, Any]) -> int:
    """9 MB in every run; a run may print 16 MB."""
    number = count()
    talk()
    for _ in range(9):
        print("x" * (1 << 20))
    return number


def with_one_client(row: dict[str, Any]) -> list[Any]:
    """A client that is made in the first run and used in all of them, as programs do that cache it."""
    from openai import OpenAI

    if not KEPT:
        KEPT.append(OpenAI())
    messages: Any = [{"role": "user", "content": f"Task {row['index']}."}]
    said = KEPT[0].chat.completions.create(model="planner", messages=messages).choices[0].message.content
    chunks = KEPT[0].chat.completions.create(model="planner", messages=messages, stream=True)
    return [count(), said, "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)]


def pays(row: dict[str, Any]) -> list[Any]:
    from interplay_effects import recorded

    @recorded
    def pay(amount: str) -> str:
        return f"receipt {amount} of run {RUNS[0]}"

    number = count()
    return [number, pay(talk(text="How much?")), talk(text="Done?")]
