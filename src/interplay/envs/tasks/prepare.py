"""`interplay prepare`: a public data set, from the hub or from files, as a folder that tasks can trust.

Every row is checked against its format, and an error names file, row and field. Within a split equal rows are kept
once. A training row that equals a validation or test row, or shares `GRAM` words in a row with one, is an overlap:
refused, with the rows by name, or left out where asked for. What was done stands in the manifest, with checksums;
the same source gives the same folder, byte for byte.
"""

from __future__ import annotations

import csv
import gzip
import json
import re
import shutil
import tempfile
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from interplay.config import validate
from interplay.envs.splits import SPLITS
from interplay.envs.tasks.data import MANIFEST, DataRow, Prepared, Public, digest, lookup_format
from interplay.errors import ConfigError, DataError
from interplay.types import seed_of

GRAM = 13
SHOWN = 5  # overlaps that an error names
_SPLIT_WORDS = {"train": "train", "valid": "validation", "dev": "validation", "test": "test"}
_SPLIT_WORD = re.compile(rf"(?<![a-z])(?:{'|'.join(_SPLIT_WORDS)})")  # a contest is no test
_EDGES = re.compile(r"^[\W_]+|[\W_]+$")
_FIELD = 1 << 30  # characters of one field of a CSV file
_LOADERS = {".jsonl": "json", ".parquet": "parquet"}  # of the hub's files
_KINDS = (".jsonl", ".json", ".jsonl.gz", ".json.gz", ".csv", ".parquet")


@dataclass(frozen=True)
class Overlap:
    """A training row and the held-out row that it repeats."""

    row: str
    of: str  # split, or folder and split
    other: str
    exact: bool


@dataclass
class Preparation:
    """What `prepare` did, and what the manifest keeps of it."""

    name: str
    source: str
    folder: Path
    counts: dict[str, int] = field(default_factory=dict)
    dropped: Counter[str] = field(default_factory=Counter)
    held_out: int = 0


def prepare(
    name: str,
    source: Path | None,
    folder: Path,
    against: Sequence[Path] = (),
    drop_overlap: bool = False,
    holdout: float = 0.05,
) -> Preparation:
    """Read data set `name` from `source` (a file or folder; None: the hub) and write it to `folder`.

    `against` are prepared folders whose held-out rows must not be trained on either. Where there is no validation
    split, `holdout` of the training rows become one.
    """
    cls = lookup_format(name)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"--to '{folder}' exists already; remove it or choose another folder.")
    report = Preparation(name, str(source) if source else _hub_name(name, cls), folder)
    parts = _hub_rows(name, cls) if source is None else _file_rows(name, cls, source)
    splits, tables, places = _read(name, cls, parts, report)
    splits = {split: _distinct(cls, rows, report) for split, rows in splits.items()}
    if "train" in splits:
        held = {split: _texts(cls, splits[split]) for split in SPLITS[1:] if split in splits}
        for other in against:
            found = Prepared.open(other, "--against")
            theirs = lookup_format(found.manifest["format"])
            known = [split for split in SPLITS[1:] if split in found.manifest["splits"]]
            held |= {f"{other} {split}": _texts(theirs, found.rows(split)) for split in known}
        splits["train"] = _without_overlap(name, cls, splits["train"], held, places, drop_overlap, report)
        if "validation" not in splits and holdout:
            splits |= _hold_out(cls, splits["train"], holdout, report)
    try:
        tables = cls.gather(splits, tables)
    except ValueError as error:
        raise DataError(f"{name} from {report.source}: {error}.") from None
    report.counts = {split: len(splits[split]) for split in SPLITS if splits.get(split)}
    if not report.counts:
        raise DataError(f"{name} from {report.source} holds no usable row.")
    _write(cls, splits, tables, [] if source is None else _attached(cls, source), report)
    return report


# -- reading ----------------------------------------------------------------------------------------------------------

SourcePart = tuple[str, str | None, Iterator[Mapping[str, Any]]]  # where it is from, its split (or table), its raw rows


