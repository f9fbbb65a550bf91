"""The raw rows of a public data set, from the Hugging Face hub or from files in their published form.

This module does not know what a row means. If a file cannot be read, the error names it.
"""

from __future__ import annotations

import csv
import gzip
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from interplay.envs.tasks.data import MANIFEST, Public, digest
from interplay.errors import ConfigError, DataError

_SPLIT_WORDS = {"train": "train", "valid": "validation", "dev": "validation", "test": "test"}
_SPLIT_WORD = re.compile(rf"(?<![a-z])(?:{'|'.join(_SPLIT_WORDS)})")  # "contest" must not count as test
_FIELD = 1 << 30  # the largest number of characters in one field of a CSV file
_LOADERS = {".jsonl": "json", ".parquet": "parquet"}  # for files of the hub
_KINDS = (".jsonl", ".json", ".jsonl.gz", ".json.gz", ".csv", ".parquet")
SourcePart = tuple[str, str | None, Iterator[Mapping[str, Any]]]  # where it is from, its split (or table), its raw rows


def sound(where: str, raws: Iterator[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The rows of a file. If it cannot be read or contains something else, the error names it."""
    try:
        for n, raw in enumerate(raws, 1):
            if not isinstance(raw, Mapping):
                raise DataError(f"{where} row {n} is {type(raw).__name__}; expected an object with named fields.")
            yield raw
    except UnicodeDecodeError:
        raise DataError(f"{where} is not text in UTF-8; convert it, for example with iconv.") from None
    except (OSError, EOFError, ValueError, RecursionError, zlib.error, csv.Error) as error:
        reason = str(error).strip().split("\n")[0].rstrip(".")
        raise DataError(
            f"{where} is damaged ({reason}); expected a complete file of the kind that its name says."
        ) from None


def hub_name(name: str, cls: type[Public]) -> str:
    if not cls.hub:
        raise ConfigError(
            f"{name} is not on the Hugging Face hub; expected its files: interplay prepare {name} --from PATH"
        )
    return "hub:" + ",".join(dict.fromkeys(source for source, _, _ in cls.hub.values()))


def hub_rows(name: str, cls: type[Public]) -> Iterator[SourcePart]:
    try:
        import datasets
    except ImportError:
        raise ConfigError(
            "reading from the Hugging Face hub needs the datasets package: pip install 'interplay[data]', or give the "
            f"files: interplay prepare {name} --from PATH"
        ) from None
    for split, (source, configurations, part) in cls.hub.items():
        for configuration in (configurations or "").split(","):
            try:
                if kind := _LOADERS.get(Path(part).suffix):
                    rows = datasets.load_dataset(kind, data_files=f"hf://datasets/{source}/{part}", split="train")
                else:
                    rows = datasets.load_dataset(source, configuration or None, split=part)
            except Exception as error:  # the hub, the network and the cache can raise anything
                reason = str(error).strip().split("\n")[0]
                raise DataError(
                    f"{source} could not be read from the hub ({type(error).__name__}: {reason}); give its files: "
                    f"interplay prepare {name} --from PATH"
                ) from None
            for column, feature in getattr(rows, "features", {}).items():  # bytes, not decoded pictures and sounds
                if type(feature).__name__ in ("Image", "Audio"):
                    rows = rows.cast_column(column, type(feature)(decode=False))
            yield f"{source} {configuration} {part}".replace("  ", " "), split, iter(rows)


def file_rows(name: str, cls: type[Public], source: Path) -> Iterator[SourcePart]:
    if not source.exists():
        raise ConfigError(f"--from '{source}' does not exist; expected a file of {name}, or a folder of such files.")
    if source.is_dir() and (rows := cls.unpacked(source)) is not None:
        yield source.name, cls.alone, rows
        return
    files = [source]
    if source.is_dir():
        inside = sorted(f for f in source.rglob("*") if f.is_file())
        wanted = [f for f in inside if any(f.match(pattern) for pattern in cls.files)] if cls.files else []
        files = wanted or inside
    files = [f for f in files if f.name.endswith(_KINDS) and f.name != MANIFEST]
    if not files:
        raise ConfigError(f"--from '{source}' has no data file; expected names ending in {', '.join(_KINDS)}.")
    for file in files:
        place = file.relative_to(source) if source.is_dir() else Path(file.name)
        stem = file.name.split(".")[0]
        yield str(place), stem if stem in cls.tables else _split_of(cls, place), _raw(file)


def _split_of(cls: type[Public], place: Path) -> str | None:
    """The split that the file's name tells, or else the name of its folder, and so on."""
    for name in (place.name, *reversed(place.parts[:-1])):
        found = {_SPLIT_WORDS[word] for word in _SPLIT_WORD.findall(name.lower())}
        if len(found) == 1:
            return "test" if cls.dev_is_test and found == {"validation"} else found.pop()
    return cls.alone


def attached(cls: type[Public], source: Path) -> list[Path]:
    folder = source if source.is_dir() else source.parent
    found: dict[str, Path] = {}
    for file in sorted({file for pattern in cls.attached for file in folder.rglob(pattern)}):
        if found.setdefault(file.name, file) is not file and digest(file) != digest(found[file.name]):
            raise DataError(
                f"'{found[file.name]}' and '{file}' have the same name but differ; expected only one of them."
            )
    return list(found.values())


def _raw(file: Path) -> Iterator[Mapping[str, Any]]:
    if file.suffix == ".parquet":
        try:
            import pyarrow.parquet
        except ImportError:
            raise ConfigError(f"reading '{file.name}' needs pyarrow: pip install 'interplay[data]'.") from None
        yield from pyarrow.parquet.read_table(file).to_pylist()
        return
    opened = gzip.open if file.suffix == ".gz" else open
    with opened(file, "rt", encoding="utf-8-sig", newline="") as stream:
        if ".csv" in file.suffixes:
            csv.field_size_limit(_FIELD)
            yield from csv.DictReader(stream)
            return
        if ".jsonl" in file.suffixes:
            for n, line in enumerate(stream, 1):
                if line.strip():
                    yield _object(line, file, n)
            return
        try:
            whole = json.load(stream)
        except (json.JSONDecodeError, RecursionError) as error:
            raise DataError(f"{file.name} is not JSON: {error}.") from None
        if isinstance(whole, dict):  # a list of rows under a name, or a single row
            whole = next((v for v in whole.values() if isinstance(v, list) and v and isinstance(v[0], dict)), [whole])
        if not isinstance(whole, list):
            raise DataError(f"{file.name} has no list of rows; expected a JSON list.")
        yield from whole


def _object(line: str, file: Path, n: int) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{file.name} row {n} is not JSON: {error}.") from None
