"""The whole vocabulary. Standard library only.

One datum walks through these records: a `Task` makes an `Env`, whose `Observation`s become the prompt of a `Sample`.
Samples and what they earned make a `Turn`; turns make an `Episode`. Credit says what each sample is worth in one
training step, and the learner trains on `Sample.prompt + Sample.action`. Token ids are sampled once and carried
unchanged to the loss.
"""

from interplay.types.credit import Advantage, Credit
from interplay.types.episode import Cut, Episode
from interplay.types.message import Media, MediaKind, Message, Spoken, ToolCall
from interplay.types.occupant import ByTurn, FromLeague, Occupant, One, Policy, Remote, Scripted, Snapshot
from interplay.types.rewards import Level, Reward, Rewards, Role
from interplay.types.sample import Completion, MediaSpan, Sample, Stop, identity
from interplay.types.seeds import seed_of
from interplay.types.task import HistoryMatch, Observation, Parameter, ProgramCall, Task, Tool
from interplay.types.turn import KEY_NAMES, Keys, Outlook, Status, Turn

__all__ = [
    "KEY_NAMES", "Advantage", "ByTurn", "Completion", "Credit", "Cut", "Episode", "FromLeague", "HistoryMatch",
    "Keys", "Level", "Media", "MediaKind", "MediaSpan", "Message", "Observation", "Occupant", "One", "Outlook",
    "Parameter", "Policy", "ProgramCall", "Remote", "Reward", "Rewards", "Role", "Sample", "Scripted", "Snapshot",
    "Spoken", "Status", "Stop", "Task", "Tool", "ToolCall", "Turn", "identity", "seed_of",
]  # fmt: skip
