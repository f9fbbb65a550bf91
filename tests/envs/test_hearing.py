"""Orders that are given as sounds."""

from __future__ import annotations

import io
import wave
from collections import Counter
from typing import Any

import numpy as np
import pytest

from interplay import envs
from interplay.envs.check import check
from interplay.envs.env import outcome_of, sample_task
from interplay.envs.games import speaker
from interplay.envs.games.hearing import Hearing
from interplay.envs.games.speaker import Speaker
from interplay.envs.games.voice import Voice
from interplay.errors import ConfigError
from interplay.models.perceive import spectrogram
from interplay.types import Media


def made(index: int = 0, split: str = "train", **options: Any) -> Hearing:
    env = envs.make(sample_task("hearing", options, split, index))
    assert isinstance(env, Hearing)
    return env


def sound_of(env: Hearing) -> bytes:
    (media,) = env.observe()["listener"].messages[0].media
    assert media.kind == "audio"
    return media.data


def test_the_order_alone_is_rewarded() -> None:
    for reply, followed, heard in (("right", 1.0, 1.0), ("half", 0.0, 0.5), ("nonsense", 0.0, 0.0)):
        env = made(length=2)
        first, second = env.order
        other = next(m for m in "UDLR" if m != second)
        rewards = env.step({"listener": {"right": f"{first}, {second}", "half": f"{first} {other}"}.get(reply, "hm")})
        found = {r.name: r.value for r in outcome_of(env)}
        assert found == {"followed": followed, "heard": heard} and env.observe() == {}
        assert [r.name for r in rewards] == (["illegal"] if reply == "nonsense" else [])


def test_every_order_is_as_likely_as_the_others_and_is_its_own_caption() -> None:
    orders = Counter(made(i).order for i in range(400))
    assert len(orders) == 4 and min(orders.values()) > 60  # 100 expected, standard deviation 8.7
    env = made(length=3)
    assert env.caption("listener") == ", ".join(env.order) in env.observe()["listener"].legal


def test_voices_of_one_split_are_not_heard_in_another() -> None:
    splits = ("train", "validation", "test")
    pitches = {s: {v.pitch for i in range(80) if isinstance(v := made(i, s).voice, Voice)} for s in splits}
    assert all(len(found) == 10 for found in pitches.values())
    assert not pitches["train"] & pitches["test"] and not pitches["train"] & pitches["validation"]


def test_a_sound_is_a_wav_file_whose_pitch_moves_as_the_order_says() -> None:
    seen = set()
    for index in range(60):
        env = made(index, noise=0.0)
        with wave.open(io.BytesIO(sound_of(env))) as file:
            assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (8000, 1, 2)
        loudest = spectrogram(Media("audio", sound_of(env)), 32)[:, :, 0].argmax(0)  # 0 is the highest pitch
        start, middle, end = (int(np.median(loudest[at])) for at in (slice(7, 10), slice(14, 18), slice(22, 25)))
        expected = {"U": start > middle > end, "D": start < middle < end, "L": start < middle > end}
        assert expected.get(env.order[0], start > middle < end), (env.order, start, middle, end)
        seen.add(env.order)
    assert len(seen) == 4


def test_hearing_passes_the_conformance_suite() -> None:
    assert [f for f in check("hearing", {"length": 2}) if not f.passed] == []


def test_spoken_orders_pass_the_conformance_suite() -> None:
    pytest.importorskip("espeakng_loader")
    assert [f for f in check("hearing", {"speech": "words"}, episodes=4) if not f.passed] == []


def test_spoken_orders_of_the_test_have_voices_and_speeds_that_training_never_heard() -> None:
    pytest.importorskip("espeakng_loader")
    heard = {}
    for split in ("train", "validation", "test"):
        voices = [made(i, split, speech="words").voice for i in range(200)]
        assert all(isinstance(v, Speaker) for v in voices)
        heard[split] = {v.voice for v in voices}, {v.speed for v in voices}  # type: ignore[union-attr]
    for a, b in (("train", "test"), ("train", "validation"), ("validation", "test")):
        assert not heard[a][0] & heard[b][0] and not heard[a][1] & heard[b][1]
    assert len(heard["test"][0]) == 12 and len(heard["test"][1]) == 5


def test_what_a_voice_says_does_not_depend_on_what_was_said_before() -> None:
    """A recording of eSpeak depends on earlier ones: two new processes say all words in the same order."""
    pytest.importorskip("espeakng_loader")
    env = made(3, "validation", speech="words", length=2)
    first = sound_of(env)
    assert isinstance(env.voice, Speaker) and len(speaker.recordings("validation")) == 8 * 3 * 4
    speaker.recordings.cache_clear()
    for other in range(3):
        sound_of(made(other, "validation", speech="words"))
    assert sound_of(made(3, "validation", speech="words", length=2)) == first
    with wave.open(io.BytesIO(first)) as file:
        assert file.getframerate() == 8000 and file.getnframes() > 0.4 * 8000


def test_the_four_words_sound_different_and_noise_has_the_strength_that_was_asked_for() -> None:
    pytest.importorskip("espeakng_loader")
    quiet, loud = (Speaker("validation", "m2", 160, noise, 1) for noise in (0.0, 0.5))
    assert len({quiet.say([move]) for move in "UDLR"}) == 4

    def samples(wav: bytes) -> np.ndarray:
        with wave.open(io.BytesIO(wav)) as file:
            return np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(float)

    clean, noisy = samples(quiet.say(["U"])), samples(loud.say(["U"]))
    scale = float(clean @ noisy / (clean @ clean))
    rest = noisy - scale * clean
    voice = clean[400:-400] * scale  # without the pauses
    assert (rest**2).mean() / (voice**2).mean() == pytest.approx(0.5**2 / 0.5, rel=0.15)


def test_a_missing_espeak_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speaker, "find_spec", lambda name: None)
    speaker.recordings.cache_clear()
    with pytest.raises(ConfigError, match=r"needs eSpeak NG: pip install 'interplay\[speech\]'"):
        sound_of(made(speech="words"))


def test_tiny_av_takes_pictures_and_sounds(private_cache: None) -> None:
    pytest.importorskip("PIL")
    import torch

    from interplay.agents.render import Renderer
    from interplay.models.load import load

    model = load("tiny-av", "cpu", torch.float32, 0)
    assert model.senses is not None and model.senses.kinds == {"image", "audio"}
    board = envs.make(sample_task("plan_path", {"view": "image", "size": 4, "brief": True, "team": "single"}))
    (seen,), (heard,) = board.observe()["actor"].messages, made().observe()["listener"].messages
    prompt = Renderer(model.tokenizer, model.stop_ids, model.senses).prompt((seen, heard))
    assert [m.length for m in prompt.media] == [16, 16]
    features = model.senses.features(prompt.media)
    assert len(features) == 2 and all(f.shape == (16, 64) for f in features.values())
