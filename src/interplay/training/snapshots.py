"""Snapshots of policies in the run folder: `snapshots/player@start`, `snapshots/player@120`, …

Each is a plain Hugging Face or PEFT folder, written completely or not at all. Its digest is in the checkpoints and is
verified when it is read. A snapshot is removed when no remaining checkpoint refers to it, so that a run can be resumed
from any checkpoint. Only those that the current step needs are in memory.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Collection
from pathlib import Path

from interplay.errors import CheckpointError
from interplay.rollout.team import Team
from interplay.training.checkpoint import file_digest, written
from interplay.types import Snapshot


class Snapshots:
    def __init__(self, folder: Path, team: Team) -> None:
        self.folder, self.team = folder, team
        self.digests: dict[str, str] = {}
        self.seated: set[Snapshot] = set()

    def keep(self, who: Snapshot) -> None:
        """Save the current weights of a snapshot's policy."""
        folder = self.folder / str(who)
        with written(folder) as work:
            self.team.members[who.policy].save(work)
        self.digests[str(who)] = _digest(folder)
        self.team.pool.outdate(who)

    def digest(self, who: Snapshot) -> str:
        name = str(who)
        if name not in self.digests:  # the run was started by an earlier version
            self.digests[name] = _digest(self.folder / name)
        return self.digests[name]

    def source(self, who: Snapshot) -> Path:
        """The folder of a snapshot, after its digest was verified."""
        name = str(who)
        folder = self.folder / name
        if not folder.is_dir() and name not in self.digests:
            raise CheckpointError(
                f"this run has no snapshot '{name}'. A run keeps it only if a matchup, a league or a reference (such "
                "as for algorithm.kl) needs it from the beginning; start a new run, or remove the setting that needs "
                "it."
            )
        if not folder.is_dir() or _digest(folder) != self.digest(who):
            raise CheckpointError(
                f"snapshot '{folder}' is missing or damaged, and the run cannot continue without it; restore the "
                "folder from a backup, or start a new run."
            )
        return folder

    def seat(self, wanted: Collection[Snapshot]) -> None:
        """Load these snapshots for seats, and release all others."""
        for who in sorted(self.seated - set(wanted), key=str):
            self.team.pool.release(who)
        for who in sorted(set(wanted) - self.seated, key=str):
            self.team.snapshot(who, self.source(who))
        self.seated = set(wanted)

    def prune(self, wanted: Collection[str]) -> None:
        """Remove all snapshots but those in `wanted`."""
        for name in set(self.digests) - set(wanted):
            del self.digests[name]
        for folder in self.folder.glob("*@*"):
            if folder.name not in wanted:
                shutil.rmtree(folder)


def _digest(folder: Path) -> str:
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    return hashlib.sha256("".join(f"{p.name} {file_digest(p)}\n" for p in files).encode()).hexdigest()
