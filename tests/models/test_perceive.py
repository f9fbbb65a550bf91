"""Pictures and sounds of odd kinds are read as people see and hear them, or refused with a sentence."""

from __future__ import annotations

import io
import wave
from typing import Any

import numpy as np
import pytest

from interplay.errors import ModelError
from interplay.models.perceive import fitting, perceive, picture, sound, spectrogram
from interplay.types import Media

Image = pytest.importorskip("PIL.Image")


def file_of(image: Any, **options: Any) -> Media:
    out = io.BytesIO()
    image.save(out, "PNG", **options)
    return Media("image", out.getvalue())


def wav(frames: bytes, width: int = 2) -> Media:
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(width)
        file.setframerate(8000)
        file.writeframes(frames)
    return Media("audio", out.getvalue())


def test_sixteen_bit_greys_keep_their_shades() -> None:
    grey = Image.fromarray(np.array([[0, 32768, 65535]], np.uint16))
    assert np.asarray(picture(file_of(grey)))[0, :, 0].tolist() == [0, 128, 255]


def test_transparent_pixels_are_white() -> None:
    hidden = Image.fromarray(np.array([[[255, 0, 0, 0], [255, 0, 0, 255]]], np.uint8))
    assert np.asarray(picture(file_of(hidden))).tolist() == [[[255, 255, 255], [255, 0, 0]]]


def test_a_picture_of_absurd_size_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    with pytest.raises(ModelError, match=r"the picture .*\.png cannot be read because it has more than 20 pixels"):
        picture(file_of(Image.new("RGB", (30, 30))))


def test_a_shape_that_the_processor_refuses_is_a_sentence() -> None:
    def processor(**_: object) -> None:
        raise ValueError("absolute aspect ratio must be smaller than 200")

    with pytest.raises(ModelError, match=r"refuses a picture of 300 × 1 pixels \(absolute aspect ratio"):
        perceive(processor, "<image>", file_of(Image.new("RGB", (300, 1))))


@pytest.mark.parametrize("frames", [0, 1, 8000])
def test_silence_is_dark(frames: int) -> None:
    assert not spectrogram(wav(bytes(2 * frames)), 8).any()


def test_a_picture_that_was_taken_sideways_is_turned() -> None:
    exif = Image.Exif()
    exif[0x0112] = 8
    sideways = Image.fromarray(np.array([[[255, 0, 0], [0, 255, 0], [0, 0, 255]]], np.uint8))
    assert np.asarray(picture(file_of(sideways, exif=exif)))[:, 0].argmax(1).tolist() == [2, 1, 0]


@pytest.mark.parametrize(
    ("media", "says"),
    [
        (
            Media("image", b""),
            r"the picture [0-9a-f]+\.png cannot be read because it is empty; expected a complete",
        ),
        (Media("image", b"words"), r"the picture \S+ cannot be read because its bytes are not those of a picture;"),
        (
            Media("image", file_of(Image.new("L", (90, 90))).data[:60]),
            r"because it is cut off or damaged \(.{5,}\);",
        ),
        (Media("audio", b""), r"the sound [0-9a-f]+\.wav cannot be read because it is empty; expected a complete WAV"),
        (Media("audio", b"words"), "because its bytes are not those of a WAV file;"),
        (Media("audio", wav(bytes(90)).data[:20]), r"because it is cut off or damaged \(the file ends too early\);"),
        (Media("audio", wav(bytes(90)).data[:-7]), "because it is cut off: it has 41 of its 45 frames;"),
        (wav(bytes(90), 1), "because it has 8 bits in each sample, and 16 bits are expected;"),
    ],
)
def test_a_broken_file_is_named_and_the_reason_is_said(media: Media, says: str) -> None:
    with pytest.raises(ModelError, match=says) as refused:
        picture(media) if media.kind == "image" else sound(media, 8000)
    assert "BytesIO" not in str(refused.value)


@pytest.mark.parametrize("size", [(1, 5000), (5000, 1), (3, 4001), (4001, 3), (1, 1), (64, 64), (65, 64), (7, 300)])
@pytest.mark.parametrize("most", [1, 2, 200, 1024, 4096])
def test_a_picture_of_any_shape_gets_at_most_max_pixels(size: tuple[int, int], most: int) -> None:
    width, height = fitting(*size, most)
    assert 1 <= width <= size[0] and 1 <= height <= size[1] and width * height <= most
    if size[0] * size[1] <= most:
        assert (width, height) == size
    if size == (65, 64) and most > 200:  # the ratio of the sides is kept up to whole pixels
        assert abs(width / height - 65 / 64) < 0.05 and width * height > 0.9 * min(most, 65 * 64)
