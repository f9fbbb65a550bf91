"""The data types that all parts of Interplay share. They use the standard library only.

How data flows: an `Env` is made from a `Task`, and its `Observation`s become the prompt of a `Sample`. A `Turn` holds
the samples of one action and their rewards, and an `Episode` holds the turns. `Credit` gives each sample its advantage
in one training step, and the learner trains on `Sample.prompt + Sample.action`. Token ids are sampled once and reach
the loss unchanged.
"""

from interplay.types.credit import Advantage, Credit
from interplay.types.episode import Cut, Episode, reply_share
from interplay.types.message import Media, MediaKind, Message, Pictured, Spoken, ToolCall
from interplay.types.occupant import ByTurn, FromLeague, Occupant, One, Policy, Remote, Scripted, Snapshot
from interplay.types.rewards import Level, Reward, Rewards, Role
from interplay.types.sample import Completion, MediaSpan, Sample, Stop, identity
from interplay.types.seeds import seed_of
from interplay.types.soft import SoftMedia, SoftMessage
from interplay.types.task import HistoryMatch, Observation, Parameter, ProgramCall, Task, Tool
from interplay.types.turn import KEY_NAMES, Keys, Outlook, Status, Turn

__all__ = [
    "KEY_NAMES", "Advantage", "ByTurn", "Completion", "Credit", "Cut", "Episode", "FromLeague", "HistoryMatch",
    "Keys", "Level", "Media", "MediaKind", "MediaSpan", "Message", "Observation", "Occupant", "One", "Outlook",
    "Parameter", "Pictured", "Policy", "ProgramCall", "Remote", "Reward", "Rewards", "Role", "Sample", "Scripted",
    "Snapshot", "SoftMedia", "SoftMessage", "Spoken", "Status", "Stop", "Task", "Tool", "ToolCall", "Turn", "identity",
    "reply_share", "seed_of",
]  # fmt: skip
