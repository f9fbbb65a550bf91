"""The in-process engine: samples from the very tensors that are being trained.

schedule (scheduler.py) → run (runner.py, attention.py, cache.py) → sample (sampler.py), one step at a time.
"""

from interplay.engines.local.engine import LocalEngine

__all__ = ["LocalEngine"]
