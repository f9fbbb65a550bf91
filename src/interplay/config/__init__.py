"""The recipe: strict pydantic models that are read from TOML, with `a.b=c` overrides. No torch.

Every mistake becomes one sentence that names the key, what was expected and the nearest known name.

    recipe.py       the whole recipe, its overrides, and checks across sections
    policies.py     [policies]
    seats.py        [seats] [[matchups]]
    league.py       [league]
    evolve.py       [evolve]
    judges.py       [judges]
    rollout.py      [reward] [sampling] [tools] [rollout] [stream] [curriculum]
    channels.py     [channels]
    cluster.py      [cluster]
    engine.py       [engine]
    memory.py       [memory]
    training.py     [train] [warmstart] [checkpoint] [records]
    evaluation.py   [eval]
    section.py      the base class of sections, and the error sentence for a mistake in one

Two sections have keys that others define and check: `[env]` (the environment's `Options`) and `[algorithm]` (the
algorithm's `Settings`); see `rollout/resolve.py`.
"""

from interplay.config.channels import ChannelSection
from interplay.config.cluster import ClusterSection
from interplay.config.engine import EngineSection
from interplay.config.evaluation import TEAM, EvalSection
from interplay.config.judges import JudgeAuditSection, JudgeSection, JudgeTrainSection
from interplay.config.league import LeagueSection
from interplay.config.memory import MemorySection
from interplay.config.policies import REMOTE, AdapterSection, PolicySection, RemoteSection, SensesSection
from interplay.config.recipe import Recipe, load, packaged, parse, parse_options, values_in
from interplay.config.rollout import (
    CurriculumSection,
    RewardSection,
    RolloutSection,
    SamplingSection,
    StreamSection,
    ToolSection,
)
from interplay.config.seats import Draw, MatchupSection, split_seat
from interplay.config.section import Open, Section, validate
from interplay.config.training import CheckpointSection, Optimizer, RecordSection, TrainSection, WarmstartSection

__all__ = [
    "REMOTE", "TEAM", "AdapterSection", "ChannelSection", "CheckpointSection", "ClusterSection", "CurriculumSection",
    "Draw", "EngineSection", "EvalSection", "JudgeAuditSection", "JudgeSection", "JudgeTrainSection", "LeagueSection",
    "MatchupSection", "MemorySection", "Open", "Optimizer", "PolicySection", "Recipe", "RecordSection", "RemoteSection",
    "RewardSection", "RolloutSection", "SamplingSection", "Section", "SensesSection", "StreamSection", "ToolSection",
    "TrainSection", "WarmstartSection", "load", "packaged", "parse", "parse_options",
    "split_seat", "validate", "values_in",
]  # fmt: skip
