"""Pictures and sounds in files that are named by their digests."""

from __future__ import annotations

from pathlib import Path

import pytest

from interplay.errors import InterplayError
from interplay.rollout.media import MediaFolder
from interplay.types import Media

CAT, BELL = Media("image", b"tabby"), Media("audio", b"bell")


def test_media_are_found_by_kind_and_digest(tmp_path: Path) -> None:
    MediaFolder(tmp_path / "media").put([CAT, BELL])
    again = MediaFolder(tmp_path / "media")
    for one in (CAT, BELL):
        found = again.get(one.kind, one.digest)
        assert found == one and found.data == one.data
    assert sorted(p.suffix for p in (tmp_path / "media").iterdir()) == [".png", ".wav"]


def test_no_folder_is_made_for_nothing(tmp_path: Path) -> None:
    MediaFolder(tmp_path / "media").put([])
    assert list(tmp_path.iterdir()) == []


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the process is killed while writing, the file has no name yet, and the next writer writes it."""

    def killed(self: Path, target: Path) -> Path:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            MediaFolder(tmp_path).put([CAT])
    folder = MediaFolder(tmp_path)
    with pytest.raises(InterplayError, match="cannot be read"):
        folder.get("image", CAT.digest)
    folder.put([CAT])
    assert folder.get("image", CAT.digest).data == b"tabby"
    assert [p.name for p in tmp_path.iterdir()] == [f"{CAT.digest}.png"], "what was left behind was used up"
