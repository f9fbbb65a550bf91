"""Scripted players, one file for each family. `make_bot` makes one by its name."""

from interplay.agents.bots.bot import Bot, known_bots, make_bot, register_bot

__all__ = ["Bot", "known_bots", "make_bot", "register_bot"]
