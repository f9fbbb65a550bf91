"""Checkpoints: written completely or not at all, verified when read, and only the latest few are kept."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer

from interplay.config import CheckpointSection
from interplay.errors import CheckpointError
from interplay.models.load import Loaded
from interplay.models.save import save as save_model
from interplay.training import checkpoint

Save = Callable[..., Path]


@pytest.fixture
def save(tmp_path: Path, make_tiny: Callable[..., Loaded]) -> Save:
    """`save(step)` into `tmp_path`, one policy, a little state."""
    loaded = make_tiny(0, "tiny-16x1")

    def write(step: int, keep: int = 9, best: int | None = None, **trainer: Any) -> Path:
        state = {"learners": {"player": {"moment": torch.arange(3.0) + step}}}
        folder = checkpoint.save(tmp_path, step, {"player": partial(save_model, loaded)}, state, trainer)
        checkpoint.prune(tmp_path, step, keep, best)
        return folder

    return write


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_what_is_saved_is_read_back(tmp_path: Path, save: Save) -> None:
    folder = save(12, algorithm={"baselines": {"x": 0.1}}, versions={"player": 3})
    assert folder == tmp_path / "step-000012"
    found = checkpoint.latest(tmp_path)
    assert found is not None
    assert found.step == 12
    assert found.trainer == {"algorithm": {"baselines": {"x": 0.1}}, "versions": {"player": 3}, "step": 12, "format": 2}
    assert torch.equal(found.state()["learners"]["player"]["moment"], torch.arange(3.0) + 12)


def test_a_policy_in_a_checkpoint_is_a_plain_hugging_face_folder(save: Save, make_tiny: Callable[..., Loaded]) -> None:
    """Plain transformers loads it, without Interplay's attention, with the same weights and tokenizer."""
    folder = save(1) / "policies" / "player"
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert model.config._attn_implementation == "sdpa"
    original = make_tiny(0, "tiny-16x1")
    for name, tensor in original.model.state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor)
    chat = [{"role": "user", "content": "Your move?"}]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.apply_chat_template(chat) == original.tokenizer.apply_chat_template(chat)


def test_the_manifest_holds_every_file(save: Save) -> None:
    """With its SHA-256. It is written last, so it covers all other files."""
    folder = save(1)
    manifest = json.loads((folder / "MANIFEST.json").read_text())
    files = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
    assert set(manifest) == files - {"MANIFEST.json"}
    assert {"state.pt", "trainer.json", "policies/player/model.safetensors", "policies/player/config.json"} <= files
    for name, digest in manifest.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest


