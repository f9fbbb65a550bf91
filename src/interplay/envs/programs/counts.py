"""Count events of programs for the metrics of a training step, and stop the run if the program has a bug."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Sequence

from interplay.errors import GuardError
from interplay.types import Episode

SHARE = 0.2  # if more than this share of a step's episodes crash at the same place, the program has a bug
_CRASH = re.compile(r"\[crash (.*?)\]$", re.M)
_lock = threading.Lock()
_counts: Counter[str] = Counter()


def count(what: str, times: int = 1) -> None:
    with _lock:
        _counts[what] += times


def take() -> dict[str, float]:
    """Return all counts and reset them to 0."""
    with _lock:
        found = {f"program/{what}": float(times) for what, times in sorted(_counts.items())}
        _counts.clear()
        return found


def crash_line(signature: str) -> str:
    """The line that marks a crash in an episode's final state or error."""
    return f"[crash {signature}]"


def refuse_bug(episodes: Sequence[Episode], step: int) -> None:
    """Raise `GuardError` if the same crash ended too many of a step's episodes, no matter who was blamed for them."""
    found: Counter[str] = Counter()
    for episode in episodes:
        found.update(set(_CRASH.findall(f"{episode.final_state}\n{episode.error or ''}")))
    for signature, times in found.most_common(1):
        if times > max(1, SHARE * len(episodes)):
            raise GuardError(
                f"{times} of the {len(episodes)} episodes of step {step} crashed with {signature}; this is a bug of "
                "the program, which must accept whatever a model says. Fix it at this place."
            )
