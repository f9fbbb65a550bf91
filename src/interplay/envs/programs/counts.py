"""What happened to programs since somebody last asked, for the metrics of a training step, and whose bug it is."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Sequence

from interplay.errors import GuardError
from interplay.types import Episode

SHARE = 0.2  # of a step's episodes: more crashes at one place than this are a bug of the program
_CRASH = re.compile(r"\[crash (.*?)\]$", re.M)
_lock = threading.Lock()
_counts: Counter[str] = Counter()


def count(what: str, times: int = 1) -> None:
    with _lock:
        _counts[what] += times


def take() -> dict[str, float]:
    """All counts, which begin again at 0."""
    with _lock:
        found = {f"program/{what}": float(times) for what, times in sorted(_counts.items())}
        _counts.clear()
        return found


def crash_line(signature: str) -> str:
    """How a crash stands in an episode's final state or error."""
    return f"[crash {signature}]"


def refuse_bug(episodes: Sequence[Episode], step: int) -> None:
    """Stop where the same crash ended too many of a step's episodes, whoever was to blame."""
    found: Counter[str] = Counter()
    for episode in episodes:
        found.update(set(_CRASH.findall(f"{episode.final_state}\n{episode.error or ''}")))
    for signature, times in found.most_common(1):
        if times > max(1, SHARE * len(episodes)):
            raise GuardError(
                f"{times} of the {len(episodes)} episodes of step {step} crashed with {signature}; that is a bug of "
                "the program, expected it to bear whatever a model says."
            )
