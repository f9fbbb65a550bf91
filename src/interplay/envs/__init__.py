"""What is played. `make`, `sample_task` and `register` are the whole surface; no torch here."""

from interplay.envs.env import Env, known, lookup, make, outcome_of, outside, prefixes, register, sample_task
from interplay.envs.splits import SPLITS

__all__ = ["SPLITS", "Env", "known", "lookup", "make", "outcome_of", "outside", "prefixes", "register", "sample_task"]
