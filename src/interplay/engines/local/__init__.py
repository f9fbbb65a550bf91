"""The in-process engine. It samples from the same tensors that the learner trains.

schedule (scheduler.py) → run (runner.py, attention.py, cache.py) → sample (sampler.py), one step at a time.
"""

from interplay.engines.local.engine import LocalEngine

__all__ = ["LocalEngine"]
