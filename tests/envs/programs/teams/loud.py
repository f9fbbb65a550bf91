"""A module that prints something when it is imported."""

from __future__ import annotations

from typing import Any

print("hello, I am imported")


def run(row: dict[str, Any]) -> str:
    return "done"
