"""Checkpoints: written completely or not at all, and verified when read. The latest few and the best are kept.

`checkpoints/step-000012/` holds each trained policy as a plain Hugging Face or PEFT folder, `state.pt` (optimisers,
critic) and `trainer.json` (step, versions, algorithm state, lengths of the record files). `MANIFEST.json` has the
SHA-256 of every file and is written last. The folder gets its final name only when everything is on disk.
`checkpoints/best` links to the checkpoint that is best by the metric `checkpoint.best`.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from interplay.config import CheckpointSection
from interplay.errors import CheckpointError

FORMAT = 2  # increased when the contents of checkpoints change; 2 has the length of the index of episodes
BEST = "best"
log = logging.getLogger("interplay")


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
) -> Path:
    """Write the checkpoint of a step. Each function in `policies` saves its policy to the folder it is given."""
    final = _folder(root, step)
    with written(final) as work:
        for name, save_policy in policies.items():
            save_policy(work / "policies" / name)
        torch.save(dict(state), work / "state.pt")
        (work / "trainer.json").write_text(json.dumps({**trainer, "step": step, "format": FORMAT}))
        files = sorted(p for p in work.rglob("*") if p.is_file())
        manifest = {str(p.relative_to(work)): file_digest(p) for p in files}
        (work / "MANIFEST.json").write_text(json.dumps(manifest, indent=1))
    return final


class CheckpointPace:
    """Decides after which steps a checkpoint is written. All weights of a large model, with the state of the optimiser,
    take many seconds to write, and after every short step this would take most of a run's time."""

    SHORT = 1.0  # seconds; checkpoints that are written faster than this are never left out

    def __init__(self, section: CheckpointSection) -> None:
        self._section = section
        self._took = 0.0
        self._ended = time.monotonic()

    def due(self, step: int) -> bool:
        if step % self._section.every:
            return False
        if self._took < self.SHORT or self._section.share == 1:
            return True
        since = time.monotonic() - self._ended
        return self._took <= self._section.share * (since + self._took)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Around the writing of a checkpoint, to measure how long it takes."""
        began = time.monotonic()
        yield
        self._ended = time.monotonic()
        self._took = self._ended - began


def prune(root: Path, step: int, keep: int, best: int | None = None) -> None:
    """Remove all checkpoints but the latest `keep` up to `step` and the one of step `best`, which `BEST` links to."""
    steps = _steps(root)
    now = steps.index(_folder(root, step)) + 1
    stay = {*steps[max(0, now - keep) : now], *([] if best is None else [_folder(root, best)])}
    if best is not None:
        _link(root / BEST, _folder(root, best).name)
    for other in steps:  # later ones remain if the run was resumed from an earlier one
        if other not in stay:
            shutil.rmtree(other)


@contextmanager
def written(final: Path) -> Iterator[Path]:
    """Yield a folder to write in. It is renamed to `final` when everything is on disk; after an error it is removed. An
    existing `final`, from before the run was resumed from an earlier step, is replaced."""
    work = final.with_name(f".writing-{final.name}")
    for left in final.parent.glob(".writing-*"):  # left by a killed run
        shutil.rmtree(left, ignore_errors=True)
    try:
        work.mkdir(parents=True)
        yield work
        for path in sorted(p for p in work.rglob("*") if p.is_file()):
            sync(path)
        shutil.rmtree(final, ignore_errors=True)
        work.rename(final)
        sync(final.parent)
    except Exception as error:
        shutil.rmtree(work, ignore_errors=True)
        if not _no_room(error):
            raise
        raise CheckpointError(
            f"'{final}' could not be written, because the disk is full; free some space, then continue with interplay "
            "train RUN --resume. The newest checkpoint is complete."
        ) from None


def _no_room(error: Exception) -> bool:
    """Whether the disk or the user's quota is full. torch and safetensors raise errors of their own for it."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    signs = ("PytorchStreamWriter", "inline_container", f"os error {errno.ENOSPC}", f"os error {errno.EDQUOT}")
    return any(sign in str(error) for sign in signs)


def latest(root: Path) -> Checkpoint | None:
    """The newest intact checkpoint. Damaged ones are skipped with a warning; if all are damaged, raise."""
    failed: CheckpointError | None = None
    steps = _steps(root)
    for folder in reversed(steps):
        try:
            found = read(folder)
        except Damaged as error:
            if _steps(root) != steps:  # a running process has replaced it by a newer one
                return latest(root)
            log.warning("%s", error)
            failed = failed or error
            continue
        if failed is not None:
            log.warning("continuing from the checkpoint before it, '%s' (step %d)", folder, found.step)
        return found
    if failed is not None:
        raise CheckpointError(f"{failed} There is no other checkpoint in '{root}': start again in a new run folder.")
    return None


class Damaged(CheckpointError):
    """This checkpoint is not what was written. Another one may be intact."""


def snapshots(root: Path) -> set[str]:
    """The snapshots that checkpoints refer to. Damaged ones are skipped, since no run can resume from them."""
    out: set[str] = set()
    for step in _steps(root):
        with suppress(Damaged):
            out |= set(_papers(step)[1].get("snapshots", ()))
    return out


def read(folder: Path) -> Checkpoint:
    manifest, trainer = _papers(folder)
    if trainer.get("format") != FORMAT:
        raise CheckpointError(
            f"checkpoint '{folder}' has format {trainer.get('format')}, but this version of Interplay reads format "
            f"{FORMAT}; resume it with the version that wrote it, or export its policies and start a new run from them."
        )
    for name, digest in manifest.items():
        if not _intact(folder / name, digest):
            raise Damaged(f"checkpoint '{folder}' is damaged: {name} is not the file that was written.")
    return Checkpoint(folder, int(trainer["step"]), trainer)


def _papers(folder: Path) -> tuple[dict[str, str], dict[str, Any]]:
    """The manifest, which must list state.pt and trainer.json, and the contents of trainer.json."""
    try:
        manifest, trainer = (json.loads((folder / name).read_text()) for name in ("MANIFEST.json", "trainer.json"))
    except (OSError, ValueError) as error:
        raise Damaged(f"checkpoint '{folder}' cannot be read ({error}).") from None
    listed = isinstance(manifest, dict) and {"state.pt", "trainer.json"} <= set(manifest)
    if not listed or not _intact(folder / "trainer.json", manifest["trainer.json"]):
        where = "trainer.json" if listed else "MANIFEST.json"
        raise Damaged(f"checkpoint '{folder}' is damaged: {where} is not the file that was written.")
    return manifest, trainer


def _folder(root: Path, step: int) -> Path:
    return root / f"step-{step:06d}"


def _link(link: Path, target: str) -> None:
    new = link.with_name(f".{link.name}")
    new.unlink(missing_ok=True)
    new.symlink_to(target)
    new.replace(link)


def _steps(root: Path) -> list[Path]:
    return sorted((p for p in root.glob("step-*") if p.is_dir()), key=lambda p: int(p.name.removeprefix("step-")))


def _intact(path: Path, digest: str) -> bool:
    try:
        return file_digest(path) == digest
    except OSError:  # the file is missing or unreadable
        return False


def file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
