"""The files of a run: run.json, metrics.jsonl, episodes.jsonl with its index and media, the tokenizers,
trackers, and logs for people.

Record files are append-only. A checkpoint stores the length of each, and a resumed run truncates them to that length,
so that nothing is counted twice.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interplay.config import Recipe
from interplay.rollout import records
from interplay.rollout.logs import GameLogs
from interplay.rollout.token_texts import TOKENIZERS
from interplay.training import provenance
from interplay.training.trackers import trackers
from interplay.types import Credit, Episode

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

log = logging.getLogger("interplay")

STREAM = "stream.jsonl"


class RunFolder:
    def __init__(self, folder: Path, recipe: Recipe) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.section = folder, recipe.records
        self.metrics, self.episodes = folder / "metrics.jsonl", folder / "episodes.jsonl"
        self._sessions: list[dict[str, Any]] | None = None
        if not (folder / "run.json").is_file():
            self.recipe(recipe)
        bases = sorted({p.base for p in recipe.policies.values()})
        self.logs = GameLogs(folder / "logs", "+".join(bases))
        self._trackers = trackers(folder, recipe)

    def recipe(self, recipe: Recipe) -> None:
        """Write run.json: the recipe, the seed, and what the run was made with each time that it was started."""
        path = self.folder / "run.json"
        if self._sessions is None:
            earlier = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
            self._sessions = [*earlier.get("sessions", ()), provenance.session()]
        about = {"recipe": recipe.model_dump(), "seed": recipe.seed, "versions": self._sessions[-1]["versions"]}
        records.write_whole(path, json.dumps(about | {"sessions": self._sessions}, indent=1))

    def played(self, step: int, episodes: Sequence[Episode], credit: Credit) -> None:
        """Record the episodes of a step."""
        chosen = self.chosen(episodes)
        records.write(self.episodes, chosen, step, credit)
        self.logs.write(step, chosen)

    def measured(self, step: int, metrics: Mapping[str, float]) -> None:
        """Record the metrics of a step."""
        row = {"step": step, "time": time.time(), **metrics}
        with self.metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, separators=(",", ":")) + "\n")
        for tracker in self._trackers:
            tracker.log(step, metrics)

    def chosen(self, episodes: Sequence[Episode]) -> list[Episode]:
        """The episodes of a step that are recorded: the first ones, or the same number evenly spaced."""
        count = min(self.section.episodes_per_step, len(episodes))
        if self.section.keep == "first":
            return list(episodes[:count])
        return [episodes[i * len(episodes) // count] for i in range(count)]

    def tokenizers(self, tokenizers: Mapping[str, PreTrainedTokenizerBase]) -> None:
        """Save each policy's tokenizer beside the records, so that token ids can be decoded without its model."""
        folder = self.folder / TOKENIZERS
        folder.mkdir(exist_ok=True)
        for name, tokenizer in tokenizers.items():
            backend = getattr(tokenizer, "backend_tokenizer", None)
            if backend is not None and not (folder / f"{name}.json").exists():
                backend.save(str(folder / f"{name}.json"))

    def consumed(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Record which groups a step was trained on, in order, and the weight versions that sampled them."""
        with (self.folder / STREAM).open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)

    @property
    def _files(self) -> tuple[Path, ...]:
        return self.metrics, self.episodes, self.folder / records.INDEX, self.folder / STREAM

    def offsets(self) -> dict[str, int]:
        return {p.name: p.stat().st_size if p.exists() else 0 for p in self._files}

    def rewind(self, offsets: Mapping[str, int]) -> None:
        """Cut every file to the length that is stored in a checkpoint. A file that is shorter has lost lines: a warning
        is logged, and an incomplete last line is ended, so that the next one is not lost too."""
        for path in self._files:
            if not path.exists():
                continue
            noted, size = offsets[path.name], path.stat().st_size
            if size < noted:
                log.warning(
                    "'%s' has %d bytes, but the checkpoint expects %d: some of its lines are lost.", path, size, noted
                )
                _end_line(path)
                continue
            with path.open("r+b") as file:
                file.truncate(noted)

    def close(self, exit_code: int = 0) -> None:
        self.logs.close()
        for tracker in self._trackers:
            tracker.close(exit_code)


def _end_line(path: Path) -> None:
    if path.stat().st_size and not path.read_bytes().endswith(b"\n"):
        with path.open("ab") as file:
            file.write(b"\n")