def _read(
    name: str, cls: type[Public], parts: Iterator[SourcePart], report: Preparation
) -> tuple[dict[str, list[DataRow]], dict[str, list[DataRow]], dict[str, str]]:
    """Rows by split, tables, and where each row stood, by its id."""
    splits: dict[str, list[DataRow]] = {}
    tables: dict[str, list[DataRow]] = {}
    places: dict[str, str] = {}
    for where, split, raws in parts:
        if split in cls.tables:
            tables[split] = [dict(raw) for raw in _sound(where, raws)]
            continue
        for n, raw in enumerate(_sound(where, raws), 1):
            try:
                public = validate(cls, raw)
                row, of = public.row(), public.split() or split
            except (ConfigError, ValueError, KeyError, TypeError, zlib.error) as error:
                missing = f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)
                raise DataError(f"{where} row {n} is no row of {name}: {missing.rstrip('.')}.") from None
            if row is None or not cls.compared(row).strip():
                report.dropped["unusable"] += 1
                continue
            if of not in SPLITS:
                raise ConfigError(f"'{where}' tells no split; expected train, validation (or dev) or test in its name.")
            row = {"id": f"{of}-{len(splits.get(of, ())) + 1}", **row}
            splits.setdefault(of, []).append(row)
            places[f"{of} {row['id']}"] = f"{where} row {n}"
    return splits, tables, places


