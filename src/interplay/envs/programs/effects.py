"""The record of what a program's tools did, for programs whose tools change the world (`env.program.effects`).

A tool that is recorded asks this log before it runs. If the same call was made before the point where the program was
forked, the log gives the recorded result and the tool does not run again. So a tree of such a program changes the world
once for each branch, and never again for the common beginning of the branches.
"""

from __future__ import annotations

import json
import threading
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from interplay.envs.programs.http import HttpReply


@dataclass(frozen=True, slots=True)
class Effect:
    """One call of a tool, and how it ended: {"result": …} or {"error": [class, words]}."""

    name: str
    arguments: str  # as JSON
    recorded: Mapping[str, Any]


class EffectLog:
    """The calls of one episode. `known` are those of the run that is replayed."""

    def __init__(self, known: Sequence[Effect] = (), replaying: bool = False) -> None:
        self.done = list(known)
        self.replaying = replaying  # the program has not reached the point where it was forked
        self.diverged = ""  # the call that a replay made although the first run did not
        self._lock = threading.Lock()
        self._left: defaultdict[tuple[str, str], deque[Mapping[str, Any]]] = defaultdict(deque)
        for one in known:
            self._left[one.name, one.arguments].append(one.recorded)

    def recall(self, name: str, arguments: Any) -> Mapping[str, Any] | None:
        """What is recorded of this call; None if the tool must run. Equal calls get their results one after another."""
        written = _written(arguments)
        with self._lock:
            if left := self._left[name, written]:
                return left.popleft()
            if self.replaying:
                self.diverged = self.diverged or f"{name}({written})"
        return None

    def note(self, name: str, arguments: Any, recorded: Mapping[str, Any]) -> None:
        with self._lock:
            self.done.append(Effect(name, _written(arguments), dict(recorded)))

    def posted(self, body: Mapping[str, Any]) -> HttpReply:
        """Answer a program that asks for the record of a call, or adds to it."""
        name, arguments = body.get("name"), body.get("arguments")
        if not isinstance(name, str):
            return HttpReply.error(400, "name is missing; expected the name of the tool.")
        if "recorded" in body:
            if not isinstance(body["recorded"], Mapping):
                kind = type(body["recorded"]).__name__
                return HttpReply.error(400, f"recorded is a {kind}; expected an object that says how the call ended.")
            self.note(name, arguments, body["recorded"])
            return HttpReply.json({"noted": True})
        found = self.recall(name, arguments)
        if self.diverged:
            return HttpReply.error(
                409, f"the replay has diverged: it calls {self.diverged}, which was not called before."
            )
        return HttpReply.json({"known": found is not None, "recorded": found})


def _written(arguments: Any) -> str:
    return json.dumps(arguments, sort_keys=True)
