"""What is played. `make`, `sample_task` and `register` are the whole surface; no torch here."""

from interplay.envs.env import SPLITS, Env, adapters, known, lookup, make, register, sample_task

__all__ = ["SPLITS", "Env", "adapters", "known", "lookup", "make", "register", "sample_task"]
