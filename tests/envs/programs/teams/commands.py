"""Functions and commands that are run in processes, each for one promise."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from http_game import Client


def talk(model: str = "planner", text: str = "hi") -> str:
    return Client().ask(model, [{"role": "user", "content": text}])


def one(row: dict[str, Any]) -> str:
    return talk(text=f"task {row['index']}")


def forks_once(row: dict[str, Any]) -> str:
    """Both processes ask and return, the forked one first."""
    child = os.fork()
    said = talk()
    if child:
        os.waitpid(child, 0)
    return said


def returns_a_set(row: dict[str, Any]) -> set[str]:
    return {talk()}


def one_is_late(row: dict[str, Any]) -> list[str]:
    """Two threads ask. One of them waits a little before it asks."""
    with ThreadPoolExecutor(2) as pool:
        early = pool.submit(talk, text=f"Early {row['index']}.")
        time.sleep(0.3)
        late = pool.submit(talk, text=f"Late {row['index']}.")
        return [early.result(), late.result()]


def surroundings(row: dict[str, Any]) -> dict[str, Any]:
    """What a program can reach."""
    talk()
    found: dict[str, Any] = {"variables": sorted(os.environ), "processes": os.getpid()}
    for name, path in (("secret", os.environ.get("TRIED_SECRET", "/etc/shadow")), ("own", "own.txt")):
        try:
            Path(path).read_text() if name == "secret" else Path(path).write_text("x")
            found[name] = True
        except OSError:
            found[name] = False
    try:
        Path(__file__).with_name("planted.txt").write_text("x")
        found["beside"] = True
    except OSError:
        found["beside"] = False
    for name, port in (("neighbour", int(os.environ["TRIED_PORT"])),):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=2).close()
            found[name] = True
        except OSError:
            found[name] = False
    try:
        with socket.socket(socket.AF_UNIX) as service:
            service.connect(os.environ["TRIED_SOCKET"])
        found["service"] = True
    except OSError:
        found["service"] = False
    return found


def home(row: dict[str, Any]) -> list[Any]:
    """Where its folder is, and whether an earlier run has left something there."""
    found = [os.environ["HOME"], os.environ["TMPDIR"], os.getcwd(), os.listdir()]
    Path("left.txt").write_text("x")
    talk()
    return found


def logprobs(row: dict[str, Any]) -> Any:
    body = {"model": "planner", "messages": [{"role": "user", "content": "hi"}], "logprobs": True, "n": 2}
    choices = json.loads(Client().post("chat/completions", body)[1])["choices"]
    return [[(t["token"], t["logprob"]) for t in c["logprobs"]["content"]] for c in choices]


def hashes(row: dict[str, Any]) -> int:
    return hash("word")


def imports_late(row: dict[str, Any]) -> list[bool]:
    """Whether two modules have been imported before this run imports them: one of Python, one of the user."""
    found = ["colorsys" in sys.modules, "loud" in sys.modules]
    import colorsys  # noqa: F401

    import loud  # noqa: F401

    return found


def crashes_on_everything(row: dict[str, Any]) -> str:
    said = talk()
    raise ValueError(f"cannot read {said!r}")


def leaves_a_child(row: dict[str, Any]) -> int:
    """A process that would outlive its parent."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], start_new_session=True)
    talk()
    return child.pid


def never_asks(row: dict[str, Any]) -> None:
    return None


def sleeps(row: dict[str, Any]) -> str:
    talk()
    time.sleep(60)
    return "late"


def eats_memory(row: dict[str, Any]) -> int:
    """Take 100 MB in this process, or in each of several child processes. An environment variable says how many."""
    talk()
    eat = "x = bytearray(100 << 20); x[::4096] = b'1' * len(x[::4096]); import time; time.sleep(30)"
    eaters = [subprocess.Popen([sys.executable, "-c", eat]) for _ in range(int(os.environ.get("EATERS", "0")))]
    for eater in eaters:
        eater.wait()
    return len(bytearray(1 << 30))


def forks(row: dict[str, Any]) -> int:
    """As many processes as it can, each in a session of its own."""
    talk()
    for _ in range(40):
        if os.fork() == 0:
            os.setsid()
            time.sleep(30)
    time.sleep(30)
    return 40


def returns_much(row: dict[str, Any]) -> str:
    talk()
    return "x" * (17 << 20)


def prints_much(row: dict[str, Any]) -> None:
    talk()
    while True:
        print("x" * (1 << 20))


def computes(row: dict[str, Any]) -> int:
    talk()
    while True:
        pass


def shows(row: dict[str, Any]) -> str:
    """A picture and a sound as chat APIs send them, the same picture again, and then another one in its place."""
    with open(os.environ["MEDIA"]) as file:
        first, other, sound = json.load(file)

    def told(picture: str) -> dict[str, Any]:
        seen = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{picture}"}}
        heard = {"type": "input_audio", "input_audio": {"data": sound, "format": "wav"}}
        return {"role": "user", "content": [{"type": "text", "text": "What is it?"}, seen, heard]}

    client, more = Client(), {"role": "user", "content": "Sure?"}
    said = {"role": "assistant", "content": client.ask("planner", [told(first)])}
    client.ask("planner", [told(first), said, more])
    return client.ask("planner", [told(other), said, more])


def pays(row: dict[str, Any]) -> str:
    """A tool that changes the world: it adds a line to a file."""
    from interplay_effects import recorded

    @recorded
    def pay(amount: str) -> dict[str, str]:
        with open(os.environ["PAID"], "a") as file:
            file.write(amount + "\n")
        if amount == "nothing":
            raise ValueError("nothing cannot be paid")
        return {"receipt": f"for {amount}"}

    receipt = pay(talk(text="How much?"))
    try:
        pay("nothing")
    except ValueError as error:
        receipt["error"] = str(error)
    return str(pay(talk("solver", f"{receipt} And the tip?"))["receipt"])


def asks_a_stranger(row: dict[str, Any]) -> str:
    return talk("gpt-4o")


def must_be_a_number(row: dict[str, Any]) -> int:
    return int(talk())


def calls_a_tool(row: dict[str, Any]) -> str:
    """The planner must call one of two tools, and then it says something."""
    client = Client()
    said: list[dict[str, Any]] = [{"role": "user", "content": f"task {row['index']}"}]
    tools = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in ("left", "right")]
    body = {"model": "planner", "messages": said, "tools": tools, "tool_choice": "required"}
    _, data = client.post("chat/completions", body)
    reply = json.loads(data)["choices"][0]["message"]
    told = {"role": "tool", "tool_call_id": reply["tool_calls"][0]["id"], "content": "done"}
    return client.ask("planner", [*said, reply, told], tools=tools)


def length(row: Any, result: Any) -> float:
    return float(len(str(result)))


if __name__ == "__main__":
    task = json.loads(os.environ["INTERPLAY_TASK"])
    if sys.argv[1:] == ["crash"]:
        talk()
        raise KeyError("from a command")
    print("some noise")
    print(json.dumps({"said": one(task)}))
