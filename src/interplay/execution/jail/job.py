"""The channel between the sandbox and a supervisor: a job comes, an answer goes."""

from __future__ import annotations

import json
import os
import socket
import struct


class ReceivedJob:
    """What the supervisor read from the channel, all but standard input."""

    def __init__(self, channel: socket.socket) -> None:
        header = json.loads(receive(channel, struct.unpack("I", receive(channel, 4))[0]))
        self.limits: dict[str, float] = header["limits"]
        self.argv: list[str] = header["argv"]
        self.harness: str = header["harness"]
        self.source = receive(channel, header["source"])
        self.files = {name: receive(channel, size) for name, size in header["files"]}
        self.stdin_size: int = header["stdin"]
        self.running = 0  # processes that the kernel counts besides the program's own


def receive(channel: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = channel.recv(min(1 << 16, size - len(parts)))
        if not part:
            os._exit(0)  # nobody is left who wants to know
        parts += part
    return bytes(parts)


def send(channel: socket.socket, answer: dict[str, object]) -> None:
    parts = [bytes(answer.pop(name, b"")) for name in ("stdout", "stderr")]  # type: ignore[call-overload]
    head = json.dumps({**answer, "sizes": [len(p) for p in parts]}).encode()
    channel.sendall(struct.pack("I", len(head)) + head + parts[0] + parts[1])
