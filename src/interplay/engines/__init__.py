"""Engines: they sample replies to prompts, from local or remote models."""
