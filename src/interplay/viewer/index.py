"""Where each episode is in a file of records, so that one can be read without the others.

`episodes.jsonl` has an index beside it, which is read first. Episodes that the index lacks are found by reading the
file: those of early versions, of a run that was killed, and of an evaluation (`played.jsonl`, whose lines hold several
episodes). `refresh` reads what was added since the last call. Damaged lines are counted and skipped.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interplay.errors import InterplayError
from interplay.rollout import episode_json, records, schema_0

_KEPT, _LARGE = 8, 1 << 20  # parsed records that are kept, and the largest of them in bytes
_HEAD = 256  # bytes at the last known record, which must not change while the file grows


@dataclass(frozen=True, slots=True)
class RecordPlace:
    """The position of an episode: the line that holds it, and its number in a line that holds several. In an
    evaluation, which has no steps, `step` is the number of the line."""

    start: int
    size: int
    step: int
    id: str
    task: str
    part: int | None = None


class EpisodeIndex:
    def __init__(self, path: Path) -> None:
        self.path, self.listed = path, path.with_name(records.INDEX)
        self._reset()

    def _reset(self) -> None:
        self.places: list[RecordPlace] = []
        self.damaged = 0
        self.generation = getattr(self, "generation", 0) + 1  # grows when earlier positions became wrong
        self._by_name: dict[tuple[int, str], int] = {}
        self._end = 0  # bytes of the file that are known
        self._lines = 0
        self._read = 0  # bytes of the index that were read
        self._latest: dict[int, dict[str, Any]] = {}
        self._head = b""  # the first bytes of the last known line, and where that line begins
        self._last = 0

    def refresh(self, seconds: float = 0.2) -> bool:
        """Look for new episodes for at most about this long. Returns whether the whole file is known."""
        try:
            size = self.path.stat().st_size
        except OSError:
            if self._end:
                self._reset()
            return True
        with self.path.open("rb") as file:
            if self._changed(file, size):
                self._reset()
            if size > self._end:
                until = time.monotonic() + seconds
                self._from_index(size)
                self._from_file(file, size, until)
                file.seek(self._last)
                self._head = file.read(_HEAD)
            return self._end >= size or not self._complete(file, size)

    def _changed(self, file: Any, size: int) -> bool:
        """Whether the part that is known was cut off or written anew, as a resumed run does."""
        if size < self._end:
            return True
        file.seek(self._last)
        return bool(self._head) and size > self._end and file.read(len(self._head)) != self._head

    def _complete(self, file: Any, size: int) -> bool:
        """Whether a whole line is still unread. A line without its end is being written, or a killed process left
        it."""
        file.seek(self._end)
        while block := file.read(min(1 << 20, size - file.tell())):
            if b"\n" in block:
                return True
        return False

    def _from_index(self, size: int) -> None:
        if not self.listed.is_file() or self.listed.stat().st_size < self._read:
            return
        with self.listed.open("rb") as file:
            file.seek(self._read)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                try:
                    start, length, step, name, task = json.loads(line)
                    place = RecordPlace(int(start), int(length), int(step), str(name), str(task))
                except (ValueError, TypeError):  # damaged: the rest is found in the file itself
                    self._read += len(line)
                    continue
                if place.start > self._end or place.start + place.size > size:
                    break
                self._read += len(line)
                if place.start == self._end:
                    self._add(place)
                    self._advance(place.start, place.size)

    def _from_file(self, file: Any, size: int, until: float) -> None:
        file.seek(self._end)
        while self._end < size and time.monotonic() < until:
            line = file.readline()
            if not line.endswith(b"\n"):
                return
            try:
                for place in _places(line, self._end, self._lines):
                    self._add(place)
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                self.damaged += 1
            self._advance(self._end, len(line))

    def _add(self, place: RecordPlace) -> None:
        self._by_name[place.step, place.id] = len(self.places)
        self.places.append(place)

    def _advance(self, start: int, size: int) -> None:
        self._last, self._end = start, start + size
        self._lines += 1

    def find(self, step: int, name: str) -> int | None:
        """The number of an episode in the file."""
        return self._by_name.get((step, name))

    def group(self, step: int, task: str) -> list[int]:
        """The episodes of one task in one step."""
        return [n for n, p in enumerate(self.places) if p.step == step and p.task == task]

    def read(self, number: int) -> dict[str, Any]:
        """An episode as JSON data of the present schema. The latest few are kept, since a page asks about the turns of
        one episode again and again. Callers must not change them."""
        if number not in self._latest:
            found = self._parsed(self.places[number])
            if self.places[number].size > _LARGE:
                return found
            while len(self._latest) >= _KEPT:
                del self._latest[next(iter(self._latest))]
            self._latest[number] = found
        return self._latest[number]

    def _parsed(self, place: RecordPlace) -> dict[str, Any]:
        try:
            with self.path.open("rb") as file:
                file.seek(place.start)
                row = json.loads(file.read(place.size))
            if place.part is not None:
                return row["episodes"][place.part]
            if row.get("schema", 0) > records.SCHEMA:
                raise InterplayError(
                    f"this record has schema {row['schema']}, and this version of Interplay reads up to "
                    f"{records.SCHEMA}; use a newer version."
                )
            if row.get("schema", 0) == 0:
                return episode_json.to_json(*schema_0.from_json(row["episode"]))
            return row["episode"]
        except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
            raise InterplayError(
                f"'{self.path}' at byte {place.start} is no episode record ({error}); the file may be damaged."
            ) from None


def _places(line: bytes, start: int, number: int) -> Iterator[RecordPlace]:
    """The episodes of one line."""
    row = json.loads(line)
    if "chunk" in row:
        for part, episode in enumerate(row["episodes"]):
            yield RecordPlace(start, len(line), number, str(episode["id"]), str(episode["task"]["id"]), part)
    else:
        episode = row["episode"]
        yield RecordPlace(start, len(line), int(row.get("step", 0)), str(episode["id"]), str(episode["task"]["id"]))
