"""Saves the episodes of an evaluation on disk, so that a killed evaluation continues without repeating games.

One line of `played.jsonl` is a chunk: episodes that were played together, with a key that names everything they depend
on (weights, seats, tasks, limits, seed). Every chunk starts with an empty engine cache, so it is bit-identical whatever
was played before it. If the process is killed while writing, the incomplete line is dropped. A damaged chunk is played
again. A chunk with a failed episode is not saved.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

from interplay.errors import InterplayError
from interplay.rollout import episode_json, records
from interplay.rollout.media import MediaFolder
from interplay.types import Episode


class Played:
    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.media = MediaFolder(path.parent / records.MEDIA)
        self._at: dict[str, int] = {}
        end = 0
        if path.exists():
            with path.open("rb") as file:
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    if (key := _key(line)) is not None:
                        self._at[key] = end
                    end += len(line)
            os.truncate(path, end)

    def get(self, key: str) -> list[Episode] | None:
        if key not in self._at:
            return None
        with self.path.open("rb") as file:
            file.seek(self._at[key])
            try:
                return [episode_json.from_json(e, self.media)[0] for e in json.loads(file.readline())["episodes"]]
            except (ValueError, KeyError, TypeError, InterplayError):  # damaged, or written by another version
                return None

    def put(self, key: str, episodes: Sequence[Episode]) -> None:
        self.media.put(m for e in episodes for m in episode_json.media(e))
        found = [episode_json.to_json(e) for e in episodes]
        line = json.dumps({"chunk": key, "episodes": found}, separators=(",", ":"))
        with self.path.open("ab") as file:
            self._at[key] = file.tell()
            file.write(line.encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())


def _key(line: bytes) -> str | None:
    """The key of a line, or None if the line is damaged."""
    head, tail = b'{"chunk":"', b"]}\n"
    if not (line.startswith(head) and line.endswith(tail)):
        return None
    return line[len(head) : line.index(b'"', len(head))].decode()


def key_of(*parts: object) -> str:
    return hashlib.blake2b(repr(parts).encode(), digest_size=16).hexdigest()


def fingerprint(source: str) -> str:
    """Identifies the weights of a source. For a file or folder, it changes when the weights there are replaced (sizes
    or times of files change). Any other source is identified by its name."""
    if not os.path.exists(source):
        return source
    folder = Path(source)
    files = [folder] if folder.is_file() else sorted(p for p in folder.rglob("*") if p.is_file())
    return key_of(*((str(p.relative_to(folder)), p.stat().st_size, p.stat().st_mtime_ns) for p in files))
