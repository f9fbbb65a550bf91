"""`interplay prepare`: turns a public data set, from the hub or from files, into a folder that tasks can rely on.

Every row is checked against its format, and an error names file, row and field. Duplicates within a split are removed.
A training row overlaps with a validation or test row if both are equal or share `GRAM` consecutive words. Overlaps are
refused, with the names of the rows, or left out on request. Every gold answer is checked by its own checker, and rows
whose answer fails are left out, as are rows with a picture or a sound that cannot be decoded. The manifest records what
was done, with checksums. The same source gives the same folder, byte for byte (except that a gold program that needs
nearly its whole time limit may fail on a slower machine).
"""

from __future__ import annotations

import json
import shutil
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from interplay.config import validate
from interplay.envs.splits import SPLITS
from interplay.envs.tasks.columns import HUB, Columns, hub_format
from interplay.envs.tasks.data import MANIFEST, DataRow, Prepared, Public, digest, lookup_format
from interplay.envs.tasks.gold import Gold, check_rows
from interplay.envs.tasks.media import UnreadableMedia
from interplay.envs.tasks.overlap import GRAM, Texts, overlaps, text_key, texts_of
from interplay.envs.tasks.source import SourcePart, attached, file_rows, hub_name, hub_rows, sound
from interplay.errors import ConfigError, DataError
from interplay.types import seed_of

OWN = "questions"  # the format of a user's own rows
SHOWN = 5  # the number of overlaps that an error names


@dataclass
class Preparation:
    """What `prepare` did, as it is written to the manifest."""

    name: str
    source: str
    folder: Path
    counts: dict[str, int] = field(default_factory=dict)
    dropped: Counter[str] = field(default_factory=Counter)
    held_out: int = 0
    unchecked: int = 0  # rows whose gold answer is not known or was not checked
    unreadable: list[str] = field(default_factory=list)  # for each row with a broken picture or sound, a sentence


def prepare(
    name: str,
    source: Path | None,
    folder: Path,
    against: Sequence[Path] = (),
    drop_overlap: bool = False,
    holdout: float = 0.05,
    check: bool = True,
    columns: Columns | None = None,
) -> Preparation:
    """Read data set `name` from `source` (a file or folder; None: the hub) and write it to `folder`.

    `against` are prepared folders whose held-out rows must not be trained on either. If there is no validation split,
    `holdout` of the training rows become one. With `check` every gold answer is checked by its own checker, and rows
    whose answer fails are left out. These are the options of the command. With `columns` the rows are the user's own;
    `name` is then `questions`, or `hub:` and a data set of the hub.
    """
    cls = lookup_format(OWN if columns is not None else name)
    if name.startswith(HUB):
        cls = hub_format(cls, name)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"--to '{folder}' already exists; remove it or choose another folder.")
    report = Preparation(name, str(source) if source else hub_name(name, cls), folder)
    parts = hub_rows(name, cls) if source is None else file_rows(name, cls, source)
    with tempfile.TemporaryDirectory() as spool:
        if columns is not None:
            parts, report.name = columns.applied(parts, source, Path(spool)), OWN
        splits, tables = _settled(cls, parts, against, drop_overlap, holdout, report)
        beside = [] if source is None else attached(cls, source)
        _write(cls, splits, tables, [*beside, *_shown(splits, Path(spool))], report, check)
    return report


def _shown(splits: Mapping[str, list[DataRow]], spool: Path) -> list[Path]:
    """The files of the media that rows have."""
    return [spool / n for n in sorted({n for rows in splits.values() for r in rows for _, n in r.get("media", ())})]


