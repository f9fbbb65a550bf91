"""Finds the recipe for `play` and `arena`: from a TOML file, a run folder, or just the name of an environment."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from interplay import envs
from interplay.config import Recipe, load, parse
from interplay.errors import ConfigError, did_you_mean


def recipe_for(path: str, overrides: Sequence[str]) -> Recipe:
    """Loads a recipe. For the name of an environment, makes one with an untrained tiny policy in every seat."""
    if Path(path).exists() or path.endswith(".toml"):
        return load(path, overrides)
    prefix, colon, _ = path.partition(":")
    if path not in envs.known() and prefix + colon not in envs.prefixes() and not (colon and "." in prefix):
        names = [*envs.known(), *(name + "GAME" for name in envs.prefixes())]
        raise ConfigError(
            f"'{path}' is not a recipe, run folder or environment; expected runs/NAME, recipes/ENV/NAME.toml or an "
            f"environment, {did_you_mean(path, names)}"
        )
    bare = {
        "name": path.replace(":", "-").replace("/", "-"),
        "env": {"name": path},
        "policies": {"player": {"base": "tiny"}},
        "seats": "player",
        "algorithm": {"name": "grpo"},
        "eval": {"opponents": []},
    }
    return parse(bare, overrides)


def split_overrides(texts: Sequence[str]) -> tuple[list[str], list[str]]:
    """Splits arguments into those that change the recipe (`env.size=4`, `seed=1`) and all others."""
    changes = [text for text in texts if "=" in text and text.split("=")[0].split(".")[0] in Recipe.model_fields]
    return changes, [text for text in texts if text not in changes]
