"""Policies as they were, in the run folder: `snapshots/player@start`, `snapshots/player@120`, …

Each is a plain Hugging Face folder, or PEFT's, written whole or not at all and never changed; its digest is in the
checkpoints and is checked when it is read. A snapshot is removed when no checkpoint that is kept speaks of it any more,
so that a run can always be resumed from any of them. In memory are those that the present step needs.
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
        """Write down the policy of a snapshot as it is now."""
        folder = self.folder / str(who)
        with written(folder) as work:
            self.team.members[who.policy].save(work)
        self.digests[str(who)] = _digest(folder)

    def digest(self, who: Snapshot) -> str:
        name = str(who)
        if name not in self.digests:  # a run that an earlier version began
            self.digests[name] = _digest(self.folder / name)
        return self.digests[name]

    def source(self, who: Snapshot) -> Path:
        """Where a snapshot is, after a look at whether it is what was written."""
        name = str(who)
        folder = self.folder / name
        if not folder.is_dir() and name not in self.digests:
            raise CheckpointError(
                f"this run has no '{name}': it is kept where a matchup, a league or a pull to the reference (such as "
                "algorithm.kl) asks for it from the beginning; begin a new run, or leave that out."
            )
        if not folder.is_dir() or _digest(folder) != self.digest(who):
            raise CheckpointError(f"snapshot '{folder}' is missing or damaged; the run cannot go on without it.")
        return folder

    def seat(self, wanted: Collection[Snapshot]) -> None:
        """These can sit in seats, and no others."""
        for who in sorted(self.seated - set(wanted), key=str):
            self.team.pool.release(who)
        for who in sorted(set(wanted) - self.seated, key=str):
            self.team.snapshot(who, self.source(who))
        self.seated = set(wanted)

    def prune(self, wanted: Collection[str]) -> None:
        """Remove what neither this run nor any checkpoint speaks of."""
        for name in set(self.digests) - set(wanted):
            del self.digests[name]
        for folder in self.folder.glob("*@*"):
            if folder.name not in wanted:
                shutil.rmtree(folder)


def _digest(folder: Path) -> str:
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    return hashlib.sha256("".join(f"{p.name} {file_digest(p)}\n" for p in files).encode()).hexdigest()
