"""The questions that the page asks, answered with JSON data. The server and the export give the same answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from interplay.errors import InterplayError
from interplay.rollout.episode_json import finite
from interplay.viewer.episode import episode_page
from interplay.viewer.explain import explain, recorded
from interplay.viewer.gold import disagreements
from interplay.viewer.ladder import ladder
from interplay.viewer.library import Library
from interplay.viewer.pairs import next_pair
from interplay.viewer.run import RunReader
from interplay.viewer.tokens import tokens_page
from interplay.viewer.verdicts import compared_earlier, verdicts, verdicts_on

Query = Mapping[str, str]
_DAMAGED = (KeyError, TypeError, ValueError, IndexError, AttributeError, RecursionError)


class Api:
    def __init__(self, library: Library) -> None:
        self.library = library
        self._answers: dict[str, Callable[[RunReader, Query], Any]] = {
            "about": _about,
            "metrics": _metrics,
            "episodes": lambda run, query: run.listing(query),
            "episode": _episode,
            "task": _task,
            "tokens": _tokens,
            "explain": _explain,
            "evaluation": _evaluation,
            "ladder": ladder,
            "pair": next_pair,
            "verdicts": verdicts,
            "disagreements": disagreements,
        }

    def answer(self, path: str, query: Query) -> Any:
        """The answer to `runs`, or to `run/KEY/QUESTION`."""
        if path == "runs":
            return [_card(run) for run in self.library.runs()]
        parts = path.split("/")
        if len(parts) != 3 or parts[0] != "run" or parts[2] not in self._answers:
            raise InterplayError(f"there is no page '{path}'.")
        run = self.library.run(parts[1])
        with run.lock:
            try:
                return self._answers[parts[2]](run, query)
            except OSError as error:
                raise InterplayError(
                    f"'{path}' could not be answered: {error.strerror or error}; was the run removed or moved?"
                ) from error
            except _DAMAGED as error:
                raise InterplayError(
                    f"'{path}' could not be answered ({type(error).__name__}: {error}); the record may be damaged."
                ) from error


def written(data: Any) -> bytes:
    """JSON that every browser can read: all characters are escaped as ASCII, and infinite numbers become null."""
    try:
        return json.dumps(data, allow_nan=False, separators=(",", ":")).encode()
    except ValueError:
        return json.dumps(finite(data), allow_nan=False, separators=(",", ":")).encode()


# -- the answers ------------------------------------------------------------------------------------------------------


def _card(run: RunReader) -> dict[str, Any]:
    """A row of the list of runs. A run whose files are damaged is listed too, and does not hide the others."""
    try:
        return run.card()
    except (OSError, *_DAMAGED):
        return {
            "key": run.key, "name": run.key, "env": "damaged files", "algorithm": "", "seed": "", "step": 0, "steps": 0,
            "updated": run.updated, "state": "", "bases": [], "reward": None, "curve": [], "wins": {},
        }  # fmt: skip


def _about(run: RunReader, query: Query) -> dict[str, Any]:
    index = run.source("train")
    recipe = run.recipe
    return run.card() | {
        "about": run.about(),
        "report": run.json("report.json"),
        "episodes": {name: len(run.source(name).places) for name in run.episodes},
        "damaged": index.damaged,
        "roles": _roles(run),
        "can": {
            "league": recipe is not None and recipe.league is not None,
            "tree": type(getattr(run.algorithm, "plan", None)).__name__ == "Tree",
            "evaluation": (run.folder / "eval" / "eval.json").is_file() or (run.folder / "report.json").is_file(),
            "checkpoint": (run.folder / "checkpoints").is_dir(),
            "judges": bool(run.about().get("recipe", {}).get("judges")),
        },
    }


def _roles(run: RunReader) -> list[str]:
    index = run.episodes["train"]
    first = run.summary("train", 0) if index.places else None
    return list(first.seats) if first is not None else []


def _metrics(run: RunReader, query: Query) -> dict[str, Any]:
    run.metrics.refresh()
    return run.metrics.thinned()


def _episode(run: RunReader, query: Query) -> dict[str, Any]:
    source, step = query.get("source", "train"), int(query["step"])
    number, data = run.episode(source, step, query["id"])
    places = run.episodes[source].places
    near = {"previous": number - 1, "next": number + 1}
    return episode_page(data, run.weights) | {
        "step": step,
        "source": source,
        "number": number,
        "of": len(places),
        **{k: {"step": places[n].step, "id": places[n].id} if 0 <= n < len(places) else None for k, n in near.items()},
        "same_task": sum(place.task == data["task"]["id"] for place in places),
        "same_group": len(run.episodes[source].group(step, data["task"]["id"])),
        "judged": list(verdicts_on(run, data)),
        "compared_earlier": compared_earlier(run, source, number),
    }


def _task(run: RunReader, query: Query) -> dict[str, Any]:
    """Every recorded episode of one task, over the steps of the run."""
    source = query.get("source", "train")
    numbers = [n for n, place in enumerate(run.source(source).places) if place.task == query["id"]]
    rows = [run.summary(source, n) for n in numbers[:500]]
    return {"task": query["id"], "rows": [row.to_json() for row in rows if row is not None], "total": len(numbers)}


def _tokens(run: RunReader, query: Query) -> dict[str, Any]:
    _, data = run.episode(query.get("source", "train"), int(query["step"]), query["id"])
    turn = next((t for t in data["turns"] if t["id"] == query["turn"]), None)
    if turn is None:
        raise InterplayError(f"episode '{query['id']}' has no turn '{query['turn']}'.")
    return tokens_page(turn, run.texts)


def _explain(run: RunReader, query: Query) -> dict[str, Any]:
    source, step = query.get("source", "train"), int(query["step"])
    _, data = run.episode(source, step, query["id"])
    played = recorded(step, data)
    turn = played.turn(query["turn"])
    if turn is None:
        raise InterplayError(f"episode '{query['id']}' has no turn '{query['turn']}'.")
    index = run.episodes[source]
    siblings = []
    for n in index.group(step, played.episode.task.id):
        same = index.places[n].id == played.episode.id
        siblings.append(played if same else recorded(step, index.read(n)))
    return explain(played, turn, siblings, run.algorithm, run.weights)


def _evaluation(run: RunReader, query: Query) -> dict[str, Any]:
    return {
        "report": run.json("report.json"),
        "eval": run.json("eval/eval.json"),
        "episodes": len(run.source("eval").places),
    }
