"""Public data sets as rows that tasks can read: the registry of formats, prepared folders, and tasks over them.

`interplay prepare NAME` (prepare.py) turns the files of a public data set into a folder of jsonl splits with a
manifest. A recipe names the folder with `[env] data = "data/gsm8k"`. This module reads the folder and verifies its
checksums.

To add a format, put a class into a module of `envs/tasks/formats/` (every module there is found automatically):

    @register_format("gsm8k")
    class GSM8K(Public):                        # its fields are those of the public file; other columns are ignored
        kind = "math"                           # the kind of its rows; environments say which kind they read
        licence = "MIT"
        hub = {"train": ("openai/gsm8k", "main", "train"), "test": ("openai/gsm8k", "main", "test")}
        question: str
        answer: str

        def row(self) -> DataRow | None:        # the row as environments read it; None if unusable (it is counted)
            return {"question": self.question, "answer": self.answer.rpartition("####")[2].strip()}

A `ValueError` from `row` becomes an error that names the file and the row. `Public` shows what else a format may
define: splits by row, tables beside the rows (a corpus), attached files (databases), and folders without files of rows.
Rows are plain JSON; `id` is added if it is missing. An environment over rows is a `DataEnv`. Its task holds the row, so
the task alone still determines the episode.
"""

from __future__ import annotations

import hashlib
import json
import random
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from interplay.config import Section
from interplay.envs.env import Env
from interplay.errors import ConfigError, DataError
from interplay.registry import Registry
from interplay.types import Role, Task, seed_of

DataRow = dict[str, Any]
# The data set, its configurations (joined by commas) and its split as the hub calls them. For a data set with a loading
# script, which `datasets` no longer runs: the data set, None and a pattern of its files.
Hub = tuple[str, str | None, str]
MANIFEST = "manifest.json"


