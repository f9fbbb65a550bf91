"""Refuses options that would have no effect, in the same words for every command."""

from __future__ import annotations

import typer

from interplay.errors import ConfigError


def refuse_unused(context: typer.Context, names: str, why: str, remedy: str = "") -> None:
    """Refuse the first of these parameters that the user has written. `why` and `remedy` are parts of the sentence:
    `--episodes has no effect without --export; add --export FILE, or leave --episodes out.`"""
    for name in names.split():
        if (written := written_as(context, name)) is not None:
            raise ConfigError(f"{written} has no effect {why}; {remedy and remedy + ', or '}leave {written} out.")


def written_as(context: typer.Context, name: str) -> str | None:
    """How the user has written a parameter, such as `--no-check` for `check`; None if its value is the default."""
    source = context.get_parameter_source(name)
    if source is None or source.name != "COMMANDLINE":
        return None
    parameter = next(p for p in context.command.params if p.name == name)
    if parameter.param_type_name == "argument":
        value = context.params[name]
        return f"'{value}'"
    off = context.params[name] is False and parameter.secondary_opts
    return str((parameter.secondary_opts if off else parameter.opts)[0])
