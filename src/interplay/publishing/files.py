"""Reads the files of an experiment. A page must not be made from a part of them, so whatever is damaged is an error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from interplay.errors import DataError


def rows_of(path: Path) -> list[dict[str, Any]]:
    """The lines of a run's file."""
    out = []
    if not path.is_file():
        raise DataError(f"'{path}' is missing, so its numbers cannot be published; restore it, or leave this run out.")
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            out.append(dict(json.loads(line)))
        except (ValueError, TypeError):
            raise DataError(
                f"line {number} of '{path}' is damaged, so its numbers cannot be published; restore the file, or leave "
                "this run out."
            ) from None
    return out


def object_in(path: Path, *keys: str) -> dict[str, Any]:
    """The JSON object of a file of an experiment. A file without one of `keys` is damaged too."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict):
            raise ValueError(f"{type(found).__name__} instead of an object")
        if missing := [key for key in keys if key not in found]:
            raise ValueError(f"it has no {', '.join(missing)}")
    except (FileNotFoundError, RecursionError, ValueError) as error:
        what = "it is missing" if isinstance(error, FileNotFoundError) else error
        raise DataError(
            f"'{path}' is damaged ({what}), so its numbers cannot be used; restore it from a copy, or delete it "
            "and call interplay experiment again."
        ) from None
    return found
