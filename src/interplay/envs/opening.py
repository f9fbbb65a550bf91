"""Exploring starts: training games that begin after a few random legal moves (Sutton and Barto, sec. 5.3).

A policy that plays itself soon meets only the few lines of play that it prefers, and forgets the other positions. After
a random opening it also learns in positions that neither player would have chosen. Only tasks of the training split
have an opening. Evaluations play whole games.
"""

from __future__ import annotations

from interplay.envs.env import Env
from interplay.envs.splits import split_of_task
from interplay.types import Role

DESCRIPTION = "training games begin after 0 to this many random legal moves (exploring starts); evaluations do not"


def play_opening(env: Env, most: int) -> None:
    """Play from 0 to `most` random legal moves of a new game in which players take turns. Moves and their number follow
    from the seed of the task, so that all episodes of a task begin in the same position. No move is played that
    would end the game."""
    if not most or split_of_task(env.task.seed) != "train":
        return
    for _ in range(env.rng.randrange(most + 1)):
        ((role, seen),) = env.observe().items()
        open_moves = [move for move in seen.legal if not _ends(env, role, move)]
        if not open_moves:
            return
        env.step({role: env.rng.choice(open_moves)})


def _ends(env: Env, role: Role, move: str) -> bool:
    after = env.fork()
    after.step({role: move})
    return not after.observe()
