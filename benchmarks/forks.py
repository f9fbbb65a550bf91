"""CPU time of the process of an outside program, part by part: python benchmarks/forks.py --count 60

Every part is measured by forks that end after it, so that the difference of two rows is what a part costs. The program
is the bare HTTP client of benchmarks/gateway.py with two calls, and a small server in a process of its own answers it.
The forks are those of `envs/programs/worker.py`, with the same walls. It needs Linux with user namespaces and Landlock.
"""

from __future__ import annotations

import argparse
import gc
import http.server
import importlib
import json
import os
import resource
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROGRAMS = ROOT / "src" / "interplay" / "envs" / "programs"
sys.path.insert(0, str(PROGRAMS))  # as the worker does, which imports nothing else of the package
walls = importlib.import_module("walls")
sys.path.remove(str(PROGRAMS))
TASK = {"index": 1, "seed": 5, "split": "train"}
REPLY = json.dumps({"choices": [{"index": 0, "message": {"role": "assistant", "content": "3"}}]}).encode()


class Answers(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(REPLY)))
        self.end_headers()
        self.wfile.write(REPLY)

    def log_message(self, format: str, *args: object) -> None:
        pass


def used(who: resource.struct_rusage) -> float:
    return 1000 * (who.ru_utime + who.ru_stime)


def once(fork: Callable[[], int], parts: Sequence[Callable[[], object]]) -> tuple[float, float, int]:
    """Fork a process that does these parts: CPU ms of the process that forks and of the fork, and its page faults."""
    before = used(resource.getrusage(resource.RUSAGE_SELF))
    if not (pid := fork()):
        code = 1
        try:
            for part in parts:
                part()
            code = 0
        finally:
            os._exit(code)
    mine = used(resource.getrusage(resource.RUSAGE_SELF)) - before
    _, status, found = os.wait4(pid, 0)
    if status:
        raise SystemExit("a fork failed; see its error above.")
    return mine, used(found), found.ru_minflt


def measure(count: int, folder: str) -> None:
    """Print one JSON object for each part. This process must be the first of its process namespace."""
    talk = importlib.import_module("programs").bare_talk
    talk(TASK)
    gc.collect()
    gc.freeze()
    spaces, files = walls.ProcessNamespaces(), walls.FileRules([*walls.readable_by_default(), str(ROOT)])
    sockets = walls.SocketFilter()
    parts: dict[str, Callable[[], object]] = {
        "a process that ends at once": lambda: None,
        "a session and a pipe": lambda: (os.setsid(), os.pipe()),
        "a folder of its own": lambda: walls.limit_folder(folder, 64),
        "Landlock and the filter of system calls": lambda: (files.restrict([folder]), sockets.restrict()),
        "the task and a variable": lambda: (json.loads(json.dumps(TASK)), os.environ.update(A="b")),
        "the program with two calls": lambda: json.dumps(talk(TASK)),
    }
    found: dict[str, list[tuple[float, float, int]]] = {name: [] for name in parts}
    for _ in range(count):  # the parts in turn, so that other work on the machine slows down all of them
        for n, name in enumerate(parts, 1):
            found[name].append(once(spaces.fork, list(parts.values())[:n]))
    for name, each in found.items():
        forking, process, faults = (statistics.median(column) for column in zip(*each, strict=True))
        row = {"up to": name, "fork ms": forking, "process ms": process, "page faults": faults}
        print(json.dumps({k: round(v, 2) if isinstance(v, float) else v for k, v in row.items()}), flush=True)
    warm = []
    for _ in range(count):
        began = time.process_time()
        talk(TASK)
        warm.append(1000 * (time.process_time() - began))
    last = {"two calls in a process that has made them before, ms": round(statistics.median(warm), 2)}
    print(json.dumps(last), flush=True)  # this process ends with os._exit


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=60, help="forks for each part")
    count = parser.parse_args(argv).count
    sys.path.insert(0, str(ROOT / "benchmarks" / "programs"))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    address = f"http://127.0.0.1:{server.server_address[1]}/v1"
    os.environ.update(OPENAI_BASE_URL=address, OPENAI_API_KEY="key", ROUNDS="1")
    socket.getaddrinfo("127.0.0.1", server.server_address[1])
    with tempfile.TemporaryDirectory() as folder:
        if not (answering := os.fork()):
            server.serve_forever()
        if not (outer := os.fork()):
            walls.enter_namespaces(network=True)
            if not os.fork():
                measure(count, folder)
                os._exit(0)
            os._exit(os.waitstatus_to_exitcode(os.wait()[1]) & 255)
        status = os.waitpid(outer, 0)[1]
        os.kill(answering, 9)
        os.waitpid(answering, 0)
    sys.exit(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main()
