"""The exceptions that Interplay raises: one base class, and one class for each part of the system that can fail.

A message is one sentence that says what was wrong, what was expected and what to set. A failure of the system while
an episode is played becomes the `error` of that episode. A recipe error ends the command with exit code 2.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

_CREDENTIALS = re.compile(r"(?<=://)[^/\s\"]+@")  # a user name and a password in a URL; they may contain @ and '


def without_passwords(text: str) -> str:
    """The text without the user names and passwords of its URLs.

    >>> without_passwords("url=https://me:p@ss@host/v1")
    'url=https://[hidden]@host/v1'
    """
    return _CREDENTIALS.sub("[hidden]@", text)


class InterplayError(Exception):
    """Base of everything Interplay raises on purpose. A password in a URL is never part of the message."""

    def __init__(self, message: str = "") -> None:
        super().__init__(without_passwords(message))


class ConfigError(InterplayError):
    """The recipe, an override or a command-line argument is wrong."""


class EnvError(InterplayError):
    """An environment broke its contract."""


class ReplayError(EnvError):
    """An outside program got the same replies again but asked for something else, so it cannot be forked there."""


class EngineError(InterplayError):
    """The engine could not serve a request."""


class RequestError(EngineError):
    """No engine of this kind could ever serve this request, for example because it is too long."""


class EngineLost(EngineError):
    """An engine's process has ended, or it cannot be used any more after a failed update. A run can go on from its
    checkpoint, with a new engine."""


class ToolError(InterplayError):
    """A tool failed or exceeded its time limit. A wrong call does not raise this: the caller is told what is wrong."""


class JudgeError(InterplayError):
    """A judge, reward model or reward server failed. An answer that cannot be parsed is an abstention and does not
    raise this."""


class RemoteError(EngineError):
    """A remote model's server could not be reached, refused the request, or sent an invalid answer."""


class ModelError(InterplayError):
    """A model, tokenizer or template could not be loaded or does not fit its use."""


class LimitError(InterplayError):
    """An episode exceeded a limit that the policy does not control (wall-clock time)."""


class SandboxError(InterplayError):
    """The sandbox itself failed, or this machine cannot provide the requested isolation. Failures of the program that
    runs inside the sandbox never raise this."""


class DataError(InterplayError):
    """A data set is damaged, or not in its public format."""


class GuardError(InterplayError):
    """A run-time check failed, and training would continue on wrong numbers."""


class CheckpointError(InterplayError):
    """A checkpoint is missing, damaged or belongs to another recipe."""


class LearnerLost(InterplayError):
    """A process that trains a part of a model has ended or does not answer. A run can go on from its checkpoint."""


class ResourceError(InterplayError):
    """The machine does not have enough of a resource, such as memory."""


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `1 step`, `2 steps`."""
    return f"{number} {noun if number == 1 else noun + 's'}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of an error sentence: `known: a, b. Did you mean 'a'?`."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    listing = ", ".join(names) if names else "none"
    return f"known: {listing}." + (f" Did you mean '{close[0]}'?" if close else "")
