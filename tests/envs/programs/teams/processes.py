"""A program whose file has the name of one of ours."""

from __future__ import annotations

from typing import Any


def run(row: dict[str, Any]) -> str:
    import folder

    return f"{__name__} and {folder.NAME}"
