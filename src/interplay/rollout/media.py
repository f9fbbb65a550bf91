"""The pictures and sounds of a run, each stored once in a file named by its digest."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from interplay.errors import InterplayError
from interplay.types import Media, MediaKind
from interplay.types.message import ENDINGS


class MediaFolder:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known: set[str] = set()

    def path(self, kind: MediaKind, digest: str) -> Path:
        return self.folder / f"{digest}{ENDINGS[kind]}"

    def put(self, media: Iterable[Media]) -> None:
        """Write those that are not there yet. A file is written completely or not at all."""
        for one in media:
            if one.digest in self._known:
                continue
            path = self.path(one.kind, one.digest)
            if not path.exists():
                self.folder.mkdir(parents=True, exist_ok=True)
                work = path.with_name(f".{path.name}")
                work.write_bytes(one.data)
                work.replace(path)
            self._known.add(one.digest)

    def get(self, kind: MediaKind, digest: str) -> Media:
        path = self.path(kind, digest)
        try:
            return Media(kind, path.read_bytes(), digest)
        except OSError as error:
            raise InterplayError(
                f"'{path}' cannot be read ({error.strerror}), but a record refers to it; expected the media folder of "
                "the run."
            ) from None
