"""The messages of a channel: a job or a question, and its answer.

A message is the size of its head, then the head in JSON, then the parts whose sizes the head gives.
"""

from __future__ import annotations

import json
import socket
import struct
from typing import Any


class ReceivedJob:
    """A job as the supervisor reads it from the channel, without standard input."""

    def __init__(self, channel: socket.socket) -> None:
        header = receive_head(channel)
        self.limits: dict[str, float] = header["limits"]
        self.argv: list[str] = header["argv"]
        self.harness: str = header["harness"]
        self.source = receive(channel, header["source"])
        self.files = {name: receive(channel, size) for name, size in header["files"]}
        self.stdin_size: int = header["stdin"]
        self.running = 0  # processes that the kernel counts in addition to the program's own


class ReceivedQuestion:
    """A question to a service (`service.py`)."""

    def __init__(self, channel: socket.socket) -> None:
        self.head = receive_head(channel)
        self.limits: dict[str, float] = self.head["limits"]
        self.needs: list[str] = self.head["needs"]  # the names of the files that it is about
        self.ours: bool = self.head["ours"]  # whether no part of it was written by a model
        self.text = receive(channel, self.head["text"])
        self.files = {name: receive(channel, size) for name, size in self.head["files"]}

    def forward(self, channel: socket.socket) -> None:
        text = json.dumps(self.head).encode()
        channel.sendall(b"".join((struct.pack("I", len(text)), text, self.text, *self.files.values())))


def receive_head(channel: socket.socket) -> dict[str, Any]:
    head: dict[str, Any] = json.loads(receive(channel, struct.unpack("I", receive(channel, 4))[0]))
    return head


def receive(channel: socket.socket, size: int) -> bytes:
    """Read `size` bytes. Raises EOFError if the other end is closed."""
    parts = bytearray()
    while len(parts) < size:
        part = channel.recv(min(1 << 20, size - len(parts)))
        if not part:
            raise EOFError("nobody waits for this result any more")
        parts += part
    return bytes(parts)


def receive_answer(channel: socket.socket) -> dict[str, Any]:
    """Read an answer that `send` wrote."""
    head = receive_head(channel)
    stdout, stderr = (receive(channel, size) for size in head.pop("sizes"))
    return {**head, "stdout": stdout, "stderr": stderr}


def send(channel: socket.socket, answer: dict[str, Any]) -> None:
    parts = [bytes(answer.get(name, b"")) for name in ("stdout", "stderr")]
    head = {name: value for name, value in answer.items() if name not in ("stdout", "stderr")}
    text = json.dumps({**head, "sizes": [len(p) for p in parts]}).encode()
    channel.sendall(b"".join((struct.pack("I", len(text)), text, *parts)))
