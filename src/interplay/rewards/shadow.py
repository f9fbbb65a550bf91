"""Shadows of a database: copies with the same schema and other contents, on which a right query is still right.

A query that only contains the answer, or the key of a row, is right by accident, and a shadow reveals that. But what
the schema promises must also hold in a shadow, or a right query would be rejected. So in a shadow

- some rows are removed, with all rows that refer to them; a row that others referred to is still referred to;
- keys are replaced by other numbers, the same everywhere, and words by other words of the same column;
- in some shadows, a few cells hold the values that the gold query names, or neighbouring values, because `year > 2003`
  and `year >= 2003` differ only there.

Other numbers and dates stay unchanged, because relations between them are not known.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from interplay.execution import database
from interplay.execution.query import Cell, Column
from interplay.rewards.query_match import same
from interplay.rewards.rebuild import Contents, contents, rebuilt

GONE = 0.25  # share of the rows that are removed
SEEDS = 16  # shadows that are tried to find some on which the gold query gives another result
WANTED = 6  # shadows on which a query must be right: in a small database two queries often agree by chance
LARGEST = 5_000  # rows of a table that are kept
CHOICES = 3  # a column with at most this many words may have all possible ones, such as yes and no
BOUNDARIES = 6  # cells of a column that are set to a value of the query or a neighbouring value

GENERIC = {"id", "ID", "Id", "key", "no", "number", "index", "code"}  # names of keys that do not name a table
_LITERAL = re.compile(r"'((?:[^']|'')*)'|(?<![\w.'])(-?\d+(?:\.\d+)?)(?![\w.'])")
_WHEN = re.compile(r"\d{1,4}[-/.:]\d{1,2}")
Link = tuple[str, str, str, str]  # a table and its column, and the table and column that it refers to


@lru_cache(maxsize=2048)
def shadows(data: bytes, gold: str, wanted: int = WANTED) -> tuple[bytes, ...]:
    """At most `wanted` databases that show whether a query means the same as the gold query; empty if none was found.

    On the first one, the gold query gives a result that is not empty and differs from the result here.
    """
    here = database.ask(data, gold)
    telling: list[bytes] = []
    silent: list[bytes] = []
    for other in _candidates(data, gold):
        there = database.ask(other, gold)
        if there.error:
            continue
        (telling if there.rows and not same(here, there) else silent).append(other)
        if len(telling) >= wanted:
            break
    return tuple([*telling, *silent][:wanted]) if telling else ()


def _candidates(data: bytes, gold: str) -> Iterator[bytes]:
    """Candidates. One with the query's own values comes first: it separates queries that differ at a boundary."""
    for seed in range(SEEDS):
        made = _boundary(data, gold, seed) if seed % 3 == 0 else _changed(data, seed)
        if made is not None:
            yield made


@lru_cache(maxsize=256)
def _changed(data: bytes, seed: int) -> bytes | None:
    """A copy with other keys and words, and without some rows."""
    known = _known(data)
    if known is None:
        return None
    rng = random.Random(seed)
    left = _without_some(known, rng)
    return rebuilt(data, _renamed(replace(known, contents=left), rng))


def _boundary(data: bytes, gold: str, seed: int) -> bytes | None:
    """A copy in which the columns that a query names hold the values it names, and neighbouring values."""
    known = _known(data)
    if known is None:
        return None
    rng = random.Random(seed)
    words = set(re.findall(r"\w+", gold.lower()))
    texts = [text.replace("''", "'") for text, _ in _LITERAL.findall(gold) if text]
    numbers = [float(number) for _, number in _LITERAL.findall(gold) if number]
    made = {name: [list(row) for row in rows] for name, rows in _without_some(known, rng).items()}
    linked = {(table, column) for link in known.links for table, column in (link[:2], link[2:])}
    for table, columns in known.tables.items():
        for i, column in enumerate(columns):
            if table.lower() not in words or column.name.lower() not in words or column.key:
                continue
            if (table, column.name) not in linked:
                _set(made[table], i, texts, numbers, rng)
    return rebuilt(data, {name: [tuple(row) for row in rows] for name, rows in made.items()})


def _set(rows: list[list[Cell]], i: int, texts: list[str], numbers: list[float], rng: random.Random) -> None:
    """Put values of a query into a column of the same kind."""
    cells = [row[i] for row in rows if row[i] is not None]
    whole = bool(cells) and all(isinstance(cell, int) for cell in cells)
    values: list[Cell] = []
    if cells and all(isinstance(cell, str) for cell in cells):
        near = len(set(cells)) > CHOICES
        values = [value for text in texts for value in ((text, _neighbour(text)) if near else (text,))]
    elif whole and set(cells) <= {0, 1}:  # a flag stays a flag
        values = [int(n) for n in numbers if n in (0, 1)]
    elif whole:
        values = [int(n) + step for n in numbers if n.is_integer() for step in (0, -1, 1)]
    elif cells and all(isinstance(cell, int | float) for cell in cells):
        values = [n + step for n in numbers for step in (0.0, -0.5, 0.5)]
    if len(set(cells)) == len(rows):  # unique values stay unique
        for value in values[:1]:
            row, other = rng.choice(rows), next((row for row in rows if row[i] == value), None)
            if other is not None:
                other[i] = row[i]
            row[i] = value
        return
    places = rng.sample(range(len(rows)), min(BOUNDARIES, len(rows)))
    for place, value in zip(places, values * BOUNDARIES, strict=False):
        rows[place][i] = value


def _neighbour(text: str) -> str:
    """A similar word of the same length: `country > 'S'` and `country = 'Sweden'` differ there."""
    last = text[-1:]
    return text[:-1] + ("b" if last == "a" else "a") if last.isalpha() else text + "a"


