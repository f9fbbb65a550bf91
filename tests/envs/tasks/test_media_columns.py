"""Pictures and sounds in columns of somebody's own rows."""

from __future__ import annotations

import io
import json
import sys
import types
import wave
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from interplay import envs
from interplay.cli.main import app
from interplay.envs.games.voice import hiss
from interplay.envs.picture import Look, draw
from interplay.envs.tasks.columns import Columns
from interplay.envs.tasks.data import Prepared
from interplay.envs.tasks.media import medium
from interplay.envs.tasks.prepare import prepare
from interplay.errors import ConfigError, DataError
from interplay.types import Media


def picture(n: int) -> bytes:
    return draw("a b", {"a": Look((n, 0, 0)), "b": Look((0, n, 255))}, 8)


def seen(folder: Path, split: str = "train", index: int = 0, **options: Any) -> dict[str, tuple[Media, ...]]:
    env = envs.make(envs.sample_task("math", {"team": "single", "data": str(folder), **options}, split, index))
    return {role: o.messages[-1].media for role, o in env.observe().items()}


def test_pictures_beside_a_file_of_rows_are_shown_with_the_question(tmp_path: Path) -> None:
    (tmp_path / "shots").mkdir()
    for n in range(30):
        (tmp_path / "shots" / f"{n}.png").write_bytes(picture(n))
    rows = [{"q": "How red is it?", "shown": f"shots/{n}.png", "a": str(n)} for n in range(30)]
    source = tmp_path / "mine.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    to = tmp_path / "out"
    said = ["--question", "q", "--answer", "a", "--media", "shown", "--holdout", "0.2", "--to", str(to)]
    done = CliRunner().invoke(app, ["prepare", str(source), *said])
    assert done.exit_code == 0, done.output
    found = Prepared.open(to)
    count = sum(len(found.rows(split)) for split in ("train", "validation", "test"))
    assert count == 30 == len(list(to.glob("*.png"))), "equal questions with different pictures are different rows"
    assert found.manifest["media"] == ["image"]
    env = envs.make(envs.sample_task("math", {"team": "single", "data": str(to)}, "test", 1))
    (shown,) = env.observe()["reasoner"].messages[-1].media
    assert shown.data == picture(int(env.row["answer"]))  # type: ignore[attr-defined]
    assert type(env).needs({"data": str(to)}) == {"image"} and not type(env).needs({"data": ""})
    (to / f"{shown.digest}.png").write_bytes(b"another")
    with pytest.raises(DataError, match="is missing or not what"):
        seen(to, "test", 1)


def test_the_tool_role_of_a_relay_is_not_shown_the_picture(tmp_path: Path) -> None:
    (tmp_path / "one.png").write_bytes(picture(1))
    (tmp_path / "train.jsonl").write_text(json.dumps({"q": "How red?", "a": "1", "p": ["one.png", None, "one.png"]}))
    columns = Columns("q", "a", media=("p",))
    prepare("x", tmp_path / "train.jsonl", tmp_path / "out", holdout=0, columns=columns)
    assert [len(m) for m in seen(tmp_path / "out").values()] == [2], "a list of pictures, without the missing one"
    env = envs.make(envs.sample_task("math", {"team": "relay", "data": str(tmp_path / "out")}))
    assert len(env.observe()["reasoner"].messages[-1].media) == 2
    env.step({"reasoner": "add 0 and 1"})
    assert env.observe()["tool"].messages[-1].media == ()


def test_image_and_audio_columns_of_the_hub_are_read_as_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub is played by a module of the same name. Its columns would be decoded if nobody asked for the bytes."""
    sound = hiss(3)

    class Audio:
        def __init__(self, decode: bool = True) -> None:
            self.decode = decode

    class Rows(list[Any]):
        features: dict[str, Any] = {"clip": Audio(), "q": "text"}  # noqa: RUF012

        def cast_column(self, name: str, feature: Audio) -> Rows:
            assert name == "clip" and not feature.decode
            return Rows([{**row, name: {"bytes": sound, "path": None}} for row in self])

    rows = Rows([{"q": "What is said?", "a": "nothing", "clip": object()}])
    hub = types.SimpleNamespace(
        get_dataset_split_names=lambda name, configuration: ["train"],
        load_dataset=lambda name, configuration, split: rows,
    )
    monkeypatch.setitem(sys.modules, "datasets", hub)  # type: ignore[arg-type]
    columns = Columns("q", "a", "text", ("clip",))
    prepare("hub:someone/clips", None, tmp_path / "out", holdout=0, columns=columns)
    assert seen(tmp_path / "out")["reasoner"] == (Media("audio", sound),)


def test_other_kinds_of_files_become_png_and_wav() -> None:
    image = pytest.importorskip("PIL.Image")
    jpeg = io.BytesIO()
    image.new("L", (9, 5), 200).save(jpeg, "JPEG")
    shown = medium({"bytes": jpeg.getvalue(), "path": "a.jpg"}, "row 1", None)
    assert shown.kind == "image" and image.open(io.BytesIO(shown.data)).format == "PNG"
    assert image.open(io.BytesIO(shown.data)).size == (9, 5)
    assert medium(picture(7), "row 1", None).data == picture(7), "a PNG file stays as it is"
    soundfile = pytest.importorskip("soundfile")
    flac = io.BytesIO()
    soundfile.write(flac, [0.0, 0.5, -0.5, 0.25] * 100, 16_000, format="FLAC")
    heard = medium({"bytes": flac.getvalue()}, "row 1", None)
    with wave.open(io.BytesIO(heard.data)) as file:
        assert (heard.kind, file.getframerate(), file.getsampwidth(), file.getnframes()) == ("audio", 16_000, 2, 400)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (7, "row 1 has a int; expected a picture or a sound"),
        ({"bytes": None, "path": None}, "row 1 has a NoneType; expected a picture or a sound"),
        ("gone.png", "row 1 names the file 'gone.png', which cannot be read"),
        (b"no picture", "row 1 cannot be read as a picture or a sound"),
        (b"RIFF and no more", "row 1 cannot be read as a sound"),
    ],
)
def test_what_is_no_picture_is_refused_in_a_sentence(value: Any, says: str, tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    pytest.importorskip("soundfile")
    with pytest.raises(DataError, match=says):
        medium(value, "row 1", tmp_path)


def test_a_format_that_knows_its_columns_takes_no_media() -> None:
    done = CliRunner().invoke(app, ["prepare", "gsm8k", "--media", "x"])
    assert isinstance(done.exception, ConfigError) and "--media are for your own rows" in str(done.exception)
