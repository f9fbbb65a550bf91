"""Writes runs as one HTML file that needs no server: the page, and the answers to everything it can ask.

The file has all curves and a selection of the episodes: the first and last of the run, the best and the worst, and
others evenly spaced.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from interplay.errors import DataError, InterplayError
from interplay.viewer.api import Api, written
from interplay.viewer.library import Library
from interplay.viewer.page import standalone
from interplay.viewer.run import RunReader
from interplay.viewer.summary import goodness

_TURNS = 12  # turns of an episode whose tokens and explanation are in the file, besides those of the main line


def export(library: Library, path: Path, episodes: int) -> int:
    """Write the file. Returns how many episodes it has."""
    answers, count = PageAnswers(Api(library)), 0
    answers.add("runs")
    runs = library.runs()
    if not runs:
        raise DataError(
            f"there is no run in {', '.join(map(repr, map(str, library.folders)))}, so there is nothing to export; "
            "expected the folder of a run, or a folder that holds runs."
        )
    for run in runs:
        more: list[str] = []
        if run.recipe is not None:
            more += ["verdicts", "disagreements"] if run.recipe.judges else []
            more += ["ladder"] if run.recipe.league is not None else []
        for question in ("about", "metrics", "evaluation", *more):
            answers.add(f"run/{run.key}/{question}")
        for source in run.episodes:
            with run.lock:
                numbers = chosen(run, source, episodes if source == "train" else episodes // 4)
                found = [row for n in reversed(numbers) if (row := run.summary(source, n)) is not None]
            if source == "eval":  # in the order of its page: the worst first
                found.sort(key=goodness)
            rows = [row.to_json() for row in found]
            places = len(run.episodes[source].places)
            listing = {
                "rows": rows, "total": len(rows), "page_size": len(rows), "searched": places, "of": places,
                "damaged": run.episodes[source].damaged, "last": max((row.step for row in found), default=0),
            }  # fmt: skip
            answers.put(f"run/{run.key}/episodes", {"source": source}, listing)
            for data in rows:
                count += answers.episode(run, source, data)
    text = standalone(answers.found)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return count


def chosen(run: RunReader, source: str, count: int) -> list[int]:
    """The numbers of the episodes to export, in order."""
    of = len(run.source(source, seconds=600).places)
    if of <= count:
        return list(range(of))
    even = {i * (of - 1) // max(1, count // 2 - 1) for i in range(count // 2)} if count > 3 else {of - 1}
    looked = sorted({i * (of - 1) // 399 for i in range(400)})  # among at most 400 episodes the best and the worst
    rows = [row for n in looked if (row := run.summary(source, n)) is not None]
    rows.sort(key=goodness)
    ends = [row.number for pair in zip(rows, rows[::-1], strict=True) for row in pair]
    for number in ends:
        if len(even) >= count:
            break
        even.add(number)
    return sorted(even)


class PageAnswers:
    """Answers by the URL that asks for them, as `store.js` writes it."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.found: dict[str, bytes] = {}

    def add(self, path: str, query: dict[str, str] | None = None) -> Any:
        """Ask, and keep the answer. What cannot be answered is left out."""
        try:
            data = self.api.answer(path, query or {})
        except InterplayError:
            return None
        self.put(path, query or {}, data)
        return data

    def put(self, path: str, query: dict[str, str], data: Any) -> None:
        given = sorted((k, v) for k, v in query.items() if v and (k, v) != ("source", "train"))
        text = "&".join(f"{k}={quote(v, safe=_UNQUOTED)}" for k, v in given)
        self.found[f"{path}?{text}" if text else path] = written(data)

    def episode(self, run: RunReader, source: str, row: dict[str, Any]) -> bool:
        """Everything about one episode: its page, the tokens and explanations of its turns, its media, its task."""
        at = {"source": source, "step": str(row["step"]), "id": row["id"]}
        page = self.add(f"run/{run.key}/episode", at)
        if page is None:
            return False
        turns = [t for t in page["turns"] if t["kept"]]
        turns += [t for t in page["turns"] if not t["kept"]][:_TURNS]
        for turn in turns:
            if turn["tokens"]:
                self.add(f"run/{run.key}/tokens", at | {"turn": turn["id"]})
            if turn["advantage"] is not None:
                self.add(f"run/{run.key}/explain", at | {"turn": turn["id"]})
        if page["same_task"] > 1:
            self.add(f"run/{run.key}/task", {"source": source, "id": page["task"]["id"]})
        self._media(run, [*page["turns"], *page["judged"]])
        return True

    def _media(self, run: RunReader, turns: Iterable[dict[str, Any]]) -> None:
        messages = (m for t in turns for some in (t["messages"], *t["answers"]) for m in some)
        for one in (medium for message in messages for medium in message["media"]):
            ending, kind = (".png", "image/png") if one["kind"] == "image" else (".wav", "audio/wav")
            for folder in (run.folder / "media", run.folder / "eval" / "media"):
                path = folder / f"{one['digest']}{ending}"
                if path.is_file():
                    data = base64.b64encode(path.read_bytes()).decode()
                    self.found[f"media/{one['digest']}"] = json.dumps(f"data:{kind};base64,{data}").encode()


_UNQUOTED = "!~*'()"  # what encodeURIComponent leaves as it is, besides letters, digits and -_.
