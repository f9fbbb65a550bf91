"""What the sandbox runs, its limits, and its result."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any, Literal

from interplay.errors import SandboxError

RunStatus = Literal["ok", "error", "timeout", "memory", "output", "disk", "processes", "killed"]


@dataclass(frozen=True)
class Limits:
    """What one program may use, all its processes together. CPU seconds count for each process."""

    seconds: float = 10.0  # wall-clock time
    cpu_seconds: float = 5.0  # rounded up to whole seconds
    memory_mb: float = 512.0
    files_mb: float = 16.0
    processes: int = 16  # threads count as processes
    output_kb: float = 256.0  # standard output and error together


@dataclass(frozen=True)
class Job:
    """A Python program (`source`), a command (`argv`) or one of our harnesses (`jail/program.py`), with its standard
    input and the files in its folder."""

    source: str = ""
    argv: tuple[str, ...] = ()
    harness: Literal["", "referee", "checker"] = ""
    stdin: str = ""
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    limits: Limits = Limits()

    def __post_init__(self) -> None:
        if sum(map(bool, (self.source, self.argv, self.harness))) > 1:
            raise SandboxError("a job has more than one of source, argv and harness; expected only one of them.")
        for name in self.files:
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts or not path.parts:
                raise SandboxError(f"a job has a file '{name}'; expected a relative path without '..'.")

    def encoded(self) -> bytes:
        source, stdin = self.source.encode("utf-8", "replace"), _bytes(self.stdin)
        files = {name: c if isinstance(c, bytes) else c.encode("utf-8", "replace") for name, c in self.files.items()}
        sizes = [(name, len(content)) for name, content in files.items()]
        what = {"limits": asdict(self.limits), "argv": self.argv, "harness": self.harness}
        head = {**what, "source": len(source), "files": sizes, "stdin": len(stdin)}
        return framed(head, source, *files.values(), stdin)


def framed(head: Mapping[str, Any], *parts: bytes) -> bytes:
    """A message in the format that `jail/job.py` reads. The head gives the sizes of the parts."""
    text = json.dumps(head).encode()
    return b"".join((struct.pack("I", len(text)), text, *parts))


def _bytes(text: str) -> bytes:
    """The text in UTF-8. Half of a surrogate pair, which cannot be encoded, becomes a question mark."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace")


@dataclass(frozen=True)
class RunResult:
    """The result of a program. `ok` only means exit code 0; it says nothing about what was computed.

    `error`: another exit code. `killed`: a signal ended it. `timeout`, `memory`, `output`, `disk`, `processes`: it
    failed at that limit or was ended because of it; if it was ended, `code` is None. Output is what it wrote so far.
    """

    status: RunStatus
    code: int | None
    seconds: float
    output: bytes = b""
    errors: bytes = b""
    lost: bool = False  # it vanished for an unknown reason: the program or the machine may be the cause

    @property
    def ok(self) -> bool:
        return self.status == "ok"

    @cached_property
    def stdout(self) -> str:
        return self.output.decode("utf-8", "replace")

    @cached_property
    def stderr(self) -> str:
        return self.errors.decode("utf-8", "replace")
