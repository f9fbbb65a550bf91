"""The columns of your own rows that hold the question and the answer, and the place of the rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interplay.envs.tasks.data import Public
from interplay.envs.tasks.media import UnreadableMedia, medium
from interplay.envs.tasks.source import SourcePart, sound
from interplay.errors import ConfigError, DataError, did_you_mean

HUB = "hub:"


@dataclass(frozen=True)
class Columns:
    """`question` and `answer` name columns; a dot goes into a table or a list (`answers.text.0`). `compare` says when
    an answer is right: `math` (by what it means), `text` (the same words) or `package.module:function`, which is called
    with the right answer and the given one. `media` names columns of pictures and sounds, which belong to the
    question."""

    question: str
    answer: str
    compare: str = "math"
    media: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.compare not in ("math", "text") and ":" not in self.compare:
            raise ConfigError(f"--compare is '{self.compare}'; expected math, text or package.module:function.")

    def applied(self, parts: Iterator[SourcePart], source: Path | None, spool: Path) -> Iterator[SourcePart]:
        """The same parts, with the rows as the format `questions` has them. Media are written to `spool`. `source` is
        the file or folder that paths of media are relative to."""
        folder = source if source is None or source.is_dir() else source.parent
        for where, split, raws in parts:
            beside = None if folder is None else (folder / where).parent
            rows = enumerate(sound(where, raws), 1)
            yield where, split, (self._row(f"{where} row {n}", raw, beside, spool) for n, raw in rows)

    def _row(self, where: str, raw: Mapping[str, Any], beside: Path | None, spool: Path) -> dict[str, Any]:
        named = {"question": self.question, "answer": self.answer}
        found: dict[str, Any] = {key: _text(raw, path, where) for key, path in named.items()}
        shown = []
        for path in self.media:
            value = _value(raw, path, where)
            for one in value if isinstance(value, list) else [value]:
                if one is None:
                    continue
                try:
                    made = medium(one, f"{where}, column '{path}',", beside)
                except UnreadableMedia as error:
                    return {**found, "compare": self.compare, "unreadable": str(error)}
                (spool / made.file).write_bytes(made.data)
                shown.append([made.kind, made.file])
        return {**found, "compare": self.compare, "media": shown}


def _value(raw: Mapping[str, Any], path: str, where: str) -> Any:
    value: Any = raw
    if path in raw:  # a column whose name has a dot
        value = raw[path]
    else:
        for part in path.split("."):
            if isinstance(value, list) and part.isdecimal() and int(part) < len(value):
                value = value[int(part)]
            elif isinstance(value, Mapping) and part in value:
                value = value[part]
            else:
                raise DataError(f"{where} has no column '{path}'; {did_you_mean(path, map(str, raw))}")
    return value


def _text(raw: Mapping[str, Any], path: str, where: str) -> str:
    value = _value(raw, path, where)
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        kind = type(value).__name__
        raise DataError(
            f"{where} has a {kind} in '{path}'; expected a text or a number. Name a part of it, such as a.b.0."
        )
    return str(value)


def hub_format(cls: type[Public], name: str) -> type[Public]:
    """`cls` with the splits of a data set of the hub, written OWNER/NAME or OWNER/NAME:CONFIGURATION."""
    source, _, configuration = name.removeprefix(HUB).partition(":")
    try:
        import datasets
    except ImportError:
        raise ConfigError(
            "reading from the Hugging Face hub needs the datasets package: pip install 'interplay[data]'."
        ) from None
    try:
        splits = datasets.get_dataset_split_names(source, configuration or None)
    except Exception as error:  # the hub, the network and the cache can raise anything
        reason = str(error).strip().split("\n")[0]
        raise DataError(f"{source} could not be read from the hub ({type(error).__name__}: {reason}).") from None
    words = {"train": "train", "validation": "validation", "valid": "validation", "dev": "validation", "test": "test"}
    hub = {words[split]: (source, configuration or None, split) for split in splits if split in words}
    if not hub:
        raise DataError(f"{source} has the splits {', '.join(splits)}; expected train, validation or test among them.")
    return type(cls.__name__, (cls,), {"hub": hub, "__doc__": cls.__doc__, "__module__": cls.__module__})
