"""Checkpoints: written whole or not at all, checked when read, the latest few kept.

`checkpoints/step-000012/` holds each trained policy as a plain Hugging Face or PEFT folder, `state.pt` (optimisers,
critic) and `trainer.json` (step, versions, algorithm state, how long each record file was); `MANIFEST.json` has every
file's SHA-256 and is written last. The folder gets its name only when all of it is on disk.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from interplay.errors import CheckpointError


@dataclass(frozen=True)
class Checkpoint:
    folder: Path
    step: int
    trainer: dict[str, Any]

    def policy(self, name: str) -> Path:
        return self.folder / "policies" / name

    def state(self) -> dict[str, Any]:
        return torch.load(self.folder / "state.pt", map_location="cpu", weights_only=True)


def save(
    root: Path,
    step: int,
    policies: Mapping[str, Callable[[Path], None]],
    state: Mapping[str, Any],
    trainer: Mapping[str, Any],
    keep: int,
) -> Path:
    """`policies` write themselves to the folder they are given."""
    root.mkdir(parents=True, exist_ok=True)
    final, work = root / f"step-{step:06d}", root / f".writing-{step:06d}"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    for name, save_policy in policies.items():
        save_policy(work / "policies" / name)
    torch.save(dict(state), work / "state.pt")
    (work / "trainer.json").write_text(json.dumps({**trainer, "step": step}))
    files = sorted(p for p in work.rglob("*") if p.is_file())
    manifest = {str(p.relative_to(work)): file_digest(p) for p in files}
    (work / "MANIFEST.json").write_text(json.dumps(manifest, indent=1))
    for path in [*files, work / "MANIFEST.json"]:
        sync(path)
    shutil.rmtree(final, ignore_errors=True)  # left by a run that was resumed from before this step
    work.rename(final)
    sync(root)
    for old in _steps(root)[:-keep]:
        shutil.rmtree(old)
    return final


def latest(root: Path) -> Checkpoint | None:
    """The newest checkpoint that is whole; a damaged one is refused, not skipped silently."""
    steps = _steps(root)
    return read(steps[-1]) if steps else None


def snapshots(root: Path) -> set[str]:
    """The snapshots that the checkpoints speak of."""
    papers = [json.loads((step / "trainer.json").read_text()) for step in _steps(root)]
    return {name for paper in papers for name in paper.get("snapshots", ())}


def read(folder: Path) -> Checkpoint:
    try:
        manifest = json.loads((folder / "MANIFEST.json").read_text())
        trainer = json.loads((folder / "trainer.json").read_text())
    except (OSError, json.JSONDecodeError) as error:
        raise CheckpointError(
            f"checkpoint '{folder}' is not readable ({error}); remove it to use the one before."
        ) from None
    for name, digest in manifest.items():
        path = folder / name
        if not path.is_file() or file_digest(path) != digest:
            raise CheckpointError(f"checkpoint '{folder}' is damaged at {name}; remove it to use the one before.")
    return Checkpoint(folder, int(trainer["step"]), trainer)


def _steps(root: Path) -> list[Path]:
    return sorted(p for p in root.glob("step-*") if p.is_dir())


def file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