def _settled(
    cls: type[Public], parts: Iterator[SourcePart], against: Sequence[Path], drop_overlap: bool, holdout: float,
    report: Preparation,
) -> tuple[dict[str, list[DataRow]], dict[str, list[DataRow]]]:  # fmt: skip
    """The rows of each split, without duplicates and overlap, and the tables beside them."""
    splits, tables, places = _read(report.name, cls, parts, report)
    splits = {split: _distinct(cls, rows, report) for split, rows in splits.items()}
    if "train" in splits:
        held = {split: texts_of(cls, splits[split]) for split in SPLITS[1:] if split in splits}
        for other in against:
            found = Prepared.open(other, "--against")
            theirs = lookup_format(found.manifest["format"])
            known = [split for split in SPLITS[1:] if split in found.manifest["splits"]]
            held |= {f"{other} {split}": texts_of(theirs, found.rows(split)) for split in known}
        splits["train"] = _without_overlap(cls, splits["train"], held, places, drop_overlap, report)
        missing = [s for s in SPLITS[1:] if s not in splits and (s == "validation" or cls.holds_out_test)]
        if missing and holdout:
            splits |= _hold_out(cls, splits["train"], missing, holdout, report)
    try:
        tables = cls.gather(splits, tables)
    except ValueError as error:
        raise DataError(f"{report.name} from {report.source}: {error}.") from None
    return {split: splits[split] for split in SPLITS if splits.get(split)}, tables


# -- reading ----------------------------------------------------------------------------------------------------------


def _read(
    name: str, cls: type[Public], parts: Iterator[SourcePart], report: Preparation
) -> tuple[dict[str, list[DataRow]], dict[str, list[DataRow]], dict[str, str]]:
    """Rows by split, tables, and the place of each row in its file, by its id."""
    splits: dict[str, list[DataRow]] = {}
    tables: dict[str, list[DataRow]] = {}
    places: dict[str, str] = {}
    for where, split, raws in parts:
        if split in cls.tables:
            tables[split] = [dict(raw) for raw in sound(where, raws)]
            continue
        for n, raw in enumerate(sound(where, raws), 1):
            try:
                public = validate(cls, raw)
                row, of = public.row(), public.split() or split
            except UnreadableMedia as error:
                report.dropped["unreadable_picture_or_sound"] += 1
                report.unreadable.append(str(error))
                continue
            except (ConfigError, ValueError, KeyError, TypeError, zlib.error) as error:
                missing = f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)
                raise DataError(f"{where} row {n} is not a row of {name}: {missing.rstrip('.')}.") from None
            if row is None or not cls.compared(row).strip():
                report.dropped["unusable"] += 1
                continue
            if of not in SPLITS:
                raise ConfigError(
                    f"the name of '{where}' does not tell its split; expected train, validation (or dev) or test in "
                    "it, or alone = 'train' in the class of the format."
                )
            row = {"id": f"{of}-{len(splits.get(of, ())) + 1}", **row}
            splits.setdefault(of, []).append(row)
            places[f"{of} {row['id']}"] = f"{where} row {n}"
    return splits, tables, places


# -- equal rows and overlap -------------------------------------------------------------------------------------------


def _distinct(cls: type[Public], rows: list[DataRow], report: Preparation) -> list[DataRow]:
    """Remove rows with the same text or the same id."""
    kept: dict[str, DataRow] = {}
    named: dict[str, DataRow] = {}
    for row in rows:
        first = named.get(row["id"]) or kept.setdefault(text_key(cls.compared(row)), row)
        named.setdefault(row["id"], first)
        if first is not row:
            same = all(
                text_key(str(first.get(name))) == text_key(str(value)) for name, value in row.items() if name != "id"
            )
            report.dropped["duplicates" if same else "duplicates_that_differ"] += 1
    return list(kept.values())


def _without_overlap(
    cls: type[Public], rows: list[DataRow], held: Mapping[str, Texts], places: Mapping[str, str],
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
            f"the training rows of {report.name} overlap with held-out rows: {exact} equal one and "
            f"{len(found) - exact} share {GRAM} consecutive words with one ({shown}{more}); expected none. Add "
            "--drop-overlap to leave them out."
        )
    report.dropped["overlap_equal"] += exact
    report.dropped[f"overlap_{GRAM}_words"] += len(found) - exact
    bad = {o.row for o in found}
    return [row for row in rows if row["id"] not in bad]


