"""Read and write episodes on disk, schema 1: one JSON object per line.

    {"schema": 1, "step": 12, "episode": {..., "turns": [{..., "samples": [{..., "credit": {...}}]}]}}

The viewer, imitation and the tests read `episodes.jsonl`. Floats are written with all their digits. Pictures and sounds
are files in `media/`, named by their digests, and records hold the digests. `episodes.index` has a line for each
episode, with the offset and length of its record in bytes, so that one episode can be read without the others. Records
without a version number are schema 0 (`schema_0.py`), which can still be read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from interplay.errors import InterplayError
from interplay.rollout import schema_0
from interplay.rollout.episode_json import from_json, media, to_json
from interplay.rollout.media import MediaFolder
from interplay.types import Credit, Episode

SCHEMA = 1
INDEX, MEDIA = "episodes.index", "media"


def write_whole(path: Path, text: str) -> None:
    """Write a file in one step: a full disk or a kill leaves the file as it was before."""
    work = path.with_name(f".{path.name}-{os.getpid()}")
    try:
        work.write_text(text, encoding="utf-8")
        work.replace(path)
    except OSError:
        with suppress(OSError):
            work.unlink()
        raise


def metric_rows(path: Path) -> list[dict[str, float]]:
    """The rows of a `metrics.jsonl`; none if there is no file. Damaged lines are left out, and so is an incomplete last
    line, which is still being written."""
    rows = []
    for line in path.read_bytes().split(b"\n")[:-1] if path.is_file() else ():
        with suppress(ValueError):
            rows.append(json.loads(line))
    return [row for row in rows if isinstance(row, dict)]


@dataclass(frozen=True)
class Record:
    """One line of an episodes file. `schema` is 0 for records of early versions, which do not contain tools."""

    episode: Episode
    credit: Credit
    step: int = 0
    schema: int = SCHEMA


@dataclass(frozen=True)
class Entry:
    """The position of an episode in its file."""

    start: int
    size: int
    step: int
    id: str
    task: str


# -- files ------------------------------------------------------------------------------------------------------------


def write(path: Path, episodes: Iterable[Episode], step: int, credit: Credit | None = None) -> None:
    """Append episodes to a file, and their positions to its index; write their media to the folder beside it."""
    store = MediaFolder(path.parent / MEDIA)
    with path.open("ab") as file, path.with_name(INDEX).open("a", encoding="utf-8") as index:
        for episode in episodes:
            row = {"schema": SCHEMA, "step": step, "episode": to_json(episode, credit)}
            line = json.dumps(row, separators=(",", ":")).encode() + b"\n"
            index.write(json.dumps([file.tell(), len(line), step, episode.id, episode.task.id]) + "\n")
            store.put(media(episode))
            file.write(line)


def read(path: Path) -> Iterator[Record]:
    store = MediaFolder(path.parent / MEDIA)
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            yield _parsed(line, store, f"{path} line {number}")


def read_one(path: Path, entry: Entry) -> Record:
    """Read one episode without the others."""
    with path.open("rb") as file:
        file.seek(entry.start)
        line = file.read(entry.size).decode()
    return _parsed(line, MediaFolder(path.parent / MEDIA), f"{path} at byte {entry.start}")


def index(path: Path) -> list[Entry]:
    """The positions of all episodes. Those that the index lacks (early version, or cut off) are read from `path`."""
    found: list[Entry] = []
    listed = path.with_name(INDEX)
    if listed.is_file():
        for text in listed.read_text(encoding="utf-8").splitlines():
            try:
                entry = Entry(*json.loads(text))
            except (ValueError, TypeError):  # a killed process wrote only a part
                break
            if entry.start != (found[-1].start + found[-1].size if found else 0):
                break
            found.append(entry)
    with path.open("rb") as file:
        size = file.seek(0, 2)
        while found and found[-1].start + found[-1].size > size:
            found.pop()
        at = found[-1].start + found[-1].size if found else 0
        file.seek(at)
        for line in file:
            if line.endswith(b"\n"):
                found.append(_looked_up(line, at, path))
            at += len(line)
    return found


def _looked_up(line: bytes, at: int, path: Path) -> Entry:
    try:
        row = json.loads(line)
        episode = row["episode"]
        return Entry(at, len(line), row.get("step", 0), episode["id"], episode["task"]["id"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InterplayError(
            f"{path} at byte {at} is not an episode record ({error}); expected a file that interplay train wrote."
        ) from None


def _parsed(line: str, store: MediaFolder, where: str) -> Record:
    try:
        row = json.loads(line)
        schema = row.get("schema", 0)
        if schema > SCHEMA:
            raise InterplayError(
                f"{where} has schema {schema}, but this version of Interplay reads schemas up to {SCHEMA}; use a newer "
                "version."
            )
        if schema == 0:
            episode, credit = schema_0.from_json(row["episode"])
        else:
            episode, credit = from_json(row["episode"], store)
        return Record(episode, credit, row.get("step", 0), schema)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InterplayError(
            f"{where} is not an episode record ({error}); expected a file that interplay train wrote."
        ) from None
