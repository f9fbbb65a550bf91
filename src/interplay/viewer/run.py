"""The files of one run folder, read as they grow: recipe, metrics, episodes, evaluations."""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from interplay import algorithms
from interplay.algorithms import Algorithm
from interplay.config import Recipe, RewardSection, parse
from interplay.errors import InterplayError
from interplay.rollout.token_texts import TokenTexts
from interplay.training.folder_lock import is_training
from interplay.viewer.index import EpisodeIndex
from interplay.viewer.summary import EpisodeSummary, sorting, summarise, wanted

SOURCES = {"train": "episodes.jsonl", "eval": "eval/played.jsonl"}
LIVE = 60.0  # seconds since the last write in which a run counts as training, if its folder cannot be locked
_POINTS = 1000  # points of a curve that are sent to the page
_ROWS = 50  # episodes on one page of a list


class MetricsFile:
    """The columns of `metrics.jsonl`. Rows that are damaged are skipped."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._reset()

    def _reset(self) -> None:
        self.steps: list[float] = []
        self.columns: dict[str, list[float | None]] = {}
        self._end, self._last = 0, b""

    def refresh(self) -> None:
        try:
            size = self.path.stat().st_size
        except OSError:
            return self._reset()
        with self.path.open("rb") as file:
            file.seek(max(0, self._end - len(self._last)))
            if size < self._end or file.read(len(self._last)) != self._last:
                self._reset()  # a resumed run cuts the file back to its checkpoint
                file.seek(0)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._end, self._last = self._end + len(line), line[-64:]
                self._add(line)

    def _add(self, line: bytes) -> None:
        try:
            row = json.loads(line)
            step = float(row.pop("step"))
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            return
        for name, value in row.items():
            column = self.columns.get(name)
            if column is None:
                column = self.columns[name] = [None] * len(self.steps)
            column.append(_number(value))
        self.steps.append(step)
        for column in self.columns.values():
            if len(column) < len(self.steps):
                column.append(None)

    def thinned(self) -> dict[str, Any]:
        """All columns, with every n-th row if there are many; the last row is always among them. If a row lacks a
        metric, the metric has its latest value in the rows that are left out just before."""
        every = max(1, math.ceil(len(self.steps) / _POINTS))
        if every == 1:
            return {"steps": self.steps, "columns": self.columns}
        ends = list(range(len(self.steps) - 1, -1, -every))[::-1]

        def pick(column: list[float | None], end: int) -> float | None:
            stretch = column[max(0, end - every + 1) : end + 1]
            return next((v for v in reversed(stretch) if v is not None), None)

        columns = {name: [pick(column, end) for end in ends] for name, column in self.columns.items()}
        return {"steps": [self.steps[end] for end in ends], "columns": columns}


class RunReader:
    def __init__(self, folder: Path, key: str) -> None:
        self.folder, self.key = folder, key
        self.lock = threading.RLock()
        self.metrics = MetricsFile(folder / "metrics.jsonl")
        self.episodes = {name: EpisodeIndex(folder / file) for name, file in SOURCES.items()}
        self.texts = TokenTexts(folder)
        self._recipe: Recipe | None = None
        self._rows: dict[str, tuple[int, dict[int, EpisodeSummary]]] = {}
        self._hits: dict[tuple[str, str], tuple[int, int, set[int]]] = {}

    # -- the recipe -----------------------------------------------------------------------------------------------

    def about(self) -> dict[str, Any]:
        """The contents of run.json; empty if it is missing or damaged."""
        found = self.json("run.json")
        return found if isinstance(found, dict) else {}

    @property
    def recipe(self) -> Recipe | None:
        """The recipe, or None if this version of Interplay cannot read it."""
        if self._recipe is None:
            with suppress(KeyError, TypeError, InterplayError):
                self._recipe = parse(self.about()["recipe"])
        return self._recipe

    @property
    def weights(self) -> RewardSection:
        return RewardSection() if self.recipe is None else self.recipe.reward

    @cached_property
    def algorithm(self) -> Algorithm | None:
        try:
            recipe = self.recipe
            return None if recipe is None else algorithms.make(recipe.algorithm, recipe.reward, recipe.seed)
        except (InterplayError, ImportError):  # an algorithm of a module that is not here
            return None

    def json(self, name: str) -> Any:
        """A JSON file of the folder, or None if it is missing or damaged."""
        try:
            return json.loads((self.folder / name).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return None

    # -- what changes ---------------------------------------------------------------------------------------------

    def stamp(self) -> str:
        """A text that changes when a file of the run does."""
        parts = []
        for name in ("run.json", "metrics.jsonl", "report.json", "eval/eval.json", *SOURCES.values()):
            try:
                found = (self.folder / name).stat()
                parts.append(f"{found.st_size}.{found.st_mtime_ns}")
            except OSError:
                parts.append("")
        return " ".join(parts)

    @property
    def updated(self) -> float:
        times = [0.0]
        for name in ("run.json", "metrics.jsonl", *SOURCES.values()):
            with suppress(OSError):  # not there yet, or removed just now
                times.append((self.folder / name).stat().st_mtime)
        return max(times)

    def card(self) -> dict[str, Any]:
        """What the list of runs shows."""
        with self.lock:
            self.metrics.refresh()
            recipe = self.about().get("recipe", {})
            steps = self.metrics.steps
            of = recipe.get("train", {}).get("steps", 0)
            done = int(steps[-1]) if steps else 0
            curve = next((self.metrics.columns[n] for n in ("reward", "reward_kept") if n in self.metrics.columns), [])
            known = [v for v in curve if v is not None]
            return {
                "key": self.key, "name": recipe.get("name", self.key),
                "env": recipe.get("env", {}).get("name", ""), "algorithm": recipe.get("algorithm", {}).get("name", ""),
                "seed": recipe.get("seed", 0), "step": done, "steps": of, "updated": self.updated,
                "state": self._state(done < of),
                "bases": sorted({_model(p.get("base", "")) for p in recipe.get("policies", {}).values()}),
                "reward": known[-1] if known else None,
                "curve": _few(known), "wins": self._latest("eval/win_rate/"),
            }  # fmt: skip

    def _state(self, unfinished: bool) -> str:
        """ "training" or "stopped"; empty if the run has ended by itself. A run that crashed or was killed is stopped
        too."""
        if not unfinished or self._spent():
            return ""
        training = is_training(self.folder)
        if training is None:
            training = time.time() - self.updated < LIVE
        return "training" if training else "stopped"

    def _spent(self) -> bool:
        """Whether the recipe's budget of tokens is used up, which ends a run before its last step."""
        train = self.about().get("recipe", {}).get("train", {})
        whose, columns = train.get("budget_policy"), self.metrics.columns
        counted = [f"{whose}/tokens"] if whose else [name for name in columns if name.endswith("/tokens")]
        used = sum(columns[name][-1] or 0 for name in counted if name in columns)
        return bool(train.get("budget_tokens")) and used >= train["budget_tokens"]

    def _latest(self, prefix: str) -> dict[str, float]:
        found = {}
        for name, column in self.metrics.columns.items():
            values = [v for v in column if v is not None]
            if name.startswith(prefix) and values:
                found[name.removeprefix(prefix)] = values[-1]
        return found

    # -- episodes -------------------------------------------------------------------------------------------------

    def source(self, name: str, seconds: float = 0.2) -> EpisodeIndex:
        if name not in self.episodes:
            raise InterplayError(f"there is no source '{name}'; expected one of {', '.join(SOURCES)}.")
        self.episodes[name].refresh(seconds)
        return self.episodes[name]

    def summary(self, source: str, number: int) -> EpisodeSummary | None:
        """A row about an episode; None if its record is damaged."""
        index = self.episodes[source]
        generation, rows = self._rows.get(source, (0, {}))
        if generation != index.generation:
            rows = {}
            self._rows[source] = (index.generation, rows)
        if number not in rows:
            try:
                rows[number] = summarise(number, index.places[number].step, index.read(number), self.weights)
            except (InterplayError, KeyError, TypeError, ValueError, IndexError, AttributeError):
                return None
        return rows[number]

    def listing(self, query: Mapping[str, str], seconds: float = 0.4) -> dict[str, Any]:
        """One page of the list of episodes. Filters need every record; a call searches for at most about `seconds`
        and says how far it came (`searched` of `of`), and the next call goes on."""
        with self.lock:
            source = query.get("source", "train")
            index = self.source(source)
            count, until = len(index.places), time.monotonic() + seconds
            chosen, searched = self._chosen(query, source, until)
            start = max(0, int(query.get("page", "0"))) * _ROWS
            rows = [self.summary(source, n) for n in chosen[start : start + _ROWS]]
            return {
                "rows": [row.to_json() for row in rows if row is not None], "total": len(chosen), "page_size": _ROWS,
                "searched": searched, "of": count, "damaged": index.damaged,
                "last": index.places[-1].step if count else 0,
            }  # fmt: skip

    def _chosen(self, query: Mapping[str, str], source: str, until: float) -> tuple[list[int], int]:
        index = self.episodes[source]
        count = len(index.places)
        quick = [  # what the index alone answers
            n
            for n, place in enumerate(index.places)
            if query.get("step", str(place.step)) == str(place.step) and query.get("task", place.task) == place.task
        ]
        if "text" in query:
            hits, searched = self._containing(source, query["text"], until)
            quick = [n for n in quick if n in hits]
        else:
            searched = count
        slow = {"role", "policy", "status", "min", "max"} & set(query) or query.get("sort", "new") not in ("new", "old")
        if not slow:
            return quick[:: -1 if query.get("sort", "new") == "new" else 1], searched
        passes, found = wanted(query), []
        for done, number in enumerate(quick):
            if time.monotonic() > until:
                searched = min(searched, max(1, done * count // max(1, len(quick))))
                break
            row = self.summary(source, number)
            if row is not None and passes(row):
                found.append(row)
        found.sort(key=sorting(query))
        return [row.number for row in found], searched

    def _containing(self, source: str, text: str, until: float) -> tuple[set[int], int]:
        """The episodes whose records contain a text, as far as there was time to look."""
        index = self.episodes[source]
        generation, done, hits = self._hits.get((source, text), (0, 0, set()))
        if generation != index.generation:
            done, hits = 0, set()
        needle = json.dumps(text)[1:-1].encode().lower()
        with index.path.open("rb") as file:
            while done < len(index.places) and time.monotonic() < until:
                place = index.places[done]
                file.seek(place.start)
                line = file.read(place.size).lower()
                while done < len(index.places) and index.places[done].start == place.start:
                    if needle in line:
                        hits.add(done)
                    done += 1
        self._hits = {(source, text): (index.generation, done, hits)}  # only the latest search is kept
        return hits, done

    def episode(self, source: str, step: int, name: str) -> tuple[int, dict[str, Any]]:
        """The number of an episode and its record."""
        index = self.source(source)
        number = index.find(step, name)
        if number is None:
            raise InterplayError(f"run '{self.key}' has no recorded episode '{name}' of step {step}.")
        return number, index.read(number)


def _number(value: Any) -> float | None:
    """A finite number, or None."""
    try:
        found = float(value) if isinstance(value, (int, float)) else math.nan
    except OverflowError:  # a whole number with hundreds of digits
        return None
    return found if math.isfinite(found) else None


def _model(base: str) -> str:
    """The name of a model. A base that was made for a run is stored with the whole path of its folder."""
    return Path(base).name if Path(base).is_absolute() else base


def _few(values: list[float], count: int = 60) -> list[float]:
    """At most `count` of the values, evenly spaced, with the last."""
    every = max(1, math.ceil(len(values) / count))
    return values[::-1][::every][::-1]
