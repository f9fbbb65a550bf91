"""For programs whose tools change the world: `from interplay_effects import recorded`, and `@recorded` on every tool.

While the program is trained, the result of each call is recorded. When the program is replayed, a call that was made
before gets its recorded result, and the tool does not run again. Elsewhere, the tool just runs. Arguments and results
must be JSON values. Standard library only: it runs under the program's own Python.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import json
import os
import urllib.request
from collections.abc import Callable
from typing import Any

VARIABLE = "INTERPLAY_EFFECTS"  # the address of the record; not set in production


class RecordedError(Exception):
    """A tool raised this in the recorded run, and its class is not one of Python's own."""


def recorded(tool: Callable[..., Any]) -> Callable[..., Any]:
    name = f"{tool.__module__}.{tool.__qualname__}"
    if inspect.iscoroutinefunction(tool):

        @functools.wraps(tool)
        async def waited(*args: Any, **named: Any) -> Any:
            found = _asked(name, args, named)
            if found is None:
                try:
                    result = await tool(*args, **named)
                except Exception as error:
                    _noted(name, args, named, error=error)
                    raise
                return _noted(name, args, named, result=result)
            return _given(found)

        return waited

    @functools.wraps(tool)
    def called(*args: Any, **named: Any) -> Any:
        found = _asked(name, args, named)
        if found is None:
            try:
                result = tool(*args, **named)
            except Exception as error:
                _noted(name, args, named, error=error)
                raise
            return _noted(name, args, named, result=result)
        return _given(found)

    return called


def _asked(name: str, args: Any, named: Any) -> dict[str, Any] | None:
    """What is recorded of this call; None if the tool must run."""
    if VARIABLE not in os.environ:
        return None
    found = _post({"name": name, "arguments": [args, named]})
    return found["recorded"] if found["known"] else None


def _noted(name: str, args: Any, named: Any, result: Any = None, error: Exception | None = None) -> Any:
    """Record how the call ended, and return the result as a replay will get it."""
    if VARIABLE not in os.environ:
        return result
    try:
        how = {"result": json.loads(json.dumps(result))}
    except (TypeError, ValueError):
        raise TypeError(
            f"the tool {name} gave a {type(result).__name__}; expected JSON, so it can be recorded."
        ) from None
    if error is not None:
        how = {"error": [type(error).__name__, str(error)]}
    _post({"name": name, "arguments": [args, named], "recorded": how})
    return how.get("result")


def _given(found: dict[str, Any]) -> Any:
    if "error" not in found:
        return found["result"]
    kind, words = found["error"]
    known = getattr(builtins, kind, None)
    raise (known if isinstance(known, type) and issubclass(known, Exception) else RecordedError)(words)


def _post(body: dict[str, Any]) -> dict[str, Any]:
    data = json.dumps(body).encode()
    request = urllib.request.Request(os.environ[VARIABLE], data, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as reply:
        found: dict[str, Any] = json.load(reply)
        return found