def _sound(where: str, raws: Iterator[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The rows, as far as the file can be read and holds rows."""
    try:
        for n, raw in enumerate(raws, 1):
            if not isinstance(raw, Mapping):
                raise DataError(f"{where} row {n} is {type(raw).__name__}; expected an object with named fields.")
            yield raw
    except UnicodeDecodeError:
        raise DataError(f"{where} is not text in UTF-8; expected that: convert it, with iconv for one.") from None
    except (OSError, EOFError, ValueError, RecursionError, zlib.error, csv.Error) as error:
        reason = str(error).strip().split("\n")[0].rstrip(".")
        raise DataError(f"{where} is damaged ({reason}); expected a whole file of the kind its name says.") from None


def _hub_name(name: str, cls: type[Public]) -> str:
    if not cls.hub:
        raise ConfigError(
            f"{name} is not on the Hugging Face hub; expected its files: interplay prepare {name} --from PATH"
        )
    return "hub:" + ",".join(dict.fromkeys(source for source, _, _ in cls.hub.values()))


def _hub_rows(name: str, cls: type[Public]) -> Iterator[SourcePart]:
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
            except Exception as error:  # the hub, the network and the cache raise what they like
                reason = str(error).strip().split("\n")[0]
                raise DataError(
                    f"{source} could not be read from the hub ({type(error).__name__}: {reason}); give its files: "
                    f"interplay prepare {name} --from PATH"
                ) from None
            yield f"{source} {configuration} {part}".replace("  ", " "), split, iter(rows)


def _file_rows(name: str, cls: type[Public], source: Path) -> Iterator[SourcePart]:
    if not source.exists():
        raise ConfigError(f"--from '{source}' does not exist; expected a file of {name}, or a folder of them.")
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
        raise ConfigError(f"--from '{source}' holds no data file; expected names ending in {', '.join(_KINDS)}.")
    for file in files:
        place = file.relative_to(source) if source.is_dir() else Path(file.name)
        stem = file.name.split(".")[0]
        yield str(place), stem if stem in cls.tables else _split_of(cls, place), _raw(file)


def _split_of(cls: type[Public], place: Path) -> str | None:
    """As the file's name tells, else the folder's that it is in, and so on."""
    for name in (place.name, *reversed(place.parts[:-1])):
        found = {_SPLIT_WORDS[word] for word in _SPLIT_WORD.findall(name.lower())}
        if len(found) == 1:
            return "test" if cls.dev_is_test and found == {"validation"} else found.pop()
    return cls.alone


def _attached(cls: type[Public], source: Path) -> list[Path]:
    folder = source if source.is_dir() else source.parent
    found: dict[str, Path] = {}
    for file in sorted({file for pattern in cls.attached for file in folder.rglob(pattern)}):
        if found.setdefault(file.name, file) is not file and digest(file) != digest(found[file.name]):
            raise DataError(f"'{found[file.name]}' and '{file}' have one name and differ; expected one of them.")
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
        if isinstance(whole, dict):  # a list of rows under a name, or one row
            whole = next((v for v in whole.values() if isinstance(v, list) and v and isinstance(v[0], dict)), [whole])
        if not isinstance(whole, list):
            raise DataError(f"{file.name} holds no list of rows.")
        yield from whole


def _object(line: str, file: Path, n: int) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{file.name} row {n} is not JSON: {error}.") from None


# -- equal rows and overlap -------------------------------------------------------------------------------------------


def _key(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _distinct(cls: type[Public], rows: list[DataRow], report: Preparation) -> list[DataRow]:
    """Rows of one text, or of one id, are one row."""
    kept: dict[str, DataRow] = {}
    named: dict[str, DataRow] = {}
    for row in rows:
        first = named.get(row["id"]) or kept.setdefault(_key(cls.compared(row)), row)
        named.setdefault(row["id"], first)
        if first is not row:
            same = all(_key(str(first.get(name))) == _key(str(value)) for name, value in row.items() if name != "id")
            report.dropped["duplicates" if same else "duplicates_that_differ"] += 1
    return list(kept.values())


def _grams(text: str) -> Iterator[int]:
    words = [w for word in _key(text).split() if (w := _EDGES.sub("", word))]
    for i in range(len(words) - GRAM + 1):
        yield hash(tuple(words[i : i + GRAM]))


Texts = list[tuple[str, str]]  # rows by id and by what they are compared by


def _texts(cls: type[Public], rows: Sequence[DataRow]) -> Texts:
    return [(row["id"], cls.compared(row)) for row in rows]


def overlaps(cls: type[Public], rows: Sequence[DataRow], held: Mapping[str, Texts]) -> Iterator[Overlap]:
    """Each training row that repeats a held-out row, with the first one that it repeats."""
    equal: dict[str, tuple[str, str]] = {}
    grams: dict[int, tuple[str, str]] = {}
    for of, others in held.items():
        for other, text in others:
            equal.setdefault(_key(text), (of, other))
            for gram in _grams(text):
                grams.setdefault(gram, (of, other))
    for row in rows:
        text = cls.compared(row)
        if found := equal.get(_key(text)):
            yield Overlap(row["id"], *found, exact=True)
        elif found := next((grams[g] for g in _grams(text) if g in grams), None):
            yield Overlap(row["id"], *found, exact=False)


def _without_overlap(
    name: str, cls: type[Public], rows: list[DataRow], held: Mapping[str, Texts], places: Mapping[str, str],
    drop: bool, report: Preparation,
) -> list[DataRow]:  # fmt: skip
    found = list(overlaps(cls, rows, held))
    exact = sum(o.exact for o in found)
    if found and not drop:
        shown = "; ".join(
            f"{places[f'train {o.row}']} {'equals' if o.exact else 'shares words with'} "
            f"{places.get(f'{o.of} {o.other}', f'{o.of} {o.other}')}"
            for o in found[:SHOWN]
        )
        more = f"; and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
        raise DataError(
            f"the training rows of {name} overlap with held-out rows: {exact} equal one and {len(found) - exact} share "
            f"{GRAM} words in a row with one ({shown}{more}); expected none, add --drop-overlap to leave them out."
        )
    report.dropped["overlap_equal"] += exact
    report.dropped[f"overlap_{GRAM}_words"] += len(found) - exact
    bad = {o.row for o in found}
    return [row for row in rows if row["id"] not in bad]


def _hold_out(cls: type[Public], rows: list[DataRow], share: float, report: Preparation) -> dict[str, list[DataRow]]:
    """Training rows by their text: the same ones become validation, whatever the order of the file."""
    mine = [seed_of("hold out", _key(cls.compared(row))) % 10_000 < share * 10_000 for row in rows]
    report.held_out = sum(mine)
    return {
        "train": [row for row, held in zip(rows, mine, strict=True) if not held],
        "validation": [row for row, held in zip(rows, mine, strict=True) if held],
    }


# -- writing ----------------------------------------------------------------------------------------------------------


def _write(
    cls: type[Public], splits: Mapping[str, list[DataRow]], tables: Mapping[str, list[DataRow]], attached: list[Path],
    report: Preparation,
) -> None:  # fmt: skip
    report.folder.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(dir=report.folder.parent))
    try:
        work.chmod(0o755)
        manifest = {
            "format": report.name,
            "kind": cls.kind,
            "licence": cls.licence,
            "source": report.source,
            "splits": {split: _lines(work, split, splits[split]) for split in report.counts},
            "tables": {name: _lines(work, name, rows) for name, rows in tables.items()},
            "attached": {file.name: digest(Path(shutil.copy(file, work))) for file in attached},
            "dropped": {k: v for k, v in sorted(report.dropped.items()) if v},
            "held_out_of_train": report.held_out,
        }
        (work / MANIFEST).write_text(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        if report.folder.exists():
            report.folder.rmdir()  # empty, as checked
        work.rename(report.folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _lines(folder: Path, name: str, rows: Sequence[DataRow]) -> dict[str, Any]:
    file = folder / f"{name}.jsonl"
    with file.open("w", encoding="utf-8") as stream:
        for n, row in enumerate(rows, 1):
            try:
                stream.write(json.dumps(row, ensure_ascii=False) + "\n")
            except UnicodeEncodeError as error:
                where, half = row.get("id", f"row {n} of {name}"), ascii(error.object[error.start])
                raise DataError(f"{where} holds {half}, half of a character; expected text in UTF-8.") from None
    return {"file": file.name, "rows": len(rows), "sha256": digest(file)}
