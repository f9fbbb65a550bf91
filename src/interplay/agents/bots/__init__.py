"""Scripted players, a file for each family; `make_bot` finds one by name."""

from interplay.agents.bots import connect_four, expert, hanabi, kuhn, minimax, simple, solver  # they register
from interplay.agents.bots.bot import Bot, known_bots, make_bot, register_bot
from interplay.agents.bots.minimax import MinimaxBot

__all__ = [
    "Bot",
    "MinimaxBot",
    "connect_four",
    "expert",
    "hanabi",
    "known_bots",
    "kuhn",
    "make_bot",
    "minimax",
    "register_bot",
    "simple",
    "solver",
]
