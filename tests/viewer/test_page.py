"""The files of the page, and the page as one file."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from pathlib import Path

import pytest
from written import PICTURE, add_step, calling, illegal, sound, write_run

from interplay.errors import DataError
from interplay.types import Message
from interplay.viewer.export import PageAnswers, chosen, export
from interplay.viewer.library import Library
from interplay.viewer.page import WEB, modules
from interplay.viewer.run import RunReader


def test_every_import_of_the_page_names_a_file_and_a_thing_in_it() -> None:
    """There is no build step that would notice a wrong name."""
    known = modules()
    for path in sorted(WEB.glob("*.js")):
        text = path.read_text(encoding="utf-8")
        for names, module in re.findall(r'^import (?:\{([^}]*)\}|\w+) from "([^"]+)";$', text, re.M):
            assert module in known, f"{path.name} imports {module}"
            if module.startswith("viewer/"):
                there = (WEB / known[module]).read_text(encoding="utf-8")
                for name in (n.strip() for n in names.split(",") if n.strip()):
                    assert re.search(rf"^export (?:async )?(?:function|const|let) {name}\b", there, re.M), (
                        f"{path.name} imports {name} from {module}, which does not export it"
                    )
        assert text.count("\n") <= 400


def test_published_files_are_as_they_were_published() -> None:
    listed = re.findall(r"^\| `(\S+)` \|.*\| `([0-9a-f]{64})` \|$", (WEB / "vendor" / "README.md").read_text(), re.M)
    files = {
        p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in (WEB / "vendor").iterdir() if p.suffix != ".md"
    }
    assert dict(listed) == files


def test_an_exported_page_is_one_file_that_asks_for_nothing(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", 3)
    add_step(run, 4, more=[illegal(90)])
    path = tmp_path / "out" / "page.html"
    assert export(Library([run]), path, episodes=50) == 9
    text = path.read_text(encoding="utf-8")
    assert "Content-Security-Policy" in text and "connect-src" not in text  # default-src 'none' covers it
    assert not re.search(r"<(?:script|link|img)[^>]+(?:src|href)=\"(?!data:,)", text)
    assert text.count("</script") == 4 and "<img" not in text  # hostile text cannot end the script that holds it
    assert "onerror=alert" in text and str(tmp_path) not in text
    assert "data:image/png;base64," in text


def test_an_exported_page_has_the_sounds_that_were_heard_and_what_tools_answered(tmp_path: Path) -> None:
    """Each is there once, byte for byte. A picture in the answer of a tool (a screenshot) was missing."""
    episode = calling(85)
    first, second, last = episode.turns[0].samples
    shown = replace(last, messages=(Message("tool", "five", media=(PICTURE,)),))
    episode.turns[0].samples = (first, second, shown)
    run = write_run(tmp_path / "run", 1)
    add_step(run, 2, more=[episode])
    export(Library([run]), tmp_path / "page.html", episodes=50)
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    (heard,) = re.findall(r"data:audio/wav;base64,([^\"]+)\"", text)
    (seen,) = re.findall(r"data:image/png;base64,([^\"]+)\"", text)
    assert base64.b64decode(heard) == sound(1.5).data and base64.b64decode(seen) == PICTURE.data
    assert re.search(r"media-src data:", text), "the page may play it"


@pytest.mark.parametrize("count", [1, 2, 5, 12, 100])
def test_an_export_has_as_many_episodes_as_were_asked_for(tmp_path: Path, count: int) -> None:
    run = RunReader(write_run(tmp_path / "run", 10), "run")
    found = chosen(run, "train", count)
    assert len(found) == min(count, 20) and found == sorted(set(found)) and found[-1] == 19


def test_urls_are_written_as_the_page_writes_them(tmp_path: Path) -> None:
    """The page looks answers up by the text of the URL that it would ask a server for."""
    found = PageAnswers(api=None)  # type: ignore[arg-type]
    found.put("run/a/episode", {"step": "3", "source": "train", "id": "t-1#0/2 (ä)~!*'"}, 1)
    assert list(found.found) == ["run/a/episode?id=t-1%230%2F2%20(%C3%A4)~!*'&step=3"]


def test_a_folder_without_runs_is_not_exported(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no run in"):
        export(Library([tmp_path]), tmp_path / "page.html", episodes=5)
    assert not (tmp_path / "page.html").exists()