def _hold_out(
    cls: type[Public], rows: list[DataRow], missing: Sequence[str], share: float, report: Preparation
) -> dict[str, list[DataRow]]:
    """Take `share` of the training rows for each missing split. They are chosen by their text, so the order of the file
    does not matter. If there are few rows, a split may get none by chance. It then takes one, because a run needs
    it."""
    out: dict[str, list[DataRow]] = {"train": [], **{split: [] for split in missing}}

    def drawn(row: DataRow) -> int:
        return seed_of("hold out", text_key(cls.compared(row)))

    for row in rows:
        place = int(drawn(row) % 10_000 // (share * 10_000))
        out[missing[place] if place < len(missing) else "train"].append(row)
    for split in missing:
        if not out[split] and len(out["train"]) > 1:
            taken = min(out["train"], key=drawn)
            out["train"].remove(taken)
            out[split].append(taken)
    report.held_out = sum(len(out[split]) for split in missing)
    return out


# -- writing ----------------------------------------------------------------------------------------------------------


def _write(
    cls: type[Public], splits: Mapping[str, list[DataRow]], tables: Mapping[str, list[DataRow]], attached: list[Path],
    report: Preparation, check: bool,
) -> None:  # fmt: skip
    report.folder.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(dir=report.folder.parent))
    try:
        work.chmod(0o755)
        manifest: dict[str, Any] = {
            "format": report.name,
            "kind": cls.kind,
            "licence": cls.licence,
            "source": report.source,
            "splits": {split: _lines(work, split, rows) for split, rows in splits.items()},
            "tables": {name: _lines(work, name, rows) for name, rows in tables.items()},
            "attached": {file.name: digest(Path(shutil.copy(file, work))) for file in attached},
            "media": sorted({kind for rows in splits.values() for r in rows for kind, _ in r.get("media", ())}),
        }
        _write_manifest(work, manifest)
        kept = _right(cls, splits, work, report) if check else splits
        report.unchecked = report.unchecked if check else sum(map(len, splits.values()))
        report.counts = {split: len(rows) for split, rows in kept.items() if rows}
        if not report.counts:
            why = f" The first broken file: {report.unreadable[0]}" if report.unreadable else ""
            raise DataError(f"{report.name} from {report.source} has no usable row; expected at least one.{why}")
        for split in set(splits) - set(report.counts):
            (work / manifest["splits"][split]["file"]).unlink()
        manifest["splits"] = {split: _lines(work, split, kept[split]) for split in report.counts}
        manifest["dropped"] = {k: v for k, v in sorted(report.dropped.items()) if v}
        manifest["held_out_of_train"] = report.held_out
        manifest["unchecked"] = report.unchecked
        _write_manifest(work, manifest)
        if report.folder.exists():
            report.folder.rmdir()  # it is empty, as was checked
        work.rename(report.folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _right(
    cls: type[Public], splits: Mapping[str, list[DataRow]], folder: Path, report: Preparation
) -> dict[str, list[DataRow]]:
    """The rows whose gold answer passes its checker or is not known. The others are counted."""
    kept: dict[str, list[DataRow]] = {}
    for split, rows in splits.items():
        found = check_rows(cls.kind, rows, folder)
        kept[split] = [row for row, gold in zip(rows, found, strict=True) if gold in (Gold.PASSES, Gold.UNKNOWN)]
        report.unchecked += found.count(Gold.UNKNOWN)
        report.dropped.update(str(gold) for gold in found if gold in (Gold.FAILS, Gold.NO_BUG))
    return kept


def _lines(folder: Path, name: str, rows: Sequence[DataRow]) -> dict[str, Any]:
    file = folder / f"{name}.jsonl"
    with file.open("w", encoding="utf-8") as stream:
        for n, row in enumerate(rows, 1):
            try:
                stream.write(json.dumps(row, ensure_ascii=False) + "\n")
            except UnicodeEncodeError as error:
                where, half = row.get("id", f"row {n} of {name}"), ascii(error.object[error.start])
                raise DataError(f"{where} has {half}, which is half of a character; expected text in UTF-8.") from None
    return {"file": file.name, "rows": len(rows), "sha256": digest(file)}