# -- what a schema promises -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Known:
    """A database's tables and contents, which columns refer to which, and which of those have all rows referred to."""

    tables: Mapping[str, tuple[Column, ...]]
    contents: Contents
    links: tuple[Link, ...]
    total: frozenset[Link]

    def column(self, table: str, name: str) -> set[Cell]:
        i = next(i for i, column in enumerate(self.tables[table]) if column.name == name)
        return {row[i] for row in self.contents[table] if row[i] is not None}


@lru_cache(maxsize=64)
def _known(data: bytes) -> _Known | None:
    read = contents(data, LARGEST)
    if read is None:
        return None
    bare = _Known(database.tables(data), read, (), frozenset())
    links = tuple(dict.fromkeys(_links(bare)))
    values = {(t, c): bare.column(t, c) for link in links for t, c in (link[:2], link[2:])}
    holds = tuple(link for link in links if values[link[:2]] <= values[link[2:]])
    total = frozenset(link for link in holds if values[link[:2]] == values[link[2:]])
    return replace(bare, links=holds, total=total)


def _links(known: _Known) -> Iterator[Link]:
    """Declared foreign keys, and columns that have the name of another table's key."""
    keys: dict[str, list[str]] = {table: [c.name for c in cs if c.key] for table, cs in known.tables.items()}
    for table, columns in known.tables.items():
        for column in columns:
            if column.refers is not None and column.refers[0] in known.tables:
                parent, named_key = column.refers
                if target := named_key or next(iter(keys[parent]), None):
                    yield table, column.name, parent, target
    for table, columns in known.tables.items():
        for column in columns:
            for other, others in known.tables.items():
                for to in others if other != table else ():
                    named = {to.name, f"{other}_{to.name}", f"{other}{to.name}"}
                    alike = column.name.lower() in {name.lower() for name in named - GENERIC}
                    if alike and (to.key or to.name.lower().endswith("id")) and _unique(known, other, to.name):
                        yield table, column.name, other, to.name


def _unique(known: _Known, table: str, name: str) -> bool:
    return len(known.column(table, name)) == len(known.contents[table]) > 0


# -- other contents ---------------------------------------------------------------------------------------------------


def _without_some(known: _Known, rng: random.Random) -> Contents:
    """Remove some rows such that the promises about links still hold. This may empty a table in a small database in
    which everything refers to everything. Then chance decides whether the table is emptied or nothing is removed."""
    kept = {
        name: [row for row in rows if len(rows) <= 2 or rng.random() >= GONE] for name, rows in known.contents.items()
    }
    for total in (known.total, frozenset[Link]()):
        left = _closed(known, kept, total)
        if all(left[name] or not rows for name, rows in known.contents.items()):
            return left
    return rng.choice((left, known.contents))


def _closed(known: _Known, kept: Contents, total: frozenset[Link]) -> Contents:
    """Remove rows that refer to a missing row or, if all rows of a table were referred to, rows that are no longer
    referred to."""
    left = {name: list(rows) for name, rows in kept.items()}
    places = {(t, c.name): i for t, columns in known.tables.items() for i, c in enumerate(columns)}
    before = -1
    while (now := sum(map(len, left.values()))) != before:
        before = now
        for link in known.links:
            table, column, other, to = link
            i, j = places[table, column], places[other, to]
            there = {row[j] for row in left[other]}
            left[table] = [row for row in left[table] if row[i] is None or row[i] in there]
            if link in total:
                named = {row[i] for row in left[table]}
                left[other] = [row for row in left[other] if row[j] in named]
    return left


def _renamed(known: _Known, rng: random.Random) -> Contents:
    """Replace every key and every word by another one of its kind, in the same way everywhere."""
    names: dict[tuple[str, str], Mapping[Cell, Cell]] = {}
    for domain in _domains(known):
        values = sorted({v for table, column in domain for v in known.column(table, column)}, key=repr)
        others = rng.sample(values, len(values))
        renaming = dict(zip(values, others, strict=True))
        names |= dict.fromkeys(domain, renaming)
    made: dict[str, list[tuple[Cell, ...]]] = {}
    for table, rows in known.contents.items():
        columns = [names.get((table, column.name), {}) for column in known.tables[table]]
        made[table] = [tuple(new.get(c, c) for c, new in zip(row, columns, strict=True)) for row in rows]
    return made


def _domains(known: _Known) -> list[list[tuple[str, str]]]:
    """Groups of columns whose values mean the same: linked columns, and columns of words that share a word."""
    groups: dict[tuple[str, str], tuple[str, str]] = {}

    def head(at: tuple[str, str]) -> tuple[str, str]:
        while groups[at] != at:
            at = groups[at]
        return at

    by_word: dict[Cell, tuple[str, str]] = {}
    for table, columns in known.tables.items():
        keys = [c for c in columns if c.key]
        for column in columns:
            at, values = (table, column.name), known.column(table, column.name)
            if _words(values):
                groups.setdefault(at, at)
                for value in values:
                    groups[head(at)] = head(by_word.setdefault(value, at))
            elif column.key and len(keys) == 1:
                groups.setdefault(at, at)
    for link in known.links:
        for at in (link[:2], link[2:]):
            groups.setdefault(at, at)
        groups[head(link[:2])] = head(link[2:])
    found: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for at in groups:
        found.setdefault(head(at), []).append(at)
    return list(found.values())


def _words(values: set[Cell]) -> bool:
    """Whether a column holds words: text that is neither a date nor a number."""
    texts = [value for value in values if isinstance(value, str)]
    plain: Callable[[str], bool] = lambda text: not _WHEN.search(text) and not re.fullmatch(r"[-+.,\d\s]*", text)  # noqa: E731
    return bool(texts) and len(texts) == len(values) and all(map(plain, texts))
