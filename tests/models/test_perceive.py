"""Pictures and sounds of odd kinds are read as people see and hear them, or refused with a sentence."""

from __future__ import annotations

import io
import wave

import numpy as np
import pytest

from interplay.errors import ModelError
from interplay.models.perceive import perceive, picture, spectrogram
from interplay.types import Media

Image = pytest.importorskip("PIL.Image")


def file_of(image: object) -> bytes:
    out = io.BytesIO()
    image.save(out, "PNG")  # type: ignore[attr-defined]
    return out.getvalue()


def test_sixteen_bit_greys_keep_their_shades() -> None:
    grey = Image.fromarray(np.array([[0, 32768, 65535]], np.uint16))
    assert np.asarray(picture(file_of(grey)))[0, :, 0].tolist() == [0, 128, 255]


def test_transparent_pixels_are_white() -> None:
    hidden = Image.fromarray(np.array([[[255, 0, 0, 0], [255, 0, 0, 255]]], np.uint8))
    assert np.asarray(picture(file_of(hidden))).tolist() == [[[255, 255, 255], [255, 0, 0]]]


def test_a_picture_of_absurd_size_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    with pytest.raises(ModelError, match="a picture cannot be read"):
        picture(file_of(Image.new("RGB", (30, 30))))


def test_a_shape_that_the_processor_refuses_is_a_sentence() -> None:
    def processor(**_: object) -> None:
        raise ValueError("absolute aspect ratio must be smaller than 200")

    with pytest.raises(ModelError, match=r"refuses a picture of 300 × 1 pixels \(absolute aspect ratio"):
        perceive(processor, "<image>", Media("image", file_of(Image.new("RGB", (300, 1)))))


@pytest.mark.parametrize("frames", [0, 1, 8000])
def test_silence_is_dark(frames: int) -> None:
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(bytes(2 * frames))
    assert not spectrogram(out.getvalue(), 8).any()
