"""The environments. Use `make`, `sample_task` and `register`. No torch here."""

from interplay.envs.env import Env, known, lookup, make, outcome_of, outside, prefixes, register, sample_task, seen_now
from interplay.envs.splits import SPLITS

__all__ = [
    "SPLITS", "Env", "known", "lookup", "make", "outcome_of", "outside", "prefixes", "register", "sample_task",
    "seen_now",
]  # fmt: skip
