"""Interplay trains teams of language models with reinforcement learning.

    import interplay as ip

    run = ip.train("recipes/tictactoe/demo.toml", "train.steps=20")
    team = ip.load(run)
    episode = team.play(0)

The names below are stable; everything else in the package may change. They are imported when they are first used, so
that `import interplay` loads no torch. `__init__.pyi` has their types.
"""

import importlib
from typing import Any

__version__ = "0.1.0"

# Where each stable name is defined.
_NAMES = {
    "train": "interplay.api.train",
    "evaluate": "interplay.api.train",
    "recipe": "interplay.api.train",
    "load": "interplay.api.team",
    "TrainedTeam": "interplay.api.team",
    "run": "interplay.api.run",
    "runs": "interplay.api.run",
    "TrainedRun": "interplay.api.run",
    "Recipe": "interplay.config",
    "Env": "interplay.envs",
    "register_env": "interplay.envs:register",
    "Algorithm": "interplay.algorithms",
    "register_algorithm": "interplay.algorithms:register",
    "Task": "interplay.types",
    "Message": "interplay.types",
    "Observation": "interplay.types",
    "Rewards": "interplay.types",
    "Episode": "interplay.types",
    "InterplayError": "interplay.errors",
    "ConfigError": "interplay.errors",
}
__all__ = sorted([*_NAMES, "__version__"])


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module 'interplay' has no attribute '{name}'")
    module, _, attribute = _NAMES[name].partition(":")
    return getattr(importlib.import_module(module), attribute or name)


def __dir__() -> list[str]:
    return __all__
