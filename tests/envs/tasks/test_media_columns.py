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
from interplay.decode import decode_picture
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
    pytest.importorskip("PIL")
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
    pytest.importorskip("PIL")
    (tmp_path / "one.png").write_bytes(picture(1))
    (tmp_path / "train.jsonl").write_text(json.dumps({"q": "How red?", "a": "1", "p": ["one.png", None, "one.png"]}))
    columns = Columns("q", "a", media=("p",))
    prepare("x", tmp_path / "train.jsonl", tmp_path / "out", holdout=0, columns=columns)
    assert [len(m) for m in seen(tmp_path / "out").values()] == [2], "a list of pictures, without the missing one"
    env = envs.make(envs.sample_task("math", {"team": "relay", "data": str(tmp_path / "out")}))
    assert len(env.observe()["reasoner"].messages[-1].media) == 2
    env.step({"reasoner": "add 0 and 1"})
    assert env.observe()["tool"].messages[-1].media == ()


@pytest.mark.parametrize("kind", ["Audio", "Image"])
def test_image_and_audio_columns_of_the_hub_are_read_as_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The hub is played by a module of the same name. Its columns would be decoded if nobody asked for the bytes."""
    pytest.importorskip("PIL")
    shown = Media("audio", hiss(3)) if kind == "Audio" else Media("image", picture(9))

    def init(self: Any, decode: bool = True) -> None:
        self.decode = decode

    feature = type(kind, (), {"__init__": init})

    class Rows(list[Any]):
        features: dict[str, Any] = {"clip": feature(), "q": "text"}  # noqa: RUF012

        def cast_column(self, name: str, wanted: Any) -> Rows:
            assert name == "clip" and type(wanted) is feature and not wanted.decode
            return Rows([{**row, name: {"bytes": shown.data, "path": None}} for row in self])

    rows = Rows([{"q": "What is it?", "a": "nothing", "clip": object()}])
    hub = types.SimpleNamespace(
        get_dataset_split_names=lambda name, configuration: ["train"],
        load_dataset=lambda name, configuration, split: rows,
    )
    monkeypatch.setitem(sys.modules, "datasets", hub)  # type: ignore[arg-type]
    columns = Columns("q", "a", "text", ("clip",))
    prepare("hub:someone/clips", None, tmp_path / "out", holdout=0, columns=columns)
    assert seen(tmp_path / "out")["reasoner"] == (shown,)


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
        (b"no picture", "row 1 has a file, which cannot be read as a picture because its bytes are not those of a"),
        (picture(3)[:-30], r"row 1 has a file, which cannot be read as a picture because it is cut off or damaged \("),
        ({"bytes": picture(3)[:40], "path": "a.png"}, "row 1 has the file 'a.png', which cannot be read as a picture"),
        (b"RIFF and no more", r"cannot be read as a sound because it is cut off or damaged \(.{5,}\)\.$"),
        ("empty.png", "row 1 has the file 'empty.png', which cannot be read as a picture because it is empty"),
    ],
)
def test_what_is_no_picture_is_refused_in_a_sentence(value: Any, says: str, tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    pytest.importorskip("soundfile")
    (tmp_path / "empty.png").write_bytes(b"")
    with pytest.raises(DataError, match=says) as refused:
        medium(value, "row 1", tmp_path)
    assert "BytesIO" not in str(refused.value) and "()" not in str(refused.value)


def test_rows_whose_picture_or_sound_is_broken_are_left_out_and_counted(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    pytest.importorskip("soundfile")
    files = {"good.png": picture(1), "cut.png": picture(2)[:-30], "words.jpg": b"words", "cut.wav": hiss(3)[:30]}
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    rows = [{"q": f"What is {name}?", "a": "1", "shown": name} for name in files]
    source = tmp_path / "train.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    said = ["--question", "q", "--answer", "a", "--media", "shown", "--holdout", "0"]
    done = CliRunner().invoke(app, ["prepare", str(source), *said, "--to", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert "left out: 3 unreadable picture or sound" in done.output
    assert "train.jsonl row 2, column 'shown', has the file 'cut.png', which cannot be read as a picture" in done.output
    found = Prepared.open(tmp_path / "out")
    assert [row["question"] for row in found.rows("train")] == ["What is good.png?"]
    assert found.manifest["dropped"] == {"unreadable_picture_or_sound": 3}
    source.write_text(json.dumps(rows[1]))
    with pytest.raises(DataError, match=r"no usable row.* row 1, column 'shown', has the file 'cut.png'"):
        prepare("x", source, tmp_path / "none", holdout=0, columns=Columns("q", "a", media=("shown",)))


@pytest.mark.parametrize("form", ["JPEG", "PNG", "TIFF", "WEBP"])
def test_a_photo_that_was_taken_sideways_is_turned(form: str) -> None:
    """EXIF orientation 6: the first row of the stored pixels is the right edge of the picture."""
    image = pytest.importorskip("PIL.Image")
    stored = image.new("RGB", (40, 20), "red")
    stored.paste("blue", (0, 0, 40, 10))
    exif = image.Exif()
    exif[0x0112] = 6
    out = io.BytesIO()
    stored.save(out, form, exif=exif)
    shown = image.open(io.BytesIO(medium(out.getvalue(), "row 1", None).data))
    assert shown.format == "PNG" and shown.size == (20, 40) and shown.getexif().get(0x0112) is None
    left, right = (shown.convert("RGB").getpixel((x, 20)) for x in (3, 16))
    assert left[0] > 200 > 60 > left[2] and right[2] > 200 > 60 > right[0]
    assert decode_picture(out.getvalue()).size == (20, 40), "a model and a person are shown the same picture"


def test_a_format_that_knows_its_columns_takes_no_media() -> None:
    done = CliRunner().invoke(app, ["prepare", "gsm8k", "--media", "x"])
    assert isinstance(done.exception, ConfigError) and "--media are for your own rows" in str(done.exception)
