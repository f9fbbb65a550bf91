"""The in-process engine. It samples from the same tensors that the learner trains.

One step: schedule (scheduler.py, cache.py) → run (runner.py with cpu.py or cuda.py) → sample (sampler.py).
"""

from interplay.engines.local.engine import LocalEngine

__all__ = ["LocalEngine"]
