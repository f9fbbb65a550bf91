from interplay.algorithms import Algorithm as Algorithm
from interplay.algorithms import register as register_algorithm
from interplay.api.run import TrainedRun as TrainedRun
from interplay.api.run import run as run
from interplay.api.run import runs as runs
from interplay.api.team import TrainedTeam as TrainedTeam
from interplay.api.team import load as load
from interplay.api.train import evaluate as evaluate
from interplay.api.train import recipe as recipe
from interplay.api.train import train as train
from interplay.config import Recipe as Recipe
from interplay.envs import Env as Env
from interplay.envs import register as register_env
from interplay.errors import ConfigError as ConfigError
from interplay.errors import InterplayError as InterplayError
from interplay.types import Episode as Episode
from interplay.types import Message as Message
from interplay.types import Observation as Observation
from interplay.types import Rewards as Rewards
from interplay.types import Task as Task

__all__ = [
    "Algorithm", "ConfigError", "Env", "Episode", "InterplayError", "Message", "Observation", "Recipe", "Rewards",
    "Task", "TrainedRun", "TrainedTeam", "__version__", "evaluate", "load", "recipe", "register_algorithm",
    "register_env", "run", "runs", "train",
]  # fmt: skip
__version__: str
