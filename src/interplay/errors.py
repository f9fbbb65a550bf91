"""One base class, one class per boundary a failure can cross.

A message is one sentence that says what was wrong, what was expected and what to set. Machinery failures
become the `error` of an episode; a recipe error ends the command with exit code 2.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

_CREDENTIALS = re.compile(r"(?<=://)[^/\s'\"]+@")  # a user name and a password in a URL


class InterplayError(Exception):
    """Base of everything Interplay raises on purpose. A password in a URL is never part of the message."""

    def __init__(self, message: str = "") -> None:
        super().__init__(_CREDENTIALS.sub("[hidden]@", message))


class ConfigError(InterplayError):
    """The recipe, an override or a command-line argument is wrong."""


class EnvError(InterplayError):
    """An environment broke its contract."""


class EngineError(InterplayError):
    """The engine could not serve a request."""


class ToolError(InterplayError):
    """A tool broke, or ran past its time; what a caller did wrong is an answer, not this."""


class RemoteError(EngineError):
    """A remote model's server could not be reached, refused, or answered with something that is no answer."""


class ModelError(InterplayError):
    """A model, tokenizer or template could not be loaded or does not fit its use."""


class LimitError(InterplayError):
    """An episode passed a limit that is not the policy's doing (wall-clock time)."""


class SandboxError(InterplayError):
    """The sandbox itself failed, or this machine cannot give the isolation asked for; never what a program did."""


class DataError(InterplayError):
    """A data set is damaged, or not in its public format."""


class GuardError(InterplayError):
    """A running check of a promise failed: training would continue on wrong numbers."""


class CheckpointError(InterplayError):
    """A checkpoint is missing, damaged or belongs to another recipe."""


class ResourceError(InterplayError):
    """The machine has too little of something, such as memory."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`known: a, b. Did you mean 'a'?`, for the end of an error sentence."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    listing = ", ".join(names) if names else "none"
    return f"known: {listing}." + (f" Did you mean '{close[0]}'?" if close else "")