class Public(BaseModel):
    """One row of a public file. The class attributes describe the data set."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    kind: ClassVar[str]  # the kind of its rows; an environment reads one kind
    licence: ClassVar[str]
    hub: ClassVar[Mapping[str, Hub]] = {}  # by split; if empty, the files must be given
    alone: ClassVar[str | None] = None  # the split of a file whose name does not name a split
    files: ClassVar[tuple[str, ...]] = ()  # patterns of its data files, if its published folder also has other files
    holds_out_test: ClassVar[bool] = False  # if there is no test split, hold one out as for validation
    dev_is_test: ClassVar[bool] = False  # the answers of its test rows are not public, so results are for the dev rows
    tables: ClassVar[tuple[str, ...]] = ()  # files (by stem) that are not splits but belong to all, such as a corpus
    attached: ClassVar[tuple[str, ...]] = ()  # patterns of files that are copied unchanged, such as "*.sqlite"

    @abstractmethod
    def row(self) -> DataRow | None:
        """The row as environments of this kind read it; None if it cannot be used (it is then counted)."""

    def split(self) -> str | None:
        """The split of this row, if the data set defines splits row by row; None if the file decides."""
        return None

    @classmethod
    def unpacked(cls, folder: Path) -> Iterator[Mapping[str, Any]] | None:
        """The rows of a published folder that has separate files for each row; None if there are files of rows."""
        return None

    @classmethod
    def compared(cls, row: DataRow) -> str:
        """The text by which duplicates are found, within a split and between train and test."""
        return str(row["question"])

    @classmethod
    def gather(
        cls, splits: Mapping[str, list[DataRow]], tables: Mapping[str, list[DataRow]]
    ) -> dict[str, list[DataRow]]:
        """The tables to write beside the splits, when all rows are known. Rows may be changed in place."""
        return {name: list(rows) for name, rows in tables.items()}


FORMATS: Registry[Public] = Registry(
    Public, "a data set that can be prepared", package="interplay.envs.tasks.formats", group="interplay.formats"
)
register_format, lookup_format = FORMATS.register, FORMATS.lookup


def formats() -> dict[str, type[Public]]:
    """Every format by name."""
    return {name: FORMATS.lookup(name) for name in FORMATS.known()}


# -- prepared folders -------------------------------------------------------------------------------------------------


def digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@dataclass(frozen=True)
class Prepared:
    """A folder that `interplay prepare` made."""

    folder: Path
    manifest: Mapping[str, Any]

    @staticmethod
    def open(folder: str | Path, key: str = "env.data") -> Prepared:
        file = Path(folder) / MANIFEST
        try:
            return _opened(Path(folder), file.stat().st_mtime_ns)
        except OSError:
            name = Path(folder).name if Path(folder).name in formats() else "NAME"
            raise ConfigError(
                f"{key} is '{folder}', which is not a prepared data set; make it with: interplay prepare {name} --to "
                f"{folder}"
            ) from None

    def rows(self, split: str) -> tuple[DataRow, ...]:
        listed = self.manifest["splits"]
        if split not in listed:
            raise ConfigError(
                f"env.data is '{self.folder}', which has no {split} split (it has: {', '.join(listed)}); expected a "
                f'data set with one, or a folder per split: data = {{ {split} = "FOLDER", … }}.'
            )
        return self._read(listed[split])

    def table(self, name: str) -> tuple[DataRow, ...]:
        return self._read(self.manifest["tables"][name])

    def file(self, name: str) -> Path:
        """The path of an attached file, after its checksum was verified."""
        return self._verified({"file": name, "sha256": self.manifest["attached"][name]})

    def _read(self, entry: Mapping[str, Any]) -> tuple[DataRow, ...]:
        return _rows(self._verified(entry), entry["sha256"])

    def _verified(self, entry: Mapping[str, Any]) -> Path:
        file = self.folder / entry["file"]
        if not file.is_file() or _digest(file, file.stat().st_mtime_ns) != entry["sha256"]:
            raise DataError(
                f"'{file}' is missing or not what {MANIFEST} says it is; prepare it again: "
                f"interplay prepare {self.manifest['format']} --to {self.folder}"
            )
        return file


@lru_cache(maxsize=64)
def _opened(folder: Path, stamp: int) -> Prepared:
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        manifest["format"], manifest["kind"], [(s["file"], s["sha256"]) for s in manifest["splits"].values()]
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError, AttributeError):
        raise DataError(
            f"'{folder / MANIFEST}' is not a manifest of interplay prepare; prepare the data again."
        ) from None
    return Prepared(folder, manifest)


@lru_cache(maxsize=256)
def _digest(file: Path, stamp: int) -> str:
    return digest(file)


@lru_cache(maxsize=64)
def _rows(file: Path, sha256: str) -> tuple[DataRow, ...]:
    # Split only at "\n", because splitlines() also splits at other characters that a text may contain.
    return tuple(json.loads(line) for line in file.read_text(encoding="utf-8").split("\n") if line)


# -- tasks over rows --------------------------------------------------------------------------------------------------


class DataOptions(Section):
    """Options of every task over rows."""

    data: str | dict[str, str] = Field(
        "", description="a folder made by interplay prepare, or a table with one per split; empty: generated rows"
    )


class DataEnv(Env):
    """An environment whose task holds one row, in `self.row`: from a prepared folder, or made by `generate`.

    Evaluation goes through a split in its order. Training goes through all rows, shuffled again in every pass.
    """

    kind: ClassVar[str]
    success: ClassVar[str]  # the reward that is 1 for a right answer

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.row: DataRow = task.data["row"]

    @classmethod
    @abstractmethod
    def generate(cls, rng: random.Random, split: str, options: Mapping[str, Any]) -> DataRow:
        """A row without a data set. What is drawn for one split is never drawn for another."""

    @abstractmethod
    def script(self, role: Role) -> str:
        """What a player who knows the row would say in `role` now. Bot `expert` says this, and its team earns the full
        score. Raises a ConfigError if this row cannot be played in this way."""

    def script_calls(self, role: Role) -> tuple[tuple[str, Mapping[str, Any]], ...]:
        """The tools that this player would call first, by name, with their arguments."""
        return ()

    @classmethod
    def make_task(cls, name: str, split: str, index: int, seed: int, options: Mapping[str, Any]) -> Task:
        task = super().make_task(name, split, index, seed, options)
        if (source := cls.source(options, split)) is None:
            row = cls.generate(random.Random(task.seed), split, options)
        else:
            rows = source.rows(split)
            turn, at = divmod(index, len(rows))
            row = rows[_order(len(rows), seed, turn)[at] if split == "train" else at]
        return replace(task, data={**options, "row": row})

    @classmethod
    def source(cls, options: Mapping[str, Any], split: str) -> Prepared | None:
        """The prepared folder of a split, of the right kind; None if rows are generated."""
        data = options["data"]
        folder = data.get(split, "") if isinstance(data, dict) else data
        if not folder:
            if isinstance(data, dict) and data:
                raise ConfigError(
                    f"env.data names no folder for the {split} split; it only has: {', '.join(data)}. Add a folder."
                )
            return None
        found = Prepared.open(folder)
        if found.manifest["kind"] != cls.kind:
            raise ConfigError(
                f"env.data is '{folder}', which was prepared from {found.manifest['format']} and has rows of the kind "
                f"'{found.manifest['kind']}'; expected the kind '{cls.kind}'."
            )
        return found

    def fork(self, seed: int | None = None) -> DataEnv:
        """For tasks whose state consists of immutable values and whose randomness is only in the row."""
        return self.twin()


@lru_cache(maxsize=64)
def _order(count: int, seed: int, turn: int) -> tuple[int, ...]:
    order = list(range(count))
    random.Random(seed_of("rows", seed, turn)).shuffle(order)
    return tuple(order)
