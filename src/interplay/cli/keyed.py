"""The class of the commands that take keys of a recipe, such as `interplay train RECIPE train.steps=10`.

Other tools have options for such settings, so people write `--steps 10` first. The error then names the key.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from typer.core import TyperCommand

from interplay.errors import ConfigError


class KeyedCommand(TyperCommand):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        known = {name for parameter in self.params for name in parameter.opts}
        for name in (arg.partition("=")[0] for arg in args):
            keys = _keys(name.lstrip("-").replace("-", "_")) if name.startswith("--") and name not in known else []
            if keys:
                wanted = " or ".join(f"{key}=VALUE" for key in keys)
                raise ConfigError(
                    f"{name} is not an option of this command; a key of the recipe is written without dashes and with "
                    f"an equals sign: {wanted}. interplay keys lists all keys."
                )
        return super().parse_args(ctx, args)


def _keys(name: str) -> list[str]:
    """The keys of a recipe whose last part is a name: `lr` gives train.lr and others."""
    from interplay.config import Recipe

    found = [] if name not in Recipe.model_fields else [name]
    for section, field in Recipe.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel) and name in kind.model_fields:
            found.append(f"{section}.{name}")
    return found
