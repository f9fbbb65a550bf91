"""Count events of programs for the metrics of a training step, and stop the run if the program has a bug."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence

from interplay.errors import GuardError
from interplay.types import Episode

SHARE = 0.2  # if more than this share of a step's episodes crash at the same place, the program has a bug
MOST_WORDS = 300  # the most characters of a crash's words that are shown
CRASHED = "crashed"  # the team's reward if a reply of a policy made the program crash
# What to do about crashes that have no line in the program.
_REMEDIES = {
    "Timeout at an unknown place": "it ran longer than env.program.seconds between two calls. Raise this limit, or "
    "make the program faster.",
    "LimitExceeded at an unknown place": "it used more than env.program.memory_mb, processes or cpu_seconds allows, or "
    "printed or returned more than 16 MB. Raise the limit, or change the program.",
    "UnreadableResult at an unknown place": "its result is no JSON. Return text, numbers, lists and dictionaries.",
}
_BUG = "this is a bug of the program, which must accept whatever a model says. Fix it at this place."
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
    """The line that marks a crash. It is the end of the episode's final state or error. Before it comes the crash with
    its words."""
    return f"[crash {signature}]"


def refuse_bug(episodes: Sequence[Episode], step: int) -> None:
    """Raise `GuardError` if the same crash ended too many of a step's episodes, no matter who was blamed for them."""
    crashes = [crash for episode in episodes if (crash := _crash_of(episode))]
    found = Counter(signature for signature, _ in crashes)
    for signature, times in found.most_common(1):
        if times > max(1, SHARE * len(episodes)):
            words = next((words for one, words in crashes if one == signature and words), "")
            raise GuardError(
                f"{times} of the {len(episodes)} episodes of step {step} crashed with {signature}"
                f"{f' (one of them: {words})' if words else ''}; {_REMEDIES.get(signature, _BUG)}"
            )


def _crash_of(episode: Episode) -> tuple[str, str] | None:
    """The signature and the words of the crash that ended an episode; None if it did not crash. A final state also
    contains what the policies said, which may look like such a line, so it counts only if the team got the reward for a
    crash."""
    text = episode.error or (episode.final_state if any(r.name == CRASHED for r in episode.rewards) else "")
    before, mark, rest = text.rpartition("[crash ")
    if not mark or not rest.endswith("]"):
        return None
    signature = rest.removesuffix("]")
    _, named, words = before.rpartition(f"{signature}: ")
    return signature, " ".join(words.split())[:MOST_WORDS] if named else ""