def test_an_interrupted_save_leaves_no_checkpoint(tmp_path: Path, save: Save, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder gets its name last: if the save is stopped before that, nothing looks like a checkpoint."""
    save(1)
    with monkeypatch.context() as patch:

        def rename(self: Path, target: Path) -> Path:
            raise KeyboardInterrupt

        patch.setattr(Path, "rename", rename)
        with pytest.raises(KeyboardInterrupt):
            save(2)
    assert [n for n in names(tmp_path) if n.startswith("step-")] == ["step-000001"]
    found = checkpoint.latest(tmp_path)
    assert found is not None and found.step == 1
    save(2)
    assert names(tmp_path) == ["step-000001", "step-000002"], "what was left behind is cleaned up"


FULL = [  # as they were raised on a disk that was full
    ("torch.save", RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 85248 vs 85200")),
    ("torch.save", SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")),
    ("json.dumps", OSError(28, "No space left on device")),
    ("os.fsync", OSError(122, "Disk quota exceeded")),
]


@pytest.mark.parametrize(("victim", "error"), FULL, ids=["torch", "safetensors", "file", "quota"])
def test_a_full_disk_leaves_no_checkpoint_and_is_one_sentence(
    tmp_path: Path, save: Save, monkeypatch: pytest.MonkeyPatch, victim: str, error: Exception
) -> None:
    """Whichever file cannot be written, the checkpoint before stays the newest and complete; no partial files are
    left."""
    save(1)

    def full(*args: Any, **kwargs: Any) -> None:
        raise error

    with monkeypatch.context() as patch:
        module = {"torch": torch, "json": json, "os": os}[victim.split(".")[0]]
        patch.setattr(module, victim.split(".")[1], full)
        with pytest.raises(
            CheckpointError, match=r"step-000002' could not be written, because the disk is full; free some"
        ):
            save(2)
    found = checkpoint.latest(tmp_path)
    assert found is not None and found.step == 1
    assert names(tmp_path) == ["step-000001"]


def test_another_failure_to_write_keeps_its_own_words(
    tmp_path: Path, save: Save, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: Any, **kwargs: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(torch, "save", broken)
    with pytest.raises(PermissionError):
        save(1)
    assert names(tmp_path) == []


@pytest.mark.parametrize("left", ["", "{", "[]", "{}"])
@pytest.mark.parametrize("name", ["trainer.json", "MANIFEST.json"])
def test_a_checkpoint_with_a_damaged_file_is_skipped(tmp_path: Path, save: Save, name: str, left: str) -> None:
    """Whether it is the newest or an older one, it is skipped, also when snapshots are counted."""
    for step in (1, 2, 3):
        save(step, keep=3, snapshots={f"player@{step}": ""})
    for step in (1, 3):
        (tmp_path / f"step-00000{step}" / name).write_text(left)
    found = checkpoint.latest(tmp_path)
    assert found is not None and found.step == 2
    assert checkpoint.snapshots(tmp_path) == {"player@2"}


def test_only_the_latest_few_are_kept(tmp_path: Path, save: Save) -> None:
    """By number and not by alphabet; the new one is complete before an old one is removed."""
    for step in (8, 9, 10, 11):
        save(step, keep=2)
    assert names(tmp_path) == ["step-000010", "step-000011"]
    save(1_000_000, keep=1)
    assert names(tmp_path) == ["step-1000000"]


def test_saving_a_step_again_replaces_it(tmp_path: Path, save: Save) -> None:
    save(1, mark="first")
    save(1, mark="second")
    found = checkpoint.latest(tmp_path)
    assert found is not None and found.trainer["mark"] == "second"


def test_no_checkpoint_is_no_error(tmp_path: Path) -> None:
    assert checkpoint.latest(tmp_path / "nowhere") is None
    assert checkpoint.latest(tmp_path) is None


def test_one_that_a_running_trainer_removes_is_not_damaged(
    tmp_path: Path, save: Save, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader of a running run gets the newer checkpoint, without a warning about damage."""
    save(1)
    digest = checkpoint.file_digest

    def meanwhile(path: Path) -> str:
        monkeypatch.setattr(checkpoint, "file_digest", digest)
        save(2, keep=1)
        return digest(path)

    monkeypatch.setattr(checkpoint, "file_digest", meanwhile)
    found = checkpoint.latest(tmp_path)
    assert found is not None and found.step == 2


def flip(path: Path) -> None:
    """Flips one bit in the middle."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("name", ["policies/player/model.safetensors", "state.pt", "policies/player/tokenizer.json"])
@pytest.mark.parametrize("damage", [flip, Path.unlink, lambda p: p.write_bytes(p.read_bytes()[:-1])])
def test_a_damaged_file_is_named_and_the_checkpoint_before_is_used(
    tmp_path: Path, save: Save, name: str, damage: Callable[[Path], object], caplog: pytest.LogCaptureFixture
) -> None:
    """A flipped bit, a missing file or a short file: one sentence names the file, and the checkpoint before is used."""
    save(1)
    folder = save(2)
    damage(folder / name)
    found = checkpoint.latest(tmp_path)
    assert found is not None and found.step == 1
    said = " ".join(caplog.messages)
    assert f"step-000002' is damaged: {name} is not" in said and "continuing from the checkpoint before it" in said
    with pytest.raises(CheckpointError, match="is damaged"):
        checkpoint.read(folder)


@pytest.mark.parametrize("name", ["MANIFEST.json", "trainer.json"])
@pytest.mark.parametrize("damage", [Path.unlink, lambda p: p.write_text("{"), lambda p: p.write_text("")])
def test_the_only_checkpoint_with_a_missing_or_damaged_file_is_refused(
    tmp_path: Path, save: Save, name: str, damage: Callable[[Path], object]
) -> None:
    damage(save(2) / name)
    with pytest.raises(CheckpointError, match=r"step-000002' cannot be read \(.*\)\. There is no other checkpoint"):
        checkpoint.latest(tmp_path)


def test_a_forged_trainer_file_is_refused(tmp_path: Path, save: Save) -> None:
    """Valid JSON, but not what was saved."""
    folder = save(2)
    (folder / "trainer.json").write_text('{"step": 99, "format": 2}')
    with pytest.raises(CheckpointError, match=r"damaged: trainer\.json"):
        checkpoint.latest(tmp_path)


@pytest.mark.parametrize("other", [1, 99])
def test_an_older_or_newer_format_is_refused_by_its_number(
    tmp_path: Path, save: Save, monkeypatch: pytest.MonkeyPatch, other: int
) -> None:
    """Even if a complete one of this format is before it: going back without asking would lose training."""
    save(1)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "FORMAT", other)
        save(2)
    says = rf"step-000002' has format {other}, but this version of Interplay reads format 2; resume it with the version"
    with pytest.raises(CheckpointError, match=says):
        checkpoint.latest(tmp_path)


def test_the_best_stays_beside_the_latest(tmp_path: Path, save: Save) -> None:
    for step in range(1, 6):
        save(step, keep=2, best=2 if step >= 2 else 1)
    assert names(tmp_path) == ["best", "step-000002", "step-000004", "step-000005"]
    assert checkpoint.read(tmp_path / "best").step == 2
    save(6, keep=2, best=6)
    assert names(tmp_path) == ["best", "step-000005", "step-000006"]
    assert checkpoint.read(tmp_path / "best").step == 6


def test_what_lies_ahead_of_a_run_that_went_back_is_removed(tmp_path: Path, save: Save) -> None:
    """A damaged newest checkpoint must not cause complete later ones to be removed."""
    for step in (1, 2, 3):
        save(step, keep=9)
    (tmp_path / "step-000003" / "state.pt").write_bytes(b"")
    save(2, keep=1)
    assert names(tmp_path) == ["step-000002"]


def test_checkpoints_that_take_long_are_written_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a share of 0.1, one that took 4 s is followed by 36 s without another."""
    now = 100.0
    monkeypatch.setattr(checkpoint.time, "monotonic", lambda: now)
    pace = checkpoint.CheckpointPace(CheckpointSection(every=2))
    assert [pace.due(step) for step in (1, 2, 3, 4)] == [False, True, False, True]
    with pace.writing():
        now += 0.9
    assert pace.due(4)  # it was short
    with pace.writing():
        now += 4
    assert not pace.due(6)
    now += 35.9
    assert not pace.due(8)
    now += 0.2
    assert pace.due(8) and not pace.due(9)
    always = checkpoint.CheckpointPace(CheckpointSection(share=1.0))
    with always.writing():
        now += 100
    assert always.due(1)
